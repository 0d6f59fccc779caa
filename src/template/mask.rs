//! Masks: the bytes of a prompt that a model would be trained on, one range for each assistant
//! turn.
//!
//! In: a template that was not composed, a conversation, its prompt. Out: ranges, and the turns
//! without a range. If the template marks its turns with `{% generation %}`, these marks are the
//! ranges. Otherwise renders are compared (docs/templates.md, Masks).

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use super::edits::Edits;
use super::{PolyfillTarget, Prompt, RenderInput, Templates, polyfill};
use crate::api::{Fields, Polyfills};
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};
use crate::jinja::thread_time;

/// The assistant turns to mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskScope {
    /// Every turn.
    All,
    /// The last turn of the conversation.
    Last,
}

/// The trainable bytes of a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptMask {
    /// The masked turns, in order of the messages.
    pub turns: Vec<MaskedTurn>,
    /// The turns whose bytes cannot be determined.
    pub omitted: Vec<OmittedTurn>,
}

/// The trainable bytes of one assistant turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedTurn {
    /// The index of its message in the request.
    pub message: usize,
    /// The range in the prompt, in bytes.
    pub range: Range<usize>,
}

/// An assistant turn whose bytes cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedTurn {
    /// The index of its message in the request.
    pub message: usize,
    /// The reason, as a message for people.
    pub reason: String,
}

impl MaskScope {
    /// Reads the member `mask`: "none" (the default), "all" or "last".
    pub(crate) fn read(fields: &mut Fields) -> Result<Option<MaskScope>> {
        let turns =
            [("none", None), ("all", Some(MaskScope::All)), ("last", Some(MaskScope::Last))];
        Ok(fields.one_of("mask", &turns)?.flatten())
    }

    /// The selected assistant messages.
    pub(crate) fn of(self, assistants: &[usize]) -> &[usize] {
        match self {
            MaskScope::All => assistants,
            MaskScope::Last => &assistants[assistants.len().saturating_sub(1)..],
        }
    }
}

impl PromptMask {
    /// Moves the ranges after edits of the prompt.
    pub(crate) fn shift(&mut self, edits: &Edits) {
        for turn in &mut self.turns {
            turn.range = edits.shift(&turn.range);
        }
    }

    /// `[{"message","start","end"}]`, end exclusive.
    pub(crate) fn to_json(&self) -> Value {
        let turns = self.turns.iter();
        turns.map(|turn| json!({ "message": turn.message, "start": turn.range.start, "end": turn.range.end })).collect()
    }

    /// `{"code","path","message"}` for each omitted turn.
    pub(crate) fn diagnostics(&self) -> impl Iterator<Item = Diagnostic> {
        self.omitted.iter().map(|turn| {
            let path = format!("messages[{}]", turn.message);
            Diagnostic::at("mask_unavailable", path, turn.reason.as_str())
        })
    }
}

/// The indices of the assistant messages.
pub(crate) fn assistants(messages: &[Value]) -> Vec<usize> {
    messages
        .iter()
        .enumerate()
        .filter(|(_, message)| message["role"] == "assistant")
        .map(|(index, _)| index)
        .collect()
}

impl Templates {
    /// The trainable ranges of the prompt of `input`. `sent` are the messages before `polyfills`
    /// were applied.
    ///
    /// Needs up to two renders for each turn, and none if there are `{% generation %}` blocks. Each
    /// render has the limits of the input, and all of them share one `ms`. If that is exceeded, the
    /// result is `TEMPLATE_LIMIT`, never a partial mask.
    pub(crate) fn mask(
        &self,
        turns: MaskScope,
        input: &RenderInput<'_>,
        sent: &[Value],
        (target, polyfills): (PolyfillTarget<'_>, &Polyfills),
        prompt: &Prompt,
    ) -> Result<PromptMask> {
        let assistants = assistants(sent);
        if let Some(marked) = turns_by_blocks(&assistants, prompt) {
            let wanted = turns.of(&assistants);
            let turns = marked.into_iter().filter(|turn| wanted.contains(&turn.message)).collect();
            return Ok(PromptMask { turns, omitted: Vec::new() });
        }
        let (allowed, started) = (Duration::from_millis(input.limits.ms), thread_time());
        // The prompt ends with this message, so it need not be rendered again.
        let ends = if input.add_generation_prompt { None } else { sent.len().checked_sub(1) };
        turns_by_renders(
            &prompt.text,
            turns.of(&assistants),
            ends,
            |count, add_generation_prompt| {
                let remaining =
                    allowed.saturating_sub(thread_time().saturating_sub(started)).as_millis();
                if remaining == 0 {
                    return Err(too_long(input.limits.ms));
                }
                let polyfilled =
                    match polyfill::apply(&sent[..count], input.tools, target, polyfills) {
                        Ok(polyfilled) => polyfilled,
                        Err(error) => return Ok(Err(error)),
                    };
                let input = RenderInput {
                    messages: &polyfilled.messages,
                    polyfilled: None,
                    add_generation_prompt,
                    continue_final_message: None,
                    spans: false,
                    limits: super::Limits {
                        ms: u64::try_from(remaining).unwrap_or(input.limits.ms),
                        ..input.limits
                    },
                    ..*input
                };
                match self.render(&input) {
                    Ok(prompt) => Ok(Ok(prompt.text)),
                    Err(_) if thread_time().saturating_sub(started) >= allowed => {
                        Err(too_long(allowed.as_millis()))
                    }
                    Err(error) if error.code() == Code::TemplateLimit => Err(error.about("mask")),
                    Err(error) => Ok(Err(error)),
                }
            },
        )
    }
}

fn too_long(ms: impl std::fmt::Display) -> Error {
    let message = format!(
        "mask: rendering the conversation turn by turn takes longer than {ms} ms; \
         raise template_limits.ms, or ask for the last turn alone"
    );
    Error::new(Code::TemplateLimit, message).with("kind", "limit")
}

/// The turns from the template's own blocks. Requires one block per assistant message, without text
/// of other messages.
fn turns_by_blocks(assistants: &[usize], prompt: &Prompt) -> Option<Vec<MaskedTurn>> {
    if prompt.generation.is_empty() || prompt.generation.len() != assistants.len() {
        return None;
    }
    let turns = assistants.iter().zip(&prompt.generation).map(|(message, range)| {
        let member = format!("messages[{message}]");
        let mut inside =
            prompt.spans.iter().filter(|span| span.start < range.end && range.start < span.end);
        let own = inside.all(|span| span.path.starts_with(&member));
        own.then(|| MaskedTurn { message: *message, range: range.clone() })
    });
    turns.collect()
}

/// The turns from comparing renders. `render(count, add_generation_prompt)` returns the prompt of
/// the first `count` messages, or the reason why it cannot be rendered. `ends` is the message that
/// the whole prompt ends with.
fn turns_by_renders(
    prompt: &str,
    turns: &[usize],
    ends: Option<usize>,
    mut render: impl FnMut(usize, bool) -> Result<Result<String>>,
) -> Result<PromptMask> {
    let mut mask = PromptMask::default();
    for &message in turns {
        let found = match render(message, true)? {
            // Most turns without a range fail here, which saves the second render.
            Ok(before) if prompt.starts_with(&before) => {
                let through = if ends == Some(message) {
                    Ok(prompt.to_owned())
                } else {
                    render(message + 1, false)?
                };
                through.map(|through| turn_range(prompt, &before, &through))
            }
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        let reason = match found {
            Ok(Some(range)) => {
                mask.turns.push(MaskedTurn { message, range });
                continue;
            }
            Ok(None) => "the template renders the conversation up to this turn differently when \
             it ends there"
                .to_owned(),
            Err(error) => {
                format!("the conversation up to this turn does not render: {}", error.message())
            }
        };
        mask.omitted.push(OmittedTurn { message, reason });
    }
    Ok(mask)
}

/// The trainable bytes of one turn: `through` (the prompt up to and including the turn) without the
/// prefix `before` (the prompt before the turn, with the generation prompt) and without trailing
/// whitespace. `None` unless `before` is a prefix of `through`, and `through` is a prefix of the
/// prompt.
pub(crate) fn turn_range(prompt: &str, before: &str, through: &str) -> Option<Range<usize>> {
    let turn = through.strip_prefix(before).filter(|_| prompt.starts_with(through))?;
    Some(before.len()..before.len() + turn.trim_end().len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::template::{Limits, LocalTime, Sources};

    #[test]
    fn range_of_one_turn() {
        for (prompt, before, through, range) in [
            ("U:hi A:yo. \nU:", "U:hi A:", "U:hi A:yo. \n", Some(7..10)),
            ("U:hi A:", "U:hi A:", "U:hi A:", Some(7..7)),
            // The turn does not start with the generation prompt, because the prompt continues
            // differently.
            ("U:hi A:yo", "U:hi A:<think>", "U:hi A:yo", None),
            ("U:hi A:yo U:", "U:hi A:", "U:hi A:yo!", None),
        ] {
            assert_eq!(turn_range(prompt, before, through), range, "{prompt}");
        }
    }

    #[test]
    fn renders_are_not_wasted() {
        for (turns, ends, renders) in [
            (&[1, 3][..], None, 4),
            // The last turn ends the prompt.
            (&[1, 3], Some(3), 3),
            (&[3], Some(3), 1),
            (&[], None, 0),
        ] {
            let mut count = 0;
            let mask = turns_by_renders("UAUA", turns, ends, |messages, _| {
                count += 1;
                Ok(Ok("UAUA"[..messages].to_owned()))
            });
            let known: Vec<usize> = mask.unwrap().turns.iter().map(|turn| turn.message).collect();
            assert_eq!((count, &known[..]), (renders, turns));
        }
        // If the prompt does not start with the prompt before the turn, there is no second render.
        let mut count = 0;
        let mask = turns_by_renders("UA", &[1], None, |_, _| {
            count += 1;
            Ok(Ok("X".to_owned()))
        });
        assert_eq!((count, mask.unwrap().omitted.len()), (1, 1));
    }

    #[test]
    fn all_renders_share_one_time_limit() {
        let sources = Sources {
            default: Some("{% for m in messages %}{{ m.content }}{% endfor %}".to_owned()),
            ..Sources::default()
        };
        let templates = Templates::compile(&sources).unwrap();
        let messages = [
            json!({ "role": "user", "content": "a" }),
            json!({ "role": "assistant", "content": "b" }),
        ];
        let input = RenderInput::new(&messages, LocalTime::parse("2026-01-31T09:30:00").unwrap());
        let prompt = templates.render(&input).unwrap();
        let polyfills = Polyfills { apply_polyfills: false, ..Polyfills::default() };
        let spent = RenderInput { limits: Limits { ms: 0, ..Limits::default() }, ..input };
        let error = templates
            .mask(
                MaskScope::All,
                &spent,
                &messages,
                (templates.traits().into(), &polyfills),
                &prompt,
            )
            .unwrap_err();
        assert_eq!(
            (error.code(), error.details().unwrap()["kind"].as_str()),
            (Code::TemplateLimit, Some("limit"))
        );
        assert!(error.message().contains("template_limits.ms"), "{error}");
        let mask = templates
            .mask(
                MaskScope::All,
                &input,
                &messages,
                (templates.traits().into(), &polyfills),
                &prompt,
            )
            .unwrap();
        assert_eq!(mask.turns, [MaskedTurn { message: 1, range: 1..2 }]);
    }
}
