//! A reply under way: the events of one stream, in bounds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::event::{self, CompletionEvent, EventData};
use super::fault::{self, CallError, RemoteFault};
use super::http::{ApiKey, CallLimits, RemoteExchange, RemoteStep};
use super::pool::{self, ServerLease};
use super::sse::SseParser;
use crate::error::{Code, Error};

/// More text than a token spells, for every token that was asked for: a server that sends more has
/// gone wrong.
const BYTES_OF_A_TOKEN: usize = 1024;
/// How long the counts, which come after the last text, are waited for.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of an answer that says what is wrong.
const MOST_OF_AN_ERROR: usize = 64 * 1024;

/// A stream whose first event is there.
pub struct CompletionStream {
    exchange: RemoteExchange,
    lease: ServerLease,
    parser: SseParser,
    key: Option<ApiKey>,
    n_top: usize,
    events: VecDeque<EventData>,
    /// What was found behind the events that wait.
    trouble: Option<StreamFault>,
    /// Bytes of text that may still come.
    left: usize,
    ended: Option<Instant>,
}

/// What comes next of a reply.
#[derive(Debug)]
pub enum StreamItem {
    /// An event.
    Event(CompletionEvent),
    /// Nothing more, after an event that said why.
    End,
}

/// What keeps the next event from coming.
enum StreamFault {
    Over,
    Broken(String),
    Said(Error),
}

impl CompletionStream {
    /// Waits for the head of the answer and the first event.
    pub(super) fn begin(
        exchange: RemoteExchange,
        lease: ServerLease,
        key: Option<ApiKey>,
        (max_tokens, n_top): (usize, usize),
        until: &CallLimits,
    ) -> Result<CompletionStream, RemoteFault> {
        let over = || RemoteFault::Stop(CallError::Over);
        let head = match exchange.next(until).ok_or_else(over)? {
            RemoteStep::Head(head) => head,
            RemoteStep::Failed(problem) => return Err(fault::broken(&lease.server, problem)),
            RemoteStep::Bytes(_) | RemoteStep::End => {
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
        let mut completion = CompletionStream {
            exchange,
            lease,
            parser: SseParser::default(),
            key,
            n_top,
            events: VecDeque::new(),
            trouble: None,
            left,
            ended: None,
        };
        match completion.fill(until) {
            Ok(()) => {}
            Err(StreamFault::Over) => return Err(over()),
            Err(StreamFault::Broken(problem)) => {
                return Err(fault::broken(&completion.lease.server, problem));
            }
            Err(StreamFault::Said(error)) => return Err(error.into()),
        }
        // A server may also be too busy in the middle of a stream that has not begun.
        if let Some(EventData::Error(error)) = completion.events.front() {
            let error = fault::in_stream(&completion.lease.server, error, completion.key.as_ref());
            return Err(match error.code() {
                Code::ContextOverflow => error.into(),
                _ => RemoteFault::Next { error, after: None },
            });
        }
        pool::rest(&completion.lease.server, Duration::ZERO);
        Ok(completion)
    }

    /// The next event. What breaks a reply that has begun is an error: no other server can go on
    /// with it.
    pub fn next(&mut self, until: &CallLimits) -> Result<StreamItem, CallError> {
        let grace = self.ended.map(|ended| ended + GRACE);
        let deadline = [until.deadline, grace].into_iter().flatten().min();
        match self.fill(&CallLimits { deadline, ..until.clone() }) {
            Ok(()) => {}
            Err(_) if self.ended.is_some() => return Ok(StreamItem::End),
            Err(StreamFault::Over) => return Err(CallError::Over),
            Err(StreamFault::Broken(problem)) => {
                pool::rest(&self.lease.server, pool::REST);
                return Err(fault::failed(
                    &self.lease.server,
                    format_args!("the reply broke off: {problem}"),
                )
                .into());
            }
            Err(StreamFault::Said(error)) => return Err(error.into()),
        }
        match self.events.pop_front() {
            None | Some(EventData::Done) => match self.ended {
                Some(_) => Ok(StreamItem::End),
                None => Err(fault::failed(
                    &self.lease.server,
                    "the reply broke off: it has no `finish_reason`",
                )
                .into()),
            },
            Some(EventData::Error(error)) => {
                Err(fault::in_stream(&self.lease.server, &error, self.key.as_ref()).into())
            }
            Some(EventData::Event(event)) => {
                if event.ended.is_some() {
                    self.ended.get_or_insert_with(Instant::now);
                }
                self.left = self.left.checked_sub(event.text.len()).ok_or_else(|| {
                    fault::failed(
                        &self.lease.server,
                        "sends more text than the tokens it was asked for can spell",
                    )
                })?;
                Ok(StreamItem::Event(event))
            }
        }
    }

    /// Reads until there is an event; what goes wrong behind it comes after it.
    fn fill(&mut self, until: &CallLimits) -> Result<(), StreamFault> {
        while self.events.is_empty() {
            if let Some(trouble) = self.trouble.take() {
                return Err(trouble);
            }
            match self.exchange.next(until).ok_or(StreamFault::Over)? {
                RemoteStep::Bytes(bytes) => self.trouble = self.take(&bytes).err(),
                RemoteStep::Failed(problem) => return Err(StreamFault::Broken(problem)),
                RemoteStep::End => {
                    return Err(StreamFault::Broken("the connection was closed".into()));
                }
                RemoteStep::Head(_) => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), StreamFault> {
        let mut data = Vec::new();
        let pushed = self.parser.push(bytes, &mut data);
        let said = |problem: &str| StreamFault::Said(fault::failed(&self.lease.server, problem));
        for data in data {
            self.events
                .push_back(event::read(&data, self.n_top).map_err(|problem| said(&problem))?);
        }
        pushed.map_err(|_| said("sends an event that does not end"))
    }
}
