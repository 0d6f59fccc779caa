//! Finds the tags around reasoning that a template reveals, whatever writes its calls.
//!
//! In: renders of the template, the texts at which its source cuts messages, and the variables that
//! switch reasoning. Out: pairs of tags, the most certain first. This module knows no model.

use serde_json::{Value, json};

use super::infer::history_prober::REASONING_MEMBERS;
use super::infer::markers::{leading_marker, snap_left, trailing_markers};
use super::round_trip::RoundTrip;
use super::tag_pairs::{closing_of, opening_of, other_switch};
use crate::output::families;
use crate::output::format::{CallSyntax, Format, ReasoningPair, ReasoningTags, Wrapper};
use crate::probing::diff::common_prefix;
use crate::probing::{Probe, ProbeRenderer, call, tool};

const USER: &str = "Slithe the borogove.";
const NEXT_USER: &str = "Galumph the manxome.";
const REASONING: &str = "Whiffle, then burble.";
/// Sentences of one answer, with tags between them.
const SENTENCES: [&str; 3] = ["Uffish quorl.", "Beamish frumious.", "Callay vorpal."];
/// The maximum number of texts of the source that are tried as tags.
const MAX_CUTS: usize = 24;
/// The maximum number of pairs of tags besides the first one.
const MAX_OTHERS: usize = 3;
/// The number of bytes before a user message that may be the header of its turn.
const MAX_HEADER_OF_USER: usize = 96;

/// What is known about a template besides its renders.
pub struct ReasoningClues<'a> {
    /// The texts that the source searches for, splits at or replaces.
    pub cuts: &'a [String],
    /// The settings of the variables that switch reasoning: each variable with each of its values.
    pub settings: &'a [(&'static str, Value)],
    /// Whether the source contains a text.
    pub in_source: &'a dyn Fn(&str) -> bool,
}

/// The tags that a template reveals.
#[derive(Debug, Default)]
pub struct ReasoningEvidence {
    /// The pairs, the most certain first.
    pairs: Vec<RevealedPair>,
    /// Tags after which an answer begins, without a pair.
    separators: Vec<String>,
    /// Tags around visible text that earlier turns lose.
    wrappers: Vec<ReasoningPair>,
    /// Whether the generation prompt ends with text that answers of the history do not have.
    prompt_has_text: bool,
}

/// A pair of tags.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RevealedPair {
    tags: ReasoningPair,
    /// Whether the template writes the closing tag without the opening tag.
    close_alone: bool,
}

impl ReasoningEvidence {
    /// Renders conversations with every setting, and answers with tags between their sentences.
    pub(crate) fn find(
        renderer: &ProbeRenderer<'_>,
        clues: &ReasoningClues<'_>,
    ) -> ReasoningEvidence {
        let mut found = ReasoningEvidence::default();
        for setting in [None].into_iter().chain(clues.settings.iter().map(Some)) {
            let user = Probe::from_user(USER);
            let user = match setting {
                Some((variable, value)) => user.variable(variable, value.clone()),
                None => user,
            };
            found.add_opened(renderer, &user, clues);
            found.add_shown(renderer, &user, clues);
        }
        found.add_cut(renderer, clues);
        if found.pairs.is_empty() {
            found.add_named(clues);
        }
        found
    }

    /// Adds the block at the end of the generation prompt, which may be closed, and the empty block
    /// before the content of an answer.
    fn add_opened(
        &mut self,
        renderer: &ProbeRenderer<'_>,
        user: &Probe,
        clues: &ReasoningClues<'_>,
    ) {
        let is_pair = |open: &str, close: &str| {
            closing_of(open, clues.in_source).is_some_and(|it| it == close)
        };
        let prompt = renderer.prompt(&user.clone().generation_prompt());
        let prompt = prompt.as_deref().and_then(|prompt| prompt.rsplit_once(USER));
        let last = user.clone().assistant(SENTENCES[0]);
        // Some templates show the last answer as the beginning of the reply.
        for history in [last.clone().user(NEXT_USER), last] {
            let Some(history) = renderer.prompt(&history) else { continue };
            let Some((before_user, answer)) = history.rsplit_once(USER) else { continue };
            let Some((before, after)) = answer.rsplit_once(SENTENCES[0]) else { continue };
            if let [.., open, close] = trailing_markers(before)[..]
                && is_pair(open, close)
            {
                self.add(open, close, false);
            }
            let Some((_, prompt)) = prompt else { continue };
            // Only what answers of the history do not have may belong to reasoning.
            let own = &prompt[snap_left(prompt, common_prefix(prompt, before))..];
            let header = before_user.len().saturating_sub(MAX_HEADER_OF_USER);
            let header = (header..).find_map(|at| before_user.get(at..)).unwrap_or_default();
            let is_of_turn = |tag: &str| [before, after, header].iter().any(|it| it.contains(tag));
            match trailing_markers(own)[..] {
                [.., open, close] if is_pair(open, close) => self.add(open, close, false),
                [.., tag] if !is_of_turn(tag) => {
                    let closing = closing_of(tag, clues.in_source);
                    match (closing, opening_of(tag, clues.in_source)) {
                        (Some(close), _) => self.add(tag, &close, false),
                        (None, Some(open)) if !is_of_turn(&open) => self.add(&open, tag, true),
                        _ => {}
                    }
                }
                // Text without a tag that only the generation prompt has.
                [] => self.prompt_has_text |= own.trim().contains(char::is_alphabetic),
                _ => {}
            }
        }
    }

    /// Adds the tags between which a turn shows its reasoning, with or without a call.
    fn add_shown(
        &mut self,
        renderer: &ProbeRenderer<'_>,
        user: &Probe,
        clues: &ReasoningClues<'_>,
    ) {
        let parameters = json!({ "type": "object", "properties": {} });
        let tools = [tool("gyre_wabe", "Gyres.", &parameters)];
        let calls = json!([call("tOv3sMtZk", "gyre_wabe", &json!({}))]);
        for member in REASONING_MEMBERS {
            let mut message = json!({ "role": "assistant", "content": SENTENCES[0] });
            message[member] = REASONING.into();
            let mut with_call = message.clone();
            with_call["content"] = "".into();
            with_call["tool_calls"] = calls.clone();
            let plain = user.clone().message(message);
            for probe in [plain, user.clone().tools(&tools).message(with_call)] {
                let Some(text) = renderer.prompt(&probe) else { continue };
                let Some((before, after)) = text.rsplit_once(REASONING) else { continue };
                let (Some(open), Some(close)) =
                    (trailing_markers(before).pop(), leading_marker(after.trim_start()))
                else {
                    continue;
                };
                if closing_of(open, clues.in_source).is_some_and(|it| it == close) {
                    self.add(open, close, false);
                }
            }
        }
    }

    /// Adds the tags at which the template cuts the content of an answer. What it drops before a
    /// tag is reasoning.
    fn add_cut(&mut self, renderer: &ProbeRenderer<'_>, clues: &ReasoningClues<'_>) {
        let is_tag = |cut: &&str| leading_marker(cut.trim()) == Some(cut.trim());
        let mut cuts: Vec<&str> = clues.cuts.iter().map(|cut| &**cut).filter(is_tag).collect();
        cuts.dedup();
        cuts.truncate(MAX_CUTS);
        let find = |tag: &str| cuts.iter().find(|cut| cut.trim() == tag);
        for cut in &cuts {
            let tag = cut.trim();
            let open = opening_of(tag, clues.in_source);
            let pair = open.as_deref().and_then(find);
            if let Some(open) = pair.filter(|open| drops_surroundings(renderer, &[open, cut])) {
                let (open, close) = (open.trim().to_owned(), tag.to_owned());
                self.wrappers.push(ReasoningPair { open: open.into(), close: close.into() });
            } else if drops_surroundings(renderer, &[cut]) {
                match open {
                    Some(open) => self.add(&open, tag, false),
                    // The opening tag of another pair.
                    None if closing_of(tag, clues.in_source)
                        .is_some_and(|it| find(&it).is_some()) => {}
                    None => self.separators.push(tag.to_owned()),
                }
            }
        }
    }

    /// Adds the pairs of known families that the source spells out.
    fn add_named(&mut self, clues: &ReasoningClues<'_>) {
        for tags in families::all().into_iter().filter_map(|family| family.reasoning) {
            let is_named = |tag: &str| !tag.is_empty() && (clues.in_source)(tag);
            if is_named(&tags.open) && is_named(&tags.close) {
                self.add(&tags.open, &tags.close, false);
            }
        }
    }

    fn add(&mut self, open: &str, close: &str, close_alone: bool) {
        let tags = ReasoningPair { open: open.to_owned().into(), close: close.to_owned().into() };
        match self.pairs.iter_mut().find(|known| known.tags == tags) {
            Some(known) => known.close_alone |= close_alone,
            None => self.pairs.push(RevealedPair { tags, close_alone }),
        }
    }

    /// The format with the tags that the template reveals. Tags that bring back the reasoning of a
    /// history are kept, and so is the format if it would no longer pass the round trip.
    pub(super) fn apply(&self, format: Format, round_trip: &RoundTrip) -> Format {
        if format.channels.is_some() {
            return format;
        }
        let before = round_trip.report(&format);
        let mut revealed = format.clone();
        if !before.reads_reasoning() {
            revealed.reasoning = self.reasoning(&format);
        }
        let is_new =
            |format: &Format, tag: &str| !format.texts().iter().any(|text| text.contains(tag));
        for ReasoningPair { open, close } in &self.wrappers {
            if is_new(&revealed, open) && is_new(&revealed, close) {
                let (open, close) = (open.clone(), close.clone());
                revealed.wrappers.push(Wrapper { open, close });
            }
        }
        if revealed.reasoning.is_some() {
            // A template that names one position of a switch does not name the other.
            let separators = self.separators.iter();
            let all = separators.flat_map(|tag| [Some(tag.clone()), other_switch(tag)]);
            for separator in all.flatten() {
                if is_new(&revealed, &separator) {
                    let open = separator.into();
                    revealed.wrappers.push(Wrapper { open, close: "".into() });
                }
            }
        }
        let after = round_trip.report(&revealed);
        if before.accepted() && !after.accepted() { format } else { revealed }
    }

    /// The tags around reasoning: those of the format if the template reveals them or no others.
    fn reasoning(&self, format: &Format) -> Option<ReasoningTags> {
        let own = format.reasoning.as_ref();
        let is_free = |tag: &str| {
            let calls = format.calls.iter().flat_map(CallSyntax::texts);
            !calls.chain(&format.ends).any(|text| !tag.is_empty() && text.contains(tag))
        };
        let is_free = |pair: &&RevealedPair| is_free(&pair.tags.open) && is_free(&pair.tags.close);
        let mut pairs = self.pairs.iter().filter(is_free);
        let Some(first) = pairs.next() else {
            let [separator] = &self.separators[..] else { return own.cloned() };
            return match own {
                None if self.prompt_has_text => Some(ReasoningTags {
                    close_only: true,
                    ..ReasoningTags::new("".into(), separator.clone().into())
                }),
                own => own.cloned(),
            };
        };
        let tags = match own.filter(|own| own.close == first.tags.close) {
            Some(own) => own.clone(),
            None => ReasoningTags {
                close_only: first.close_alone,
                ..ReasoningTags::new(first.tags.open.clone(), first.tags.close.clone())
            },
        };
        let others = pairs.map(|pair| pair.tags.clone()).take(MAX_OTHERS).collect();
        Some(ReasoningTags { others, ..tags })
    }
}

/// Whether an answer, as the last one or as an earlier one, loses the sentences before the first tag
/// and after the second, and keeps the sentence next to them.
fn drops_surroundings(renderer: &ProbeRenderer<'_>, tags: &[&str]) -> bool {
    let mut content = SENTENCES[0].to_owned();
    for (tag, sentence) in tags.iter().zip(&SENTENCES[1..]) {
        content = content + tag + sentence;
    }
    let last = Probe::from_user(USER).assistant(&content);
    let earlier = last.clone().user(NEXT_USER);
    [earlier, last].iter().any(|probe| {
        renderer.prompt(probe).is_some_and(|text| {
            let [before, kept, after] = SENTENCES.map(|sentence| text.contains(sentence));
            !before && kept && !after
        })
    })
}
