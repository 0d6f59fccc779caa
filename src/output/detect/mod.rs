//! Finds the format that a template writes: a family, or a format inferred from its renders.

mod boundaries;
mod evident;
mod infer;
pub(crate) mod opener;
mod reasoning;
pub(crate) mod round_trip;
mod tag_pairs;

#[cfg(test)]
pub(crate) use boundaries::{TurnBoundaries, parser_for};
#[cfg(test)]
pub(crate) use infer::history_prober::HistoryForm;

pub use evident::{CallTurn, Contradiction, EvidentFormat, FormatClues};
pub use reasoning::{ReasoningClues, ReasoningEvidence};

use super::families;
use super::format::{Format, ReasoningTags, Wrapper};
use super::markup::TurnMarkup;
use crate::probing::diff::common_suffix;
use crate::probing::{Probe, ProbeRenderer};
use opener::TurnOpener;
use round_trip::RoundTrip;

/// A user message after an answer.
const NEXT_USER: &str = "Chortle the frumious.";

/// The format of a template's replies.
pub struct Detected {
    /// How calls, reasoning and text are written. None if the template writes calls in an unknown
    /// way.
    pub format: Option<Format>,
    /// The text that opens an assistant turn.
    pub opener: TurnOpener,
    /// The text that the template appends to ask for a reply.
    pub generation_prompt: String,
    /// The markup around every answer.
    pub turn_markup: TurnMarkup,
    /// Why the calls that the template writes cannot be parsed. None if they can be, or if it
    /// writes none.
    pub unreadable: Option<String>,
}

impl Detected {
    /// Finds the format that a template writes, by rendering. In this order: a family that writes
    /// the same bytes, a family that differs in whitespace, a format inferred from the renders, a
    /// family or a similar inferred format that parses the renders. A format is used only if every
    /// required row of the round trip comes back exactly. Without a format, the model may still
    /// answer in the polyfill's format. `evidence` are the tags around reasoning that the template
    /// reveals.
    pub(crate) fn native(renderer: &ProbeRenderer<'_>, evidence: &ReasoningEvidence) -> Detected {
        let is_verified =
            |found: &Detected| found.format.as_ref().is_some_and(|format| format.verified);
        let found = Detected::of_last_answer(renderer, evidence);
        if is_verified(&found) {
            return found;
        }
        let followed = Detected::of_last_answer(&with_next_user(renderer), evidence);
        if is_verified(&followed) { followed } else { found }
    }

    /// Finds the format of the answer that a history ends with.
    fn of_last_answer(renderer: &ProbeRenderer<'_>, evidence: &ReasoningEvidence) -> Detected {
        let round_trip = RoundTrip::new(renderer);
        let observed =
            |format: Format| Format { reasoning: observed(&format, &round_trip), ..format };
        let families: Vec<Format> = families::all().into_iter().map(observed).collect();
        let (mut found, mut of_one_call) = (None, None);
        if let Ok((format, kind)) = infer::find(&families, renderer) {
            let verified = round_trip.verify(format.clone()).ok();
            match kind {
                infer::FamilyMatch::IgnoringWhitespace => {
                    found =
                        verified.map(|family| with_own_whitespace(family, renderer, &round_trip))
                }
                // An inferred format may understand several calls too.
                infer::FamilyMatch::OneCall if !verified.as_ref().is_some_and(is_parallel) => {
                    of_one_call = verified
                }
                _ => found = verified,
            }
        }
        let mut unreadable = None;
        let found = found.or_else(|| match inferred(renderer, &round_trip) {
            Ok(format) if of_one_call.is_none() || is_parallel(&format) => Some(format),
            Ok(_) => of_one_call,
            Err(reason) => of_one_call.or_else(|| {
                unreadable = reason;
                let similar = infer::infer_similar(renderer);
                best_reader(families.into_iter().chain(similar).collect(), &round_trip)
            }),
        });
        unreadable = unreadable.filter(|_| found.is_none());
        let format = evidence.apply(found.unwrap_or_else(families::polyfilled), &round_trip);
        Detected { unreadable, ..Detected::new(Some(format), &round_trip) }
    }

    /// The format that the polyfill teaches to a model whose template writes no calls. `renderer`
    /// applies the polyfills.
    pub(crate) fn polyfilled(
        renderer: &ProbeRenderer<'_>,
        evidence: &ReasoningEvidence,
    ) -> Detected {
        let round_trip = RoundTrip::new(renderer);
        let format = families::polyfilled();
        let format = round_trip.verify(format).unwrap_or_else(|format| *format);
        let format = evidence.apply(format, &round_trip);
        Detected::new(Some(format), &round_trip)
    }

    /// Verifies a format that no render of the template shows. `renderer` writes the calls of
    /// histories in this format. The error is the first row of the round trip that does not come
    /// back.
    pub(crate) fn evident(
        format: Format,
        renderer: &ProbeRenderer<'_>,
        evidence: &ReasoningEvidence,
    ) -> Result<Detected, &'static str> {
        let round_trip = RoundTrip::new(renderer);
        match round_trip.verify(format) {
            Ok(format) => {
                // The template confirms only text that the polyfill wrote, so the format stays
                // unverified.
                let format = Format { verified: false, ..evidence.apply(format, &round_trip) };
                Ok(Detected::new(Some(format), &round_trip))
            }
            Err(format) => {
                let report = round_trip.report(&format);
                Err(report.failed().find(|row| row.required).map_or("no render", |row| row.name))
            }
        }
    }

    /// Adds wrapper tags of families that no render shows. The template's source contains them,
    /// because its instructions ask for them ("write your response between …"), or it ends turns as
    /// the family does and the tags look like tokens of that vocabulary.
    pub fn with_wrappers(mut self, in_source: &dyn Fn(&str) -> bool) -> Detected {
        let Some(format) = &mut self.format else { return self };
        for family in families::all() {
            let mut ends = family.ends.iter().filter(|end| is_control(end)).peekable();
            let shares_ends = ends.peek().is_some() && ends.all(|end| in_source(end));
            for wrapper in family.wrappers {
                let known = format.texts().contains(&&*wrapper.open);
                let named = in_source(&wrapper.open) && in_source(&wrapper.close);
                let may_be_token = is_control(&wrapper.open) && !in_source(&wrapper.close);
                if !known && (named || shares_ends && may_be_token) {
                    format.wrappers.push(wrapper);
                }
            }
        }
        self
    }

    fn new(format: Option<Format>, round_trip: &RoundTrip) -> Detected {
        let boundaries = &round_trip.boundaries;
        let format = format.map(|mut format| {
            let found = boundaries.content_wrapper(&format);
            let known = |wrapper: &Wrapper| format.texts().contains(&&*wrapper.open);
            let found: Vec<Wrapper> = found.into_iter().filter(|found| !known(found)).collect();
            format.wrappers.extend(found);
            if let Some(header) = boundaries.repeated_header(&format) {
                format.repeated_header = header.into();
            }
            format
        });
        let opener = round_trip.opener(format.as_ref());
        let generation_prompt = boundaries.generation_prompt().to_owned();
        let turn_markup = boundaries.turn_markup(format.as_ref());
        Detected { format, opener, generation_prompt, turn_markup, unreadable: None }
    }
}

/// Renders a probe that ends with an answer as if a user message followed, up to the header of that
/// message. Other probes are rendered as they are. Some templates treat an answer at the end of a
/// conversation as the beginning of the reply, and leave its calls out.
fn with_next_user<'a>(renderer: &'a ProbeRenderer<'a>) -> ProbeRenderer<'a> {
    ProbeRenderer::new(move |probe: &Probe| {
        let ends_with_answer =
            probe.messages.last().is_some_and(|message| message["role"] == "assistant");
        if !ends_with_answer || probe.add_generation_prompt {
            return renderer.render(probe);
        }
        let before_next = |probe: &Probe| {
            let text = renderer.render(&probe.clone().user(NEXT_USER))?;
            let (before, _) = text.rsplit_once(NEXT_USER).ok_or("the user message is left out")?;
            Ok::<_, String>(before.to_owned())
        };
        let answer = before_next(probe)?;
        let first = before_next(&Probe { messages: Vec::new(), ..probe.clone() })?;
        let header = common_suffix(&answer, &first);
        Ok(answer[..answer.len() - header].to_owned())
    })
}

fn is_parallel(format: &Format) -> bool {
    format.calls.as_ref().is_some_and(|calls| calls.parallel)
}

/// Whether a tag is written like a control token: `<|…|>`, `[TOOLS]`. Other tags may pair by chance.
fn is_control(tag: &str) -> bool {
    let upper = |c: char| c.is_ascii_uppercase() || matches!(c, '_' | '/');
    let in_brackets = tag.strip_prefix('[').and_then(|tag| tag.strip_suffix(']'));
    tag.starts_with("<|") && tag.ends_with("|>")
        || in_brackets.is_some_and(|name| name.len() > 1 && name.chars().all(upper))
}

/// The inferred format, if the round trip verifies it. The error says why there is none; it is
/// `None` if the template writes no calls.
fn inferred(
    renderer: &ProbeRenderer<'_>,
    round_trip: &RoundTrip,
) -> Result<Format, Option<String>> {
    let format = match infer::infer(renderer) {
        Ok(inferred) => inferred.format,
        Err(error) => return Err(error.writes_calls.then_some(error.reason)),
    };
    round_trip.verify(format).map_err(|format| {
        let report = round_trip.report(&format);
        let row = report.failed().find(|row| row.required)?;
        Some(format!("{} does not come back: {}", row.name, row.reason))
    })
}

/// A family that differs from the template in whitespace, with the template's own whitespace if that
/// can be inferred. It may belong to values: `<parameter=a>x\n</parameter>` need not be `x`.
fn with_own_whitespace(
    family: Format,
    renderer: &ProbeRenderer<'_>,
    round_trip: &RoundTrip,
) -> Format {
    let own = inferred(renderer, round_trip)
        .ok()
        .filter(|own| is_parallel(own) || !is_parallel(&family))
        .and_then(|own| round_trip.verify(Format { calls: own.calls, ..family.clone() }).ok());
    own.unwrap_or(family)
}

/// The format's reasoning tags. If they have no opening tag, they are kept only if the template
/// writes the closing tag after reasoning.
fn observed(format: &Format, round_trip: &RoundTrip) -> Option<ReasoningTags> {
    format
        .reasoning
        .clone()
        .filter(|tags| !tags.open.is_empty() || round_trip.closes_reasoning(&tags.close))
}

/// The family that parses the most rows of the template's text, even if it would write them
/// differently.
fn best_reader(families: Vec<Format>, round_trip: &RoundTrip) -> Option<Format> {
    let mut best: Option<(usize, Format)> = None;
    for format in families.into_iter().filter(|format| round_trip.may_match(format)) {
        let report = round_trip.report(&format);
        let exact = report.rows.len() - report.failed().count();
        if report.accepted() && best.as_ref().is_none_or(|(most, _)| exact > *most) {
            best = Some((exact, format));
        }
    }
    best.and_then(|(_, format)| round_trip.verify(format).ok())
}
