//! Tests that a job ends between pieces of its media, such as the windows of a long sound.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::super::super::media::{MediaPiece, MediaSource, PlacedMedia};
use super::super::*;
use super::world::World;
use super::{N_BATCH, part};
use crate::error::Result;

/// More places than a batch has.
const PLACES: usize = N_BATCH + 10;

/// What the sources of a prompt share.
#[derive(Default)]
struct Encodes {
    /// The numbers of the pieces whose encode has begun.
    begun: Mutex<Vec<usize>>,
    /// The flag that cancels the job.
    cancel: OnceLock<Arc<AtomicBool>>,
}

struct FakeWindow {
    number: usize,
    /// Whether the job is cancelled while this piece is encoded.
    cancels: bool,
    /// Whether the encode then goes on to its end.
    finishes: bool,
    encodes: Arc<Encodes>,
}

impl MediaSource for FakeWindow {
    fn encode(&mut self, abort: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>> {
        self.encodes.begun.lock().expect("no panic").push(self.number);
        if self.cancels {
            self.encodes.cancel.get().expect("a job").store(true, Ordering::Relaxed);
        }
        let goes_on = self.finishes || !abort();
        Ok(goes_on.then(|| vec![self.number as f32; PLACES]))
    }
}

/// Runs a job with four pieces and a text, which is cancelled in the piece with this number. Returns
/// the pieces whose encode has begun, and how the job ended.
fn run(cancelled_in: Option<usize>, finishes: bool) -> (Vec<usize>, Finish) {
    let mut world = World::new(1, 4096, false);
    let encodes = Arc::<Encodes>::default();
    let mut prompt = part(1, 5);
    for number in 0..4 {
        let cancels = cancelled_in == Some(number);
        let source = FakeWindow { number, cancels, finishes, encodes: Arc::clone(&encodes) };
        let piece = Arc::new(MediaPiece::new(PLACES, true, Box::new(source)));
        world.media.push(PlacedMedia { start: prompt.len(), piece: Arc::clone(&piece) });
        prompt.extend(piece.places());
    }
    prompt.extend(part(2, 5));
    let asked = world.ask(1, &prompt, 1);
    encodes.cancel.set(Arc::clone(&asked.cancel)).expect("one job");
    world.run();
    let finish = asked.updates.try_iter().find_map(|update| match update {
        JobUpdate::Done(outcome) => Some(outcome.finish),
        JobUpdate::Failed(error) => panic!("{error:?}"),
        _ => None,
    });
    let begun = encodes.begun.lock().expect("no panic").clone();
    (begun, finish.expect("an end"))
}

#[test]
fn a_cancel_ends_a_job_between_pieces() {
    assert_eq!(run(None, true), (vec![0, 1, 2, 3], Finish::Length));
    for finishes in [false, true] {
        assert_eq!(run(Some(1), finishes), (vec![0, 1], Finish::Cancelled), "{finishes}");
        assert_eq!(run(Some(3), finishes), (vec![0, 1, 2, 3], Finish::Cancelled), "{finishes}");
    }
}
