//! Tool calls of an answer: what stands round one and round all, and before the answer's text or
//! behind it.

use serde_json::{Value, json};

use super::Compose;
use super::call_form::{self, SingleCallForm};
use super::chat::ChatForm;
use super::needles::{ANSWER, USER, USER_2, contains_needle};
use super::wrapping::{Wrapping, escape};
use crate::probing::{Probe, ProbeRenderer, call};

/// What a template does with the calls of an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct CallsForm {
    /// One call; None when calls are not printed in a way that is known.
    pub(super) form: Option<SingleCallForm>,
    /// Round the calls and round each; None as well.
    pub(super) wrapping: Option<Wrapping>,
    /// The calls stand before the answer's text.
    pub(super) before_text: bool,
    /// The end of `assistant.before` that an answer without text lacks.
    pub(super) if_nonempty: Option<String>,
    /// Between a text and the calls.
    pub(super) separator: String,
    /// `assistant_template_with_calls`, where their turn is another.
    pub(super) turn: Option<String>,
    /// `assistant_template_with_empty_calls`.
    pub(super) empty: Option<String>,
    /// ArgumentForm are refused unless they are a text.
    pub(super) as_text: bool,
    pub(super) residual: Vec<String>,
}

/// The calls of the probes, their arguments as an object or as text.
pub(super) fn probes(as_text: bool) -> Vec<Value> {
    let arguments = |city: &str| {
        let arguments = json!({ "zone": city, "deep": { "b": [1, true, null], "a": "ü \"q\"" } });
        if as_text { Value::String(arguments.to_string()) } else { arguments }
    };
    vec![
        call("qcallonex", "qtoolone", &arguments("Qplaceone")),
        call("qcalltwox", "qtooltwo", &arguments("Qplacetwo")),
    ]
}

/// The prompt up to the end of the last turn, as it is when a user's follows: a last turn may have
/// marks of its own. Else as it is when nothing follows.
pub(super) fn turn(
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

/// What stands for the content of an answer that is null: a template may print it as Python does.
pub(super) fn null_content(foreign: &ProbeRenderer<'_>) -> &'static str {
    let saying = |content: Value| {
        let message =
            json!({ "role": "assistant", "content": content, "tool_calls": probes(false)[..1] });
        foreign.prompt(&Probe::from_user(USER).message(message))
    };
    let null = saying(Value::Null);
    if null.is_some() && null == saying("None".into()) && null != saying("".into()) {
        "None"
    } else {
        ""
    }
}

/// Finds them; None when they are not printed.
pub(super) fn derive(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    compose: &Compose<'_>,
) -> Option<CallsForm> {
    let mut calls = probes(false);
    let render = |text: &str, calls: &[Value]| {
        turn(foreign, chat, &Probe::from_user(USER).calls(text, calls))
    };
    let mut found = CallsForm::default();
    let mut one = render("", &calls[..1]);
    let mut spoken = render(ANSWER, &calls[..1]);
    if one.is_none() && spoken.is_none() {
        calls = probes(true);
        found.as_text = true;
        one = render("", &calls[..1]);
        spoken = render(ANSWER, &calls[..1]);
    }
    if one.is_none() && spoken.is_none() {
        found.residual.push("the template refuses tool calls".to_owned());
        return Some(found);
    }
    let shows = |text: &Option<String>| {
        text.as_ref().is_some_and(|text| text.contains("qtoolone") || text.contains("Qplaceone"))
    };
    if !shows(&one) && !shows(&spoken) {
        return None;
    }
    let sample = one.as_ref().or(spoken.as_ref())?;
    let spoken_only = one.is_none();
    let turn_of = |arguments: &Value| {
        render(if spoken_only { ANSWER } else { "" }, &[call_form::calling(arguments)])
    };
    let Some(form) = call_form::find(sample, &calls, &turn_of, compose) else {
        found.residual.push(
            "a call is not printed as JSON or as texts round its name, its id and its arguments"
                .to_owned(),
        );
        return Some(found);
    };
    let outer = CallTurn { chat, first: &form.texts[0] };
    let alone = one.as_deref().and_then(|one| outer.alone(one));
    let with_text = spoken.as_deref().and_then(|spoken| outer.with_text(spoken));
    let own =
        one.as_deref().zip(spoken.as_deref()).and_then(|(one, spoken)| outer.own_turn(one, spoken));
    let fits = alone.is_some() && with_text.is_some();
    let (before, after) = match (&alone, &with_text) {
        _ if !fits && own.is_some() => {
            let OwnCallTurn { template, before, after } = own.unwrap_or_default();
            found.turn = Some(template);
            (before, after)
        }
        (Some((before, _)), Some(text)) => {
            found.before_text = text.calls_first;
            found.if_nonempty = outer.lacking(before, text);
            let (own, after) = outer.strip(&alone)?;
            let separator = outer.separator(&alone, text);
            match (&found.if_nonempty, separator) {
                // An empty answer without calls begins as one with calls does.
                (Some(lacking), _) if !text.calls_first && *lacking == chat.if_nonempty => {
                    (text.before.clone(), text.after.clone())
                }
                (_, Some(separator)) => {
                    found.if_nonempty = None;
                    found.separator = separator;
                    (own, after)
                }
                (Some(_), None) if !text.calls_first => (text.before.clone(), text.after.clone()),
                (lacking, None) => {
                    if lacking.is_none() {
                        found
                            .residual
                            .push("the text before calls depends on the answer's text".to_owned());
                    }
                    (own, after)
                }
            }
        }
        (Some(_), None) => {
            found
                .residual
                .push("an answer with calls and text is not printed as its parts are".to_owned());
            outer.strip(&alone)?
        }
        (None, Some(text)) => {
            found.residual.push(
                "an answer with calls and no text is not printed as its parts are".to_owned(),
            );
            found.before_text = text.calls_first;
            (text.before.clone(), text.after.clone())
        }
        (None, None) => {
            found
                .residual
                .push("the turn round calls differs from that of a plain answer".to_owned());
            return Some(found);
        }
    };
    if [&before, &after].into_iter().any(|text| contains_needle(text)) {
        found.residual.push("parts of a call stand outside the text of the call".to_owned());
        return Some(found);
    }
    let two = render("", &calls).or_else(|| render(ANSWER, &calls));
    let between = two.as_deref().map(|two| {
        let (_, rest) = two.split_once(&*form.texts[0])?;
        rest.split_once(&*form.texts[1]).map(|(between, _)| between.to_owned())
    });
    found.wrapping = Some(match between.flatten() {
        Some(between) if !contains_needle(&between) => Wrapping::joined(&before, &between, &after),
        _ => {
            if two.is_some() {
                found.residual.push("several calls are not printed as one is".to_owned());
            }
            Wrapping::single(&before, &after)
        }
    });
    found.form = Some(form);
    let empty = render(ANSWER, &[]);
    if empty != turn(foreign, chat, &Probe::from_user(USER).assistant(ANSWER)) {
        let own = empty
            .as_deref()
            .and_then(|empty| empty.split_once(USER)?.1.strip_prefix(&*chat.user.after));
        let pattern = own.map(|own| escape(own).replacen(ANSWER, "{content}", 1));
        found.empty = pattern.filter(|pattern| !contains_needle(pattern));
    }
    Some(found)
}

/// What stands round the call in a turn with text.
struct CallWithText {
    /// Between the text and the call, or before the call.
    before: String,
    /// Behind the call, without the end of the turn.
    after: String,
    calls_first: bool,
}

/// The turn of an answer with calls, where it is not that of a plain answer with the calls put in.
#[derive(Default)]
struct OwnCallTurn {
    template: String,
    before: String,
    after: String,
}

struct CallTurn<'a> {
    chat: &'a ChatForm,
    first: &'a str,
}

impl CallTurn<'_> {
    /// The texts from the user's to the call, and behind it without the end of the turn, for an
    /// answer without text.
    fn alone(&self, prompt: &str) -> Option<(String, String)> {
        let (before, after) = prompt.split_once(self.first)?;
        let (_, before) = before.split_once(USER)?;
        let before = before.strip_prefix(&*self.chat.user.after)?;
        Some((before.to_owned(), self.ended(after)?))
    }

    /// The same for one with text.
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

    /// The text behind a call without the end of the turn; also where the last turn ends in another
    /// way.
    fn ended(&self, after: &str) -> Option<String> {
        let end = &*self.chat.assistant.after;
        if let Some(after) = after.strip_suffix(end) {
            return Some(after.to_owned());
        }
        after.strip_suffix(end.trim_end()).map(str::to_owned)
    }

    /// What of the text before an answer is missing when there are only calls.
    fn lacking(&self, alone: &str, text: &CallWithText) -> Option<String> {
        let begin = alone.strip_suffix(&*text.before)?;
        if text.calls_first && begin != self.chat.assistant.before {
            return None;
        }
        self.chat.assistant.before.strip_prefix(begin).map(str::to_owned)
    }

    /// A turn of its own, from prompts without and with a text: calls may drop it, or end the turn
    /// in another way.
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
            template: format!("{}{slots}{}", escape(head), escape(tail)),
            before: before.to_owned(),
            after: after.to_owned(),
        };
        if let Some((head, between)) = with_before.split_once(ANSWER) {
            let same = with_after == after && before == format!("{head}{between}");
            return same.then(|| made(head, "{content}{tool_calls}", "", between, &after));
        }
        let before_calls = own.unwrap_or(&before);
        if let Some((behind, tail)) = with_after.split_once(ANSWER) {
            let same = with_before == before && after == format!("{behind}{tail}");
            return same.then(|| made(head, "{tool_calls}{content}", tail, before_calls, behind));
        }
        let tail = if after.ends_with(&*assistant.after) { &*assistant.after } else { "" };
        let same = with_before == before && with_after == after;
        same.then(|| {
            made(head, "{tool_calls}", tail, before_calls, &after[..after.len() - tail.len()])
        })
    }

    /// What stands between a text and the calls, when an answer without text has all else.
    fn separator(&self, alone: &Option<(String, String)>, text: &CallWithText) -> Option<String> {
        let (before, after) = alone.as_ref()?;
        let own = before.strip_prefix(&*self.chat.assistant.before)?;
        let separator = if text.calls_first {
            text.after.strip_prefix(&**after).filter(|_| text.before == own)?
        } else {
            text.before.strip_suffix(own).filter(|_| text.after == *after)?
        };
        Some(separator.to_owned())
    }

    /// The texts round the call without those of a plain answer's turn.
    fn strip(&self, alone: &Option<(String, String)>) -> Option<(String, String)> {
        let (before, after) = alone.as_ref()?;
        let own = before.strip_prefix(&*self.chat.assistant.before).unwrap_or(before);
        Some((own.to_owned(), after.clone()))
    }
}

impl CallsForm {
    /// `single_tool_call_template` and `tool_calls_template`, where there is more than the call.
    pub(super) fn templates(&self) -> Option<[String; 2]> {
        let Wrapping { before, each_before, each_after, after, .. } = self.wrapping.as_ref()?;
        let call = &self.form.as_ref()?.template;
        Some([
            format!("{}{call}{}", escape(each_before), escape(each_after)),
            format!("{}{{tool_calls}}{}", escape(before), escape(after)),
        ])
    }
}
