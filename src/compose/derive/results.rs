//! Derives tool results: the text around each result and around all results.

use super::calls;
use super::chat::ChatForm;
use super::probes::{ANSWER, USER, USER_2, contains_needle, probe_calls};
use super::wrapping::{Wrapping, escaped, with_slot};
use crate::probing::diff::split_at_needles;
use crate::probing::{Probe, ProbeRenderer};

const RESULT: &str = "Qresultone";
const RESULT_2: &str = "Qresulttwo";
const QUOTED: &str = "Qresult \"q\"";
const QUOTED_AS_JSON: &str = "\"Qresult \\\"q\\\"\"";
/// The names and ids of the calls.
const NAMES: [&str; 2] = ["qtoolone", "qtooltwo"];
const IDS: [&str; 2] = ["qcallonex", "qcalltwox"];

/// How a template writes tool results.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ResultsForm {
    pub(super) wrapping: Option<Wrapping>,
    /// The text of one result with slots, without the text around it.
    template: String,
    /// The value of `tool_policy.observation_content_processor`.
    pub(super) processor: Option<&'static str>,
    /// The value of `tool_policy.observations_end`.
    pub(super) end: String,
    /// Whether no generation prompt follows results.
    pub(super) unprompted: bool,
    /// Whether results are not printed.
    pub(super) dropped: bool,
    /// Whether an answer after results continues the turn before them.
    pub(super) continued: bool,
    pub(super) residual: Vec<&'static str>,
}

impl ResultsForm {
    /// The values of `single_observation_template` and `observations_template`.
    pub(super) fn templates(&self) -> Option<[String; 2]> {
        let Wrapping { before, each_before, each_after, after, .. } = self.wrapping.as_ref()?;
        Some([
            format!("{}{}{}", escaped(each_before), self.template, escaped(each_after)),
            with_slot(before, "observations", after),
        ])
    }

    /// The texts around each result, without whitespace. None if one of them is empty.
    pub(super) fn tags(&self) -> Option<[String; 2]> {
        let Wrapping { each_before, each_after, .. } = self.wrapping.as_ref()?;
        let tags = [each_before, each_after].map(|text| text.trim().to_owned());
        tags.iter().all(|tag| !tag.is_empty()).then_some(tags)
    }
}

/// Derives the form of results. None if the template does not print them.
pub(super) fn derive(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    text_arguments: bool,
) -> Option<ResultsForm> {
    let with_calls =
        |count: usize| Probe::from_user(USER).calls("", &probe_calls(text_arguments)[..count]);
    let spoken = Probe::from_user(USER).assistant(ANSWER);
    let mut found = ResultsForm::default();
    let mut refused = true;
    for (one, two) in [(with_calls(1), with_calls(2)), (spoken.clone(), spoken)] {
        let first = |start: &Probe| start.clone().result("qcallonex", RESULT);
        let Some(single) = foreign.prompt(&first(&one)) else { continue };
        refused = false;
        if !single.contains(RESULT) {
            continue;
        }
        let quoted = foreign
            .prompt(&one.clone().result("qcallonex", QUOTED))
            .is_some_and(|text| text.contains(QUOTED_AS_JSON));
        found.processor = quoted.then_some("json");
        let mark = |result: &str| if quoted { format!("\"{result}\"") } else { result.to_owned() };
        let Some([before, after]) = text_around(foreign, chat, &one, &single, &mark(RESULT)) else {
            found.residual.push("tool results do not follow the turn before them");
            return Some(found);
        };
        let after = after.strip_suffix(&*chat.ending).unwrap_or(&after);
        let ResultItem { template, before, text, mut after } =
            ResultItem::split(&before, &mark(RESULT), after);
        let until = |conversation: Probe, mark: &str| {
            let prompt = foreign.prompt(&conversation)?;
            Some(prompt.split_once(&text)?.1.split_once(mark)?.0.to_owned())
        };
        let to_answer = until(first(&one).assistant(ANSWER).user(USER_2), ANSWER);
        let prompted = foreign.prompt(&first(&one).generation_prompt());
        found.unprompted = prompted.as_deref() == single.strip_suffix(&*chat.ending);
        found.continued = to_answer.as_ref() == Some(&after) && !chat.assistant.before.is_empty();
        let to_user = until(first(&one).user(USER_2), USER_2);
        let at_user = to_user.as_deref().and_then(|text| text.strip_suffix(&*chat.user.before));
        if let Some(end) =
            at_user.and_then(|at_user| after.strip_prefix(at_user)).filter(|end| !end.is_empty())
        {
            end.clone_into(&mut found.end);
            after.truncate(after.len() - found.end.len());
        }
        let whole = format!("{after}{}{}", found.end, chat.ending);
        found.template = template;
        if [&before, &after].into_iter().any(|text| contains_needle(text)) {
            found.residual.push("the text around a tool result is unknown");
            return Some(found);
        }
        let double = foreign.prompt(&first(&two).result("qcalltwox", RESULT_2));
        let second =
            text.replace(NAMES[0], NAMES[1]).replace(IDS[0], IDS[1]).replace(RESULT, RESULT_2);
        let joined =
            joined_wrapping(double.as_deref(), [&text, &second], [&before, &after], &whole);
        found.wrapping = joined.or_else(|| {
            found.residual.push("several tool results are not printed as one is");
            Some(Wrapping::single(&before, &after))
        });
        return Some(found);
    }
    let prompted = Probe::from_user(USER).assistant(ANSWER);
    if !refused
        && foreign.prompt(&prompted)
            == foreign.prompt(&prompted.clone().result("qcallonex", RESULT))
    {
        found.dropped = true;
        return Some(found);
    }
    refused.then(|| {
        found.residual.push("the template rejects tool results");
        found
    })
}

/// The wrapping of results, from a prompt with two results that have these texts. `whole` is the
/// text after the second one.
fn joined_wrapping(
    prompt: Option<&str>,
    texts: [&str; 2],
    [before, after]: [&str; 2],
    whole: &str,
) -> Option<Wrapping> {
    let parts = split_at_needles(prompt?, texts)?;
    let [_, between, end] = &parts[..] else { return None };
    let is_joined = *end == whole && !contains_needle(between);
    is_joined.then(|| Wrapping::joined(before, between, after))
}

/// One result, from its first part to its last, and the text around it.
struct ResultItem {
    template: String,
    before: String,
    text: String,
    after: String,
}

impl ResultItem {
    /// Splits the text around a result. The name and the id of its call are parts of the result.
    fn split(before: &str, result: &str, after: &str) -> ResultItem {
        let parts = [(NAMES[0], "{name}"), (IDS[0], "{tool_call_id}")];
        let start =
            parts.iter().filter_map(|(text, _)| before.find(text)).min().unwrap_or(before.len());
        let end = parts
            .iter()
            .filter_map(|(text, _)| Some(after.rfind(text)? + text.len()))
            .max()
            .unwrap_or(0);
        let (head, tail) = (&before[start..], &after[..end]);
        let with_slots = |text: &str| {
            parts.iter().fold(escaped(text), |text, (part, slot)| text.replace(part, slot))
        };
        ResultItem {
            template: format!("{}{{observation}}{}", with_slots(head), with_slots(tail)),
            before: before[..start].to_owned(),
            text: format!("{head}{result}{tail}"),
            after: after[end..].to_owned(),
        }
    }
}

/// The texts before and after a single result.
fn text_around(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    start: &Probe,
    single: &str,
    result: &str,
) -> Option<[String; 2]> {
    let (before, after) = single.split_once(result)?;
    let until = [foreign.prompt(start), calls::inner_turn(foreign, chat, start)];
    let own =
        until.iter().flatten().find_map(|until| before.strip_prefix(&**until)).or_else(|| {
            // The turn before the results is no longer the last one, so its end may differ.
            let (_, after) = before.split_once(ANSWER)?;
            after.strip_prefix(&*chat.assistant.after)
        })?;
    Some([own.to_owned(), after.to_owned()])
}
