//! `continue_final_message`: a prompt that ends inside the last message, so that the model
//! continues it.
//!
//! As in transformers 5.23: a tag is appended to the text, and the prompt is cut at the tag.

use std::ops::Range;

use serde_json::Value;

use super::Prompt;
use crate::error::{Code, Error, Result};

/// transformers' tag. The final space shows whether a template strips the text.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
/// The names of reasoning members. transformers appends the tag to each of them.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

fn non_null<'a>(message: &'a Value, name: &str) -> Option<&'a Value> {
    message.get(name).filter(|value| !value.is_null())
}

/// The reasoning of a message, under any of its names.
pub fn reasoning_of(message: &Value) -> Option<&Value> {
    REASONING.iter().find_map(|name| non_null(message, name))
}

impl Prompt {
    /// The bytes that the template wrote before the text and reasoning of the message at this
    /// index, back to the last text from the request. Requires the spans of the prompt.
    pub fn opening_of_message(&self, index: usize) -> Range<usize> {
        let message = format!("messages[{index}].");
        let is_text = |path: &str| {
            path.strip_prefix(&message).is_some_and(|member| {
                member.starts_with("content")
                    || REASONING.iter().any(|name| member.starts_with(name))
            })
        };
        let own = self.spans.iter().position(|span| is_text(&span.path));
        let before = &self.spans[..own.unwrap_or(self.spans.len())];
        let start = before.last().map_or(0, |span| span.end);
        start..own.map_or(self.text.len(), |index| self.spans[index].start)
    }
}

/// A conversation with a tag in its last message.
pub(crate) struct TaggedConversation {
    pub(crate) messages: Vec<Value>,
    text: String,
}

/// Tags a member of the last message. `source` is the template, which must mention the member.
pub(crate) fn tag(messages: &[Value], member: &str, source: &str) -> Result<TaggedConversation> {
    let refuse = |problem: &str| Err(Error::invalid("continue_final_message", problem));
    let mut messages = messages.to_vec();
    let Some(last) = messages.last_mut() else { return refuse("the conversation is empty") };
    // The reasoning is read before the tag is appended.
    let reasoning = reasoning_of(last).cloned();
    let value = if REASONING.contains(&member) {
        reasoning.clone()
    } else {
        non_null(last, member).cloned()
    };
    let Some(mut value) = value else {
        return refuse(&format!("the final message has no {member:?} to continue"));
    };
    let fields: Vec<&str> =
        if REASONING.contains(&member) { REASONING.to_vec() } else { vec![member] };
    if !fields.iter().any(|field| source.contains(field)) {
        return refuse(&format!("the chat template does not read {member:?}"));
    }
    let text = match &mut value {
        Value::String(text) => text,
        Value::Array(parts) => {
            let part = parts.iter_mut().rev().find_map(|part| part.get_mut("text"));
            match part {
                Some(Value::String(text)) => text,
                _ => return refuse("there is no text to continue in the final message"),
            }
        }
        _ => return refuse(&format!("{member:?} of the final message is not text")),
    };
    let sent = text.clone();
    text.push_str(TAG);
    if let (Some(reasoning), Value::Object(members)) = (reasoning, &mut *last)
        && REASONING.contains(&member)
    {
        for field in REASONING {
            if members.get(field).is_some_and(|known| *known == reasoning) {
                members.insert(field.to_owned(), value.clone());
            }
        }
    } else {
        last[member] = value;
    }
    Ok(TaggedConversation { messages, text: sent })
}

impl TaggedConversation {
    /// Cuts the prompt at the tag.
    pub(crate) fn cut(&self, prompt: &mut Prompt) -> Result<()> {
        let tag =
            prompt.text.rfind(TAG.trim_end()).filter(|_| prompt.text.contains(self.text.trim()));
        let Some(at) = tag else {
            let message = "continue_final_message: the final message does not appear in the prompt; \
                           the chat template deletes some or all of it";
            return Err(Error::new(Code::TemplateError, message).with("kind", "unsupported"));
        };
        let end = if prompt.text[at..].starts_with(TAG) {
            at
        } else {
            prompt.text[..at].trim_end().len()
        };
        prompt.text.truncate(end);
        prompt.spans.retain(|span| span.start < end);
        prompt.generation.retain(|range| range.start < end);
        if let Some(last) = prompt.spans.last_mut() {
            last.end = last.end.min(end);
        }
        if let Some(last) = prompt.generation.last_mut() {
            last.end = last.end.min(end);
        }
        Ok(())
    }
}
