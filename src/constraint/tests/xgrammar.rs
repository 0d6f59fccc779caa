//! Compares llguidance with xgrammar: both must say the same about a text. xgrammar's verdicts are in
//! tests/data/xgrammar.json (scripts/structural-tags.py), for a structural tag, for EBNF, or for both.

use serde_json::Value;

use super::*;

const CASES: &str = include_str!("../../../tests/data/xgrammar.json");

#[test]
fn llguidance_agrees_with_xgrammar() {
    let data: Value = serde_json::from_str(CASES).unwrap();
    let mut verdicts = [0, 0];
    for case in data["cases"].as_array().unwrap() {
        let lark = case["lark"].as_str().unwrap();
        for text in case["texts"].as_array().unwrap() {
            let mut constraint = grammars().compile(lark, &CompileTime::unlimited()).unwrap();
            let bytes = text["text"].as_str().unwrap().bytes().map(i32::from);
            let mut accepts = true;
            for token in bytes {
                accepts = accepts && constraint.validate(token).unwrap();
                if accepts {
                    constraint.accept(token).unwrap();
                }
            }
            let accepts = accepts && constraint.may_end().unwrap();
            assert_eq!(accepts, text["accepted"].as_bool().unwrap(), "{}: {text}", case["name"]);
            verdicts[usize::from(accepts)] += 1;
        }
    }
    assert!(verdicts.iter().all(|count| *count > 10), "{verdicts:?}");
}

#[cfg(feature = "remote")]
#[test]
fn ebnf_is_what_xgrammar_has_judged() {
    let data: Value = serde_json::from_str(CASES).unwrap();
    for case in data["cases"].as_array().unwrap() {
        let ebnf = crate::constraint::for_ebnf(case["lark"].as_str().unwrap());
        assert_eq!(ebnf.as_deref(), case["ebnf"].as_str(), "{}", case["name"]);
        assert!(ebnf.is_some(), "{}", case["name"]);
    }
}
