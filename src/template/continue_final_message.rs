//! `continue_final_message`: a prompt that ends within the last message, for the model to go on
//! from there.
//!
//! As transformers 5.23 does it: a tag is added to the text, and the prompt is cut where the tag
//! comes out.

use serde_json::Value;

use super::Prompt;
use crate::error::{Code, Error, Result};

/// transformers' own tag. It ends with a blank, so that a template that strips the text is noticed.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
/// The names that reasoning goes by; transformers tags every copy.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A conversation whose last message is tagged.
pub(crate) struct Continued {
    pub(crate) messages: Vec<Value>,
    /// The text that goes on.
    text: String,
}

/// Tags a member of the last message; `source` is the template, which must know such a member.
pub(crate) fn tag(messages: &[Value], member: &str, source: &str) -> Result<Continued> {
    let refuse = |problem: &str| Err(Error::invalid("continue_final_message", problem));
    let mut messages = messages.to_vec();
    let Some(last) = messages.last_mut() else { return refuse("the conversation is empty") };
    // What the reasoning is called is settled before the tag is set.
    let given = |last: &Value, name: &str| last.get(name).filter(|value| !value.is_null()).cloned();
    let reasoning = REASONING.iter().find_map(|name| given(last, name));
    let value = if REASONING.contains(&member) { reasoning.clone() } else { given(last, member) };
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
        _ => return refuse(&format!("{member:?} of the final message is no text")),
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
    Ok(Continued { messages, text: sent })
}

impl Continued {
    /// Cuts the prompt where the tag is.
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
