//! A reply under way: the events of one stream, in bounds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::event::{self, Data, Event};
use super::fault::{self, Fault, Stopped};
use super::http::{Exchange, Key, Step, Until};
use super::pool::{self, Lease};
use super::sse::Parser;
use crate::error::{Code, Error};

/// More text than a token spells, for every token that was asked for: a server that sends more has
/// gone wrong.
const BYTES_OF_A_TOKEN: usize = 1024;
/// How long the counts, which come after the last text, are waited for.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of an answer that says what is wrong.
const MOST_OF_AN_ERROR: usize = 64 * 1024;

/// A stream whose first event is there.
pub struct Completion {
    exchange: Exchange,
    lease: Lease,
    parser: Parser,
    key: Option<Key>,
    n_top: usize,
    events: VecDeque<Data>,
    /// What was found behind the events that wait.
    trouble: Option<Trouble>,
    /// Bytes of text that may still come.
    left: usize,
    ended: Option<Instant>,
}

/// What comes next of a reply.
#[derive(Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// Nothing more, after an event that said why.
    End,
}

/// What keeps the next event from coming.
enum Trouble {
    Over,
    Broken(String),
    Said(Error),
}

impl Completion {
    /// Waits for the head of the answer and the first event.
    pub(super) fn begin(
        exchange: Exchange,
        lease: Lease,
        key: Option<Key>,
        (max_tokens, n_top): (usize, usize),
        until: &Until,
    ) -> Result<Completion, Fault> {
        let over = || Fault::Stop(Stopped::Over);
        let head = match exchange.next(until).ok_or_else(over)? {
            Step::Head(head) => head,
            Step::Failed(problem) => return Err(fault::broken(&lease.server, problem)),
            Step::Bytes(_) | Step::End => {
                return Err(fault::broken(&lease.server, "answers nothing"));
            }
        };
        if head.status != 200 {
            let body = exchange.body(MOST_OF_AN_ERROR, until).ok_or_else(over)?.unwrap_or_default();
            return Err(fault::refused(&lease.server, &head, &body, key.as_ref()));
        }
        let kind =
            head.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if kind != "text/event-stream" {
            let kind: String = kind.chars().take(64).collect();
            let problem = format!(
                "answers with {kind:?} instead of a stream of events; is base_url a completions server?"
            );
            return Err(fault::failed(&lease.server, problem).into());
        }
        let left = max_tokens.saturating_mul(BYTES_OF_A_TOKEN);
        let mut completion = Completion {
            exchange,
            lease,
            parser: Parser::default(),
            key,
            n_top,
            events: VecDeque::new(),
            trouble: None,
            left,
            ended: None,
        };
        match completion.fill(until) {
            Ok(()) => {}
            Err(Trouble::Over) => return Err(over()),
            Err(Trouble::Broken(problem)) => {
                return Err(fault::broken(&completion.lease.server, problem));
            }
            Err(Trouble::Said(error)) => return Err(error.into()),
        }
        // A server may also be too busy in the middle of a stream that has not begun.
        if let Some(Data::Error(error)) = completion.events.front() {
            let error = fault::in_stream(&completion.lease.server, error, completion.key.as_ref());
            return Err(match error.code() {
                Code::ContextOverflow => error.into(),
                _ => Fault::Next { error, after: None },
            });
        }
        pool::rest(&completion.lease.server, Duration::ZERO);
        Ok(completion)
    }

    /// The next event. What breaks a reply that has begun is an error: no other server can go on
    /// with it.
    pub fn next(&mut self, until: &Until) -> Result<Next, Stopped> {
        let grace = self.ended.map(|ended| ended + GRACE);
        let deadline = [until.deadline, grace].into_iter().flatten().min();
        match self.fill(&Until { deadline, ..until.clone() }) {
            Ok(()) => {}
            Err(_) if self.ended.is_some() => return Ok(Next::End),
            Err(Trouble::Over) => return Err(Stopped::Over),
            Err(Trouble::Broken(problem)) => {
                pool::rest(&self.lease.server, pool::REST);
                return Err(fault::failed(
                    &self.lease.server,
                    format_args!("the reply broke off: {problem}"),
                )
                .into());
            }
            Err(Trouble::Said(error)) => return Err(error.into()),
        }
        match self.events.pop_front() {
            None | Some(Data::Done) => match self.ended {
                Some(_) => Ok(Next::End),
                None => Err(fault::failed(
                    &self.lease.server,
                    "the reply broke off: it has no `finish_reason`",
                )
                .into()),
            },
            Some(Data::Error(error)) => {
                Err(fault::in_stream(&self.lease.server, &error, self.key.as_ref()).into())
            }
            Some(Data::Event(event)) => {
                if event.ended.is_some() {
                    self.ended.get_or_insert_with(Instant::now);
                }
                self.left = self.left.checked_sub(event.text.len()).ok_or_else(|| {
                    fault::failed(
                        &self.lease.server,
                        "sends more text than the tokens it was asked for can spell",
                    )
                })?;
                Ok(Next::Event(event))
            }
        }
    }

    /// Reads until there is an event; what goes wrong behind it comes after it.
    fn fill(&mut self, until: &Until) -> Result<(), Trouble> {
        while self.events.is_empty() {
            if let Some(trouble) = self.trouble.take() {
                return Err(trouble);
            }
            match self.exchange.next(until).ok_or(Trouble::Over)? {
                Step::Bytes(bytes) => self.trouble = self.take(&bytes).err(),
                Step::Failed(problem) => return Err(Trouble::Broken(problem)),
                Step::End => return Err(Trouble::Broken("the connection was closed".into())),
                Step::Head(_) => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let mut data = Vec::new();
        let pushed = self.parser.push(bytes, &mut data);
        let said = |problem: &str| Trouble::Said(fault::failed(&self.lease.server, problem));
        for data in data {
            self.events
                .push_back(event::read(&data, self.n_top).map_err(|problem| said(&problem))?);
        }
        pushed.map_err(|_| said("sends an event that does not end"))
    }
}
