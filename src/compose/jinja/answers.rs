//! Writes assistants' turns in Jinja, with their reasoning, and the end of a prompt.

use super::text::{filled, quoted, text, value};
use super::writer::{ASSISTANT, SYSTEM, TemplateWriter, parts, turn};
use crate::compose::spec::policy::START;
use crate::compose::spec::reasoning::{EmptyReasoning, KeepReasoning};
use crate::compose::spec::slots::SlotPattern;

/// Is stripped from both ends of reasoning inside an answer's text, and from the start of the text
/// after it.
const NEWLINE: &str = "\\n";

impl TemplateWriter<'_> {
    /// Sets `text` to the text of the answer. If reasoning is shown, the text includes it.
    pub(crate) fn answer(&mut self) {
        let policy = &self.spec.assistant_policy.reasoning;
        self.lines.set("text", value(&parts("message.content", ASSISTANT)));
        self.null_content();
        let template = self.spec.reasoning_template.as_ref();
        if template.is_none() && policy.inline.is_none() {
            self.spoken();
            return;
        }
        self.lines.set(
            "thoughts",
            value("(message.reasoning_content if message.reasoning_content is string else \"\")"),
        );
        if let Some(tags) = &policy.inline {
            let (start, end) = (quoted(&tags.start), quoted(&tags.end));
            self.lines
                .open(&format!("if message.reasoning_content is not string and {end} in text"));
            let thoughts = format!(
                "text.split({end})[0].rstrip(\"{NEWLINE}\").split({start})[-1].lstrip(\"{NEWLINE}\")"
            );
            self.lines.set("thoughts", value(&thoughts));
            self.lines.set("text", value(&format!("text.split({end})[-1].lstrip(\"{NEWLINE}\")")));
            self.lines.close("endif");
        }
        self.spoken();
        let Some(template) = template else { return };
        let after_question = format!("loop.index0 > {}", self.question());
        let kept = match policy.keep {
            KeepReasoning::All => "thoughts".to_owned(),
            KeepReasoning::LastTurn => format!("thoughts and {after_question}"),
        };
        let shown = match policy.empty {
            EmptyReasoning::None => kept,
            EmptyReasoning::Last => format!("({kept}) or loop.last"),
            EmptyReasoning::LastTurn => format!("({kept}) or {after_question}"),
        };
        self.lines.open(&format!("if {shown}"));
        self.lines.set("text", filled(template, |_| value("thoughts")).value("text"));
        self.lines.close("endif");
    }

    /// The variable that contains the index of the last question.
    fn question(&self) -> &'static str {
        if self.spec.assistant_policy.reasoning.no_question.is_some() {
            "question.last"
        } else {
            "users.last"
        }
    }

    /// Whether the form of an answer depends on the position of the last question.
    pub(crate) fn depends_on_question(&self) -> bool {
        let policy = &self.spec.assistant_policy.reasoning;
        let depends =
            policy.keep == KeepReasoning::LastTurn || policy.empty == EmptyReasoning::LastTurn;
        self.spec.reasoning_template.is_some() && depends
    }

    /// Sets `question.last`, if some user messages do not count as questions.
    pub(crate) fn questions(&mut self) {
        let tags = self.spec.assistant_policy.reasoning.no_question.as_ref();
        let Some(tags) = tags.filter(|_| self.depends_on_question()) else { return };
        self.lines.comment("The last message of a user that is no tool result in disguise.");
        self.lines.set("question", value("namespace(last=-1)"));
        self.lines.open("for message in messages");
        let begins =
            format!("message.content[:{}] == {}", tags.start.chars().count(), quoted(&tags.start));
        let ends =
            format!("message.content[-{}:] == {}", tags.end.chars().count(), quoted(&tags.end));
        self.lines.open(&format!("if message.role == \"user\" and message.content is string and not ({begins} and {ends})"));
        self.lines.set("question.last", value("loop.index0"));
        self.lines.close("endif");
        self.lines.close("endfor");
    }

    /// Writes the turn of an answer from `text` and `calls`.
    pub(crate) fn answer_turn(&mut self) {
        let after = &self.spec.turns.opener_after;
        let opened: Vec<String> =
            after.iter().filter(|role| **role != START).map(|role| quoted(role)).collect();
        if !after.is_empty() {
            let first = if after.contains(&START) { "not loop.first and" } else { "loop.first or" };
            let before = "messages[loop.index0 - 1].role";
            self.lines.open(&format!("if {first} {before} not in [{}]", opened.join(", ")));
            self.answer_forms(false);
            self.lines.or("else");
        }
        self.answer_forms(true);
        if !after.is_empty() {
            self.lines.close("endif");
        }
    }

    /// Writes the variants of a turn, with or without the text before the first slot.
    fn answer_forms(&mut self, with_head: bool) {
        let spec = self.spec;
        let with_calls = spec.calls_turn.as_ref().map(|turn| ("message.tool_calls", turn));
        let empty = "message.tool_calls is defined and message.tool_calls is not none and not \
                     message.tool_calls";
        let empty_calls = spec.empty_calls_turn.as_ref().map(|turn| (empty, turn));
        let is_last = if spec.turns.last_answer_with_prompt {
            "loop.last"
        } else {
            "loop.last and not add_generation_prompt"
        };
        let last = spec.turns.last_answer.as_ref().map(|last| (is_last, last));
        let forms: Vec<_> = with_calls.into_iter().chain(empty_calls).chain(last).collect();
        self.choose(&forms, &spec.assistant_template, |writer, pattern| {
            writer.answer_form(pattern, with_head);
        });
    }

    /// Writes a choice: the value of the first condition that holds, or else the default.
    fn choose<T: ?Sized>(
        &mut self,
        cases: &[(&str, &T)],
        default: &T,
        write: impl Fn(&mut Self, &T),
    ) {
        for (at, (condition, case)) in cases.iter().enumerate() {
            match at {
                0 => self.lines.open(&format!("if {condition}")),
                _ => self.lines.or(&format!("elif {condition}")),
            }
            write(self, case);
        }
        if cases.is_empty() {
            return write(self, default);
        }
        self.lines.or("else");
        write(self, default);
        self.lines.close("endif");
    }

    fn answer_form(&mut self, pattern: &SlotPattern, with_head: bool) {
        let pattern = if with_head { pattern.clone() } else { pattern.without_head() };
        let turn = turn(self.spec, &pattern, |slot| {
            value(if slot == "tool_calls" { "calls" } else { "text" })
        });
        if self.marked {
            self.lines.tag("generation");
        }
        self.lines.write(turn);
        if self.marked {
            self.lines.tag("endgeneration");
        }
    }

    /// Writes system messages after the first message.
    pub(crate) fn late_system(&mut self) {
        if let Some(pattern) = &self.spec.turns.late_system {
            self.lines.or("elif message.role == \"system\"");
            self.lines.write(filled(pattern, |_| value(&parts("message.content", SYSTEM))));
        }
    }

    /// Writes the generation prompt, or the text that replaces it.
    pub(crate) fn prompt(&mut self) {
        let turns = &self.spec.turns;
        let prompt = self.spec.generation_prompt();
        let differs = |other: &&str| *other != prompt;
        let others = [
            (
                "messages and messages[-1].role == \"assistant\"",
                turns.prompt_after_answer.as_deref().filter(differs),
            ),
            (
                "enable_thinking is defined and enable_thinking is false",
                turns.no_thinking_prompt.as_deref().filter(differs),
            ),
        ];
        let others: Vec<_> =
            others.into_iter().filter_map(|(condition, other)| Some((condition, other?))).collect();
        if prompt.is_empty() && others.is_empty() && turns.ending.is_empty() {
            return;
        }
        let except = if turns.no_prompt_after.is_empty() {
            String::new()
        } else {
            let roles: Vec<String> =
                turns.no_prompt_after.iter().map(|role| quoted(role)).collect();
            format!(" and not (messages and messages[-1].role in [{}])", roles.join(", "))
        };
        self.lines.open(&format!("if add_generation_prompt{except}"));
        self.choose(&others, &*prompt, |writer, prompt| writer.lines.write(text(prompt)));
        if !turns.ending.is_empty() {
            self.lines.or("elif not add_generation_prompt");
            self.lines.write(text(&turns.ending));
        }
        self.lines.close("endif");
    }
}
