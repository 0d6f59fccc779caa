//! Finds the whole turns to leave out when a conversation is too long for the context.
//!
//! In: the messages of a request, and a function that measures a prompt without some of them. Out:
//! one range of messages. System messages at the start and the last turn always stay. Calls of an
//! assistant stay together with their results.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Mutex;

use serde_json::Value;

use crate::api::{ChatRequest, ContextOverflow};
use crate::error::{Code, Error, Result};
use crate::sync::lock;

/// The cuts of recent conversations. A conversation keeps its cut as long as the prompt fits. Its
/// prompt then continues the last one, and the whole conversation need not be rendered to find that
/// it is too long.
#[derive(Default)]
pub(super) struct RecentCuts(Mutex<VecDeque<(Range<usize>, u64)>>);

/// The maximum number of conversations of a chat whose cuts are kept.
const MAX_CUTS: usize = 16;

impl RecentCuts {
    /// The index into `boundaries` of the largest known cut of this conversation.
    pub(super) fn find(&self, request: &ChatRequest, boundaries: &[usize]) -> Option<usize> {
        let cuts = lock(&self.0);
        let first = boundaries.first()?;
        let known = cuts.iter().filter(|(cut, _)| cut.start == *first);
        let indices = known.filter_map(|(cut, hash)| {
            let index = boundaries.binary_search(&cut.end).ok().filter(|index| *index > 0)?;
            (fingerprint(request, cut.end) == *hash).then_some(index)
        });
        indices.max()
    }

    pub(super) fn insert(&self, request: &ChatRequest, cut: &Range<usize>) {
        let entry = (cut.clone(), fingerprint(request, cut.end));
        let mut cuts = lock(&self.0);
        cuts.retain(|known| *known != entry);
        cuts.truncate(MAX_CUTS - 1);
        cuts.push_front(entry);
    }
}

/// Hashes the tools and the messages before the end of a cut.
fn fingerprint(request: &ChatRequest, end: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    for value in request.messages[..end].iter().chain(request.tools.iter()) {
        value.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether a prompt failed because it is too long.
pub(super) fn is_too_long(error: &Error) -> bool {
    matches!(error.code(), Code::TemplateLimit | Code::ContextOverflow)
}

/// The prompt without a range of messages.
pub(super) struct Measured<T> {
    /// The number of tokens in the prompt.
    pub(super) size: usize,
    pub(super) dropped: Range<usize>,
    pub(super) result: T,
}

/// Drops as few turns as possible so that the prompt fills at most three quarters of the room, and
/// the next turns fit without another cut. If that is impossible, drops as few as possible so that
/// the prompt fits the room. If that is impossible too, drops all turns that may be dropped.
///
/// `boundaries[0]..boundaries[n]` are the messages of the first n turns. `start` is a number of
/// turns that is known to be too small, with its prompt if that was measured. The search estimates
/// tokens from the bytes of messages, and bisects if the estimates are wrong.
pub(super) fn search<T>(
    boundaries: &[usize],
    sizes: &[usize],
    start: (usize, Option<Measured<T>>),
    room: usize,
    measure: &mut impl FnMut(Range<usize>) -> Result<Measured<T>>,
) -> Result<Measured<T>> {
    let most = boundaries.len() - 1;
    let (known, first) = start;
    // The total size of the first n turns in bytes.
    let mut bytes = vec![0.0];
    for turn in boundaries.windows(2) {
        let turn: usize = sizes[turn[0]..turn[1]].iter().sum();
        bytes.push(bytes.last().copied().unwrap_or_default() + turn as f64);
    }
    let rest = (sizes.iter().sum::<usize>() as f64 - bytes[known]).max(1.0);
    // Without a measurement, the estimate is four bytes per token, as in most languages.
    let size = first.as_ref().map_or(rest / 4.0, |first| first.size as f64);
    let mut rate = size / rest;
    let aim = room - room / 4;
    let reachable = size - (bytes[most] - bytes[known]) * rate <= aim as f64;
    let aim = if reachable { aim } else { room };
    let estimate = |rate: f64, after: usize, before: usize| {
        let fits = |turns: &usize| size - (bytes[*turns] - bytes[known]) * rate <= aim as f64 + 0.5;
        (after + 1..before).find(fits).unwrap_or(before - 1)
    };
    let measured_first = first.is_some();
    let (mut too_few, mut enough) = (known, most + 1);
    let mut best = first;
    let mut next = estimate(rate, too_few, enough);
    let mut guesses = 1;
    while too_few < most && too_few + 1 < enough {
        let measured = match measure(boundaries[0]..boundaries[next]) {
            Err(error) if is_too_long(&error) && next < most => None,
            measured => Some(measured?),
        };
        let found = measured.as_ref().map_or(usize::MAX, |measured| measured.size);
        if found <= aim {
            (enough, best) = (next, measured);
            if found >= aim - aim / 8 {
                break;
            }
        } else {
            // No prompt fits yet, so the shortest one is kept.
            if enough > most {
                best = measured;
            }
            too_few = next;
        }
        if too_few + 1 >= enough {
            break;
        }
        // The second estimate allows for the text that the template writes around the messages.
        next = if guesses == 1 && measured_first && found < usize::MAX {
            rate = (size - found as f64).max(1.0) / (bytes[next] - bytes[known]).max(1.0);
            estimate(rate, too_few, enough)
        } else {
            usize::midpoint(too_few, enough)
        };
        guesses += 1;
    }
    best.ok_or_else(|| Error::new(Code::InternalBridgeError, "no prompt was measured"))
}

/// The start of each turn that may be left out, and the end of the last one. Fewer than two numbers
/// if no turn may be left out.
///
/// A turn is a user message and everything before the next one. Before the first user message, a
/// turn is an assistant message with the results of its calls. `truncate_middle` keeps the turn of
/// the first user message.
pub(super) fn boundaries(messages: &[Value], strategy: ContextOverflow) -> Vec<usize> {
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
            // A result belongs to the turn of its call, even after another user message.
            let call = message["tool_call_id"]
                .as_str()
                .and_then(|id| calls.get(id).copied())
                .or(last_call);
            let turns = starts.partition_point(|start| *start <= call.unwrap_or(index));
            starts.truncate(turns.max(1));
        }
    }
    // The last turn always stays.
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
    use serde_json::json;

    use super::*;

    /// Builds a conversation. Each word is a message: `s` system, `d` developer, `u` user, `a`
    /// assistant, `c` an assistant with calls of these ids, `t` a result (of this id).
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
    fn whole_turns_are_dropped() {
        check_boundaries("u", &[0], &[]);
        check_boundaries("s u", &[1], &[]);
        check_boundaries("s d u a u a u", &[2, 4, 6], &[4, 6]);
        check_boundaries("u a u", &[0, 2], &[2]);
        // A greeting is a turn. `truncate_middle` keeps it before the first user message.
        check_boundaries("a u a u", &[0, 1, 3], &[3]);
        // Calls and results belong to the turn of their user message.
        check_boundaries("u c1 t1 a u c2 t2", &[0, 4], &[4]);
        check_boundaries("u c12 t1 t2 a s a u", &[0, 7], &[7]);
        // Without a user message, each call with its results is a turn.
        check_boundaries("s c1 t1 c23 t2 t3 c4 t4", &[1, 3, 6], &[1, 3, 6]);
        // A user message between a call and its result.
        check_boundaries("u a u c1 u t1 a u", &[0, 2, 7], &[2, 7]);
        check_boundaries("u c u t a u", &[0, 5], &[5]);
        check_boundaries("u c1 u c2 t2 u t1 u", &[0, 7], &[7]);
        check_boundaries("u c1 u u t1", &[0], &[]);
        // A result without any call.
        check_boundaries("t u a u", &[0, 1, 3], &[3]);
        check_boundaries("s", &[], &[]);
        // A continued message belongs to the last turn.
        check_boundaries("u a u a", &[0, 2], &[2]);
    }

    /// Searches turns of one message each. `around` is the number of template tokens around them.
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
    fn the_fewest_turns_are_dropped() {
        // 3/4 of 400 is 300; 30 * 10 messages may stay.
        check_search(&[10; 100], &[50; 100], 0, 400, 70, 2);
        check_search(&[10; 100], &[50; 100], 100, 400, 80, 3);
        // The last turn alone exceeds three quarters, so the whole room may be used.
        check_search(&[50, 50, 50, 350], &[5, 5, 5, 35], 0, 400, 2, 2);
        // The last turn exceeds the room. All other turns are dropped, and the caller sees the
        // size.
        check_search(&[50, 50, 500], &[5, 5, 50], 0, 400, 2, 2);
        // Bytes and tokens are unrelated, so the search bisects.
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
}
