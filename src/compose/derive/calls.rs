//! Derives the tool calls of an answer: the text around each call and around all calls, and their
//! position before or after the answer's text.

use serde_json::{Value, json};

use super::call_form::{self, SingleCallForm};
use super::chat::ChatForm;
use super::probes::{ANSWER, Compose, USER, USER_2, contains_needle, probe_call, probe_calls};
use super::wrapping::{Wrapping, escaped, with_slot};
use crate::probing::diff::text_between;
use crate::probing::{Probe, ProbeRenderer};

/// How a template writes the calls of an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct CallsForm {
    /// How one call is written. None if the template writes calls in an unknown way.
    pub(super) form: Option<SingleCallForm>,
    /// The text around all calls and around each. None if the template writes calls in an unknown
    /// way.
    pub(super) wrapping: Option<Wrapping>,
    /// Whether the calls precede the answer's text.
    pub(super) before_text: bool,
    /// The end of `assistant.before` that an answer without text omits.
    pub(super) if_nonempty: Option<String>,
    /// The text between the answer's text and the calls.
    pub(super) separator: String,
    /// The value of `assistant_template_with_calls`, if the turn differs from that of a plain
    /// answer.
    pub(super) turn: Option<String>,
    /// The value of `assistant_template_with_empty_calls`.
    pub(super) empty: Option<String>,
    /// Whether the template rejects arguments that are not text.
    pub(super) text_arguments: bool,
    pub(super) residual: Vec<&'static str>,
}

/// The prompt up to the end of the last turn, rendered with a user turn after it, because a last
/// turn may be written differently. If the template rejects that, the prompt without the user turn.
pub(super) fn inner_turn(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    conversation: &Probe,
) -> Option<String> {
    let followed = foreign.prompt(&conversation.clone().user(USER_2));
    let inner = followed
        .as_deref()
        .and_then(|prompt| prompt.split_once(USER_2)?.0.strip_suffix(&*chat.user.before));
    inner.map(str::to_owned).or_else(|| foreign.prompt(conversation))
}

/// The text that an answer with null content has. A template may print null as Python does.
pub(super) fn null_content(foreign: &ProbeRenderer<'_>) -> &'static str {
    let saying = |content: Value| {
        let message = json!({ "role": "assistant", "content": content, "tool_calls": probe_calls(false)[..1] });
        foreign.prompt(&Probe::from_user(USER).message(message))
    };
    let null = saying(Value::Null);
    if null.is_some() && null == saying("None".into()) && null != saying("".into()) {
        "None"
    } else {
        ""
    }
}

/// Derives the form of calls. None if the template does not print calls.
pub(super) fn derive(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    compose: &Compose<'_>,
) -> Option<CallsForm> {
    let renders = match CallRenders::new(foreign, chat) {
        Ok(renders) => renders,
        Err(found) => return found.map(|found| *found),
    };
    let mut found = CallsForm { text_arguments: renders.text_arguments, ..CallsForm::default() };
    let Some(form) = renders.call_form(compose) else {
        found.residual.push(
            "a call is not printed as JSON or as text around its name, its id and its arguments",
        );
        return Some(found);
    };
    let turn = CallContext { chat, first: &form.texts[0] };
    let Some((before, after)) = turn.wrapper(&renders, &mut found) else {
        found.residual.push("the turn around calls differs from that of a plain answer");
        return Some(found);
    };
    if [&before, &after].into_iter().any(|text| contains_needle(text)) {
        found.residual.push("parts of a call are printed outside the text of the call");
        return Some(found);
    }
    found.wrapping = Some(renders.wrapping(&form, &before, &after, &mut found.residual));
    found.form = Some(form);
    found.empty = renders.empty_calls();
    Some(found)
}

/// Renders of an answer with calls.
struct CallRenders<'a> {
    foreign: &'a ProbeRenderer<'a>,
    chat: &'a ChatForm,
    calls: Vec<Value>,
    text_arguments: bool,
    /// One call in an answer without text.
    one: Option<String>,
    /// One call in an answer with text.
    spoken: Option<String>,
}

impl<'a> CallRenders<'a> {
    /// Renders one call, with arguments as text if the template rejects objects. The error is the
    /// final result for a template that prints no calls.
    fn new(
        foreign: &'a ProbeRenderer<'a>,
        chat: &'a ChatForm,
    ) -> Result<CallRenders<'a>, Option<Box<CallsForm>>> {
        for text_arguments in [false, true] {
            let mut renders = CallRenders {
                foreign,
                chat,
                calls: probe_calls(text_arguments),
                text_arguments,
                one: None,
                spoken: None,
            };
            renders.one = renders.render("", &renders.calls[..1]);
            renders.spoken = renders.render(ANSWER, &renders.calls[..1]);
            let shown: Vec<&String> = renders.one.iter().chain(&renders.spoken).collect();
            if shown.is_empty() {
                continue;
            }
            let shows_call = |text: &&String| {
                ["qtoolone", "Qplaceone"].iter().any(|needle| text.contains(needle))
            };
            return if shown.iter().any(shows_call) { Ok(renders) } else { Err(None) };
        }
        let residual = vec!["the template rejects tool calls"];
        Err(Some(Box::new(CallsForm { text_arguments: true, residual, ..CallsForm::default() })))
    }

    fn render(&self, text: &str, calls: &[Value]) -> Option<String> {
        inner_turn(self.foreign, self.chat, &Probe::from_user(USER).calls(text, calls))
    }

    fn call_form(&self, compose: &Compose<'_>) -> Option<SingleCallForm> {
        let sample = self.one.as_ref().or(self.spoken.as_ref())?;
        let text = if self.one.is_none() { ANSWER } else { "" };
        let render = |arguments: &Value| self.render(text, &[probe_call(arguments)]);
        call_form::find(sample, &self.calls, &render, compose)
    }

    /// The text around all calls and around each call, from a render of two calls.
    fn wrapping(
        &self,
        form: &SingleCallForm,
        before: &str,
        after: &str,
        residual: &mut Vec<&'static str>,
    ) -> Wrapping {
        let two = self.render("", &self.calls).or_else(|| self.render(ANSWER, &self.calls));
        let between =
            two.as_deref().and_then(|two| text_between(two, &form.texts[0], &form.texts[1]));
        match between.filter(|between| !contains_needle(between)) {
            Some(between) => Wrapping::joined(before, between, after),
            None => {
                if two.is_some() {
                    residual.push("several calls are not printed as one is");
                }
                Wrapping::single(before, after)
            }
        }
    }

    /// The value of `assistant_template_with_empty_calls`, if an empty list of calls changes an
    /// answer.
    fn empty_calls(&self) -> Option<String> {
        let empty = self.render(ANSWER, &[]);
        let answer = Probe::from_user(USER).assistant(ANSWER);
        if empty == inner_turn(self.foreign, self.chat, &answer) {
            return None;
        }
        let own = empty.as_deref()?.split_once(USER)?.1.strip_prefix(&*self.chat.user.after)?;
        let template = escaped(own).replacen(ANSWER, "{content}", 1);
        (!contains_needle(&template)).then_some(template)
    }
}

/// The text around the call in a turn with text.
struct CallWithText {
    /// The text between the answer's text and the call, or before the call.
    before: String,
    /// The text after the call, without the end of the turn.
    after: String,
    calls_first: bool,
}

/// The turn of an answer with calls, if it is more than a plain answer with inserted calls.
#[derive(Default)]
struct OwnCallTurn {
    template: String,
    before: String,
    after: String,
}

struct CallContext<'a> {
    chat: &'a ChatForm,
    first: &'a str,
}

impl CallContext<'_> {
    /// The texts before and after the call; None if the turn is unknown.
    fn wrapper(
        &self,
        renders: &CallRenders<'_>,
        found: &mut CallsForm,
    ) -> Option<(String, String)> {
        let (one, spoken) = (renders.one.as_deref(), renders.spoken.as_deref());
        let alone = one.and_then(|one| self.alone(one));
        let with_text = spoken.and_then(|spoken| self.with_text(spoken));
        if alone.is_none() || with_text.is_none() {
            let own = one.zip(spoken).and_then(|(one, spoken)| self.own_turn(one, spoken));
            if let Some(OwnCallTurn { template, before, after }) = own {
                found.turn = Some(template);
                return Some((before, after));
            }
        }
        match (alone, with_text) {
            (Some(alone), Some(text)) => Some(self.combine(&alone, text, found)),
            (Some(alone), None) => {
                found
                    .residual
                    .push("an answer with calls and text is not printed as its parts are");
                Some(self.strip(&alone))
            }
            (None, Some(text)) => {
                found
                    .residual
                    .push("an answer with calls and no text is not printed as its parts are");
                found.before_text = text.calls_first;
                Some((text.before, text.after))
            }
            (None, None) => None,
        }
    }

    /// Combines the texts around the call from the renders with and without text.
    fn combine(
        &self,
        alone: &(String, String),
        text: CallWithText,
        found: &mut CallsForm,
    ) -> (String, String) {
        found.before_text = text.calls_first;
        found.if_nonempty = self.lacking(&alone.0, &text);
        match (&found.if_nonempty, self.separator(alone, &text)) {
            // An empty answer without calls starts in the same way as one with calls.
            (Some(lacking), _) if !text.calls_first && *lacking == self.chat.if_nonempty => {
                (text.before, text.after)
            }
            (_, Some(separator)) => {
                found.if_nonempty = None;
                found.separator = separator;
                self.strip(alone)
            }
            (Some(_), None) if !text.calls_first => (text.before, text.after),
            (lacking, None) => {
                if lacking.is_none() {
                    found.residual.push("the text before calls depends on the answer's text");
                }
                self.strip(alone)
            }
        }
    }

    /// The texts from the user turn to the call, and from the call to the end of the turn, in an
    /// answer without text.
    fn alone(&self, prompt: &str) -> Option<(String, String)> {
        let (before, after) = prompt.split_once(self.first)?;
        let (_, before) = before.split_once(USER)?;
        let before = before.strip_prefix(&*self.chat.user.after)?;
        Some((before.to_owned(), self.ended(after)?))
    }

    /// The texts around the call in an answer with text.
    fn with_text(&self, prompt: &str) -> Option<CallWithText> {
        let (before, after) = prompt.split_once(self.first)?;
        let (_, turn) = prompt.split_once(USER)?;
        let begin = format!("{}{}", self.chat.user.after, self.chat.assistant.before);
        if let Some((begun, between)) = before.split_once(ANSWER) {
            let whole = begun.split_once(USER)?.1 == begin;
            return whole.then_some(CallWithText {
                before: between.to_owned(),
                after: self.ended(after)?,
                calls_first: false,
            });
        }
        let before = turn.split_once(self.first)?.0.strip_prefix(&*begin)?;
        let (between, end) = after.split_once(ANSWER)?;
        (end == self.chat.assistant.after).then(|| CallWithText {
            before: before.to_owned(),
            after: between.to_owned(),
            calls_first: true,
        })
    }

    /// The text after a call, without the end of the turn. The last turn may have a different end.
    fn ended(&self, after: &str) -> Option<String> {
        let end = &*self.chat.assistant.after;
        if let Some(after) = after.strip_suffix(end) {
            return Some(after.to_owned());
        }
        after.strip_suffix(end.trim_end()).map(str::to_owned)
    }

    /// The part of `assistant.before` that is missing in an answer with only calls.
    fn lacking(&self, alone: &str, text: &CallWithText) -> Option<String> {
        let begin = alone.strip_suffix(&*text.before)?;
        if text.calls_first && begin != self.chat.assistant.before {
            return None;
        }
        self.chat.assistant.before.strip_prefix(begin).map(str::to_owned)
    }

    /// The turn for answers with calls, from prompts without and with text. Needed if calls
    /// suppress the text or change the end of the turn.
    fn own_turn(&self, one: &str, spoken: &str) -> Option<OwnCallTurn> {
        let around = |prompt: &str| -> Option<[String; 2]> {
            let (before, after) = prompt.split_once(self.first)?;
            let before = before.split_once(USER)?.1.strip_prefix(&*self.chat.user.after)?;
            Some([before.to_owned(), after.to_owned()])
        };
        let ([before, after], [with_before, with_after]) = (around(one)?, around(spoken)?);
        let ChatForm { assistant, .. } = self.chat;
        let own = before.strip_prefix(&*assistant.before);
        let head = if own.is_some() { &*assistant.before } else { "" };
        let made = |head: &str, slots: &str, tail: &str, before: &str, after: &str| OwnCallTurn {
            template: format!("{}{slots}{}", escaped(head), escaped(tail)),
            before: before.to_owned(),
            after: after.to_owned(),
        };
        if let Some((head, between)) = with_before.split_once(ANSWER) {
            let same = with_after == after && before == format!("{head}{between}");
            return same.then(|| made(head, "{content}{tool_calls}", "", between, &after));
        }
        let before_calls = own.unwrap_or(&before);
        if let Some((after_calls, tail)) = with_after.split_once(ANSWER) {
            let same = with_before == before && after == format!("{after_calls}{tail}");
            return same
                .then(|| made(head, "{tool_calls}{content}", tail, before_calls, after_calls));
        }
        let tail = if after.ends_with(&*assistant.after) { &*assistant.after } else { "" };
        let same = with_before == before && with_after == after;
        same.then(|| {
            made(head, "{tool_calls}", tail, before_calls, &after[..after.len() - tail.len()])
        })
    }

    /// The text between the answer's text and the calls. None unless an answer without text has
    /// everything else.
    fn separator(&self, (before, after): &(String, String), text: &CallWithText) -> Option<String> {
        let own = before.strip_prefix(&*self.chat.assistant.before)?;
        let separator = if text.calls_first {
            text.after.strip_prefix(&**after).filter(|_| text.before == own)?
        } else {
            text.before.strip_suffix(own).filter(|_| text.after == *after)?
        };
        Some(separator.to_owned())
    }

    /// Removes the text of a plain answer from the texts around the call.
    fn strip(&self, (before, after): &(String, String)) -> (String, String) {
        let own = before.strip_prefix(&*self.chat.assistant.before).unwrap_or(before);
        (own.to_owned(), after.clone())
    }
}

impl CallsForm {
    /// The values of `single_tool_call_template` and `tool_calls_template`.
    pub(super) fn templates(&self) -> Option<[String; 2]> {
        let Wrapping { before, each_before, each_after, after, .. } = self.wrapping.as_ref()?;
        let call = &self.form.as_ref()?.template;
        Some([
            format!("{}{call}{}", escaped(each_before), escaped(each_after)),
            with_slot(before, "tool_calls", after),
        ])
    }
}
