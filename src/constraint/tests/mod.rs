//! Runs whole replies through llguidance, with a vocabulary of bytes and a few special tokens.

#![allow(clippy::unwrap_used, reason = "a test reports by panicking")]

mod closing;
mod families;
mod large;
mod merging;
mod property;
mod random;
mod refusals;
mod replies;
mod xgrammar;

use std::borrow::Cow;
use std::ops::Range;

use llguidance::toktrie::SimpleVob;
use serde_json::{Value, json};

use super::*;
use crate::api::{ResponseFormat, ToolChoice};
use crate::error::Code;
use crate::output::format::*;

/// The control tokens, which are not text.
const CONTROL: &[&str] = &[
    "<|eos|>",
    "<|eot|>",
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>x",
    "<|tool_call_argument_begin|>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|end|>",
    "<|call|>",
];

/// Text tokens with several characters.
const WORDS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "l<tool_call>x",
    ">\n<",
    "\n</parameter>\n",
    "]<]minimax[>[",
    "\n</parameter>\n</function>\n",
    "\n</parameter>\n<parameter=",
];

pub(super) fn grammars() -> Grammars {
    Grammars::new(|| {
        let bytes = (0..=255u8).map(|byte| vec![byte]);
        let control = CONTROL.iter().map(|text| [&[0xFF], text.as_bytes()].concat());
        let words = WORDS.iter().map(|text| text.as_bytes().to_vec());
        Vocabulary {
            token_bytes: bytes.chain(control).chain(words).collect(),
            end_tokens: vec![256, 257],
            tokenize: Box::new(|text| text.bytes().map(u32::from).collect()),
        }
    })
}

/// The control tokens in a text.
pub(super) fn specials(text: &str) -> Vec<(Range<usize>, i32)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match CONTROL.iter().position(|special| text[at..].starts_with(special)) {
            Some(index) => {
                found.push((at..at + CONTROL[index].len(), 256 + index as i32));
                at += CONTROL[index].len();
            }
            None => at += text[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

/// The tokens of a text with their positions: control tokens, words, then bytes.
pub(super) fn tokens(text: &str, words: bool) -> Vec<(usize, i32)> {
    let specials = specials(text);
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if let Some((range, token)) = specials.iter().find(|(range, _)| range.start == at) {
            tokens.push((at, *token));
            at = range.end;
            continue;
        }
        let word = WORDS
            .iter()
            .position(|word| words && text.as_bytes()[at..].starts_with(word.as_bytes()));
        match word {
            Some(word) => {
                tokens.push((at, (256 + CONTROL.len() + word) as i32));
                at += WORDS[word].len();
            }
            None => {
                tokens.push((at, i32::from(text.as_bytes()[at])));
                at += 1;
            }
        }
    }
    tokens
}

#[test]
fn grammars_are_shared_by_threads() {
    fn check<T: Send + Sync>() {}
    fn check_send<T: Send>() {}
    check::<Grammars>();
    check_send::<Constraint>();
}

pub(super) struct GrammarCase {
    pub(super) format: Format,
    pub(super) tools: Vec<Value>,
    pub(super) choice: ToolChoice,
    pub(super) parallel: bool,
    pub(super) untagged: bool,
    pub(super) response: Option<Value>,
    /// Whether the response's schema gets bounds.
    pub(super) bounded: bool,
    /// `strict` of the response's schema.
    pub(super) strict: bool,
    pub(super) grammar: Option<&'static str>,
    pub(super) reasoning_open: bool,
    pub(super) content_before: &'static str,
    pub(super) reasons: bool,
}

impl GrammarCase {
    pub(super) fn new(format: Format, choice: ToolChoice) -> Self {
        GrammarCase {
            format,
            tools: two_tools(),
            choice,
            parallel: true,
            untagged: true,
            response: None,
            bounded: false,
            strict: false,
            grammar: None,
            reasoning_open: false,
            content_before: "",
            reasons: true,
        }
    }

    pub(super) fn build(&self) -> crate::error::Result<ReplyGrammar> {
        self.with(|requirements| reply_grammar(Some(&self.format), requirements, &specials))
    }

    pub(super) fn try_compile(&self) -> crate::error::Result<CompiledGrammar> {
        let time = CompileTime::unlimited();
        self.with(|requirements| {
            compile(&grammars(), Some(&self.format), requirements, &specials, &time)
        })
    }

    fn with<T>(&self, then: impl Fn(&ReplyRequirements) -> T) -> T {
        let response_format = self.response.as_ref().map(|schema| match schema {
            Value::Null => ResponseFormat::JsonObject,
            schema => ResponseFormat::JsonSchema { schema: schema.clone(), strict: self.strict },
        });
        let requirements = ReplyRequirements {
            tools: &self.tools,
            choice: &self.choice,
            parallel: self.parallel,
            untagged: self.untagged,
            response_format: response_format.as_ref(),
            bounded: self.bounded,
            grammar: self.grammar,
            reasoning_open: self.reasoning_open,
            content_open: !self.content_before.is_empty(),
            reasons: self.reasons,
        };
        then(&requirements)
    }

    pub(super) fn compile(&self) -> Constraint {
        let grammar = self.build().unwrap().lark.expect("a grammar");
        match grammars().compile(&grammar, &CompileTime::unlimited()) {
            Ok(mut constraint) => {
                assert!(self.begin(&mut constraint), "{:?}\n{grammar}", self.content_before);
                constraint
            }
            Err(error) => panic!("{}\n{grammar}", error.message()),
        }
    }

    /// Whether the grammar allows the content that the prompt contains.
    pub(super) fn begin(&self, constraint: &mut Constraint) -> bool {
        !self.with(|requirements| requirements.continues_answer())
            || constraint.begin_with(self.content_before).unwrap()
    }

    /// The position where the text is refused: its length if more text must follow, None if it may
    /// end.
    fn refused_at(&self, text: &str, words: bool) -> Option<usize> {
        let mut constraint = self.compile();
        let mut drafting = self.compile();
        let mut before = None;
        for (at, token) in tokens(text, words) {
            let valid = constraint.validate(token).unwrap();
            let mask = constraint.mask().unwrap();
            check_forced(&mut drafting, before, &mask);
            before = Some(token);
            assert_eq!(
                valid,
                mask.is_allowed(token as u32) && !constraint.is_finished(),
                "mask and validate at {at} of {text:?}"
            );
            if !valid {
                return Some(at);
            }
            constraint.accept(token).unwrap();
            drafting.accept(token).unwrap();
        }
        assert_eq!(drafting.may_end().unwrap(), constraint.may_end().unwrap(), "{text:?}");
        if constraint.may_end().unwrap() { None } else { Some(text.len()) }
    }

    #[track_caller]
    pub(super) fn accepts(&self, text: &str) -> &Self {
        for words in [false, true] {
            let at = self.refused_at(text, words);
            if let Some(at) = at {
                panic!(
                    "refused at {at}: {:?} | {:?}\n{}",
                    &text[..at],
                    &text[at..],
                    self.build().unwrap().lark.unwrap()
                );
            }
        }
        self
    }

    /// Checks where a text is refused. `marked` has `¦` at that position, at the end if more text
    /// must follow.
    #[track_caller]
    pub(super) fn refuses(&self, marked: &str) -> &Self {
        let at = marked.find('¦').expect("a mark");
        let text = marked.replace('¦', "");
        let got = self.refused_at(&text, false);
        if got != Some(at) {
            panic!(
                "expected {at}, got {got:?} for {text:?}\n{}",
                self.build().unwrap().lark.unwrap()
            );
        }
        self
    }
}

/// Checks the tokens that a grammar forces after `before`, where `mask` is what it allows next: they
/// are allowed, no token of another text is, and computing them does not change the mask.
#[track_caller]
pub(super) fn check_forced(drafting: &mut Constraint, before: Option<i32>, mask: &SimpleVob) {
    let forced = drafting.forced(before);
    let same = drafting.mask().unwrap();
    let allowed = |mask: &SimpleVob| (0..N_TOKENS).filter(|it| mask.is_allowed(*it)).collect();
    let all: Vec<u32> = allowed(mask);
    assert_eq!(allowed(&same), all, "{forced:?} after {before:?}");
    if forced.is_empty() {
        return;
    }
    assert!(drafting.allows(&forced).unwrap(), "{forced:?} after {before:?}");
    let text: Vec<u8> = forced.iter().flat_map(|token| bytes_of(*token as u32)).collect();
    for token in all {
        let bytes = bytes_of(token);
        let is_same = bytes.iter().zip(&text).all(|(one, other)| one == other);
        assert!(is_same, "{token} is allowed, {forced:?} is forced");
    }
}

/// The number of tokens in the vocabulary.
const N_TOKENS: u32 = 256 + (CONTROL.len() + WORDS.len()) as u32;

/// The bytes of a token; of a control token, its spelling after 0xFF.
fn bytes_of(token: u32) -> Vec<u8> {
    let index = token as usize;
    match index.checked_sub(256) {
        None => vec![index as u8],
        Some(control) if control < CONTROL.len() => [&[0xFF], CONTROL[control].as_bytes()].concat(),
        Some(word) => WORDS[word - CONTROL.len()].as_bytes().to_vec(),
    }
}

pub(super) fn tool(name: &str, parameters: Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

pub(super) fn two_tools() -> Vec<Value> {
    vec![
        tool(
            "get",
            json!({"type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"}}, "required": ["a"],
                   "additionalProperties": false}),
        ),
        tool(
            "get_all",
            json!({"type": "object", "additionalProperties": false, "required": ["o"], "properties": {
                "o": {"type": "object", "properties": {"k": {"type": "array", "items": {"type": "boolean"}}}, "required": ["k"],
                      "additionalProperties": false},
                "e": {"enum": ["x", "xy", 1, null]}}}),
        ),
    ]
}

pub(super) fn text(text: &'static str) -> CallPart {
    CallPart::Text(Cow::Borrowed(text))
}

pub(super) fn format(
    open: &'static str,
    call: Vec<CallPart>,
    separator: &'static str,
    close: &'static str,
) -> Format {
    let calls = CallSyntax {
        open: open.into(),
        close: close.into(),
        separator: separator.into(),
        call,
        parallel: true,
    };
    Format {
        family: "test".into(),
        source: FormatSource::Family,
        verified: true,
        reasoning: None,
        wrappers: Vec::new(),
        repeated_header: "".into(),
        channels: None,
        calls: Some(calls),
        ends: Vec::new(),
        envelope: false,
        untagged: false,
    }
}

pub(super) fn thinking(mut format: Format, open: &'static str, close: &'static str) -> Format {
    format.reasoning = Some(ReasoningTags::new(open.into(), close.into()));
    format
}
