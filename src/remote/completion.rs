//! The stream of one reply: its events, within limits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::event::{self, CompletionEvent, EventData, MAX_TOKEN_BYTES};
use super::fault::{self, CallError, RemoteFault};
use super::http::{CallLimits, RemoteExchange};
use super::pool::{self, ServerLease};
use super::sglang;
use super::sse::SseParser;
use crate::api::TokenProtocol;
use crate::error::Error;
use crate::net::one_line;
use crate::net::secret::Redactor;

/// How long to wait for the token counts, which follow the last text.
const COUNTS_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of characters of a content type that a message quotes.
const MAX_KIND: usize = 64;
/// The maximum number of bytes of an error response to read.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// How many more log probabilities may arrive than tokens were requested, such as those of the token
/// that ends the reply.
const MAX_EXTRA_TOKENS: usize = 64;

/// What a server was asked for.
pub(super) struct RequestedReply {
    /// The program whose events the stream has.
    pub(super) protocol: TokenProtocol,
    /// The maximum number of tokens.
    pub(super) max_tokens: usize,
    /// The number of alternatives per token, if log probabilities were requested.
    pub(super) n_top: usize,
}

/// A stream whose first event has arrived.
pub struct CompletionStream {
    exchange: RemoteExchange,
    lease: ServerLease,
    parser: SseParser,
    redactor: Redactor,
    protocol: TokenProtocol,
    n_top: usize,
    /// The tokens received, if an event has all tokens so far.
    received: usize,
    events: VecDeque<EventData>,
    /// A fault found after the events in the queue.
    fault: Option<StreamFault>,
    /// The bytes of text that may still arrive. Each event counts as one more byte.
    bytes_remaining: usize,
    /// The tokens whose log probabilities may still arrive.
    logprobs_remaining: usize,
    /// How long the server may send nothing, and how long it has sent nothing. Comments and events
    /// without text count as nothing.
    read_timeout: Duration,
    silent: Duration,
    ended: Option<Instant>,
}

/// The next part of a reply.
#[derive(Debug)]
pub enum StreamItem {
    /// An event.
    Event(CompletionEvent),
    /// The end of the reply. It follows an event with the end reason.
    End,
}

/// Why the next event did not arrive.
enum StreamFault {
    /// The call was cancelled or passed its deadline.
    Over,
    /// The connection broke.
    Broken(String),
    /// The stream is invalid.
    Invalid(Error),
}

impl CompletionStream {
    /// Waits for the head of the response and the first event.
    pub(super) fn begin(
        exchange: RemoteExchange,
        lease: ServerLease,
        redactor: Redactor,
        RequestedReply { protocol, max_tokens, n_top }: RequestedReply,
        limits: &CallLimits,
    ) -> Result<CompletionStream, RemoteFault> {
        let read_timeout = exchange.read_timeout();
        let over = || RemoteFault::Stop(CallError::Over);
        let head = exchange.head(limits).ok_or_else(over)?;
        let head = head.map_err(|problem| fault::broken(&lease.server, problem))?;
        if head.status != 200 {
            let body = exchange.body(MAX_ERROR_BYTES, limits).ok_or_else(over)?.unwrap_or_default();
            return Err(fault::refused(&lease.server, &head, &body));
        }
        if head.is_compressed {
            return Err(fault::failed(&lease.server, fault::COMPRESSED).into());
        }
        let kind =
            head.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if kind != "text/event-stream" {
            let problem = format!(
                "sent {:?} instead of a stream of events; check that base_url is a completions server",
                one_line(&kind, MAX_KIND)
            );
            return Err(RemoteFault::NoRoute(fault::failed(&lease.server, problem)));
        }

        let mut completion = CompletionStream {
            exchange,
            lease,
            parser: SseParser::default(),
            redactor,
            protocol,
            n_top,
            received: 0,
            events: VecDeque::new(),
            fault: None,
            bytes_remaining: max_tokens.saturating_mul(MAX_TOKEN_BYTES),
            logprobs_remaining: max_tokens.saturating_add(MAX_EXTRA_TOKENS),
            read_timeout,
            silent: Duration::ZERO,
            ended: None,
        };
        match completion.fill(limits) {
            Ok(()) => {}
            Err(StreamFault::Over) => return Err(over()),
            Err(StreamFault::Broken(problem)) => {
                return Err(fault::broken(&completion.lease.server, problem));
            }
            Err(StreamFault::Invalid(error)) => return Err(error.into()),
        }
        // A busy server may accept the request and report that it is busy in the first event.
        if let Some(EventData::Error(error)) = completion.events.front() {
            let error = fault::in_stream(&completion.lease.server, error);
            return Err(fault::before_text(error));
        }
        pool::rest(&completion.lease.server, Duration::ZERO);
        Ok(completion)
    }

    /// Returns the next event. A fault is an error, because no other server can continue a reply
    /// that has begun. `generated` is the text so far, for the error's details.
    pub fn next(&mut self, limits: &CallLimits, generated: &str) -> Result<StreamItem, CallError> {
        self.next_item(limits).map_err(|error| match error {
            CallError::Failed(error) => {
                CallError::Failed(self.redactor.error(error.with("generated", generated)))
            }
            CallError::Over => CallError::Over,
        })
    }

    fn next_item(&mut self, limits: &CallLimits) -> Result<StreamItem, CallError> {
        let counts_deadline = self.ended.map(|ended| ended + COUNTS_TIMEOUT);
        let deadline = [limits.deadline, counts_deadline].into_iter().flatten().min();
        match self.fill(&CallLimits { deadline, ..limits.clone() }) {
            Ok(()) => {}
            Err(_) if self.ended.is_some() => return Ok(StreamItem::End),
            Err(StreamFault::Over) => return Err(CallError::Over),
            Err(StreamFault::Broken(problem)) => {
                pool::rest(&self.lease.server, pool::REST);
                return Err(self.failed(format_args!("the reply broke off: {problem}")).into());
            }
            Err(StreamFault::Invalid(error)) => return Err(error.into()),
        }
        match self.events.pop_front() {
            None | Some(EventData::Done) => match self.ended {
                Some(_) => Ok(StreamItem::End),
                None => {
                    let problem = "the reply broke off: it ended without a `finish_reason`";
                    Err(self.failed(problem).into())
                }
            },
            Some(EventData::Error(error)) => {
                Err(fault::in_stream(&self.lease.server, &error).into())
            }
            Some(EventData::Ended(reason)) => {
                Err(self.failed(format_args!("ended the reply: {reason}")).into())
            }
            Some(EventData::Event(event)) => {
                if event.ended.is_some() {
                    self.ended.get_or_insert_with(Instant::now);
                }
                if !event.text.is_empty() || event.tokens.as_ref().is_some_and(|it| !it.is_empty())
                {
                    self.silent = Duration::ZERO;
                }
                let bytes = self.bytes_remaining.checked_sub(event.text.len() + 1);
                self.bytes_remaining = bytes.ok_or_else(|| {
                    self.failed("sent more text than the requested number of tokens can spell, or more events")
                })?;
                let logprobs = event.logprobs.len() + event.id_logprobs.len();
                let logprobs = self.logprobs_remaining.checked_sub(logprobs);
                self.logprobs_remaining = logprobs.ok_or_else(|| {
                    self.failed("sent log probabilities of more tokens than were requested")
                })?;
                Ok(StreamItem::Event(event))
            }
        }
    }

    /// Reads until an event is available. A fault is reported only after the events before it.
    fn fill(&mut self, limits: &CallLimits) -> Result<(), StreamFault> {
        if !self.events.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        let until = began.checked_add(self.read_timeout.saturating_sub(self.silent));
        let filled = self.fill_until(limits, until);
        self.silent = self.silent.saturating_add(began.elapsed());
        filled
    }

    fn fill_until(
        &mut self,
        limits: &CallLimits,
        until: Option<Instant>,
    ) -> Result<(), StreamFault> {
        while self.events.is_empty() {
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            match self.exchange.bytes(limits, until).ok_or(StreamFault::Over)? {
                Ok(Some(bytes)) => self.fault = self.parse(&bytes).err(),
                Ok(None) => return Err(StreamFault::Broken("the connection was closed".into())),
                Err(problem) => return Err(StreamFault::Broken(problem)),
            }
        }
        Ok(())
    }

    fn parse(&mut self, bytes: &[u8]) -> Result<(), StreamFault> {
        let mut data = Vec::new();
        let pushed = self.parser.push(bytes, &mut data);
        for data in data {
            let (n_top, received) = (self.n_top, &mut self.received);
            let event = event::parse(&data, |json| match self.protocol {
                TokenProtocol::Sglang => sglang::event(json, n_top, received),
                TokenProtocol::Vllm => event::completion(json, n_top),
            });
            self.events.push_back(event.map_err(|it| StreamFault::Invalid(self.failed(it)))?);
        }
        pushed.map_err(|_| StreamFault::Invalid(self.failed("sent an event that does not end")))
    }

    fn failed(&self, problem: impl std::fmt::Display) -> Error {
        fault::failed(&self.lease.server, problem)
    }
}
