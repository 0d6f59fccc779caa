//! Tool calls of an answer: the text of one, and what stands round one and round all.

use serde_json::{Map, Value, json};

use super::Compose;
use super::chat::{ANSWER, Chat, USER, USER_2};
use super::conversation::{Conversation, call, shows_probe};
use super::renderer::Renderer;
use super::text::{Wrapping, escape};

/// What a template does with the calls of an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Calls {
    /// `tool_policy.tool_call_content_processor`.
    pub(super) processor: Option<&'static str>,
    /// Round the calls and round each; None when they are not printed in a way that is known.
    pub(super) wrapping: Option<Wrapping>,
    /// The calls stand before the answer's text.
    pub(super) before_text: bool,
    /// The end of `assistant.before` that an answer without text lacks.
    pub(super) if_nonempty: Option<String>,
    pub(super) residual: Vec<String>,
}

const PROCESSORS: [&str; 3] = ["object_arguments", "kimi_call", "dsml_call"];

/// The calls of the probes.
pub(super) fn probes() -> Vec<Value> {
    let arguments = |city: &str| json!({ "zone": city, "deep": { "b": [1, true, null], "a": "ü \"q\"" } });
    vec![call("qcallonex", "qtoolone", &arguments("Qplaceone")), call("qcalltwox", "qtooltwo", &arguments("Qplacetwo"))]
}

/// The prompt up to the end of the last turn, as it is when a user's follows: a last turn may have marks of its own. Else as it
/// is when nothing follows.
pub(super) fn turn(foreign: &dyn Renderer, chat: &Chat, conversation: &Conversation) -> Option<String> {
    let followed = foreign.render(&conversation.clone().user(USER_2));
    let inner = followed.as_deref().and_then(|prompt| prompt.split_once(USER_2)?.0.strip_suffix(&*chat.user.before));
    inner.map(str::to_owned).or_else(|| foreign.render(conversation))
}

/// The text of a call as a processor writes it.
fn written(processor: Option<&str>, call: &Value, compose: &Compose<'_>) -> Option<String> {
    let mut policy = Map::new();
    if let Some(kind) = processor {
        policy.insert("tool_call_content_processor".to_owned(), json!({ "kind": kind }));
    }
    let spec = json!({ "user_template": "{content}", "assistant_template": "{content}{tool_calls}", "tool_policy": policy });
    compose(&spec)?.render(&Conversation::default().calling("", std::slice::from_ref(call)))
}

/// Finds them; None when they are not printed.
pub(super) fn derive(foreign: &dyn Renderer, chat: &Chat, compose: &Compose<'_>) -> Option<Calls> {
    let calls = probes();
    let render = |text: &str, calls: &[Value]| turn(foreign, chat, &Conversation::asking(USER).calling(text, calls));
    let mut found = Calls::default();
    let one = render("", &calls[..1]);
    let spoken = render(ANSWER, &calls[..1]);
    if one.is_none() && spoken.is_none() {
        found.residual.push("the template refuses tool calls".to_owned());
        return Some(found);
    }
    let shows =
        |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains("qtoolone") || text.contains("Qplaceone"));
    if !shows(&one) && !shows(&spoken) {
        return None;
    }
    let kinds = std::iter::once(None).chain(PROCESSORS.map(Some));
    let texts = kinds.filter_map(|kind| Some((kind, written(kind, &calls[0], compose)?, written(kind, &calls[1], compose)?)));
    let sample = one.as_ref().or(spoken.as_ref())?;
    let Some((mut processor, first, second)) = texts.into_iter().find(|(_, first, _)| sample.contains(first)) else {
        found.residual.push("a call is not printed as JSON of it or of its function, nor in another known form".to_owned());
        return Some(found);
    };
    if processor.is_none() {
        processor = parsed(foreign);
    }
    found.processor = processor;
    let outer = Outer { chat, first: &first };
    let alone = one.as_deref().and_then(|one| outer.alone(one));
    let with_text = spoken.as_deref().and_then(|spoken| outer.with_text(spoken));
    let (before, after) = match (&alone, &with_text) {
        (Some((before, _)), Some(text)) => {
            found.before_text = text.calls_first;
            found.if_nonempty = outer.lacking(before, text);
            if found.if_nonempty.is_none() {
                found.residual.push("the text before calls depends on the answer's text".to_owned());
            }
            let (own, after) = outer.strip(&alone)?;
            match &found.if_nonempty {
                Some(_) if !text.calls_first => (text.before.clone(), text.after.clone()),
                _ => (own, after),
            }
        }
        (Some(_), None) => {
            found.residual.push("an answer with calls and text is not printed as its parts are".to_owned());
            outer.strip(&alone)?
        }
        (None, Some(text)) => {
            found.residual.push("an answer with calls and no text is not printed as its parts are".to_owned());
            found.before_text = text.calls_first;
            (text.before.clone(), text.after.clone())
        }
        (None, None) => {
            found.residual.push("the turn round calls differs from that of a plain answer".to_owned());
            return Some(found);
        }
    };
    let two = render("", &calls).or_else(|| render(ANSWER, &calls));
    let between = two.as_deref().and_then(|two| {
        let (_, rest) = two.split_once(&*first)?;
        rest.split_once(&*second).map(|(between, _)| between.to_owned())
    });
    found.wrapping = between.as_deref().and_then(|between| Wrapping::of(&before, between, &after));
    if [&before, &after].into_iter().any(|text| shows_probe(text)) {
        found.residual.push("parts of a call stand outside the text of the call".to_owned());
        found.wrapping = None;
        return Some(found);
    }
    if found.wrapping.is_none() {
        found.residual.push("several calls are joined by text that is not the end and the begin of one".to_owned());
        found.wrapping = Some(Wrapping { each_before: before, each_after: after, ..Wrapping::default() });
    }
    Some(found)
}

/// Whether arguments that are JSON text are printed as an object would be.
fn parsed(foreign: &dyn Renderer) -> Option<&'static str> {
    let object = json!({ "zone": "Qplaceone", "n": 1 });
    let calls = |arguments: &Value| Conversation::asking(USER).calling("", &[call("qcallonex", "qtoolone", arguments)]);
    let text = Value::String("{\"zone\": \"Qplaceone\", \"n\": 1}".to_owned());
    let same = foreign.render(&calls(&object))? == foreign.render(&calls(&text))?;
    same.then_some(PROCESSORS[0])
}

/// What stands round the call in a turn with text.
struct WithText {
    /// Between the text and the call, or before the call.
    before: String,
    /// Behind the call, without the end of the turn.
    after: String,
    calls_first: bool,
}

struct Outer<'a> {
    chat: &'a Chat,
    first: &'a str,
}

impl Outer<'_> {
    /// The texts from the user's to the call, and behind it without the end of the turn, for an answer without text.
    fn alone(&self, prompt: &str) -> Option<(String, String)> {
        let (before, after) = prompt.split_once(self.first)?;
        let (_, before) = before.split_once(USER)?;
        let before = before.strip_prefix(&*self.chat.user.after)?;
        Some((before.to_owned(), self.ended(after)?))
    }

    /// The same for one with text.
    fn with_text(&self, prompt: &str) -> Option<WithText> {
        let (before, after) = prompt.split_once(self.first)?;
        let (_, turn) = prompt.split_once(USER)?;
        let begin = format!("{}{}", self.chat.user.after, self.chat.assistant.before);
        if let Some((begun, between)) = before.split_once(ANSWER) {
            let whole = begun.split_once(USER)?.1 == begin;
            return whole.then_some(WithText { before: between.to_owned(), after: self.ended(after)?, calls_first: false });
        }
        let before = turn.split_once(self.first)?.0.strip_prefix(&*begin)?;
        let (between, end) = after.split_once(ANSWER)?;
        (end == self.chat.assistant.after).then(|| WithText {
            before: before.to_owned(),
            after: between.to_owned(),
            calls_first: true,
        })
    }

    /// The text behind a call without the end of the turn; also where the last turn ends in another way.
    fn ended(&self, after: &str) -> Option<String> {
        let end = &*self.chat.assistant.after;
        if let Some(after) = after.strip_suffix(end) {
            return Some(after.to_owned());
        }
        after.strip_suffix(end.trim_end()).map(str::to_owned)
    }

    /// What of the text before an answer is missing when there are only calls.
    fn lacking(&self, alone: &str, text: &WithText) -> Option<String> {
        let begin = alone.strip_suffix(&*text.before)?;
        if text.calls_first && begin != self.chat.assistant.before {
            return None;
        }
        self.chat.assistant.before.strip_prefix(begin).map(str::to_owned)
    }

    /// The texts round the call without those of a plain answer's turn.
    fn strip(&self, alone: &Option<(String, String)>) -> Option<(String, String)> {
        let (before, after) = alone.as_ref()?;
        let own = before.strip_prefix(&*self.chat.assistant.before).unwrap_or(before);
        Some((own.to_owned(), after.clone()))
    }
}

impl Calls {
    /// `single_tool_call_template` and `tool_calls_template`, where there is more than the call.
    pub(super) fn templates(&self) -> Option<[String; 2]> {
        let Wrapping { before, each_before, each_after, after } = self.wrapping.as_ref()?;
        Some([
            format!("{}{{tool_call}}{}", escape(each_before), escape(each_after)),
            format!("{}{{tool_calls}}{}", escape(before), escape(after)),
        ])
    }
}
