//! A template nobody wrote a family for -> its format, by rendering histories that differ in one
//! thing.
//!
//! In: a way to render. Out: a format that writes, byte for byte, what the template writes for
//! calls it was not derived from; or why there is none. Knows no model, no family and no marker.

mod arguments;
mod check;
mod markers;
mod mask;
mod probe;
mod reasoning;
mod section;

#[cfg(test)]
mod tests;

use std::cell::Cell;

pub(crate) use probe::{Form, Render};

use crate::output::call_writer::{ValueStyle, section as write};
use crate::output::format::{CallPart, CallSyntax, Encoding, Format, FormatSource, Wrapper};
use check::{Exactness, HeldOut, forms};
use probe::{CONTENT, Prober};
use section::Controls;

/// A format and how the template was made to show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inferred {
    /// The format; `verified` is left to the round trip.
    pub(crate) format: Format,
    /// How the template spells values.
    pub(crate) style: ValueStyle,
    /// The form of the history.
    pub(crate) form: Form,
    /// How many renders it took.
    pub(crate) renders: u32,
}

/// Why there is no format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unexplained {
    /// Whether the template writes calls at all.
    pub(crate) writes_calls: bool,
    /// In words.
    pub(crate) because: String,
}

/// Derives the format of a template. The error says in words what could not be explained.
pub(crate) fn infer(render: Render<'_>) -> Result<Inferred, Unexplained> {
    let count = Cell::new(0);
    let (form, (format, style)) = in_some_form(render, &count, derive)?;
    Ok(Inferred { format, style, form, renders: count.get() })
}

/// How a family was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// It writes the template's bytes.
    Bytes,
    /// It writes them but for blanks.
    ButBlanks,
    /// Its headers and bodies are the template's.
    Channels,
    /// It writes one call as the template does, but several otherwise.
    OneCall,
}

/// The first of these formats that the template writes, for every kind of arguments, and for
/// several calls where it writes them: byte for byte, or else but for blanks, or else in channels,
/// or else for one call. The error says what the last one would have written.
pub(crate) fn find<'f>(
    formats: &'f [Format],
    render: Render<'_>,
) -> Result<(&'f Format, Match), Unexplained> {
    // A template may write several calls wrongly, or close only several, and still be right about
    // one.
    let alone = |format: &Format, close: &str| {
        Some(CallSyntax {
            parallel: false,
            close: close.to_owned().into(),
            ..format.calls.clone()?
        })
    };
    let close = |format: &Format| {
        format.calls.as_ref().map_or(String::new(), |calls| calls.close.to_string())
    };
    let found = in_some_form(render, &Cell::new(0), |prober, _| {
        let held = HeldOut::new(prober);
        let several = held.writes_two();
        let mut reason = "no family to try".to_owned();
        for (exactness, kind) in
            [(Exactness::Bytes, Match::Bytes), (Exactness::ButBlanks, Match::ButBlanks)]
        {
            let (mut best, mut found) = (0, None);
            let mut around = None;
            let mut likeness =
                |format| likeness(around.get_or_insert_with(|| Around::new(prober)), format);
            for format in formats {
                let Some(calls) = format.calls.as_ref().filter(|calls| calls.parallel || !several)
                else {
                    continue;
                };
                match held.check(calls, exactness) {
                    // Families that write calls alike differ in what they write around text.
                    Ok(_) if found.is_none() => (best, found) = (likeness(format), Some(format)),
                    Ok(_) if likeness(format) > best => {
                        (best, found) = (likeness(format), Some(format))
                    }
                    Ok(_) => {}
                    Err(because) => reason = because,
                }
            }
            if let Some(format) = found {
                return Ok((format, kind));
            }
        }
        let in_channels = |format: &&Format| {
            format.channels.as_ref().is_some_and(|channels| held.is_channelled(channels))
        };
        if let Some(format) = formats.iter().find(in_channels) {
            return Ok((format, Match::Channels));
        }
        let marked = |calls: &CallSyntax| {
            !calls.open.is_empty() || matches!(calls.call.first(), Some(CallPart::Text(_)))
        };
        let one = |format: &Format, close: &str| {
            alone(format, close)
                .is_some_and(|calls| marked(&calls) && held.check(&calls, Exactness::Bytes).is_ok())
        };
        let single = formats.iter().find(|format| one(format, &close(format)));
        let single = single.or_else(|| formats.iter().find(|format| one(format, "")));
        single.map(|format| (format, Match::OneCall)).ok_or(reason)
    });
    found.map(|(_, found)| found)
}

/// What a template writes around text.
struct Around {
    reasoning: String,
    content: String,
}

impl Around {
    fn new(prober: &Prober<'_>) -> Around {
        let reasoning = prober.reasoning("reasoning_content", &[]).unwrap_or_default();
        Around { reasoning, content: prober.content().unwrap_or_default() }
    }
}

/// How much of what a format writes around text the template writes: the end of reasoning counts
/// more than ends of turns.
fn likeness(around: &Around, format: &Format) -> u32 {
    let closes =
        format.reasoning.as_ref().is_some_and(|tags| around.reasoning.contains(&*tags.close));
    let ends = format.ends.iter().any(|end| around.content.contains(&**end));
    2 * u32::from(closes) + u32::from(ends)
}

/// Tries the forms of a history until one shows a call that is understood.
fn in_some_form<T>(
    render: Render<'_>,
    count: &Cell<u32>,
    understand: impl Fn(&Prober<'_>, &str) -> Result<T, String>,
) -> Result<(Form, T), Unexplained> {
    let mut reasons: Vec<String> = Vec::new();
    let (mut shown_as, mut error, mut rendered_once) = (None, None, false);
    for form in forms() {
        if shown_as == Some(form.text) {
            continue;
        }
        let mut prober = Prober { render, form, count };
        match shown(&mut prober) {
            Ok(Some(rendered)) => match understand(&prober, &rendered) {
                Ok(found) => return Ok((prober.form, found)),
                Err(because) => {
                    reasons
                        .push(format!("{}: {because}", if form.text { "text" } else { "object" }));
                    shown_as = Some(form.text);
                }
            },
            Ok(None) => rendered_once = true,
            Err(because) => error = error.or(Some(because)),
        }
    }
    let writes_calls = !reasons.is_empty();
    if !writes_calls {
        let error = error.filter(|_| !rendered_once);
        reasons.push(error.unwrap_or_else(|| "the template writes no calls".to_owned()));
    }
    Err(Unexplained { writes_calls, because: reasons.join("; ") })
}

/// One call, if the template writes it; with other ids where they are to hold the name.
fn shown(prober: &mut Prober<'_>) -> Result<Option<String>, String> {
    for named_ids in [false, true] {
        prober.form.named_ids = named_ids;
        let call = prober.strings(1);
        let text = prober.calls(&call, "")?;
        let values = call[0].arguments.as_object().into_iter().flatten();
        let values =
            values.filter_map(|(_, value)| value.as_str()).all(|value| text.contains(value));
        if values && text.contains(&call[0].name) {
            return Ok(Some(text));
        }
        if !text.contains(&call[0].id) {
            return Ok(None);
        }
    }
    Ok(None)
}

/// As the template writes several calls; or only one, if the way it writes several is not to be
/// explained.
fn derive(prober: &Prober<'_>, rendered: &str) -> Result<(Format, ValueStyle), String> {
    derive_for(prober, rendered, true)
        .or_else(|because| derive_for(prober, rendered, false).map_err(|_| because))
}

fn derive_for(
    prober: &Prober<'_>,
    rendered: &str,
    parallel: bool,
) -> Result<(Format, ValueStyle), String> {
    let (encoding, style) = arguments::locate(rendered, &prober.strings(1)[0])?;
    let controls = Controls::new(prober);
    let mut found = section::section(prober, &controls, rendered, encoding, style, parallel)?;
    let open = write(&found.calls, &prober.strings(1), style);
    let reasoning = reasoning::reasoning(prober, &controls, &found.head, &open);
    if let Some(tags) = &reasoning {
        // Tags of an empty block, where nothing else told them from the call.
        let open = [&tags.open, &tags.close].iter().fold(&*found.calls.open, |open, tag| {
            let rest =
                Some(&***tag).filter(|tag| !tag.is_empty()).and_then(|tag| open.strip_prefix(tag));
            rest.map_or(open, str::trim_start)
        });
        found.calls.open = open.to_owned().into();
    }
    plausible(&found.calls, prober, style)?;
    let style = HeldOut::new(prober).check(&found.calls, Exactness::Bytes)?;
    let ends = [Some(&found.tail), controls.content.as_ref().map(|(_, end)| end)];
    let mut ends: Vec<_> = ends
        .into_iter()
        .flatten()
        .filter_map(|end| markers::first(end.trim()).or(end.split_whitespace().next()))
        .collect();
    ends.extend(controls.turn_end.as_deref());
    ends.dedup();
    let ends = ends.into_iter().map(|end| end.to_owned().into()).collect();
    let format = Format {
        family: "inferred".into(),
        source: FormatSource::Inferred,
        verified: false,
        wrappers: found
            .wrapper
            .into_iter()
            .chain(wrapper(&controls, reasoning.as_ref().map(|tags| &*tags.close)))
            .collect(),
        reasoning,
        channels: None,
        calls: Some(found.calls),
        ends,
        fenced_calls: false,
        envelope: false,
        untagged: false,
        accepted_families: Vec::new(),
    };
    Ok((format, style))
}

/// What stands around content and not in the prompt.
fn wrapper(controls: &Controls, reasoning: Option<&str>) -> Option<Wrapper> {
    let (before, after) = controls.content.as_ref()?;
    let open = before.strip_prefix(controls.prompt.as_deref()?.trim_end())?.trim();
    if markers::last(open).is_none() || reasoning.is_some_and(|close| open.contains(close)) {
        return None;
    }
    let close = markers::first(after.trim())
        .filter(|close| controls.turn_end.as_deref() != Some(close))
        .unwrap_or_default();
    Some(Wrapper { open: open.to_owned().into(), close: close.to_owned().into() })
}

/// Refuses what no reader could read: a call that begins as JSON and is none.
fn plausible(calls: &CallSyntax, prober: &Prober<'_>, style: ValueStyle) -> Result<(), String> {
    let json = calls
        .call
        .iter()
        .any(|part| matches!(part, CallPart::Arguments(Encoding::Json | Encoding::JsonText)));
    let written = write(calls, &prober.strings(1), style);
    let Some(at) = written.find('{').filter(|_| json) else { return Ok(()) };
    let mut values =
        serde_json::Deserializer::from_str(&written[at..]).into_iter::<serde_json::Value>();
    match values.next() {
        Some(Ok(value)) if !value.to_string().contains(CONTENT) => Ok(()),
        _ => Err(format!("{:?} begins as JSON and is none", &written[at..])),
    }
}
