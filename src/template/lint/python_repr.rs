//! Lints of values in Python's notation: None, Undefined, True, lists and objects with single
//! quotes.
//!
//! Each lint compares two renders that differ in one value, so that the template's own text has no
//! effect.

use serde_json::{Value, json};

use super::review::{CALLED, Review, Severity};
use crate::template::probe::baseline::{parts, tool};
use crate::template::probe::content;
use crate::template::probe::evidence::RenderResult;
use crate::template::probe::exchange_form::ExchangeForm;
use crate::template::probe::traits::NoContent;

pub(super) fn review(review: &mut Review<'_>) {
    contents(review);
    tools(review);
    calls(review);
}

fn contents(review: &mut Review<'_>) {
    let base = review.base;
    let text = review.render(vec![json!({ "role": "user", "content": parts("part_needle") })]);
    if text.is_ok_and(|text| text.contains("'text': 'part_needle'")) {
        review.add(
            Severity::Warning,
            "prints_python_repr",
            "content as a list of text parts is printed as a Python list",
        );
    }
    let turn = |form: NoContent| {
        vec![base.user(), Value::Object(content::without_content(base, form)), base.user()]
    };
    let control = review.render(turn(NoContent::Space));
    let text = review.render(turn(NoContent::Null));
    review.compare_prints(
        "None",
        "an assistant message with null content (which transformers removes)",
        &text,
        &control,
    );
}

fn tools(review: &mut Review<'_>) {
    let base = review.base;
    let render = |tool: Value| base.render_with(vec![base.user()], &json!([tool]));
    if !review.traits.caps.supports_tools {
        return;
    }
    let full = render(tool(CALLED));
    let without = |member: &str| {
        let mut tool = tool(CALLED);
        if let Value::Object(function) = &mut tool["function"] {
            function.shift_remove(member);
        }
        tool
    };
    for (what, member) in [
        ("a declared tool without a description", "description"),
        ("a declared tool without parameters", "parameters"),
    ] {
        let text = render(without(member));
        review.compare_prints("None", what, &text, &full);
        review.compare_prints("Undefined", what, &text, &full);
    }
    let mut typed = tool(CALLED);
    typed["function"]["parameters"]["properties"]["declared_parameter"]["enum"] =
        json!(["first_enum", "second_enum"]);
    typed["function"]["parameters"]["properties"]["declared_parameter"]["default"] = Value::Null;
    let text = render(typed.clone());
    typed["function"]["parameters"]["properties"]["declared_parameter"]["default"] = json!(1);
    let control = render(typed);
    review.compare_prints("None", "a declared parameter with a null default", &text, &control);
    let printed =
        |text: &RenderResult, needle: &str| text.as_ref().is_ok_and(|text| text.contains(needle));
    if printed(&full, "'declared_parameter': {") {
        review.add(
            Severity::Warning,
            "prints_python_repr",
            "declared tools are printed in Python notation, not as JSON",
        );
    } else if printed(&control, "['first_enum', 'second_enum']") {
        review.add(
            Severity::Warning,
            "prints_python_repr",
            "a list in a declared tool is printed in Python notation, not as JSON",
        );
    }
}

fn calls(review: &mut Review<'_>) {
    if !review.traits.caps.supports_tool_calls {
        return;
    }
    let (user, result) = (review.user(), review.result());
    let exchange = |review: &Review<'_>, arguments: Value| {
        review.render_called(vec![user.clone(), review.call(arguments), result.clone()])
    };
    let control = exchange(review, json!({ "a": 1 }));
    // A template that writes calls in Python's syntax uses this notation on purpose.
    let python = control.as_ref().is_ok_and(|text| text.contains(&format!("{CALLED}(")));
    if !python {
        let null = exchange(review, json!({ "a": null }));
        review.compare_prints("None", "a call with a null argument", &null, &control);
        let boolean = exchange(review, json!({ "a": true }));
        if more("True", &boolean, &control) {
            review.add(
                Severity::Warning,
                "prints_python_repr",
                "an argument that is true is printed as True, in Python notation",
            );
        }
        // Objects are tried even if the template prefers text, because users of transformers send
        // objects.
        let form = ExchangeForm { object: true, ..review.form() };
        let nested =
            form.call_of(review.base, CALLED, json!({ "a": { "inner_key": ["inner_value"] } }));
        let nested = review.render_called(vec![user.clone(), nested, result.clone()]);
        if nested.is_ok_and(|text| text.contains("'inner_key': ['inner_value']")) {
            review.add(
                Severity::Warning,
                "prints_python_repr",
                "an argument that is an object is printed in Python notation, not as JSON",
            );
        }
    }
    let mut nameless = result.clone();
    if let Value::Object(message) = &mut nameless {
        message.shift_remove("name");
    }
    let named = review.render_called(vec![user.clone(), review.plain_call(), result]);
    let text = review.render_called(vec![user.clone(), review.plain_call(), nameless.clone()]);
    review.compare_prints("None", "a tool result without the name of the tool", &text, &named);
    let with_content = |content: Option<Value>| {
        let mut call = review.plain_call();
        match (content, &mut call) {
            (Some(content), call) => call["content"] = content,
            (None, Value::Object(call)) => drop(call.shift_remove("content")),
            _ => {}
        }
        review.render_called(vec![user.clone(), call, review.result()])
    };
    let control = with_content(Some(review.base.content("")));
    let control =
        if control.is_ok() { control } else { with_content(Some(review.base.content(" "))) };
    let (absent, null) = (with_content(None), with_content(Some(Value::Null)));
    if more("None", &absent, &control) || more("Undefined", &absent, &control) {
        review.compare_prints("None", "a call without the member `content`", &absent, &control);
        review.compare_prints(
            "Undefined",
            "a call without the member `content`",
            &absent,
            &control,
        );
    } else {
        review.compare_prints(
            "None",
            "a call with null content (which transformers removes)",
            &null,
            &control,
        );
    }
}

impl Review<'_> {
    /// Adds a lint if the word occurs more often than in the control.
    fn compare_prints(
        &mut self,
        word: &str,
        what: &str,
        text: &RenderResult,
        control: &RenderResult,
    ) {
        if more(word, text, control) {
            // Null content is rare, because transformers removes it.
            let severity =
                if what.contains("null content") { Severity::Info } else { Severity::Warning };
            self.add(severity, "prints_none", format!("{what} puts `{word}` into the prompt"));
        }
    }
}

fn more(word: &str, text: &RenderResult, control: &RenderResult) -> bool {
    let (Ok(text), Ok(control)) = (text, control) else { return false };
    count_words(text, word) > count_words(control, word)
}

/// How often the whole word occurs.
fn count_words(text: &str, word: &str) -> usize {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|found| *found == word).count()
}
