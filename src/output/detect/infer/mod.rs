//! Infers the format of a template without a family, by rendering histories that differ in one
//! thing.
//!
//! The result writes, byte for byte, what the template writes for calls that it was not inferred
//! from. Otherwise the error says why no format was found. This module knows no model, no family
//! and no marker.

mod arguments;
mod family;
mod held_out;
pub(super) mod history_prober;
pub(super) mod markers;
mod mask;
mod reasoning;
mod section;

#[cfg(test)]
mod tests;

pub(super) use family::{FamilyMatch, find};

use crate::json::{self, PlainValue};
use crate::output::call_writer::{ValueStyle, section as write};
use crate::output::format::{CallPart, CallSyntax, Encoding, Format, FormatSource, Wrapper};
use crate::probing::ProbeRenderer;
use held_out::{Exactness, HeldOutSet};
use history_prober::{
    CONTENT, ControlRenders, HistoryForm, HistoryProber, InferenceError, in_some_form,
};
use markers::leading_markers;
use section::SectionFinder;

/// A format, and how the template shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inferred {
    /// The format; the round trip sets `verified`.
    pub(crate) format: Format,
    /// How the template spells values.
    pub(crate) style: ValueStyle,
    /// The form of the history.
    pub(crate) form: HistoryForm,
}

/// Infers the format of a template.
pub(crate) fn infer(renderer: &ProbeRenderer<'_>) -> Result<Inferred, InferenceError> {
    infer_to(renderer, true)
}

/// Like [`infer`], but the format may write other calls than those that it was inferred from
/// differently than the template.
pub(super) fn infer_similar(renderer: &ProbeRenderer<'_>) -> Option<Format> {
    infer_to(renderer, false).ok().map(|inferred| inferred.format)
}

fn infer_to(renderer: &ProbeRenderer<'_>, exact: bool) -> Result<Inferred, InferenceError> {
    let (form, (format, style)) =
        in_some_form(renderer, |prober, rendered| infer_in_form(prober, rendered, exact))?;
    Ok(Inferred { format, style, form })
}

/// Infers the format of several calls, or of one call if several are not understood.
fn infer_in_form(
    prober: &HistoryProber<'_>,
    rendered: &str,
    exact: bool,
) -> Result<(Format, ValueStyle), String> {
    infer_calls(prober, rendered, true, exact)
        .or_else(|reason| infer_calls(prober, rendered, false, exact).map_err(|_| reason))
}

fn infer_calls(
    prober: &HistoryProber<'_>,
    rendered: &str,
    parallel: bool,
    exact: bool,
) -> Result<(Format, ValueStyle), String> {
    let encodings = arguments::find_encodings(rendered, &prober.strings(1)[0])?;
    let controls = ControlRenders::new(prober);
    let mut first_reason = None;
    for (encoding, style) in encodings {
        let finder = SectionFinder { prober, controls: &controls, rendered, encoding, style };
        match infer_section(prober, &controls, &finder, parallel, exact) {
            Ok(found) => return Ok(found),
            Err(reason) => first_reason = first_reason.or(Some(reason)),
        }
    }
    Err(first_reason.unwrap_or_default())
}

/// Infers the format of calls whose encoding is known.
fn infer_section(
    prober: &HistoryProber<'_>,
    controls: &ControlRenders,
    finder: &SectionFinder<'_>,
    parallel: bool,
    exact: bool,
) -> Result<(Format, ValueStyle), String> {
    let style = finder.style;
    let mut found = finder.find(parallel)?;
    let open = write(&found.calls, &prober.strings(1), style);
    let reasoning = reasoning::find_tags(prober, controls, &found.head, &open);
    if let Some(tags) = &reasoning {
        // Remove the tags of an empty reasoning block from the start of the calls.
        let open = [&tags.open, &tags.close].iter().fold(&*found.calls.open, |open, tag| {
            let rest =
                Some(&***tag).filter(|tag| !tag.is_empty()).and_then(|tag| open.strip_prefix(tag));
            rest.map_or(open, str::trim_start)
        });
        found.calls.open = open.to_owned().into();
    }
    check_json(&found.calls, prober, style)?;
    let style = match HeldOutSet::new(prober).check(&found.calls, Exactness::Bytes) {
        Err(difference) if exact => return Err(difference),
        checked => checked.unwrap_or(style),
    };
    let ends = [Some(&found.tail), controls.content.as_ref().map(|(_, end)| end)];
    let mut ends: Vec<_> = ends
        .into_iter()
        .flatten()
        .filter_map(|end| markers::leading_marker(end.trim()).or(end.split_whitespace().next()))
        .collect();
    // A turn with calls may end with several markers. Those of the next prompt do not end it.
    let prompt = controls.prompt.as_deref().unwrap_or_default();
    let after_calls = leading_markers(&found.tail).0;
    ends.extend(after_calls.into_iter().skip(1).take_while(|marker| !prompt.contains(marker)));
    ends.extend(controls.turn_end.as_deref());
    // Nothing follows the answer, so all markers after it end the turn.
    let after_content = controls.content.iter().flat_map(|(_, end)| leading_markers(end).0);
    ends.extend(after_content.skip(1));
    ends.dedup();
    let ends = ends.into_iter().map(|end| end.to_owned().into()).collect();
    let format = Format {
        family: "inferred".into(),
        source: FormatSource::Inferred,
        wrappers: found
            .wrapper
            .into_iter()
            .chain(content_wrapper(controls, reasoning.as_ref().map(|tags| &*tags.close)))
            .collect(),
        reasoning,
        calls: Some(found.calls),
        ends,
        ..Format::default()
    };
    Ok((format, style))
}

/// The wrapper of content that is not part of the prompt.
fn content_wrapper(controls: &ControlRenders, reasoning: Option<&str>) -> Option<Wrapper> {
    let (before, after) = controls.content.as_ref()?;
    let open = before.strip_prefix(controls.prompt.as_deref()?.trim_end())?.trim();
    if markers::trailing_marker(open).is_none()
        || reasoning.is_some_and(|close| open.contains(close))
    {
        return None;
    }
    let close = markers::leading_marker(after.trim())
        .filter(|close| controls.turn_end.as_deref() != Some(close))
        .unwrap_or_default();
    Some(Wrapper { open: open.to_owned().into(), close: close.to_owned().into() })
}

/// Rejects a call that starts as JSON but is invalid, because no parser can read it.
fn check_json(
    calls: &CallSyntax,
    prober: &HistoryProber<'_>,
    style: ValueStyle,
) -> Result<(), String> {
    let json = calls
        .call
        .iter()
        .any(|part| matches!(part, CallPart::Arguments(Encoding::Json | Encoding::JsonText)));
    let written = write(calls, &prober.strings(1), style);
    let Some(at) = written.find('{').filter(|_| json) else { return Ok(()) };
    match json::leading::<PlainValue>(&written[at..]) {
        Some((PlainValue(value), _)) if !value.to_string().contains(CONTENT) => Ok(()),
        _ => Err(format!("{:?} starts as JSON and is not JSON", &written[at..])),
    }
}
