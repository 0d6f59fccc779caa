//! Derives how a template writes the arguments of a call one by one: the text around each key and
//! value, and the joiner.

use serde_json::{Map, Value, json};

use super::probes::{Compose, USER};
use super::wrapping::escaped;
use crate::probing::diff::{common_prefix, common_suffix, split_at_needles};
use crate::probing::{Probe, call};

/// How a template writes arguments one by one.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ArgumentSyntax {
    /// The value of `argument_template`.
    pub(super) template: String,
    /// The value of `text_argument_template`, if it differs.
    pub(super) of_text: Option<String>,
    /// The value of `tool_policy.argument_joiner`.
    pub(super) joiner: String,
    /// The value of `tool_policy.argument_values`, unless it is the default.
    pub(super) values: Option<&'static str>,
    /// For bare values: the quote around strings, and the spelling of null.
    pub(super) bare: Option<(String, &'static str)>,
}

const KEYS: [&str; 2] = ["qkeyone", "qkeytwo"];
const TEXTS: [&str; 2] = ["Qplace\"three", "Qplace\"four"];
const NUMBERS: [u32; 2] = [41_771, 52_882];

/// Renders a turn whose call has these arguments.
pub(super) type RenderArguments<'a> = dyn Fn(&Value) -> Option<String> + 'a;

/// The text around the two arguments of a call. Both have the same type.
struct ArgumentTexts {
    /// The text from the user message to the first key.
    before: String,
    within: String,
    /// The text from the first value to the second key.
    between: String,
    /// The text after the second value.
    after: String,
}

impl ArgumentTexts {
    fn render(
        turn: &RenderArguments<'_>,
        values: [Value; 2],
        written: [&str; 2],
    ) -> Option<ArgumentTexts> {
        let [first, second] = values;
        let text = turn(&json!({ KEYS[0]: first, KEYS[1]: second }))?;
        let (_, text) = text.split_once(USER)?;
        let pieces = split_at_needles(text, [KEYS[0], written[0], KEYS[1], written[1]])?;
        let owned = |at: usize| pieces[at].to_owned();
        (pieces[1] == pieces[3]).then(|| ArgumentTexts {
            before: owned(0),
            within: owned(1),
            between: owned(2),
            after: owned(4),
        })
    }

    /// The start, the joiner and the end of an argument. `before` and `after` are the lengths of
    /// the text that precedes and follows all arguments.
    fn cut(&self, before: usize, after: usize) -> Option<(&str, &str, &str)> {
        let begin = self.before.get(before..)?;
        let end = self.after.get(..self.after.len().checked_sub(after)?)?;
        let joiner = self.between.strip_suffix(begin)?.strip_prefix(end)?;
        Some((begin, joiner, end))
    }

    fn template(&self, begin: &str, end: &str) -> String {
        format!("{}{{key}}{}{{value}}{}", escaped(begin), escaped(&self.within), escaped(end))
    }
}

/// Derives the form of arguments. None if they are not written one by one.
pub(super) fn find(turn: &RenderArguments<'_>) -> Option<ArgumentSyntax> {
    let quoted = TEXTS.map(|text| Value::from(text).to_string());
    let raw = ArgumentTexts::render(turn, TEXTS.map(Value::from), TEXTS);
    let json = raw.is_none();
    let texts = raw.or_else(|| {
        ArgumentTexts::render(turn, TEXTS.map(Value::from), [&quoted[0], &quoted[1]])
    })?;
    let digits = NUMBERS.map(|number| number.to_string());
    let others = ArgumentTexts::render(turn, NUMBERS.map(Value::from), [&digits[0], &digits[1]])?;
    let none = turn(&json!({})).and_then(|text| Some(text.split_once(USER)?.1.to_owned()));
    let mut cuts = none.as_deref().map_or_else(Vec::new, |none| find_cuts(&texts, &others, none));
    if cuts.is_empty() {
        // A call without arguments has other text around it. Text that both ends share with the
        // text between arguments belongs to the arguments.
        let shared = |around: &ArgumentTexts| {
            around.before.len() - common_suffix(&around.before, &around.between)
        };
        let before = shared(&texts).max(shared(&others));
        let rest = |around: &ArgumentTexts| {
            let end = around.between.len() - (around.before.len() - before);
            around.after.len() - common_prefix(&around.between[..end], &around.after)
        };
        cuts.push((before, rest(&texts).max(rest(&others))));
    }
    let (before, after) =
        cuts.into_iter().find(|(before, after)| texts.cut(*before, *after).is_some())?;
    let (begin, joiner, end) = texts.cut(before, after)?;
    let of_text = texts.template(begin, end);
    let joiner = joiner.to_owned();
    let (begin, _, end) = others.cut(before, after).filter(|(_, other, _)| **other == joiner)?;
    let template = others.template(begin, end);
    let python = || {
        let text = turn(&json!({ KEYS[0]: true }))?;
        Some(text.contains(&format!("{}{}True", KEYS[0], others.within)))
    };
    let values = if json {
        Some("json")
    } else if python() == Some(true) {
        Some("python")
    } else {
        None
    };
    if let Some((quote, null)) = find_bare(turn, &texts, &others) {
        let bare = Some((quote, null));
        return Some(ArgumentSyntax {
            template,
            of_text: None,
            joiner,
            values: Some("bare"),
            bare,
        });
    }
    let of_text = Some(of_text).filter(|of_text| *of_text != template);
    Some(ArgumentSyntax { template, of_text, joiner, values, bare: None })
}

/// The quote of strings and the spelling of null. None unless values are bare at every depth.
fn find_bare(
    turn: &RenderArguments<'_>,
    texts: &ArgumentTexts,
    others: &ArgumentTexts,
) -> Option<(String, &'static str)> {
    let quote = texts.within.strip_prefix(&*others.within)?;
    let deep =
        turn(&json!({ KEYS[0]: { "zz": "Qplacefive", "aa": [true, null, 1.5], "mm": {} } }))?;
    let nulls = ["null", "None"].into_iter();
    let spelled = |null: &&str| {
        deep.contains(&format!("{{aa:[true,{null},1.5],mm:{{}},zz:{quote}Qplacefive{quote}}}"))
    };
    nulls.filter(spelled).map(|null| (quote.to_owned(), null)).next()
}

/// The possible lengths of the text before and after all arguments. `none` is the text of a call
/// without arguments. The most natural cut comes first.
fn find_cuts(texts: &ArgumentTexts, others: &ArgumentTexts, none: &str) -> Vec<(usize, usize)> {
    let most = common_prefix(none, &texts.before).min(common_prefix(none, &others.before));
    let fits = |before: &usize| {
        let joiner = |around: &ArgumentTexts| {
            around.cut(*before, none.len() - before).map(|(_, joiner, _)| joiner.to_owned())
        };
        let rest = none
            .get(*before..)
            .is_some_and(|rest| texts.after.ends_with(rest) && others.after.ends_with(rest));
        rest && joiner(texts).is_some() && joiner(texts) == joiner(others)
    };
    let mut cuts: Vec<usize> = (0..=most).rev().filter(fits).collect();
    // All cuts render the same. The most natural one makes an argument start with a bracket.
    cuts.sort_by_key(|before| !texts.before[*before..].starts_with(['<', '[', '{', '(']));
    cuts.into_iter().map(|before| (before, none.len() - before)).collect()
}

impl ArgumentSyntax {
    /// The members of the spec and of its `tool_policy`.
    pub(super) fn members(&self) -> [Map<String, Value>; 2] {
        let [mut spec, mut policy] = [Map::new(), Map::new()];
        spec.insert("argument_template".to_owned(), self.template.as_str().into());
        spec.extend(
            self.of_text
                .iter()
                .map(|text| ("text_argument_template".to_owned(), text.as_str().into())),
        );
        if !self.joiner.is_empty() {
            policy.insert("argument_joiner".to_owned(), self.joiner.as_str().into());
        }
        policy.extend(self.values.map(|values| ("argument_values".to_owned(), values.into())));
        if let Some((quote, null)) = &self.bare {
            policy.insert("argument_quote".to_owned(), quote.as_str().into());
            policy.insert("argument_null".to_owned(), (*null).into());
        }
        [spec, policy]
    }
}

/// These arguments as text, one by one or as JSON. Arguments that are text do not change.
pub(super) fn written(
    found: Option<&ArgumentSyntax>,
    arguments: &Value,
    compose: &Compose<'_>,
) -> Option<String> {
    let [mut spec, mut policy] = found.map(ArgumentSyntax::members).unwrap_or_default();
    policy.insert("text_arguments".to_owned(), "as_is".into());
    let rest = json!({
        "user_template": "{content}",
        "assistant_template": "{content}{tool_calls}",
        "single_tool_call_template": "{arguments}",
        "tool_policy": policy,
    });
    spec.extend(rest.as_object().cloned().unwrap_or_default());
    let calls = [call("qcallonex", "qtoolone", arguments)];
    compose(&spec.into())?.prompt(&Probe::default().calls("", &calls))
}
