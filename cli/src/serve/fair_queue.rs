//! Places that requests share, and the queue for them. The client that has had places for the least
//! time is next, and the kinds of one client's requests get turns. One client cannot take all places
//! while others come, and further places are for clients that have none. One client cannot fill the
//! queue: the client that waits with the most requests loses its newest one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::client::Client;

/// How long a client counts as one of several after it last had a place.
const RECENT: Duration = Duration::from_secs(30);
/// The time after which the time that a client had places counts half.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Clients whose times differ by less get turns, in seconds.
const UNIT: f64 = 0.1;

/// What the places of a queue are divided by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    pub(super) places: usize,
    /// Places beside these for clients that have none, so that they do not wait for long requests.
    pub(super) spare: usize,
    /// A client gets the share of its number among those that wait, run, or had a place just now.
    /// It is one of at least this many, whoever else comes.
    pub(super) min_clients: usize,
    /// The requests of one kind get this part of the client's share, as a divisor.
    pub(super) kinds: usize,
    /// How many requests may wait.
    pub(super) max_waiting: usize,
}

/// Whose request it is, and what kind of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    pub(super) client: Client,
    /// A route, or a size.
    pub(super) kind: &'static str,
}

/// The queue was full, and this request was one of those that the client had too many of.
#[derive(Debug)]
pub(super) struct QueueFull;

pub(super) struct FairQueue {
    shares: Shares,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In order of arrival.
    waiting: Vec<WaitingRequest>,
    running: Vec<(Group, Instant)>,
    /// The groups that had a place just now, the last one at the end.
    served: Vec<Served>,
    tickets: u64,
}

/// What a group has had.
struct Served {
    group: Group,
    /// When it last got or left a place.
    time: Instant,
    /// For how many seconds it had places until then, older ones counted less.
    seconds: f64,
}

impl Served {
    /// The seconds as they count now.
    fn seconds(&self) -> f64 {
        let halves = self.time.elapsed().as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.seconds * 0.5_f64.powf(halves)
    }
}

struct WaitingRequest {
    ticket: u64,
    group: Group,
    /// Whether it can use a place. It may still wait for something else.
    is_ready: bool,
    sender: oneshot::Sender<Place>,
}

impl FairQueue {
    pub(super) fn new(shares: Shares) -> Arc<FairQueue> {
        Arc::new(FairQueue { shares, state: Mutex::default() })
    }

    /// Adds a request to the queue.
    pub(super) fn join(self: &Arc<Self>, group: Group) -> Result<Waiter, QueueFull> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        state.tickets += 1;
        let ticket = state.tickets;
        state.waiting.push(WaitingRequest { ticket, group, is_ready: false, sender });
        // Those before this one either have a place or wait too.
        let free = self.shares.places.saturating_sub(state.running.len());
        if state.waiting.len() > self.shares.max_waiting.saturating_add(free) {
            let newest = state.surplus();
            // Dropping its sender tells it.
            let dropped = state.waiting.remove(newest);
            if dropped.ticket == ticket {
                return Err(QueueFull);
            }
        }
        drop(state);
        Ok(Waiter { queue: Arc::clone(self), ticket, receiver })
    }

    /// The number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// The number of requests that have a place.
    pub(super) fn running(&self) -> usize {
        self.state().running.len()
    }

    /// Gives free places to those whose turn it is.
    fn dispatch(self: &Arc<Self>) {
        let mut given = Vec::new();
        let mut state = self.state();
        while let Some(index) = state.next(self.shares) {
            let WaitingRequest { group, sender, .. } = state.waiting.remove(index);
            let begin = Instant::now();
            state.running.push((group, begin));
            state.serve(group, 0.0);
            given.push((sender, Place { queue: Arc::clone(self), group, begin }));
        }
        drop(state);
        // A place that is not taken comes back, which needs the lock.
        given.into_iter().for_each(|(sender, place)| drop(sender.send(place)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The waiting request that gets the next place.
    fn next(&mut self, shares: Shares) -> Option<usize> {
        if self.running.len() >= shares.places + shares.spare {
            return None;
        }
        let is_full = self.running.len() >= shares.places;
        self.served.retain(|served| served.time.elapsed() < RECENT);
        let of_client = (shares.places / self.clients().max(shares.min_clients)).max(1);
        let of_kind = of_client.div_ceil(shares.kinds);
        let turn = |(index, request): (usize, &WaitingRequest)| {
            let group = request.group;
            let (client, kind) = (
                self.turn(|other| other.client == group.client),
                self.turn(|other| *other == group),
            );
            let most = if is_full { 1 } else { of_client };
            let may_run = request.is_ready && client.runs < most && kind.runs < of_kind;
            may_run.then_some((client, kind, index))
        };
        let turns = self.waiting.iter().enumerate().filter_map(turn);
        turns.min().map(|(.., index)| index)
    }

    /// What decides when requests get their turn.
    fn turn(&self, is_of: impl Fn(&Group) -> bool) -> Turn {
        let running = self.running.iter().filter(|(group, _)| is_of(group));
        let served = self.served.iter().filter(|served| is_of(&served.group));
        let seconds = running.clone().map(|(_, begin)| begin.elapsed().as_secs_f64()).sum::<f64>()
            + served.map(Served::seconds).sum::<f64>();
        Turn {
            time: (seconds / UNIT) as u64,
            runs: running.count(),
            last: self.served.iter().rposition(|served| is_of(&served.group)),
        }
    }

    /// The number of clients that wait, run, or had a place just now.
    fn clients(&self) -> usize {
        let waiting = self.waiting.iter().map(|request| request.group);
        let running = self.running.iter().map(|(group, _)| *group);
        let served = self.served.iter().map(|served| served.group);
        let mut clients: Vec<Client> = Vec::new();
        for group in waiting.chain(running).chain(served) {
            if !clients.contains(&group.client) {
                clients.push(group.client);
            }
        }
        clients.len()
    }

    /// Records that a group got a place, or left one that it had for some seconds.
    fn serve(&mut self, group: Group, seconds: f64) {
        let before = self.served.iter().position(|served| served.group == group);
        let before = before.map_or(0.0, |index| self.served.remove(index).seconds());
        self.served.push(Served { group, time: Instant::now(), seconds: before + seconds });
    }

    /// The newest request of the client that waits with the most, and of its most frequent kind.
    fn surplus(&self) -> usize {
        let count = |is: &dyn Fn(&Group) -> bool| {
            self.waiting.iter().filter(|request| is(&request.group)).count()
        };
        let surplus = |(index, request): &(usize, &WaitingRequest)| {
            let of_client = count(&|other| other.client == request.group.client);
            (of_client, count(&|other| *other == request.group), *index)
        };
        let newest = self.waiting.iter().enumerate().max_by_key(surplus);
        newest.map_or(0, |(index, _)| index)
    }
}

/// When a client, or a kind of its requests, gets its turn. The least one is next.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// The time that it had places, in units.
    time: u64,
    /// How many of its requests run.
    runs: usize,
    /// Its index among those that had a turn.
    last: Option<usize>,
}

/// A request in the queue, until it has a place or leaves.
pub(super) struct Waiter {
    queue: Arc<FairQueue>,
    ticket: u64,
    receiver: oneshot::Receiver<Place>,
}

impl Waiter {
    /// Waits for a place. Fails if the request was dropped from a full queue.
    pub(super) async fn place(mut self) -> Result<Place, QueueFull> {
        let mine = |request: &&mut WaitingRequest| request.ticket == self.ticket;
        if let Some(request) = self.queue.state().waiting.iter_mut().find(mine) {
            request.is_ready = true;
        }
        self.queue.dispatch();
        (&mut self.receiver).await.map_err(|_| QueueFull)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.queue.state().waiting.retain(|request| request.ticket != self.ticket);
    }
}

/// The right to run, until it is dropped.
pub(crate) struct Place {
    queue: Arc<FairQueue>,
    group: Group,
    begin: Instant,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        let mine = (self.group, self.begin);
        if let Some(index) = state.running.iter().position(|running| *running == mine) {
            state.running.swap_remove(index);
        }
        state.serve(self.group, self.begin.elapsed().as_secs_f64());
        drop(state);
        self.queue.dispatch();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Result<Place, QueueFull>>>>;

    const SHARES: Shares = Shares { places: 4, spare: 0, min_clients: 1, kinds: 1, max_waiting: 8 };

    fn group(client: u8, kind: &'static str) -> Group {
        Group { client: Client::new([10, 0, 0, client].into()), kind }
    }

    /// Adds a request, which then waits.
    fn wait(queue: &Arc<FairQueue>, client: u8, kind: &'static str) -> Waiting {
        let waiter = queue.join(group(client, kind)).expect("the queue has room");
        let mut waiting: Waiting = Box::pin(waiter.place());
        // A place arrives when it is asked for again.
        if let Some(place) = poll(&mut waiting) {
            return Box::pin(std::future::ready(place));
        }
        waiting
    }

    fn poll(waiting: &mut Waiting) -> Option<Result<Place, QueueFull>> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        }
    }

    /// The place of the first request that has one, with its index; it is taken from the list.
    fn served(waiting: &mut Vec<Waiting>) -> Option<(usize, Place)> {
        for index in 0..waiting.len() {
            if let Some(place) = poll(&mut waiting[index]) {
                drop(waiting.remove(index));
                return place.ok().map(|place| (index, place));
            }
        }
        None
    }

    /// The clients of the places that are given while each ends before the next one begins.
    fn order(queue: &Arc<FairQueue>, waiting: &mut Vec<Waiting>, holder: Place) -> Vec<Client> {
        let mut order = Vec::new();
        drop(holder);
        while let Some((_, place)) = served(waiting) {
            order.push(place.group.client);
            drop(place);
        }
        assert_eq!((queue.running(), queue.waiting()), (0, 0));
        order
    }

    #[test]
    fn clients_get_turns() {
        let queue = FairQueue::new(Shares { places: 1, ..SHARES });
        let holder = poll(&mut wait(&queue, 9, "a")).expect("a free place").expect("a place");
        let clients = [1, 1, 1, 1, 2, 2, 3];
        let mut waiting: Vec<_> = clients.map(|client| wait(&queue, client, "a")).into();
        let expected = [1, 2, 3, 1, 2, 1, 1].map(|client| group(client, "a").client);
        assert_eq!(order(&queue, &mut waiting, holder), expected);
    }

    #[test]
    fn the_client_that_has_had_less_time_is_next() {
        let queue = FairQueue::new(Shares { places: 1, ..SHARES });
        let place = |client: u8| {
            let place = poll(&mut wait(&queue, client, "a")).expect("a free place");
            place.expect("a place")
        };
        let mut long = place(1);
        long.begin -= Duration::from_secs(2);
        queue.state().running[0].1 = long.begin;
        drop(long);
        drop(place(2));
        let holder = place(9);
        let mut waiting: Vec<_> = [1, 2, 2, 1].map(|client| wait(&queue, client, "a")).into();
        let expected = [2, 2, 1, 1].map(|client| group(client, "a").client);
        assert_eq!(order(&queue, &mut waiting, holder), expected);
    }

    #[test]
    fn a_client_alone_uses_all_places_and_shares_them_with_others() {
        let queue = FairQueue::new(SHARES);
        let mut first: Vec<_> = (0..8).map(|_| wait(&queue, 1, "a")).collect();
        let places: Vec<_> = std::iter::from_fn(|| served(&mut first)).collect();
        assert_eq!((places.len(), queue.waiting()), (4, 4));
        let mut others: Vec<_> = (0..2).map(|_| wait(&queue, 2, "a")).collect();
        drop(places);
        let of_first: Vec<_> = std::iter::from_fn(|| served(&mut first)).collect();
        let of_others: Vec<_> = std::iter::from_fn(|| served(&mut others)).collect();
        assert_eq!((of_first.len(), of_others.len()), (2, 2));
    }

    #[test]
    fn one_client_leaves_places_for_others_and_one_kind_for_other_kinds() {
        let queue = FairQueue::new(Shares { min_clients: 2, kinds: 2, ..SHARES });
        let mut slow: Vec<_> = (0..4).map(|_| wait(&queue, 1, "slow")).collect();
        let slow: Vec<_> = std::iter::from_fn(|| served(&mut slow)).collect();
        assert_eq!(slow.len(), 1);
        assert!(poll(&mut wait(&queue, 1, "other")).is_some());
        assert!(poll(&mut wait(&queue, 2, "slow")).is_some());
    }

    #[test]
    fn a_client_without_a_place_gets_a_spare_one() {
        let queue = FairQueue::new(Shares { places: 2, spare: 2, ..SHARES });
        let mut first: Vec<_> = (0..6).map(|_| wait(&queue, 1, "a")).collect();
        let _places: Vec<_> = std::iter::from_fn(|| served(&mut first)).collect();
        assert_eq!((queue.running(), queue.waiting()), (2, 4));
        let mut second: Vec<_> = (0..3).map(|_| wait(&queue, 2, "a")).collect();
        let place = served(&mut second).expect("a spare place");
        assert!(served(&mut second).is_none(), "one is enough");
        let _third = poll(&mut wait(&queue, 3, "a")).expect("a spare place");
        let mut fourth = wait(&queue, 4, "a");
        assert!(poll(&mut fourth).is_none(), "all places are taken");
        drop(place);
        assert!(poll(&mut fourth).is_some(), "it has had less time");
        assert_eq!(queue.running(), 4);
    }

    #[test]
    fn a_full_queue_drops_the_newest_request_of_the_client_with_the_most() {
        let queue = FairQueue::new(Shares { places: 1, max_waiting: 4, ..SHARES });
        let holder = poll(&mut wait(&queue, 1, "a")).expect("a free place").expect("a place");
        let mut waiting: Vec<_> = (0..4).map(|_| wait(&queue, 1, "a")).collect();
        assert!(queue.join(group(1, "a")).is_err());
        let mut other = wait(&queue, 2, "a");
        assert!(matches!(poll(&mut waiting[3]), Some(Err(QueueFull))));
        assert_eq!(queue.waiting(), 4);
        drop(holder);
        assert!(matches!(poll(&mut other), Some(Ok(_))), "the other client is next");
    }

    #[test]
    fn those_that_leave_are_forgotten() {
        let queue = FairQueue::new(Shares { places: 1, ..SHARES });
        let holder = poll(&mut wait(&queue, 1, "a")).expect("a free place").expect("a place");
        let first = wait(&queue, 1, "a");
        let not_ready = queue.join(group(1, "a")).expect("the queue has room");
        let mut last = wait(&queue, 1, "a");
        assert_eq!(queue.waiting(), 3);
        drop(first);
        drop(holder);
        assert!(poll(&mut last).is_some(), "one that is not ready delays no other");
        drop(not_ready);
        assert_eq!((queue.running(), queue.waiting()), (0, 0));
        // A place that was given, but not taken.
        let holder = poll(&mut wait(&queue, 1, "a")).expect("a free place").expect("a place");
        let given = wait(&queue, 1, "a");
        drop(holder);
        assert_eq!(queue.running(), 1);
        drop(given);
        assert_eq!((queue.running(), queue.waiting()), (0, 0));
    }
}
