//! Checks a format against calls that it was not inferred from. A format is used only if it writes
//! them like the template.

use serde_json::{Value, json};

use super::history_prober::{HistoryProber, KEYS};
use crate::output::call_writer::{ValueStyle, WrittenCall, json as write_json, section};
use crate::output::format::{CallPart, CallSyntax, Channels};

/// Calls, and the template's text for them.
struct HeldOutCalls {
    name: &'static str,
    calls: Vec<WrittenCall>,
    rendered: Result<String, String>,
}

/// The renders that formats are checked against, in one form.
pub(super) struct HeldOutSet {
    base: HeldOutCalls,
    others: Vec<HeldOutCalls>,
}

impl HeldOutSet {
    pub(super) fn new(prober: &HistoryProber<'_>) -> HeldOutSet {
        let row = |name, first, arguments: Vec<Value>| {
            let calls = prober.list(first, arguments);
            let rendered = prober.calls(&calls, "");
            HeldOutCalls { name, calls, rendered }
        };
        let [a, b, c, d] = KEYS;
        let quotes = "say \"orv\" \\ it's <b>\n{done} </x>, é \u{1F999} [end]";
        let nested = json!({ "deep": [1, "two", { "x": "y" }], "even": { "n": 3 } });
        HeldOutSet {
            base: row("one call", 0, vec![json!({ a: "tessilq", b: "umbrofz" })]),
            others: vec![
                row("numbers", 2, vec![json!({ c: 90431, d: -2.5 })]),
                row("quotes and other scripts", 1, vec![json!({ a: quotes, b: "Übergröße 漢字" })]),
                row("nested arguments", 3, vec![json!({ c: 7, d: nested })]),
                row("booleans", 1, vec![json!({ c: true, d: [false] })]),
                row("null", 1, vec![json!({ c: null, d: 1 })]),
                row("no arguments", 2, vec![json!({})]),
                row("two calls", 1, vec![json!({ a: "wexlim" }), json!({ a: "x", c: 3 })]),
                row(
                    "three calls",
                    0,
                    vec![json!({ c: 1, d: [] }), json!({ b: "yorpund" }), json!({ a: "z" })],
                ),
            ],
        }
    }

    /// Checks a call syntax against all renders. Returns the style that reproduces them, or the
    /// first difference of the style that gets furthest.
    pub(super) fn check(
        &self,
        calls: &CallSyntax,
        exactness: Exactness,
    ) -> Result<ValueStyle, String> {
        let base = self.base.rendered.as_ref().map_err(String::clone)?;
        // The constant start of a call is the same in every style, so comparing it first is cheap.
        let leads =
            std::iter::once(&calls.open).chain(calls.call.iter().map_while(|part| match part {
                CallPart::Text(text) => Some(text),
                _ => None,
            }));
        let lead = leads.map(|text| exactness.normalize(text)).collect::<String>();
        if !exactness.normalize(base).contains(&lead) {
            return Err(format!("one call: {lead:?} is not in {base:?}"));
        }
        let mut reason = String::new();
        let mut best = 0;
        for style in ValueStyle::all() {
            match self.compare(calls, style, exactness) {
                Ok(()) => return Ok(style),
                Err((rows, difference)) if rows >= best && (rows > best || reason.is_empty()) => {
                    (best, reason) = (rows, difference)
                }
                Err(_) => {}
            }
        }
        Err(reason)
    }

    /// Whether the template writes two calls in one message.
    pub(super) fn writes_two(&self) -> bool {
        self.others.iter().filter(|row| row.calls.len() == 2).any(|row| {
            row.rendered
                .as_ref()
                .is_ok_and(|rendered| row.calls.iter().all(|call| rendered.contains(&call.name)))
        })
    }

    /// Compares what a style writes with all renders. The error is the number of rows that agree,
    /// and the difference in the next row.
    fn compare(
        &self,
        calls: &CallSyntax,
        style: ValueStyle,
        exactness: Exactness,
    ) -> Result<(), (usize, String)> {
        let base = self.base.rendered.as_ref().map_err(|error| (0, error.clone()))?;
        let normalize = |text: &str| exactness.normalize(text);
        let base = normalize(base);
        let written = normalize(&section(calls, &self.base.calls, style));
        let at =
            base.rfind(&written).ok_or((0, format!("one call: {written:?} is not in {base:?}")))?;
        let (before, after) = (&base[..at], &base[at + written.len()..]);
        for (index, row) in self.others.iter().enumerate() {
            if row.calls.len() > 1 && !calls.parallel {
                continue;
            }
            let rendered = row
                .rendered
                .as_ref()
                .map_err(|error| (index + 1, format!("{}: {error}", row.name)))?;
            let rendered = normalize(rendered);
            let inner = rendered.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            let is_written =
                |list: &[WrittenCall]| inner == Some(&*normalize(&section(calls, list, style)));
            // Some templates omit nulls, or the whole object of no arguments.
            let omitted = || {
                let empty = row.calls.iter().all(|call| call.arguments == json!({}));
                let section = section(&without_arguments(calls), &row.calls, style);
                empty && inner == Some(&*normalize(&section))
            };
            if !is_written(&row.calls) && !is_written(&without_nulls(&row.calls)) && !omitted() {
                let written = normalize(&section(calls, &row.calls, style));
                return Err((
                    index + 1,
                    format!("{}: wrote {written:?}, the template {rendered:?}", row.name),
                ));
            }
        }
        Ok(())
    }

    /// Whether single calls are messages with the header of these channels: the recipient, the body
    /// marker, the arguments.
    pub(super) fn matches_channels(&self, channels: &Channels) -> bool {
        if channels.recipient.is_empty() {
            return false;
        }
        let single =
            [&self.base].into_iter().chain(&self.others).filter(|row| row.calls.len() == 1);
        single.into_iter().all(|row| {
            let mut arguments = String::new();
            write_json(&row.calls[0].arguments, false, &mut arguments);
            let recipient =
                format!("{}{}{}", channels.recipient, channels.function, row.calls[0].name);
            row.rendered.as_ref().is_ok_and(|rendered| {
                let body = rendered
                    .split_once(&recipient)
                    .and_then(|(_, rest)| rest.split_once(&*channels.body));
                rendered.contains(&*channels.turn)
                    && body.is_some_and(|(_, body)| body.trim_start().starts_with(&arguments))
            })
        })
    }
}

/// How exactly a format must reproduce the template's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exactness {
    /// Byte for byte.
    Bytes,
    /// Except for whitespace.
    IgnoreWhitespace,
}

impl Exactness {
    fn normalize(self, text: &str) -> String {
        match self {
            Exactness::Bytes => text.to_owned(),
            Exactness::IgnoreWhitespace => text.split_whitespace().collect(),
        }
    }
}

/// The syntax of calls that have no arguments and omit them.
fn without_arguments(calls: &CallSyntax) -> CallSyntax {
    let parts = calls.call.iter().filter(|part| !matches!(part, CallPart::Arguments(_)));
    CallSyntax { call: parts.cloned().collect(), ..calls.clone() }
}

fn without_nulls(list: &[WrittenCall]) -> Vec<WrittenCall> {
    let mut list = list.to_vec();
    for members in list.iter_mut().filter_map(|call| call.arguments.as_object_mut()) {
        members.retain(|_, value| !value.is_null());
    }
    list
}
