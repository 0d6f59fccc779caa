//! A conversation that is too long for the context: which whole turns leave the prompt.
//!
//! In: the messages of a request, and how many tokens a prompt of some of them has. Out: the
//! messages to leave out, one range. Kept always: system messages at the start, and the last turn.
//! An assistant's calls and their results never part.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::api::{ChatRequest, ContextOverflow};
use crate::chat::explain::Asked;
use crate::chat::source::Source;
use crate::chat::{Chat, Rendered, native};
use crate::diagnostic::Diagnostic;
use crate::engine::Tokenised;
use crate::error::{Code, Error, Result};
use crate::llama::LoadedModel;

/// A prompt that fits, and what was left out of it.
pub(in crate::chat) struct Fitted {
    pub(in crate::chat) rendered: Rendered,
    /// None where a server makes them.
    pub(in crate::chat) tokenised: Tokenised,
    pub(in crate::chat) truncated: Option<Truncated>,
}

/// What was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::chat) struct Truncated {
    /// Messages of the request.
    pub(in crate::chat) dropped: Range<usize>,
    strategy: ContextOverflow,
    prompt_tokens: usize,
    n_ctx: usize,
}

impl Truncated {
    /// `{"strategy", "first_message", "messages", "prompt_tokens", "n_ctx"}`.
    pub(in crate::chat) fn to_json(&self) -> Value {
        json!({
            "strategy": self.strategy.as_str(),
            "first_message": self.dropped.start,
            "messages": self.dropped.len(),
            "prompt_tokens": self.prompt_tokens,
            "n_ctx": self.n_ctx,
        })
    }

    fn diagnostic(&self) -> Diagnostic {
        let (first, last) = (self.dropped.start, self.dropped.end - 1);
        let which = if first == last {
            format!("messages[{first}] is")
        } else {
            format!("messages[{first}] to [{last}] are")
        };
        let message = format!(
            "{which} left out of the prompt, which has {} tokens now: the whole conversation does not fit into the context \
             of {} ({})",
            self.prompt_tokens,
            self.n_ctx,
            self.strategy.as_str()
        );
        Diagnostic::new("context_truncated", message)
    }
}

/// The cuts of the last conversations. A conversation that goes on keeps its cut while that fits:
/// its prompt goes on where the last one ended, and the whole of it need not be rendered again to
/// see that it is too long.
#[derive(Default)]
pub(in crate::chat) struct Cuts(Mutex<VecDeque<(Range<usize>, u64)>>);

/// Conversations of one chat whose cuts are remembered.
const REMEMBERED: usize = 16;

impl Cuts {
    fn find(&self, request: &ChatRequest, boundaries: &[usize]) -> Option<usize> {
        let cuts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = boundaries.first()?;
        let places =
            cuts.iter().filter(|(cut, _)| cut.start == *first).filter_map(|(cut, known)| {
                let place = boundaries.binary_search(&cut.end).ok().filter(|place| *place > 0)?;
                (fingerprint(request, cut.end) == *known).then_some(place)
            });
        places.max()
    }

    fn remember(&self, request: &ChatRequest, cut: &Range<usize>) {
        let entry = (cut.clone(), fingerprint(request, cut.end));
        let mut cuts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.retain(|known| *known != entry);
        cuts.truncate(REMEMBERED - 1);
        cuts.push_front(entry);
    }
}

/// Of everything up to the end of a cut, and the tools.
fn fingerprint(request: &ChatRequest, end: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    for value in request.messages[..end].iter().chain(request.tools.iter()) {
        value.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

impl Chat {
    /// Renders and tokenises a request; where `context_overflow` allows it, without as many old
    /// turns as it takes.
    ///
    /// The reply should have room for `max_tokens`, or a quarter of the context where that is less.
    /// If so much cannot be had, what is left is enough as long as it is one token.
    /// `CONTEXT_OVERFLOW` where the prompt does not fit. A server looks to that itself.
    pub(in crate::chat) fn fit(&self, request: &ChatRequest) -> Result<Fitted> {
        match &self.source {
            Source::Native(native) => self.fit_into(&native.model, request),
            #[cfg(feature = "remote")]
            Source::Remote(_) => {
                let rendered = self.render(request, &request.messages)?;
                Ok(Fitted { rendered, tokenised: Tokenised::default(), truncated: None })
            }
        }
    }

    fn fit_into(&self, model: &LoadedModel, request: &ChatRequest) -> Result<Fitted> {
        let n_ctx = model.n_ctx;
        let room = n_ctx - request.max_tokens.clamp(1, (n_ctx / 4).max(1));
        let last = self.last.get();
        let mut measure = |dropped: Range<usize>| -> Result<Measured<(Rendered, Tokenised)>> {
            let mut rendered = if dropped.is_empty() {
                self.render(request, &request.messages)?
            } else {
                let kept =
                    [&request.messages[..dropped.start], &request.messages[dropped.end..]].concat();
                self.render(request, &kept)?
            };
            rendered.name_as_sent(&dropped);
            let before = last.as_deref().map(Asked::tokenised);
            let tokenised = native::tokenise(model, request, &rendered.prompt, before)?;
            Ok(Measured { size: tokenised.tokens.len(), dropped, result: (rendered, tokenised) })
        };
        let boundaries = match self.overflow {
            ContextOverflow::Error => Vec::new(),
            strategy => boundaries(&request.messages, strategy),
        };
        let known = self.cuts.find(request, &boundaries);
        let first = match measure(
            boundaries[..].first().map_or(0..0, |first| *first..boundaries[known.unwrap_or(0)]),
        ) {
            // The whole is too long to be rendered even.
            Err(error) if error.code() == Code::TemplateLimit && boundaries.len() > 1 => None,
            measured => Some(measured?),
        };
        let fits = first.as_ref().is_some_and(|first| first.size <= room);
        let Measured { size, dropped, result: (mut rendered, tokenised) } = match first {
            Some(first) if fits || boundaries.len() < 2 => first,
            first => {
                let start = (known.unwrap_or(0), first);
                search(&boundaries, &sizes(&request.messages), start, room, &mut measure)?
            }
        };
        if size >= n_ctx {
            return Err(overflow(size, n_ctx, &dropped, self.overflow));
        }
        let truncated = (!dropped.is_empty()).then(|| {
            self.cuts.remember(request, &dropped);
            Truncated { dropped, strategy: self.overflow, prompt_tokens: size, n_ctx }
        });
        rendered
            .diagnostics
            .extend(truncated.iter().map(|truncated| truncated.diagnostic().to_json()));
        Ok(Fitted { rendered, tokenised, truncated })
    }
}

fn overflow(
    tokens: usize,
    n_ctx: usize,
    dropped: &Range<usize>,
    strategy: ContextOverflow,
) -> Error {
    let what = match strategy {
        ContextOverflow::Error => "the prompt",
        _ => {
            "what must stay of the prompt (system messages, and the last user message with all behind it)"
        }
    };
    let message = format!(
        "{what} has {tokens} tokens, the context {n_ctx}; shorten the messages or raise n_ctx"
    );
    let error = Error::new(Code::ContextOverflow, message)
        .with("prompt_tokens", tokens)
        .with("n_ctx", n_ctx);
    if dropped.is_empty() { error } else { error.with("dropped_messages", dropped.len()) }
}

impl Rendered {
    /// Names messages by their places in the request, not by those among the messages that were
    /// kept.
    fn name_as_sent(&mut self, dropped: &Range<usize>) {
        if dropped.is_empty() {
            return;
        }
        for span in &mut self.prompt.spans {
            if span.path.starts_with(MESSAGE) {
                span.path = as_sent(&span.path, dropped).as_str().into();
            }
        }
        for text in
            self.diagnostics.iter_mut().flat_map(|diagnostic| diagnostic.as_object_mut()).flatten()
        {
            if let Value::String(text) = text.1 {
                *text = as_sent(text, dropped);
            }
        }
    }
}

const MESSAGE: &str = "messages[";

/// A text in which messages are named by their places in the request.
fn as_sent(text: &str, dropped: &Range<usize>) -> String {
    let mut named = String::with_capacity(text.len());
    let mut parts = text.split(MESSAGE);
    named.extend(parts.next());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let index = part[..digits].parse::<usize>().ok();
        named.push_str(MESSAGE);
        match index.filter(|index| *index >= dropped.start) {
            Some(index) => named.extend([&(index + dropped.len()).to_string(), &part[digits..]]),
            None => named.push_str(part),
        }
    }
    named
}

/// A prompt without a range of messages.
struct Measured<T> {
    /// Its tokens.
    size: usize,
    dropped: Range<usize>,
    result: T,
}

/// What each message may add to a prompt, in bytes, about.
fn sizes(messages: &[Value]) -> Vec<usize> {
    messages.iter().map(|message| message.to_string().len()).collect()
}

/// The fewest turns to leave out so that three quarters of the room are not exceeded: the next
/// turns fit then without another cut, and their prompts go on where this one ends. Where that much
/// cannot be dropped, so that the room is not exceeded; and where not even that can be done, all
/// but what must stay.
///
/// `boundaries[0]..boundaries[n]` are the messages of the first n turns. `start` is a number of
/// turns that is known not to be enough, with its prompt where there is one. Measures once where
/// the bytes of messages foretell their tokens, else by halves.
fn search<T>(
    boundaries: &[usize],
    sizes: &[usize],
    start: (usize, Option<Measured<T>>),
    room: usize,
    measure: &mut impl FnMut(Range<usize>) -> Result<Measured<T>>,
) -> Result<Measured<T>> {
    let most = boundaries.len() - 1;
    let (known, first) = start;
    // Bytes that leave with so many turns.
    let mut bytes = vec![0.0];
    for turn in boundaries.windows(2) {
        let turn: usize = sizes[turn[0]..turn[1]].iter().sum();
        bytes.push(bytes.last().copied().unwrap_or_default() + turn as f64);
    }
    let rest = (sizes.iter().sum::<usize>() as f64 - bytes[known]).max(1.0);
    // Where nothing was measured: about what text in most languages has.
    let size = first.as_ref().map_or(rest / 4.0, |first| first.size as f64);
    let mut rate = size / rest;
    let aim = room - room / 4;
    let reachable = size - (bytes[most] - bytes[known]) * rate <= aim as f64;
    let aim = if reachable { aim } else { room };
    let foretold = |rate: f64, after: usize, before: usize| {
        let fits = |turns: &usize| size - (bytes[*turns] - bytes[known]) * rate <= aim as f64 + 0.5;
        (after + 1..before).find(fits).unwrap_or(before - 1)
    };
    let measured_first = first.is_some();
    let (mut too_few, mut enough) = (known, most + 1);
    let mut best = first;
    let mut next = foretold(rate, too_few, enough);
    let mut guesses = 1;
    while too_few < most && too_few + 1 < enough {
        let measured = match measure(boundaries[0]..boundaries[next]) {
            Err(error) if error.code() == Code::TemplateLimit && next < most => None,
            measured => Some(measured?),
        };
        let found = measured.as_ref().map_or(usize::MAX, |measured| measured.size);
        if found <= aim {
            (enough, best) = (next, measured);
            if found >= aim - aim / 8 {
                break;
            }
        } else {
            // The shortest so far, until one fits.
            if enough > most {
                best = measured;
            }
            too_few = next;
        }
        if too_few + 1 >= enough {
            break;
        }
        // The first guess did not know what stands around the messages; the second one does.
        next = if guesses == 1 && measured_first && found < usize::MAX {
            rate = (size - found as f64).max(1.0) / (bytes[next] - bytes[known]).max(1.0);
            foretold(rate, too_few, enough)
        } else {
            usize::midpoint(too_few, enough)
        };
        guesses += 1;
    }
    best.ok_or_else(|| Error::new(Code::InternalBridgeError, "no prompt was measured"))
}

/// Where the turns begin that may be left out, and where the last of them ends; nothing to leave
/// out is one number or none.
///
/// A turn is a user message and all up to the next one. Before the first user message it is an
/// assistant's message with the results of its calls. The first user's turn may not be left out
/// with `truncate_middle`.
fn boundaries(messages: &[Value], strategy: ContextOverflow) -> Vec<usize> {
    let role = |index: usize| messages[index]["role"].as_str().unwrap_or_default();
    let front = (0..messages.len())
        .take_while(|index| matches!(role(*index), "system" | "developer"))
        .count();
    let mut starts: Vec<usize> = Vec::new();
    let mut calls: HashMap<&str, usize> = HashMap::new();
    let mut last_call = None;
    for (index, message) in messages.iter().enumerate().skip(front) {
        let begun_by_user = starts.last().is_some_and(|start| role(*start) == "user");
        let begins = role(index) == "user" || role(index) != "tool" && !begun_by_user;
        if begins || starts.is_empty() {
            starts.push(index);
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            last_call = Some(index);
            if let Some(id) = call["id"].as_str() {
                calls.insert(id, index);
            }
        }
        if role(index) == "tool" {
            // A result belongs to its call, which a user's message may have come behind.
            let call = message["tool_call_id"]
                .as_str()
                .and_then(|id| calls.get(id).copied())
                .or(last_call);
            let turns = starts.partition_point(|start| *start <= call.unwrap_or(index));
            starts.truncate(turns.max(1));
        }
    }
    // The last turn stays.
    let first_user = starts.iter().position(|start| role(*start) == "user");
    let skipped = match strategy {
        ContextOverflow::TruncateMiddle => first_user.map_or(0, |turn| turn + 1),
        _ => 0,
    };
    starts.drain(..skipped.min(starts.len()));
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// s system, d developer, u user, a assistant; digits after `c` are the ids of calls, `t` is a
    /// result (of that id).
    fn conversation(text: &str) -> Vec<Value> {
        text.split_whitespace()
            .map(|word| {
                let (kind, id) = word.split_at(1);
                match kind {
                    "s" => json!({ "role": "system", "content": "S" }),
                    "d" => json!({ "role": "developer", "content": "D" }),
                    "u" => json!({ "role": "user", "content": "U" }),
                    "a" => json!({ "role": "assistant", "content": "A" }),
                    "c" => {
                        let call =
                            |id: char| json!({ "id": id.to_string(), "function": { "name": "f" } });
                        let mut calls: Vec<Value> = id.chars().map(call).collect();
                        if calls.is_empty() {
                            calls.push(json!({ "function": { "name": "f" } }));
                        }
                        json!({ "role": "assistant", "content": null, "tool_calls": calls })
                    }
                    _ if id.is_empty() => json!({ "role": "tool", "content": "T" }),
                    _ => json!({ "role": "tool", "content": "T", "tool_call_id": id }),
                }
            })
            .collect()
    }

    #[track_caller]
    fn check_boundaries(text: &str, oldest: &[usize], middle: &[usize]) {
        let messages = conversation(text);
        assert_eq!(
            boundaries(&messages, ContextOverflow::TruncateOldest),
            oldest,
            "oldest of {text}"
        );
        assert_eq!(
            boundaries(&messages, ContextOverflow::TruncateMiddle),
            middle,
            "middle of {text}"
        );
    }

    #[test]
    fn whole_turns_leave() {
        check_boundaries("u", &[0], &[]);
        check_boundaries("s u", &[1], &[]);
        check_boundaries("s d u a u a u", &[2, 4, 6], &[4, 6]);
        check_boundaries("u a u", &[0, 2], &[2]);
        // A greeting is a turn; with the middle cut it stays before the first user's.
        check_boundaries("a u a u", &[0, 1, 3], &[3]);
        // Calls and results leave with their turn, and stay with the last.
        check_boundaries("u c1 t1 a u c2 t2", &[0, 4], &[4]);
        check_boundaries("u c12 t1 t2 a s a u", &[0, 7], &[7]);
        // Nobody asked: each call with its results is a turn.
        check_boundaries("s c1 t1 c23 t2 t3 c4 t4", &[1, 3, 6], &[1, 3, 6]);
        // A user came between a call and its result.
        check_boundaries("u a u c1 u t1 a u", &[0, 2, 7], &[2, 7]);
        check_boundaries("u c u t a u", &[0, 5], &[5]);
        check_boundaries("u c1 u c2 t2 u t1 u", &[0, 7], &[7]);
        check_boundaries("u c1 u u t1", &[0], &[]);
        // A result without any call.
        check_boundaries("t u a u", &[0, 1, 3], &[3]);
        check_boundaries("s", &[], &[]);
        // The message that is continued is of the last turn.
        check_boundaries("u a u a", &[0, 2], &[2]);
    }

    /// Measures turns of one message each, of these sizes, with so much around them.
    #[track_caller]
    fn check_search(
        tokens: &[usize],
        bytes: &[usize],
        around: usize,
        room: usize,
        dropped: usize,
        measures: usize,
    ) {
        let boundaries: Vec<usize> = (0..tokens.len()).collect();
        let mut measured = 0;
        let mut measure = |dropped: Range<usize>| {
            measured += 1;
            Ok(Measured {
                size: around + tokens[dropped.end..].iter().sum::<usize>(),
                dropped,
                result: (),
            })
        };
        let first = measure(0..0).expect("a size");
        let found =
            search(&boundaries, bytes, (0, Some(first)), room, &mut measure).expect("a cut");
        assert_eq!((found.dropped, measured), (0..dropped, measures));
    }

    #[test]
    fn no_more_turns_leave_than_need_be() {
        // 3/4 of 400 is 300; 30 * 10 messages may stay.
        check_search(&[10; 100], &[50; 100], 0, 400, 70, 2);
        check_search(&[10; 100], &[50; 100], 100, 400, 80, 3);
        // The last one alone has more than three quarters: the room itself is the aim.
        check_search(&[50, 50, 50, 350], &[5, 5, 5, 35], 0, 400, 2, 2);
        // Not even that: everything leaves that may, and the caller sees that it is too long.
        check_search(&[50, 50, 500], &[5, 5, 50], 0, 400, 2, 2);
        // Bytes say nothing of tokens: halves.
        let tokens: Vec<usize> = (0..1000).map(|index| if index < 990 { 1 } else { 100 }).collect();
        let bytes: Vec<usize> = (0..1000).map(|index| if index < 990 { 1000 } else { 1 }).collect();
        let boundaries: Vec<usize> = (0..1000).collect();
        let mut measured = 0;
        let mut measure = |dropped: Range<usize>| {
            measured += 1;
            Ok(Measured { size: tokens[dropped.end..].iter().sum::<usize>(), dropped, result: () })
        };
        let first = measure(0..0).expect("a size");
        let found =
            search(&boundaries, &bytes, (0, Some(first)), 1600, &mut measure).expect("a cut");
        assert!((1050..=1200).contains(&found.size), "{}", found.size);
        assert!(measured <= 12, "{measured} prompts for 1000 turns");
    }

    #[test]
    fn messages_keep_the_names_they_were_sent_with() {
        for (text, expected) in [
            ("messages[0].content", "messages[0].content"),
            ("messages[1].content", "messages[4].content"),
            ("messages[12]: and messages[0], tools[1]", "messages[15]: and messages[0], tools[1]"),
            ("messages[", "messages["),
            ("of [1]", "of [1]"),
        ] {
            assert_eq!(as_sent(text, &(1..4)), expected);
        }
    }
}
