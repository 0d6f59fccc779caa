//! The system turn in Jinja: written before all turns, or kept for the user's turn that it goes into.

use super::jinja::{SYSTEM, Writer, parts, processed};
use super::policy::Placement;
use super::slots::Pattern;
use super::text::{Joined, filled, quoted, text, value};

/// Today's date, in this form.
pub(super) fn date(format: &str) -> String {
    format!("(date_string if date_string is defined else strftime_now({}))", quoted(format))
}

impl Writer<'_> {
    /// Writes the system turn, or sets `system_text` to it where it goes into a user's.
    pub(super) fn system(&mut self) {
        let spec = self.spec;
        let policies = &spec.policies;
        self.lines.comment("The system turn.");
        self.lines.set("has_system", value("(messages and messages[0].role == \"system\")"));
        if !policies.use_system {
            return;
        }
        if self.system_of_user().is_some() {
            self.lines.set("system_text", text(""));
        }
        let filled = if policies.empty_message_is_none { " and messages[0].content" } else { "" };
        self.lines.open(&format!("if has_system{filled}"));
        let content = if policies.first_system_part {
            self.lines.set("content", value("messages[0].content"));
            self.lines.open("if content and content is not string");
            self.lines.set("content", value("content[:1]"));
            self.lines.close("endif");
            "content"
        } else {
            "messages[0].content"
        };
        self.lines.set("text", value(&parts(content, SYSTEM)));
        self.system_turn(&spec.system_template);
        match (policies.system_without_message, policies.system_with_tools) {
            (true, _) => self.lines.or("else"),
            (false, true) => {
                let skills = if spec.skills_template.is_some() { " or skills" } else { "" };
                self.lines.or(&format!("elif {}{skills}", policies.has_tools()));
            }
            (false, false) => {
                self.lines.close("endif");
                return;
            }
        }
        self.lines.set("text", text(&spec.system_message));
        self.system_turn(spec.default_system());
        self.lines.close("endif");
    }

    /// A system turn whose message is `text`.
    fn system_turn(&mut self, template: &Pattern) {
        let policies = &self.spec.policies;
        if let Some(processor) = &policies.system_processor {
            self.lines.set("text", processed(processor, "text"));
        }
        let turn: Joined = filled(template, |slot| match slot {
            "tools" => value("tools_block"),
            "skills" => value("skills_block"),
            "date" => value(&date(&policies.date_format)),
            _ => value("text"),
        });
        match self.system_of_user() {
            Some(_) => self.lines.set("system_text", turn),
            None => self.lines.write(turn),
        }
    }

    /// What stands in front of a user's text; None where the system turn is one of its own.
    pub(super) fn system_of_user(&self) -> Option<String> {
        let policies = &self.spec.policies;
        (policies.use_system && policies.system_placement != Placement::System)
            .then(|| format!("(system_text if loop.index0 == users.{} else \"\")", policies.system_placement.user()))
    }
}
