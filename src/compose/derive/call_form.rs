//! Derives how one call is written: as JSON of the call or of its function, or as text around its
//! name, its id and its arguments.

use serde_json::{Map, Value, json};

use super::argument_syntax::{self, ArgumentSyntax, RenderArguments};
use super::probes::{Compose, USER};
use super::wrapping::escaped;
use crate::compose::spec::processor::Processor;
use crate::probing::Probe;

/// How a template writes one call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SingleCallForm {
    /// `tool_policy.tool_call_content_processor`.
    pub(super) processor: Option<Processor>,
    /// The text of the call with slots, without the text around it.
    pub(super) template: String,
    /// How arguments are written, if they are written one by one.
    pub(super) arguments: Option<ArgumentSyntax>,
    /// Whether `tool_policy.text_arguments` is `as_is`.
    pub(super) as_is: bool,
    /// The probes' calls, as the template writes them.
    pub(super) texts: Vec<String>,
}

const PROCESSORS: [Processor; 3] =
    [Processor::ObjectArguments, Processor::KimiCall, Processor::DsmlCall];

/// Derives the form of these calls. `sample` shows the first call, and `turn` renders other
/// arguments.
pub(super) fn find(
    sample: &str,
    calls: &[Value],
    turn: &RenderArguments<'_>,
    compose: &Compose<'_>,
) -> Option<SingleCallForm> {
    let texts = TextArguments::find(turn);
    let kinds = std::iter::once(None).chain(PROCESSORS.map(Some));
    let whole = kinds.into_iter().find_map(|kind| {
        let texts: Vec<String> =
            calls.iter().filter_map(|call| written(kind.as_ref(), call, compose)).collect();
        (texts.len() == calls.len() && sample.contains(&texts[0])).then_some((kind, texts))
    });
    if let Some((kind, written)) = whole
        && (texts != TextArguments::AsIs || kind.as_ref().is_some_and(Processor::parses_arguments))
    {
        let parsed = texts == TextArguments::Parsed;
        let processor = kind.or(parsed.then_some(Processor::ObjectArguments));
        return Some(SingleCallForm {
            processor,
            template: "{tool_call}".to_owned(),
            arguments: None,
            as_is: false,
            texts: written,
        });
    }
    let json = slotted(sample, calls, None, compose);
    let (arguments, (template, written)) = match json {
        Some(found) => (None, found),
        None => {
            let arguments = argument_syntax::find(turn)?;
            let found = slotted(sample, calls, Some(&arguments), compose)?;
            (Some(arguments), found)
        }
    };
    // The template rejects text arguments and writes arguments one by one, so text has to be
    // parsed.
    let parsed =
        texts == TextArguments::Parsed || (texts == TextArguments::Rejected && arguments.is_some());
    let processor = parsed.then_some(Processor::ObjectArguments);
    Some(SingleCallForm {
        processor,
        template,
        as_is: texts == TextArguments::AsIs,
        arguments,
        texts: written,
    })
}

/// How a template treats arguments that are JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextArguments {
    AsIs,
    Parsed,
    Quoted,
    Rejected,
}

impl TextArguments {
    fn find(turn: &RenderArguments<'_>) -> TextArguments {
        let odd = "{\"zone\":  \"Qplaceone\",\"n\":1}";
        let Some(text) = turn(&odd.into()) else { return TextArguments::Rejected };
        if text.contains(odd) {
            return TextArguments::AsIs;
        }
        let object = turn(&json!({ "zone": "Qplaceone", "n": 1 }));
        // A template that does not parse the text may still print the contents of an object.
        if object.is_some() && object == Some(text) {
            TextArguments::Parsed
        } else {
            TextArguments::Quoted
        }
    }
}

/// A call, written by a processor.
fn written(processor: Option<&Processor>, call: &Value, compose: &Compose<'_>) -> Option<String> {
    let mut policy = Map::new();
    if let Some(processor) = processor {
        policy.insert("tool_call_content_processor".to_owned(), processor.to_json());
    }
    let spec = json!({ "user_template": "{content}", "assistant_template": "{content}{tool_calls}", "tool_policy": policy });
    compose(&spec)?.prompt(&Probe::default().calls("", std::slice::from_ref(call)))
}

/// The text of the first call with slots, from its first part to its last. Also all calls as the
/// template writes them.
fn slotted(
    sample: &str,
    calls: &[Value],
    found: Option<&ArgumentSyntax>,
    compose: &Compose<'_>,
) -> Option<(String, Vec<String>)> {
    let (_, region) = sample.split_once(USER)?;
    let parts = |call: &Value| -> Option<[String; 3]> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let arguments = argument_syntax::written(found, &call["function"]["arguments"], compose)?;
        Some([text(&call["function"]["name"])?, text(&call["id"])?, arguments])
    };
    let first = parts(calls.first()?)?;
    let names = ["{name}", "{id}", "{arguments}"];
    if !region.contains(&*first[2]) {
        return None;
    }
    // The positions of the parts, in order.
    let mut positions: Vec<(usize, usize)> = first
        .iter()
        .enumerate()
        .flat_map(|(part, text)| region.match_indices(&**text).map(move |(at, _)| (at, part)))
        .collect();
    positions.sort_unstable();
    let (mut pieces, mut end) = (Vec::new(), None);
    for (at, part) in positions {
        pieces.push((region.get(end.unwrap_or(at)..at)?, part));
        end = Some(at + first[part].len());
    }
    let template =
        pieces.iter().map(|(text, part)| format!("{}{}", escaped(text), names[*part])).collect();
    let texts = calls.iter().map(|call| {
        let parts = parts(call)?;
        Some(pieces.iter().map(|(text, part)| format!("{text}{}", parts[*part])).collect())
    });
    Some((template, texts.collect::<Option<_>>()?))
}
