//! Writes a spec as a Jinja template that transformers, vLLM and llama.cpp can run.
//!
//! The template uses only features that all of them support: if, for, set, block set, macros,
//! namespaces, `~`, and a few filters and tests. Text is joined and never replaced, so a message
//! may look like a slot.

mod answers;
mod calls;
mod system;
mod text;
mod tools;
mod writer;

use super::spec::policy::{ContentParts, Placement};
use super::spec::processor::Processor;
use super::spec::{ComponentSpec, UnknownRoles};
use text::{TemplateLines, filled, text, value};
use writer::{TemplateWriter, USER, parts, processed, turn};

/// The template of a spec. With `marked`, assistants' turns are inside `{% generation %}` blocks.
pub(crate) fn template(spec: &ComponentSpec, marked: bool) -> String {
    let mut lines = TemplateLines::default();
    let writer = TemplateWriter { spec, marked, lines: &mut lines };
    writer.write();
    lines.finish()
}

impl TemplateWriter<'_> {
    fn write(mut self) {
        self.lines
            .comment("Composed from components by llb; change the components, not this text.");
        self.parts();
        self.bare();
        self.tools();
        self.skills();
        if !self.spec.global_policy.prefix.is_empty() {
            self.lines.write(text(&self.spec.global_policy.prefix));
        }
        self.system();
        self.indices();
        self.turns();
        self.prompt();
    }

    /// Writes the macro that turns content into text.
    fn parts(&mut self) {
        let spec = self.spec;
        let vision = |token: &str| text(&spec.vision_start).text(token).text(&spec.vision_end);
        self.lines.comment("The text of a message: a string, nothing, or a list of parts.");
        self.lines.open("macro parts(content, role)");
        self.lines.open("if content is string");
        self.lines.write(value("content"));
        if spec.turns.content_parts == ContentParts::Drop {
            self.lines.close("endif");
            self.lines.close("endmacro");
            return;
        }
        self.lines.or("elif content");
        self.lines.open("for part in content");
        self.lines.open("if part.type == \"text\"");
        self.lines.write(value("part.text"));
        if let Some(token) = &spec.image_token {
            self.lines.or(
                "elif part.type in [\"image\", \"image_url\"] and role in [\"user\", \"tool\"]",
            );
            self.lines.write(vision(token));
        }
        if let Some(token) = &spec.video_token {
            self.lines.or("elif part.type == \"video\" and role == \"user\"");
            self.lines.write(vision(token));
        }
        if spec.turns.content_parts == ContentParts::Error {
            self.lines.or("else");
            self.lines.write(value(
                "raise_exception(\"unsupported_part: a part of type \" ~ part.type ~ \" in a \
                 message of role \" ~ role)",
            ));
        }
        self.lines.close("endif");
        self.lines.close("endfor");
        self.lines.close("endif");
        self.lines.close("endmacro");
    }

    /// Sets `users.first` and `users.last`, which give the place of tools and the last question.
    fn indices(&mut self) {
        let spec = self.spec;
        let tools =
            spec.user_with_tools().is_some() || spec.system_policy.placement != Placement::System;
        self.questions();
        if !tools
            && (!self.depends_on_question()
                || spec.assistant_policy.reasoning.no_question.is_some())
        {
            return;
        }
        self.lines.source(include_str!("user_indices.jinja"));
    }

    fn turns(&mut self) {
        let spec = self.spec;
        self.lines.comment("The turns.");
        if spec.observations_template.is_some() {
            self.lines.set("results", value("namespace(text=\"\")"));
        }
        self.lines.open("for message in messages");
        self.lines.open("if loop.first and has_system");
        self.lines.comment("Written above.");
        self.lines.or("elif message.role == \"user\"");
        self.user();
        self.lines.or("elif message.role == \"assistant\"");
        self.assistant();
        self.lines.or("elif message.role == \"tool\"");
        self.results();
        self.late_system();
        match spec.unknown_roles {
            UnknownRoles::Drop => {}
            UnknownRoles::Error => {
                self.lines.or("else");
                self.lines.write(value("raise_exception(\"unexpected_role: \" ~ message.role)"));
            }
            UnknownRoles::AsUser => {
                self.lines.or("else");
                self.lines
                    .write(filled(&spec.user_template, |_| value(&parts("message.content", USER))));
            }
        }
        self.lines.close("endif");
        self.lines.close("endfor");
    }

    fn user(&mut self) {
        let spec = self.spec;
        let mut content = value(&parts("message.content", USER));
        if let Some(system) = self.system_of_user() {
            content = value(&system).value(&parts("message.content", USER));
        }
        let turn =
            |pattern| {
                turn(spec, pattern, |slot| {
                    if slot == "tools" { value("tools_raw") } else { content.clone() }
                })
            };
        let Some(with_tools) = spec.user_with_tools() else {
            self.lines.write(turn(&spec.user_template));
            return;
        };
        let tools = spec.tool_policy.has_tools();
        self.lines.open(&format!(
            "if {tools} and loop.index0 == users.{}",
            spec.tool_policy.placement.user()
        ));
        self.lines.write(turn(with_tools));
        self.lines.or("else");
        self.lines.write(turn(&spec.user_template));
        self.lines.close("endif");
    }

    fn assistant(&mut self) {
        let spec = self.spec;
        self.answer();
        // `answer` has already stripped the text, before it added the reasoning.
        let processor = spec.assistant_policy.processor.as_ref();
        if let Some(processor) = processor.filter(|processor| **processor != Processor::Strip) {
            self.lines.set("text", processed(processor, "text"));
        }
        if spec.shows_calls() {
            self.calls();
        }
        self.answer_turn();
    }
}
