//! Calls that inference never saw: a format is believed only if it writes them as the template
//! does.

use serde_json::{Value, json};

use super::probe::{Form, KEYS, Prober};
use crate::output::call_writer::{ValueStyle, WrittenCall, json as write_json, section};
use crate::output::format::{CallPart, CallSyntax, Channels};

/// A history to be written, and what the template wrote.
pub(super) struct Held {
    name: &'static str,
    calls: Vec<WrittenCall>,
    rendered: Result<String, String>,
}

/// The renders that formats are held against, in one form.
pub(super) struct HeldOut {
    base: Held,
    others: Vec<Held>,
}

impl HeldOut {
    pub(super) fn new(prober: &Prober<'_>) -> HeldOut {
        let held = |name, first, arguments: Vec<Value>| {
            let calls = prober.list(first, arguments);
            let rendered = prober.calls(&calls, "");
            Held { name, calls, rendered }
        };
        let [a, b, c, d] = KEYS;
        let quotes = "say \"orv\" \\ it's <b>\n{done} </x>, é \u{1F999} [end]";
        HeldOut {
            base: held("one call", 0, vec![json!({ a: "tessilq", b: "umbrofz" })]),
            others: vec![
                held("numbers", 2, vec![json!({ c: 90431, d: -2.5 })]),
                held(
                    "quotes and letters of other scripts",
                    1,
                    vec![json!({ a: quotes, b: "Übergröße 漢字" })],
                ),
                held(
                    "nested arguments",
                    3,
                    vec![
                        json!({ c: 7, d: { "deep": [1, "two", { "x": "y" }], "even": { "n": 3 } } }),
                    ],
                ),
                held("booleans", 1, vec![json!({ c: true, d: [false] })]),
                held("null", 1, vec![json!({ c: null, d: 1 })]),
                held("no arguments", 2, vec![json!({})]),
                held("two calls", 1, vec![json!({ a: "wexlim" }), json!({ a: "x", c: 3 })]),
                held(
                    "three calls",
                    0,
                    vec![json!({ c: 1, d: [] }), json!({ b: "yorpund" }), json!({ a: "z" })],
                ),
            ],
        }
    }

    /// Holds calls against all renders. The spelling that explains them, or the first that differs.
    pub(super) fn check(
        &self,
        calls: &CallSyntax,
        exactness: Exactness,
    ) -> Result<ValueStyle, String> {
        let base = self.base.rendered.as_ref().map_err(String::clone)?;
        // What begins a call in every style, before anything is written in one.
        let leads =
            std::iter::once(&calls.open).chain(calls.call.iter().map_while(|part| match part {
                CallPart::Text(text) => Some(text),
                _ => None,
            }));
        let lead = leads.map(|text| exactness.free(text)).collect::<String>();
        if !exactness.free(base).contains(&lead) {
            return Err(format!("one call: {lead:?} is not in {base:?}"));
        }
        let mut reason = String::new();
        let mut best = 0;
        for style in ValueStyle::all() {
            match self.explained(calls, style, exactness) {
                Ok(()) => return Ok(style),
                Err((rows, because)) if rows >= best && (rows > best || reason.is_empty()) => {
                    (best, reason) = (rows, because)
                }
                Err(_) => {}
            }
        }
        Err(reason)
    }

    /// Whether the template writes two calls.
    pub(super) fn writes_two(&self) -> bool {
        self.others.iter().filter(|held| held.calls.len() == 2).any(|held| {
            held.rendered
                .as_ref()
                .is_ok_and(|rendered| held.calls.iter().all(|call| rendered.contains(&call.name)))
        })
    }

    fn explained(
        &self,
        calls: &CallSyntax,
        style: ValueStyle,
        exactness: Exactness,
    ) -> Result<(), (usize, String)> {
        let base = self.base.rendered.as_ref().map_err(|error| (0, error.clone()))?;
        let free = |text: &str| exactness.free(text);
        let (base, written) = (free(base), free(&section(calls, &self.base.calls, style)));
        let at =
            base.rfind(&written).ok_or((0, format!("one call: {written:?} is not in {base:?}")))?;
        let (before, after) = (&base[..at], &base[at + written.len()..]);
        for (row, held) in self.others.iter().enumerate() {
            if held.calls.len() > 1 && !calls.parallel {
                continue;
            }
            let rendered = held
                .rendered
                .as_ref()
                .map_err(|error| (row + 1, format!("{}: {error}", held.name)))?;
            let rendered = free(rendered);
            let written = free(&section(calls, &held.calls, style));
            let inner = rendered.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            let left_out =
                || inner == Some(&*free(&section(calls, &without_nulls(&held.calls), style)));
            if inner != Some(&*written) && !left_out() {
                return Err((
                    row + 1,
                    format!("{}: wrote {written:?}, the template {rendered:?}", held.name),
                ));
            }
        }
        Ok(())
    }

    /// Whether single calls are messages with this header: the recipient, the body's mark, the
    /// arguments.
    pub(super) fn is_channelled(&self, channels: &Channels) -> bool {
        if channels.recipient.is_empty() {
            return false;
        }
        [&self.base].into_iter().chain(&self.others).filter(|held| held.calls.len() == 1).all(
            |held| {
                let mut arguments = String::new();
                write_json(&held.calls[0].arguments, false, &mut arguments);
                let recipient =
                    format!("{}{}{}", channels.recipient, channels.function, held.calls[0].name);
                held.rendered.as_ref().is_ok_and(|rendered| {
                    let header = rendered
                        .split_once(&recipient)
                        .and_then(|(_, rest)| rest.split_once(&*channels.body));
                    let turns = rendered.contains(&*channels.turn);
                    turns
                        && header.is_some_and(|(_, body)| body.trim_start().starts_with(&arguments))
                })
            },
        )
    }
}

/// How exactly a format has to write what the template writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exactness {
    /// Byte for byte.
    Bytes,
    /// But for blanks.
    ButBlanks,
}

impl Exactness {
    fn free(self, text: &str) -> String {
        match self {
            Exactness::Bytes => text.to_owned(),
            Exactness::ButBlanks => text.split_whitespace().collect(),
        }
    }
}

/// Some templates leave out what is null.
fn without_nulls(list: &[WrittenCall]) -> Vec<WrittenCall> {
    let mut list = list.to_vec();
    for members in list.iter_mut().filter_map(|call| call.arguments.as_object_mut()) {
        members.retain(|_, value| !value.is_null());
    }
    list
}

/// The forms of a history, the most usual first.
pub(super) fn forms() -> impl Iterator<Item = Form> {
    let forms = [(false, false), (false, true), (true, false), (true, true)];
    forms.into_iter().map(|(text, null)| Form { text, null, named_ids: false })
}
