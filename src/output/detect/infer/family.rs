//! Finds the family whose format the template writes.

use super::held_out::{Exactness, HeldOutSet};
use super::history_prober::{HistoryProber, InferenceError, in_some_form};
use crate::output::format::{CallPart, CallSyntax, Format};
use crate::probing::ProbeRenderer;

/// How a family matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FamilyMatch {
    /// It writes the same bytes as the template.
    Bytes,
    /// It writes the same text except for whitespace.
    IgnoringWhitespace,
    /// Its headers and bodies are the same as the template's.
    Channels,
    /// It writes one call like the template, but several calls differently.
    OneCall,
}

/// The first of these formats that the template writes, for every kind of arguments, and for
/// several calls if the template writes them. Formats that write the same bytes are preferred, then
/// those that differ in whitespace, then channels, then formats of one call. The error is the
/// difference of the last format.
pub(crate) fn find<'f>(
    formats: &'f [Format],
    renderer: &ProbeRenderer<'_>,
) -> Result<(&'f Format, FamilyMatch), InferenceError> {
    let found = in_some_form(renderer, |prober, _| {
        let held_out = HeldOutSet::new(prober);
        let mut reason = "there are no families".to_owned();
        for (exactness, kind) in [
            (Exactness::Bytes, FamilyMatch::Bytes),
            (Exactness::IgnoreWhitespace, FamilyMatch::IgnoringWhitespace),
        ] {
            let found = most_alike(formats, prober, &held_out, exactness, &mut reason);
            if let Some(format) = found {
                return Ok((format, kind));
            }
        }
        let in_channels = |format: &&Format| {
            format.channels.as_ref().is_some_and(|channels| held_out.matches_channels(channels))
        };
        if let Some(format) = formats.iter().find(in_channels) {
            return Ok((format, FamilyMatch::Channels));
        }
        one_call(formats, &held_out).map(|format| (format, FamilyMatch::OneCall)).ok_or(reason)
    });
    found.map(|(_, found)| found)
}

/// Of the formats that write these calls, the one whose other texts match the template best.
fn most_alike<'f>(
    formats: &'f [Format],
    prober: &HistoryProber<'_>,
    held_out: &HeldOutSet,
    exactness: Exactness,
    reason: &mut String,
) -> Option<&'f Format> {
    let several = held_out.writes_two();
    let mut best: Option<(u32, &Format)> = None;
    for format in formats {
        let Some(calls) = format.calls.as_ref().filter(|calls| calls.parallel || !several) else {
            continue;
        };
        match held_out.check(calls, exactness) {
            Ok(_) => {
                let likeness = likeness(prober, format);
                if best.is_none_or(|(known, _)| likeness > known) {
                    best = Some((likeness, format));
                }
            }
            Err(difference) => *reason = difference,
        }
    }
    best.map(|(_, format)| format)
}

/// The first format that writes one call like the template. A template may write several calls
/// wrongly, or close only several calls, and still write one call correctly.
fn one_call<'f>(formats: &'f [Format], held_out: &HeldOutSet) -> Option<&'f Format> {
    let writes_one = |format: &Format, with_close: bool| {
        let Some(mut calls) = format.calls.clone() else { return false };
        calls.parallel = false;
        if !with_close {
            calls.close = "".into();
        }
        starts_with_marker(&calls) && held_out.check(&calls, Exactness::Bytes).is_ok()
    };
    [true, false]
        .into_iter()
        .find_map(|with_close| formats.iter().find(|format| writes_one(format, with_close)))
}

fn starts_with_marker(calls: &CallSyntax) -> bool {
    !calls.open.is_empty() || matches!(calls.call.first(), Some(CallPart::Text(_)))
}

/// The number of texts around content and reasoning that the format and the template have in
/// common. The end of reasoning counts more than ends of turns.
fn likeness(prober: &HistoryProber<'_>, format: &Format) -> u32 {
    let reasoning = prober.reasoning("reasoning_content", &[]).unwrap_or_default();
    let content = prober.content().unwrap_or_default();
    let closes = format.reasoning.as_ref().is_some_and(|tags| reasoning.contains(&*tags.close));
    let ends = format.ends.iter().any(|end| content.contains(&**end));
    2 * u32::from(closes) + u32::from(ends)
}
