//! How a template takes tools, tool calls and tool results.
//!
//! In: a baseline. Out: probe outcomes, and the form in which a call and its result appear in the
//! prompt, for further probes.

use serde_json::{Value, json};

use super::baseline::{Baseline, count, tool};
use super::evidence::{Evidence, EvidenceStatus, Pair, RenderResult};
use super::exchange_form::{
    ExchangeForm, ID, KEY, LONG_ID, NAME, OTHER_ID, RESULT, SECOND_ID, SECOND_NAME, SECOND_VALUE,
    VALUE, declared,
};
use super::traits::{AcceptedArguments, NoContent};
use crate::template::failure::Failure;

/// The probed traits of tools and calls.
pub(crate) struct CallTraits {
    pub(crate) tools: Evidence,
    pub(crate) shown: Evidence,
    pub(crate) object_only: Evidence,
    pub(crate) parallel: Evidence,
    pub(crate) results: Evidence,
    pub(crate) ids: Evidence,
    pub(crate) arguments: AcceptedArguments,
    pub(crate) nine_character_ids: bool,
    pub(crate) results_by_position: bool,
    pub(crate) refuses_user_after_result: bool,
    pub(crate) form: ExchangeForm,
}

/// Probes tools, calls and results.
pub(crate) fn probe(base: &Baseline<'_>) -> CallTraits {
    let probes = Probes { base, declared: declared() };
    let Search { shown, form, arguments, shows, string } = probes.search();
    let object_only = probes.object_only(&shown, arguments, &string);
    let nine = shown.is_yes() && shows.is_ok() && probes.refuses_long_ids(form);
    CallTraits {
        tools: probes.tools(),
        parallel: probes.parallel(&shown, form, &shows),
        results: probes.results(&shown, form, &shows),
        ids: probes.ids(&shown, form, &shows),
        nine_character_ids: nine,
        refuses_user_after_result: shown.is_yes()
            && shows.is_ok()
            && probes.refuses_user_after_result(form),
        results_by_position: !probes.matches_results_by_id(&shown, form),
        shown,
        object_only,
        arguments,
        form,
    }
}

struct Probes<'a> {
    base: &'a Baseline<'a>,
    declared: Value,
}

/// The first form in which a call appears.
struct Search {
    shown: Evidence,
    form: ExchangeForm,
    arguments: AcceptedArguments,
    /// The prompt of the exchange in that form.
    shows: RenderResult,
    /// The exchange with arguments as text.
    string: RenderResult,
}

const SHOWN: Pair = Pair {
    probe: "tool_call",
    control: "no_tool_call",
    yes: "the name of an argument and its value appear in the prompt",
    no: "the argument of a tool call does not appear in the prompt, or appears only escaped",
};

impl Probes<'_> {
    fn render(&self, messages: Vec<Value>) -> RenderResult {
        self.base.render_with(messages, &self.declared)
    }

    fn tools(&self) -> Evidence {
        let pair = Pair {
            probe: "tools",
            control: "no_tools",
            yes: "the name of a declared tool appears in the prompt",
            no: "the name of a declared tool does not appear in the prompt",
        };
        let test = self.base.render_with(vec![self.base.user()], &json!([tool(NAME)]));
        pair.compare(&test, &self.base.plain, |test, control| {
            test.contains(NAME) && !control.contains(NAME)
        })
    }

    /// Searches for the first form in which a call appears. Forms with a result are tried before
    /// forms without one, and forms with less content before forms with more.
    fn search(&self) -> Search {
        let control = self.render(vec![self.base.user(), self.base.message("assistant", "answer")]);
        let control = if control.is_ok() { control } else { self.render(vec![self.base.user()]) };
        let none = control.as_ref().map_or(0, |text| count(text, "None"));
        let passes = |text: &RenderResult| {
            text.as_ref().is_ok_and(|text| shows_call(text) && count(text, "None") <= none)
        };
        let fallback = ExchangeForm { object: false, content: NoContent::Absent, answered: true };
        let mut first_refusal: Option<Failure> = None;
        let mut first_failure: Option<Failure> = None;
        let mut rendered = false;
        let mentioned = self.base.prober.mentions("tool_calls");
        'forms: for answered in [true, false] {
            for content in [NoContent::Absent, NoContent::Null, NoContent::Empty, NoContent::Space]
            {
                let form = |object| ExchangeForm { object, content, answered };
                let [object, string] =
                    [true, false].map(|object| self.render(form(object).exchange(self.base)));
                if passes(&object) || passes(&string) {
                    let (is_object, arguments) =
                        arguments(&object, &string, passes(&object), passes(&string));
                    let shows = if is_object { object } else { string.clone() };
                    let shown =
                        SHOWN.compare(&shows, &control, |_, control| !control.contains(KEY));
                    return Search { shown, form: form(is_object), arguments, shows, string };
                }
                for text in [&object, &string] {
                    match text {
                        Ok(_) => rendered = true,
                        Err(failure) if failure.is_refusal() => {
                            first_refusal = first_refusal.or_else(|| Some(failure.clone()))
                        }
                        Err(failure) => {
                            first_failure = first_failure.or_else(|| Some(failure.clone()))
                        }
                    }
                }
                if !mentioned && object.is_ok() {
                    // A template that never mentions calls does not read them in any other form.
                    break 'forms;
                }
            }
        }
        let failure = first_refusal.or(first_failure);
        let shown = match (&control, failure) {
            (Err(failure), _) if !rendered => {
                SHOWN.unknown("the control of the probe does not render", failure)
            }
            (_, Some(failure)) if !rendered => SHOWN.failed(&failure),
            _ => SHOWN.conclude(false),
        };
        Search {
            shown,
            form: fallback,
            arguments: AcceptedArguments::Unknown,
            shows: control.clone(),
            string: control,
        }
    }

    fn object_only(
        &self,
        shown: &Evidence,
        arguments: AcceptedArguments,
        string: &RenderResult,
    ) -> Evidence {
        if !shown.is_yes() {
            return shown.deny_dependent("tool calls do not appear in the prompt in any form");
        }
        let pair = Pair {
            probe: "tool_call_string",
            control: "tool_call_object",
            yes: "arguments appear in the prompt as an object, but not as JSON text",
            no: "arguments appear in the prompt as JSON text",
        };
        let mut outcome = pair.conclude(arguments == AcceptedArguments::Object);
        outcome.error = string.as_ref().err().cloned();
        outcome
    }

    fn parallel(&self, shown: &Evidence, form: ExchangeForm, one: &RenderResult) -> Evidence {
        if !shown.is_yes() {
            return shown.deny_dependent("a single tool call does not appear in the prompt");
        }
        let pair = Pair {
            probe: "two_tool_calls",
            control: "tool_call",
            yes: "the second of two tool calls appears in the prompt",
            no: "the second of two tool calls does not appear in the prompt",
        };
        let calls = [form.one(ID, NAME, VALUE), form.one(SECOND_ID, SECOND_NAME, SECOND_VALUE)];
        let both = vec![self.base.user(), form.calls(self.base, &calls)];
        let answers = [
            form.answer(self.base, ID, NAME, RESULT),
            form.answer(self.base, SECOND_ID, SECOND_NAME, "second_result"),
        ];
        let test = self.render(both.iter().cloned().chain(answers.into_iter().flatten()).collect());
        // The template may refuse two consecutive results.
        let test = if test.is_ok() { test } else { self.render(both).or(test) };
        pair.compare(&test, one, |test, control| {
            test.contains(SECOND_VALUE) && count(test, SECOND_NAME) > count(control, SECOND_NAME)
        })
    }

    fn results(&self, shown: &Evidence, form: ExchangeForm, one: &RenderResult) -> Evidence {
        if !shown.is_yes() {
            return shown.deny_dependent(
                "a tool call does not appear in the prompt, so its result would have no call",
            );
        }
        let pair = Pair {
            probe: "tool_result",
            control: "no_tool_result",
            yes: "the text of a tool result appears in the prompt",
            no: "the text of a tool result does not appear in the prompt",
        };
        let call = || vec![self.base.user(), form.call(self.base)];
        if !form.answered {
            let answered = ExchangeForm { answered: true, ..form };
            let test = self.render(call().into_iter().chain(answered.result(self.base)).collect());
            return pair.compare(&test, one, |_, _| false);
        }
        let control = self.render(call());
        // The template may refuse a call without a result. The control then has another result.
        let control = match control {
            Ok(control) => Ok(control),
            Err(_) => self.render(
                call()
                    .into_iter()
                    .chain(form.answer(self.base, ID, NAME, "other_answer"))
                    .collect(),
            ),
        };
        pair.compare(one, &control, |test, control| {
            test.contains(RESULT) && !control.contains(RESULT)
        })
    }

    fn ids(&self, shown: &Evidence, form: ExchangeForm, one: &RenderResult) -> Evidence {
        let pair = Pair {
            probe: "tool_result_with_another_id",
            control: "tool_result",
            yes: "the id of the call that a result answers appears in the prompt",
            no: "the id of the call that a result answers does not appear in the prompt",
        };
        let Some(other) = form.answer(self.base, OTHER_ID, NAME, RESULT).filter(|_| shown.is_yes())
        else {
            return Evidence {
                probe: pair.probe,
                ..shown.deny_dependent("a tool call or its result does not appear in the prompt")
            };
        };
        let test = self.render(vec![self.base.user(), form.call(self.base), other]);
        match (&test, one) {
            // The template refuses an id that belongs to no call. The id counts as shown if both
            // the call and its result show it.
            (Err(failure), Ok(one)) if failure.is_refusal() && count(one, ID) > 1 => {
                pair.conclude(true)
            }
            _ => pair.compare(&test, one, |test, control| {
                test.contains(OTHER_ID) && !control.contains(OTHER_ID)
            }),
        }
    }

    /// Whether the prompt says which result belongs to which of two calls of one function, whatever
    /// their order: it changes if the ids of the results are exchanged, and if those of the calls
    /// are.
    fn matches_results_by_id(&self, shown: &Evidence, form: ExchangeForm) -> bool {
        if !shown.is_yes() || !form.answered {
            return false;
        }
        let render = |calls: [&str; 2], results: [&str; 2]| {
            let calls = form.calls(
                self.base,
                &[form.one(calls[0], NAME, VALUE), form.one(calls[1], NAME, SECOND_VALUE)],
            );
            let results = results
                .into_iter()
                .zip(["second_result", RESULT])
                .filter_map(|(id, text)| form.answer(self.base, id, NAME, text));
            self.render([self.base.user(), calls].into_iter().chain(results).collect())
        };
        let (sent, exchanged) = ([ID, SECOND_ID], [SECOND_ID, ID]);
        let Ok(prompt) = render(sent, exchanged) else { return false };
        let differs = |text: RenderResult| text.is_ok_and(|text| text != prompt);
        differs(render(sent, sent)) && differs(render(exchanged, exchanged))
    }

    fn refuses_user_after_result(&self, form: ExchangeForm) -> bool {
        let mut messages = form.exchange(self.base);
        messages.push(self.base.user());
        form.answered && self.render(messages).is_err_and(|failure| failure.is_refusal())
    }

    fn refuses_long_ids(&self, form: ExchangeForm) -> bool {
        let call = form.calls(self.base, &[form.one(LONG_ID, NAME, VALUE)]);
        let result = form.answer(self.base, LONG_ID, NAME, RESULT);
        let text = self
            .render([Some(self.base.user()), Some(call), result].into_iter().flatten().collect());
        text.is_err_and(|failure| failure.is_refusal())
    }
}

/// Whether the argument's name and value appear, with the name outside of escaped JSON at least
/// once.
fn shows_call(text: &str) -> bool {
    text.contains(VALUE) && text.match_indices(KEY).any(|(at, _)| !text[..at].ends_with("\\\""))
}

/// Whether to write arguments as an object, and how the two forms compare.
fn arguments(
    object: &RenderResult,
    string: &RenderResult,
    object_passes: bool,
    string_passes: bool,
) -> (bool, AcceptedArguments) {
    let python =
        |text: &RenderResult| text.as_ref().is_ok_and(|text| text.contains(&format!("'{KEY}'")));
    match (object_passes, string_passes) {
        (true, false) => (true, AcceptedArguments::Object),
        (false, true) => (false, AcceptedArguments::Text),
        (true, true) if object == string => (true, AcceptedArguments::Either),
        // The object is printed in Python notation, so the template expects text.
        (true, true) if python(object) && !python(string) => (false, AcceptedArguments::Text),
        (true, true) => (true, AcceptedArguments::PrefersObject),
        (false, false) => (false, AcceptedArguments::Unknown),
    }
}

impl CallTraits {
    /// Whether calls appear in the prompt.
    pub(crate) fn are_shown(&self) -> bool {
        self.shown.status == EvidenceStatus::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::prober;

    fn find(source: &str) -> CallTraits {
        let mut prober = prober::for_source(source);
        probe(&Baseline::find(&mut prober))
    }

    /// Checks a template. `statuses` are those of `tools`, `shown`, `object_only`, `parallel`,
    /// `results` and `ids`: y, n or u.
    #[track_caller]
    fn check(source: &str, statuses: &str, arguments: AcceptedArguments) -> CallTraits {
        let calls = find(source);
        let all = [
            &calls.tools,
            &calls.shown,
            &calls.object_only,
            &calls.parallel,
            &calls.results,
            &calls.ids,
        ];
        let found: String = all.iter().map(|outcome| &outcome.status.as_str()[..1]).collect();
        assert_eq!((found.as_str(), calls.arguments), (statuses, arguments));
        calls
    }

    const TURNS: &str =
        "{% for m in messages %}{{ m.role }}:{% if m.content %}{{ m.content }}{% endif %}";

    #[test]
    fn no_tools() {
        check(
            "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}",
            "nnnnnn",
            AcceptedArguments::Unknown,
        );
    }

    #[test]
    fn everything() {
        let source = format!(
            "{{{{ tools|tojson }}}}{TURNS}{{% for c in m.tool_calls %}}{{{{ c.id }}}}{{{{ c.function.name }}}}{{{{ c.function.arguments if c.function.arguments is string else c.function.arguments|tojson }}}}{{% endfor %}}{{{{ m.tool_call_id }}}}{{% endfor %}}"
        );
        let calls = check(&source, "yynyyy", AcceptedArguments::Either);
        assert_eq!(
            (calls.form.content, calls.form.object, calls.nine_character_ids),
            (NoContent::Absent, true, false)
        );
    }

    #[test]
    fn object_arguments_only() {
        let source = format!(
            "{TURNS}{{% for c in m.tool_calls %}}{{{{ c.function.arguments|tojson }}}}{{% endfor %}}{{% endfor %}}"
        );
        // The name of the second call is not written.
        check(&source, "nyynyn", AcceptedArguments::Object);
        let source = format!(
            "{TURNS}{{% for c in m.tool_calls %}}{{% for k, v in c.function.arguments|items %}}{{{{ k }}}}={{{{ v }}}}{{% endfor %}}{{% endfor %}}{{% endfor %}}"
        );
        let calls = check(&source, "nyynyn", AcceptedArguments::Object);
        assert!(calls.object_only.error.is_some());
    }

    #[test]
    fn text_arguments_only() {
        let source = format!(
            "{TURNS}{{% for c in m.tool_calls %}}{{{{ c.function.name + c.function.arguments }}}}{{% endfor %}}{{% endfor %}}"
        );
        check(&source, "nynyyn", AcceptedArguments::Text);
        let printed = format!(
            "{TURNS}{{% for c in m.tool_calls %}}{{{{ c.function.arguments }}}}{{% endfor %}}{{% endfor %}}"
        );
        check(&printed, "nynnyn", AcceptedArguments::Text);
    }

    #[test]
    fn the_object_is_the_natural_form() {
        let source = format!(
            "{TURNS}{{% for c in m.tool_calls %}}{{{{ c.function.name }}}}{{% if c.function.arguments is mapping %}}{{% for k, v in c.function.arguments|items %}}{{{{ k }}}}:{{{{ v }}}}{{% endfor %}}{{% else %}}{{{{ c.function.arguments }}}}{{% endif %}}{{% endfor %}}{{% endfor %}}"
        );
        check(&source, "nynyyn", AcceptedArguments::PrefersObject);
    }

    #[test]
    fn one_call_with_null_content() {
        let source = "{% for m in messages %}{% if m.tool_calls and m.content is none %}{% if m.tool_calls|length > 1 %}{{ raise_exception('one') }}{% endif %}{{ m.tool_calls[0].function.arguments }}{% elif m.tool_calls is undefined %}{{ m.content }}{% endif %}{% endfor %}";
        let calls = check(source, "nynnyn", AcceptedArguments::Text);
        assert_eq!(calls.form.content, NoContent::Null);
        assert_eq!(calls.parallel.error.map(|failure| failure.message), Some("one".to_owned()));
    }

    #[test]
    fn results_are_not_rendered() {
        let source = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('tool') }}{% endif %}{{ m.content or '' }}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}";
        let calls = check(source, "nynynn", AcceptedArguments::Text);
        assert_eq!(calls.form.result(&Baseline::find(&mut prober::for_source(source))), None);
    }

    #[test]
    fn results_must_name_their_tool() {
        let source = "{% for m in messages %}{% if m.role == 'tool' %}{{ '<' + m.name + '>' + m.content }}{% else %}{{ m.content or '' }}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}{% endif %}{% endfor %}";
        check(source, "nynyyn", AcceptedArguments::Text);
    }

    #[test]
    fn ids_of_nine_characters() {
        let source = format!(
            "{TURNS}{{% for c in m.tool_calls %}}{{% if c.id|length != 9 %}}{{{{ raise_exception('nine') }}}}{{% endif %}}{{{{ c.function.name + c.function.arguments }}}}{{% endfor %}}{{% endfor %}}"
        );
        assert!(check(&source, "nynyyn", AcceptedArguments::Text).nine_character_ids);
    }

    #[test]
    fn results_and_their_calls() {
        let by_position = |call: &str, result: &str| {
            let source = format!(
                "{TURNS}{{% if m.role == 'tool' %}}{result}{{% endif %}}{{% for c in m.tool_calls %}}{call}{{{{ c.function.name }}}}{{{{ c.function.arguments|tojson }}}}{{% endfor %}}{{% endfor %}}"
            );
            find(&source).results_by_position
        };
        let (call_id, result_id) = ("{{ c.id }}", "{{ m.tool_call_id }}");
        assert!(by_position("", ""));
        assert!(!by_position(call_id, result_id));
        // One id without the other says nothing.
        assert!(by_position(call_id, ""));
        assert!(by_position("", result_id));
        // The template finds the call of each result.
        let found = "{% for c in messages[1].tool_calls if c.id == m.tool_call_id %}{{ c.function.arguments|tojson }}{% endfor %}";
        assert!(!by_position("", found));
        // The name of the tool does not tell two calls of one tool apart.
        assert!(by_position("", "{{ m.name }}"));
        assert!(find("{{ messages[0].content }}").results_by_position);
    }

    #[test]
    fn a_user_message_after_a_result() {
        let source = format!(
            "{TURNS}{{% if m.role == 'user' and not loop.first and messages[loop.index0 - 1].role == 'tool' %}}{{{{ raise_exception('no') }}}}{{% endif %}}{{% for c in m.tool_calls %}}{{{{ c.function.name }}}}{{{{ c.function.arguments|tojson }}}}{{% endfor %}}{{% endfor %}}"
        );
        assert!(find(&source).refuses_user_after_result);
        assert!(!find(&source.replace("'tool' %}", "'x' %}")).refuses_user_after_result);
    }

    #[test]
    fn an_engine_error_is_unknown_for_its_own_flags() {
        let source = "{{ tools|tojson }}{% for m in messages %}{% if m.tool_calls %}{{ 1 + 'a' }}{% endif %}{{ m.content }}{% endfor %}";
        let calls = check(source, "yuuuuu", AcceptedArguments::Unknown);
        assert_eq!(calls.shown.error.map(|failure| failure.kind.as_str()), Some("type"));
    }
}
