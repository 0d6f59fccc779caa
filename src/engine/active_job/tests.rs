//! Tests one job without a scheduler. Each byte is a token, and the test chooses the logits.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use super::super::interrupt::Interrupt;
use super::super::reasoning_budget::ReasoningOptions;
use super::super::vocab::SpecialTokens;
use super::*;
use crate::api::{AdapterScales, ChatRequest, Sampling};
use crate::constraint::{CompileTime, Grammars, Vocabulary};

/// The end-of-generation token. The token before it has no text.
const END: TokenId = 257;
const BLANK: TokenId = 256;

/// One token for each byte, one token without text, and the end of generation.
struct ByteVocabWithEnd(SpecialTokens);

impl Vocab for ByteVocabWithEnd {
    fn len(&self) -> usize {
        258
    }

    fn tokenize(&self, text: &str, _: bool, _: &Interrupt) -> Result<Vec<TokenId>> {
        Ok(text.bytes().map(TokenId::from).collect())
    }

    fn piece(&self, token: TokenId, special: bool) -> Vec<u8> {
        match u8::try_from(token) {
            Ok(byte) => vec![byte],
            Err(_) if special && token == END => b"<end>".to_vec(),
            Err(_) => Vec::new(),
        }
    }

    fn is_end_of_generation(&self, token: TokenId) -> bool {
        token == END
    }

    fn required_bos(&self) -> Option<TokenId> {
        None
    }

    fn special_tokens(&self) -> &SpecialTokens {
        &self.0
    }
}

fn grammar(lark: &str) -> Constraint {
    let vocabulary = || Vocabulary {
        token_bytes: (0..=255)
            .map(|byte| vec![byte])
            .chain([Vec::new(), b"\xFF<end>".to_vec()])
            .collect(),
        end_tokens: vec![END as u32],
        tokenize: Box::new(|text| text.bytes().map(u32::from).collect()),
    };
    Grammars::new(vocabulary).compile(lark, &CompileTime::unlimited()).expect("a grammar")
}

fn active(job: Job) -> ActiveJob {
    let sampler = Sampler::new(&job.sampling, &[], &job.breakers).expect("a sampler");
    ActiveJob::new(job, 0, 0, sampler, Instant::now())
}

fn job(constraint: Option<Constraint>, budget: Option<usize>) -> (Job, Receiver<JobUpdate>) {
    let (updates, received) = channel();
    let request =
        serde_json::json!({ "messages": [{ "role": "user", "content": "hi" }], "temperature": 0 });
    let sampling: Sampling = ChatRequest::read(request).expect("a request").sampling;
    let ending = b"</t>".iter().map(|byte| TokenId::from(*byte)).collect();
    let job = Job {
        chat: 0,
        prompt: vec![0],
        media: Vec::new(),
        adapters: AdapterScales::default(),
        max_tokens: Some(100),
        sampling,
        breakers: Arc::default(),
        stop: Vec::new(),
        constraint,
        reasoning: Some(ReasoningOptions {
            open: "<t>".into(),
            close: "</t>".into(),
            inside: false,
            budget,
            ending,
        }),
        shift_keeps: None,
        logprobs: Some(1),
        visible: Arc::default(),
        drafts: true,
        reuse_prefix: true,
        copied_lengths: Vec::new(),
        interrupt: Interrupt::default(),
        updates,
    };
    (job, received)
}

/// Logits whose likeliest token is `wish`, then the end, then `x`. All other tokens are equal.
fn logits(wish: Option<TokenId>) -> Vec<f32> {
    let mut logits = vec![0.0; 258];
    logits[usize::from(b'x')] = 1.0;
    logits[END as usize] = 2.0;
    wish.iter().for_each(|wish| logits[*wish as usize] = 3.0);
    logits
}

struct Ran {
    text: String,
    logprobs: Vec<TokenId>,
    outcome: JobOutcome,
    masked: bool,
}

fn run(constraint: Option<&str>, budget: Option<usize>, wishes: &[TokenId]) -> Result<Ran> {
    run_ended(constraint, budget, wishes, usize::MAX)
}

/// Like [`run`], but the caller ends the reasoning after this many tokens.
fn run_ended(
    constraint: Option<&str>,
    budget: Option<usize>,
    wishes: &[TokenId],
    end_after: usize,
) -> Result<Ran> {
    let (job, received) = job(constraint.map(grammar), budget);
    let end_reasoning = Arc::clone(&job.interrupt.end_reasoning);
    let mut active = active(job);
    let vocab = ByteVocabWithEnd(SpecialTokens::new(Vec::new()));
    let mut wishes = wishes.iter().copied();
    let mut masked = false;
    let finish = loop {
        let mask = |constraint: &mut Constraint| {
            masked = true;
            constraint.mask()
        };
        let chosen = active.choose_with(mask, &logits(wishes.next()))?;
        let end = active.take(chosen, &vocab, false);
        if let Some(finish) = active.write(&vocab).or(end) {
            break finish;
        }
        end_reasoning.fetch_or(active.outcome.completion_tokens == end_after, Ordering::Relaxed);
    };
    active.finish(finish);
    let (mut text, mut logprobs) = (String::new(), Vec::new());
    for update in received.iter() {
        match update {
            JobUpdate::Piece { text: piece, logprobs: sampled, .. } => {
                text += &piece;
                logprobs.extend(sampled.iter().map(|each| each.sampled.token));
            }
            JobUpdate::Done(outcome) => {
                return Ok(Ran { text, logprobs, outcome, masked });
            }
            JobUpdate::Prefix(_) => panic!("no length was to be copied"),
            JobUpdate::Failed(error) => return Err(error),
        }
    }
    panic!("no outcome");
}

fn tokens(text: &str) -> Vec<TokenId> {
    text.bytes().map(TokenId::from).collect()
}

#[track_caller]
fn check(
    constraint: Option<&str>,
    budget: Option<usize>,
    wishes: &[TokenId],
    text: &str,
    masked: bool,
) -> JobOutcome {
    let ran = run(constraint, budget, wishes).expect("a reply");
    assert_eq!((&*ran.text, ran.masked), (text, masked));
    assert_eq!(ran.logprobs, tokens(text), "one for each token, in order");
    assert_eq!(ran.outcome.completion_tokens, text.len());
    ran.outcome
}

#[test]
fn a_mask_is_made_only_for_what_is_refused() {
    let lark = r#"start: /[a-z]+/ ";" "#;
    check(Some(lark), None, &tokens("abc;"), "abc;", false);
    check(Some(lark), None, &tokens("aBc;"), "axc;", true);
    check(None, None, &tokens("aBc"), "aBc", false);
}

#[test]
fn the_end_is_allowed_where_the_grammar_may_end() {
    // The end is the likeliest token, but the grammar allows it only after a letter.
    check(Some("start: /[a-z]*/"), None, &[], "", false);
    check(Some(r#"start: "ab" /[a-z]*/"#), None, &[], "ab", true);
    check(Some(r#"start: "ab" /[a-z]*/"#), None, &[TokenId::from(b'a'), END, END], "ab", true);
}

#[test]
fn a_token_without_text_is_never_allowed() {
    check(Some(r#"start: "x" "y""#), None, &[BLANK, BLANK], "xy", true);
}

#[test]
fn a_grammar_that_allows_nothing_with_a_probability_is_an_error() {
    let (job, _received) = job(Some(grammar(r#"start: "ab""#)), None);
    let mut active = active(job);
    let mut logits = logits(None);
    logits[usize::from(b'a')] = f32::NEG_INFINITY;
    let error = active.choose(&logits).err().expect("refused");
    assert_eq!(
        (error.code(), error.message()),
        (Code::InferenceFailed, "no token that the grammar allows has a probability")
    );
    let error = active.choose(&[f32::NAN; 258]).err().expect("refused");
    assert_eq!(error.message(), "no token has a probability");
}

#[test]
fn a_budget_ends_reasoning() {
    let outcome = check(None, Some(2), &tokens("<t>ab????cd"), "<t>ab</t>cd", false);
    assert_eq!(outcome.reasoning_tokens, 6);
    let outcome = check(None, Some(5), &tokens("<t>ab</t>cd"), "<t>ab</t>cd", false);
    assert_eq!(outcome.reasoning_tokens, 6);
    assert_eq!(check(None, None, &tokens("abcd"), "abcd", false).reasoning_tokens, 0);
}

#[test]
fn an_end_by_the_caller_waits_for_the_grammar() {
    let ended = |lark: Option<&str>, after: usize, wishes: &str| {
        let ran = run_ended(lark, None, &tokens(wishes), after).expect("a reply");
        (ran.text, ran.outcome.reasoning_ended)
    };
    assert_eq!(ended(None, 4, "<t>a????d"), ("<t>a</t>d".to_owned(), true));
    // At least three letters.
    let lark = Some(r#"start: "<t>" /[a-z]{3,}/ "</t>" /[a-z]+/"#);
    assert_eq!(ended(lark, 4, "<t>abc????d"), ("<t>abc</t>d".to_owned(), true));
    // Outside of reasoning, and where the model closes the reasoning itself, ending it does
    // nothing.
    assert_eq!(ended(None, 1, "ab<t>c</t>d"), ("ab<t>c</t>d".to_owned(), false));
    assert!(ended(lark, 6, "<t>abc</t>d").1);
    assert_eq!(ended(lark, 8, "<t>abc</t>d"), ("<t>abc</t>d".to_owned(), false));
}

#[test]
fn a_forced_ending_obeys_the_grammar() {
    let lark = r#"start: "<t>" /[a-z]+/ "</t>" /[a-z]+/"#;
    check(Some(lark), Some(2), &tokens("<t>ab????cd"), "<t>ab</t>cd", false);
    // The grammar does not allow the closing tag before the first letter, so the reasoning
    // continues.
    check(Some(lark), Some(0), &tokens("<t>abc</t>d"), "<t>abc</t>d", false);
}
