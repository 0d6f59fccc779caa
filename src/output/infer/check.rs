//! Calls that inference never saw: a format is believed only if it writes them as the template does.

use serde_json::{Value, json};

use super::probe::{Form, KEYS, Prober};
use crate::output::format::Calls;
use crate::output::write::{Call, Style, section};

/// A history to be written, and what the template wrote.
pub(super) struct Held {
    name: &'static str,
    calls: Vec<Call>,
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
                held("quotes and letters of other scripts", 1, vec![json!({ a: quotes, b: "Übergröße 漢字" })]),
                held("nested arguments", 3, vec![json!({ c: 7, d: { "deep": [1, "two", { "x": "y" }], "even": { "n": 3 } } })]),
                held("booleans", 1, vec![json!({ c: true, d: [false] })]),
                held("null", 1, vec![json!({ c: null, d: 1 })]),
                held("no arguments", 2, vec![json!({})]),
                held("two calls", 1, vec![json!({ a: "wexlim" }), json!({ a: "x", c: 3 })]),
                held("three calls", 0, vec![json!({ c: 1, d: [] }), json!({ b: "yorpund" }), json!({ a: "z" })]),
            ],
        }
    }

    /// Holds a format against all renders. The spelling that explains them, or the first that differs.
    pub(super) fn check(&self, calls: &Calls) -> Result<Style, String> {
        let mut reason = String::new();
        let mut best = 0;
        for style in Style::all() {
            match self.explained(calls, style) {
                Ok(()) => return Ok(style),
                Err((rows, because)) if rows >= best && (rows > best || reason.is_empty()) => (best, reason) = (rows, because),
                Err(_) => {}
            }
        }
        Err(reason)
    }

    fn explained(&self, calls: &Calls, style: Style) -> Result<(), (usize, String)> {
        let base = self.base.rendered.as_ref().map_err(|error| (0, error.clone()))?;
        let written = section(calls, &self.base.calls, style);
        let at = base.rfind(&written).ok_or((0, format!("one call: {written:?} is not in {base:?}")))?;
        let (before, after) = (&base[..at], &base[at + written.len()..]);
        for (row, held) in self.others.iter().enumerate() {
            if held.calls.len() > 1 && !calls.parallel {
                continue;
            }
            let rendered = held.rendered.as_ref().map_err(|error| (row + 1, format!("{}: {error}", held.name)))?;
            let written = section(calls, &held.calls, style);
            let inner = rendered.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            let left_out = || inner == Some(&*section(calls, &without_nulls(&held.calls), style));
            if inner != Some(&*written) && !left_out() {
                return Err((row + 1, format!("{}: wrote {written:?}, the template {rendered:?}", held.name)));
            }
        }
        Ok(())
    }
}

/// Some templates leave out what is null.
fn without_nulls(list: &[Call]) -> Vec<Call> {
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
