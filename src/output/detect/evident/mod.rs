//! The format of a model whose template shows tools but no calls, by evidence: the instructions
//! that the template adds for tools, or the special tokens of the vocabulary.
//!
//! Such a model was trained on calls all the same. The result is never called verified: no render
//! of the template itself confirms it.

mod example;
mod prose;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use super::is_control;
use crate::output::families;
use crate::output::format::{CallPart, CallSyntax, Encoding, Format, FormatSource, tags};
use crate::probing::diff::split_at_needles;
use prose::{Prose, ProsePattern};

/// What is known about a model whose template shows no calls.
pub struct FormatClues<'a> {
    /// The text that the template adds for tools.
    pub instructions: &'a str,
    /// Words of the tools in the instructions. A passage with one of them declares a tool and is
    /// not an example.
    pub tool_words: &'a [&'a str],
    /// Turns in which a message carries a call in a member other than `tool_calls`.
    pub turns: &'a [CallTurn],
    /// Whether a text is a control or user-defined token of the vocabulary.
    pub is_special: &'a dyn Fn(&str) -> bool,
    /// Whether the template's source contains a text.
    pub in_source: &'a dyn Fn(&str) -> bool,
}

/// The text of a turn with one call, and the values that were put into the call.
pub struct CallTurn {
    /// The member of the message that carries the name.
    pub member: &'static str,
    /// The text.
    pub text: String,
    /// The function's name.
    pub name: &'static str,
    /// The arguments, as JSON text.
    pub arguments: &'static str,
}

/// A format with its evidence.
pub struct EvidentFormat {
    /// The format.
    pub format: Format,
    /// What the evidence is, and where it was found.
    pub because: String,
}

/// The reason why there is evidence of calls but no format was chosen.
pub struct Contradiction(pub String);

impl FormatClues<'_> {
    /// The format that the clues show; `None` without any evidence.
    pub fn find(&self) -> Result<Option<EvidentFormat>, Contradiction> {
        if let Some(found) = self.in_instructions()? {
            return Ok(Some(found));
        }
        match self.turns.iter().find_map(|turn| self.in_turn(turn)) {
            Some(found) => Ok(Some(found)),
            None => self.in_vocabulary(),
        }
    }

    /// The syntax of the call in a turn: the text around the name and the arguments that were put
    /// into it.
    fn in_turn(&self, turn: &CallTurn) -> Option<EvidentFormat> {
        let [before, between, after] =
            &split_at_needles(&turn.text, [turn.name, turn.arguments])?[..]
        else {
            return None;
        };
        // Spaces before a line break are an artefact of the template.
        let between = between.replace(" \n", "\n");
        let text = |text: &str| CallPart::Text(text.to_owned().into());
        let parts = [
            text(before),
            CallPart::Name,
            text(&between),
            CallPart::Arguments(Encoding::Json),
            text(after),
        ];
        let is_empty = |part: &CallPart| matches!(part, CallPart::Text(text) if text.is_empty());
        let calls = CallSyntax {
            separator: "\n".into(),
            call: parts.into_iter().filter(|part| !is_empty(part)).collect(),
            parallel: true,
            ..CallSyntax::default()
        };
        let format = Format { family: "evident".into(), calls: Some(calls), ..self.format(None) };
        let because = format!(
            "the template writes a call whose name is in the member `{}` of its message: {:?}",
            turn.member, turn.text
        );
        Some(EvidentFormat { format, because })
    }

    /// The call that the instructions spell out.
    fn in_instructions(&self) -> Result<Option<EvidentFormat>, Contradiction> {
        // In text that once was a format string, braces are doubled.
        let instructions = match self.instructions.contains("{{") {
            true => &*self.instructions.replace("{{", "{").replace("}}", "}"),
            false => self.instructions,
        };
        let prose = Prose::new(instructions);
        let is_call = |bytes: &Range<usize>| {
            let text = &instructions[bytes.clone()];
            !self.tool_words.iter().any(|word| text.contains(word))
        };
        let shown = |format: Format, bytes: Range<usize>| {
            let example = &instructions[bytes];
            let because =
                format!("the text that the template adds for tools shows a call: {example:?}");
            EvidentFormat { format, because }
        };
        let own = |calls: CallSyntax| {
            let format = Format { family: "evident".into(), ..self.format(None) };
            Format { calls: Some(calls), ..format }
        };
        let mut found: Vec<ProseMatch> = Vec::new();
        let families = families::shown_in_prompts();
        for format in families.into_iter().filter(|format| format.channels.is_none()) {
            let Some(calls) = &format.calls else { continue };
            let pattern = ProsePattern::of(calls);
            let matches = pattern.matches(&prose);
            found.extend(matches.into_iter().filter(is_call).map(|bytes| ProseMatch {
                layout: layout(&format, &instructions[bytes.clone()]),
                weight: pattern.weight(),
                tag: calls.tag().map(str::to_owned),
                format: format.clone(),
                bytes,
            }));
        }
        // Of equal matches, the first in the order of the table.
        let best = found.iter().enumerate().max_by_key(|(index, found)| {
            (found.tag.is_some(), found.weight, found.layout, Reverse(*index))
        });
        let best = best.map(|(_, found)| found);
        let tagged = best.filter(|best| best.tag.is_some());
        if let Some(other) = tagged.and_then(|best| found.iter().find(|it| best.contradicts(it))) {
            let best = tagged.and_then(|best| best.tag.as_deref()).unwrap_or_default();
            let other = other.tag.as_deref().unwrap_or_default();
            return Err(Contradiction(format!(
                "the text that the template adds for tools shows calls in two forms, {best} and {other}"
            )));
        }
        if tagged.is_none()
            && let Some((calls, bytes)) = example::tagged_call(&prose, &is_call)
        {
            return Ok(Some(shown(own(calls), bytes)));
        }
        if let Some(best) = best {
            return Ok(Some(shown(self.format(Some(&best.format)), best.bytes.clone())));
        }
        let bare = example::bare_call(&prose, &is_call);
        Ok(bare.map(|(calls, bytes)| shown(own(calls), bytes)))
    }

    /// The family whose markers are special tokens, or pair with the markers of the tool list.
    /// A family is also found by a marker that only its calls have. The family with the fewest other
    /// markers that are not known wins, then the one with the most markers. Families that share all
    /// of their markers cannot be distinguished.
    fn in_vocabulary(&self) -> Result<Option<EvidentFormat>, Contradiction> {
        let mentioned = tags(self.instructions);
        // A call tag that the instructions mention is not a marker of the tool list.
        let call_markers = families::call_markers();
        let is_of_list = |tag: &&str| is_control(tag) && !call_markers.iter().any(|it| it == tag);
        let listed: Vec<String> = mentioned.iter().copied().filter(is_of_list).map(stem).collect();
        let is_known = |tag: &str| (self.is_special)(tag) || mentioned.contains(&tag);
        let is_listed = |tag: &str| is_control(tag) && listed.contains(&stem(tag));
        let mut families = families::all();
        families.retain(|format| format.channels.is_none());
        // A marker is that of one family if the calls of no other have it.
        let is_unique = |tag: &str| {
            let have = |format: &&Format| markers(format).contains(tag);
            is_control(tag) && families.iter().filter(have).count() == 1
        };
        let mut best: (Option<(Reverse<usize>, usize)>, Vec<Format>) = (None, Vec::new());
        for format in &families {
            let Some(tag) = format.calls.as_ref().and_then(CallSyntax::tag) else { continue };
            let markers = markers(format);
            let special = is_control(tag) && markers.iter().all(|marker| is_known(marker))
                || markers.iter().all(|marker| (self.is_special)(marker));
            let unique =
                markers.iter().any(|marker| mentioned.contains(marker) && is_unique(marker));
            if !special && !is_listed(tag) && !unique {
                continue;
            }
            let unknown = markers.iter().filter(|marker| !is_known(marker) && !is_listed(marker));
            let score = Some((Reverse(unknown.count()), markers.len()));
            if score > best.0 {
                best = (score, vec![format.clone()]);
            } else if score == best.0 {
                best.1.push(format.clone());
            }
        }
        match &*best.1 {
            [] => Ok(None),
            [format] => {
                let markers = markers(format).into_iter().collect::<Vec<_>>().join(" ");
                let because = format!(
                    "the vocabulary or the text about tools has the markers of such calls: {markers}"
                );
                Ok(Some(EvidentFormat { format: self.format(Some(format)), because }))
            }
            several => {
                let names: Vec<&str> = several.iter().map(|format| &*format.family).collect();
                Err(Contradiction(format!(
                    "the markers of the vocabulary and of the list of tools fit calls in several \
                     forms: {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// The format of a family, or a format without calls, for a model whose template does not show
    /// one. Reasoning tags and ends of turns are included only if the template contains them.
    fn format(&self, family: Option<&Format>) -> Format {
        let polyfilled = families::polyfilled();
        let family = family.cloned().unwrap_or(Format { ends: Vec::new(), ..polyfilled.clone() });
        let reasoning = family.reasoning.filter(|tags| (self.in_source)(&tags.close));
        Format {
            source: FormatSource::Evident,
            reasoning: reasoning.or(polyfilled.reasoning),
            wrappers: Vec::new(),
            ends: family.ends.into_iter().filter(|end| (self.in_source)(end)).collect(),
            envelope: true,
            untagged: true,
            ..family
        }
    }
}

/// A family's call in the instructions.
struct ProseMatch {
    format: Format,
    /// The tag that opens the call, if it cannot be mistaken for prose.
    tag: Option<String>,
    bytes: Range<usize>,
    /// The number of characters in the matched markers.
    weight: usize,
    /// The number of bytes of the family's text that occur with the same whitespace.
    layout: usize,
}

impl ProseMatch {
    /// Whether another match shows calls with another tag elsewhere.
    fn contradicts(&self, other: &ProseMatch) -> bool {
        let apart = self.bytes.end <= other.bytes.start || other.bytes.end <= self.bytes.start;
        apart && other.tag.is_some() && other.tag != self.tag
    }
}

fn layout(format: &Format, example: &str) -> usize {
    let texts = format.calls.iter().flat_map(|calls| calls.texts());
    texts.filter(|text| example.contains(&***text)).map(|text| text.len()).sum()
}

/// The words of a marker, except those in which the markers of a tool list and a call differ:
/// `<|tool_list_start|>` and `<|tool_call_start|>` both have the stem `tool_start`.
fn stem(tag: &str) -> String {
    let lower = tag.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).map(|word| word.trim_end_matches('s'));
    let words = words.filter(|word| !matches!(*word, "" | "list" | "call" | "available"));
    // Tags of different brackets do not pair.
    let bracket = tag.chars().next().map(String::from);
    bracket.into_iter().chain(words.map(str::to_owned)).collect::<Vec<_>>().join("_")
}

/// The tags of a format's calls.
fn markers(format: &Format) -> BTreeSet<&str> {
    format.calls.iter().flat_map(CallSyntax::tags).collect()
}
