//! What renders conversations: a foreign template, or the one that a derived spec is composed to.

use std::cell::Cell;

use serde_json::Map;

use super::conversation::Conversation;
use crate::template::{LocalTime, RenderInput, Templates};

/// The time every render sees, 2024-07-26T00:00:00, as probes of capabilities do.
const DAY: i64 = 86_400;
const TIME: i64 = 1_721_952_000;

/// Conversation in, prompt out.
pub(crate) trait Renderer {
    /// The prompt, or None when the template refuses the conversation.
    fn render(&self, conversation: &Conversation) -> Option<String>;
}

/// The day of a conversation, as a template prints it.
pub(crate) fn date(later: i64) -> String {
    time(later).strftime("%d %b %Y")
}

/// The same in another form.
pub(crate) fn date_as(format: &str, later: i64) -> String {
    time(later).strftime(format)
}

fn time(later: i64) -> LocalTime {
    LocalTime::from_unix_local(TIME + later * DAY, 0)
}

/// Compiled templates, rendered with the limits of a probe, and how often.
pub(crate) struct Compiled {
    templates: Templates,
    renders: Cell<usize>,
}

impl Compiled {
    /// Of these templates.
    pub(crate) fn new(templates: Templates) -> Compiled {
        Compiled { templates, renders: Cell::new(0) }
    }

    /// How many renders there were.
    pub(crate) fn renders(&self) -> usize {
        self.renders.get()
    }
}

impl Renderer for Compiled {
    fn render(&self, conversation: &Conversation) -> Option<String> {
        self.renders.set(self.renders.get() + 1);
        let kwargs = conversation
            .thinking
            .map(|thinking| Map::from_iter([("enable_thinking".to_owned(), thinking.into())]));
        let input = RenderInput {
            kwargs: kwargs.as_ref(),
            tools: conversation.tools.as_deref(),
            add_generation_prompt: conversation.generation_prompt,
            skills: conversation.skills.as_deref(),
            ..RenderInput::new(&conversation.messages, time(conversation.later))
        };
        self.templates.probe(&input).ok().map(|prompt| prompt.text)
    }
}
