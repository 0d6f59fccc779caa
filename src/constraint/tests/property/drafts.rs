//! Drafts of calls: the grammar allows them wherever a model writes what its template writes, they
//! save decodes, and few of them are wrong.

use std::sync::Arc;

use super::*;

/// How a call is written with drafts.
#[derive(Debug, Default, Clone, Copy)]
struct DraftedCall {
    /// The number of decodes.
    decodes: usize,
    right: usize,
    wrong: usize,
}

/// Writes a call token by token. After each decode, a draft follows; its right beginning is
/// accepted.
fn written(
    constraint: &mut Constraint,
    tokens: &[i32],
    guesses: bool,
) -> Result<DraftedCall, usize> {
    let mut call = DraftedCall::default();
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at];
        if !constraint.validate(token).unwrap() {
            return Err(at);
        }
        constraint.accept(token).unwrap();
        at += 1;
        call.decodes += 1;
        let mut draft = constraint.forced(Some(token));
        if guesses {
            let likely = constraint.likely(Some(token), &draft);
            let all = [&*draft, &*likely].concat();
            assert!(likely.is_empty() || constraint.allows(&all).unwrap(), "{}", spelled(&all));
            draft = all;
        }
        let right = draft.iter().zip(&tokens[at..]).take_while(|(one, other)| one == other).count();
        for token in &tokens[at..at + right] {
            constraint.accept(*token).unwrap();
        }
        at += right;
        call.right += right;
        call.wrong += draft.len() - right;
    }
    Ok(call)
}

/// The parameters of the call. Formats write texts and other values in different ways.
fn book() -> (Vec<Value>, Value) {
    let schema = json!({ "type": "object", "additionalProperties": false,
        "required": ["city", "days", "class", "note"], "properties": {
            "city": { "type": "string" },
            "days": { "type": "integer" },
            "class": { "enum": ["first class", "second class"] },
            "note": { "type": "string" },
            "wish": { "type": "string" } } });
    let other = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let arguments =
        json!({ "city": "Paris", "days": 3, "class": "second class", "note": "A seat\nby <b>" });
    (vec![tool("book_all", other), tool("book", schema)], arguments)
}

#[test]
fn calls_that_templates_write_take_few_decodes() {
    let (tools, arguments) = book();
    let (mut all, mut findings) = ([DraftedCall::default(); 2], Vec::new());
    let (mut tried, mut raw) = (0, 0);
    // `make harden` tries the formats of all templates too.
    for subject in subjects(time().is_some()) {
        let Ok(lark) = subject.lark(&tools) else { continue };
        let id = "aB3dE6gH9".into();
        let call = WrittenCall { name: "book".into(), arguments: arguments.clone(), id };
        let (text, values) = subject.written(&call);
        let tokens = subject.tokens(&text, &values);
        let specials: SpecialTokenFinder = if subject.controls { &controls } else { &no_controls };
        let offered: Vec<&Value> = tools.iter().collect();
        let texts = Arc::new(CallTexts::new(&subject.calls, &offered, specials));
        let drafted = [false, true].map(|guesses| {
            let constraint = GRAMMARS.compile(&lark, &CompileTime::unlimited()).unwrap();
            written(&mut constraint.with_call_texts(Arc::clone(&texts)), &tokens, guesses)
        });
        // The grammar of some formats has other calls than the writer.
        let [Ok(forced), Ok(guessed)] = drafted else { continue };
        tried += 1;
        for (sum, one) in all.iter_mut().zip([forced, guessed]) {
            sum.decodes += one.decodes;
            sum.right += one.right;
            sum.wrong += one.wrong;
        }
        let name = &subject.name;
        let encoding = subject.calls.call.iter().find_map(|part| match part {
            CallPart::Arguments(encoding) => Some(encoding),
            _ => None,
        });
        raw +=
            usize::from(matches!(encoding, Some(Encoding::Tagged(_) | Encoding::Elements { .. })));
        // Tags are certain if they are control tokens, or if texts do not contain their start.
        let is_uncertain =
            matches!(encoding, Some(Encoding::Tagged(tags)) if tags.entities.is_empty());
        let saves = if is_uncertain && !subject.controls { 20 } else { 0 };
        // Without a prefix, a text may also have the end tags of other parameters.
        let is_any_tag =
            matches!(encoding, Some(Encoding::Elements { prefix, .. }) if prefix.is_empty());
        let wrong = if is_any_tag { "</note></call>".len() } else { 0 };
        if guessed.decodes + saves > forced.decodes || guessed.wrong > forced.wrong + wrong {
            findings.push(format!("{name}: {forced:?} {guessed:?}"));
        }
    }
    conformance::say(&format!("drafts of {tried} formats, {raw} of them raw: {all:?}"));
    assert!(tried > 60 && raw > 10, "{tried} {raw}");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
