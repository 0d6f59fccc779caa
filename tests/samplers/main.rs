//! The sampler against llama.cpp's own, on random and real rows of logits and random options: the
//! same tokens remain, with the same probabilities.
//!
//! 2,000 cases; `LLB_SAMPLER_CASES=20000` (`make samplers`) runs that many, with real rows too.
#![allow(unsafe_code, reason = "calls llama.cpp")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a skipped test prints a line")]
#![allow(missing_docs, unreachable_pub, reason = "a test program")]

mod chain;
mod reference;
mod rows;

use std::path::Path;
use std::sync::Arc;

use llb::api::{ChatRequest, CreateOptions, Sampling};
use llb::engine::{DryBreakers, Interrupt, LogitRow, Sampler, TokenCandidate, TokenId, TokenMask};
use llb::gguf::ModelHeader;
use llb::llama::{KeptModel, files_of};
use serde_json::{Value, json};

use chain::{LlamaChain, LlamaModel, NO_VOCAB};
use rows::{Numbers, row};

/// Probabilities differ by at most this.
const TOLERANCE: f32 = 1e-6;

/// The number of random cases, without rows of a real model: seconds on a busy machine.
const USUAL_CASES: usize = 2000;

/// The path of a downloaded model.
fn real_model(name: &str) -> Option<String> {
    let folder = std::env::var_os("LLB_MODELS");
    let path = folder.map(|folder| Path::new(&folder).join(name)).filter(|path| path.is_file());
    if path.is_none() {
        assert!(std::env::var_os("LLB_REQUIRE_ALL").is_none(), "{name} is not in LLB_MODELS");
        eprintln!("SKIPPED: {name} is not in LLB_MODELS; run: make models");
    }
    path.map(|path| path.to_str().unwrap().to_owned())
}

fn sampling(members: &Value) -> Sampling {
    let mut request = json!({ "messages": [{ "role": "user", "content": "x" }], "seed": 1 });
    let members = members.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(members);
    ChatRequest::read(request).unwrap_or_else(|error| panic!("{error:?}")).sampling
}

/// A row, the tokens that a mask allows, and the tokens before.
struct Case {
    logits: Vec<f32>,
    mask: Option<TokenMask>,
    recent: Vec<TokenId>,
    members: Value,
}

impl Case {
    /// What llama.cpp gets: our candidates, as a grammar leaves them.
    fn tokens(&self) -> impl Iterator<Item = (TokenId, f32)> {
        let allowed = |token: usize| self.mask.as_ref().is_none_or(|mask| mask.get(token));
        let tokens = self.logits.iter().enumerate();
        let tokens = tokens.filter(move |(token, _)| allowed(*token));
        let tokens = tokens.map(|(token, logit)| (token as TokenId, *logit));
        tokens.filter(|(_, logit)| *logit > f32::NEG_INFINITY)
    }

    fn ours(&self, members: &Value) -> Sampler {
        let mut sampler = Sampler::new(&sampling(members), &[], &Arc::default()).unwrap();
        self.recent.iter().for_each(|token| sampler.accept(*token));
        sampler
    }

    fn remaining(&self) -> (Option<TokenId>, Vec<TokenCandidate>) {
        let mut sampler = self.ours(&self.members);
        let mut maxima = Vec::new();
        let row = LogitRow::read(&self.logits, &mut maxima);
        let drawn = sampler.draw(&row, self.mask.as_ref());
        (drawn, sampler.candidates().to_vec())
    }

    /// Compares with llama.cpp. False if they differ and the reference shows that llama.cpp's sums
    /// in single precision are the reason.
    fn compare(&self) -> Result<bool, String> {
        let (drawn, ours) = self.remaining();
        let options = sampling(&self.members);
        let mut chain = LlamaChain::new(&options, self.logits.len(), NO_VOCAB);
        self.recent.iter().for_each(|token| chain.accept(*token));
        let (chosen, theirs) = match self.tokens().next() {
            Some(_) => chain.draw(self.tokens()),
            None if drawn.is_none() => return Ok(true),
            None => return Err(format!("{drawn:?} without candidates")),
        };
        if options.temperature <= 0.0 {
            let same = drawn == Some(chosen);
            return if same { Ok(true) } else { Err(format!("{drawn:?} in place of {chosen}")) };
        }
        if !ours.iter().any(|each| Some(each.id) == drawn && each.p > 0.0) {
            return Err(format!("{drawn:?} has no probability"));
        }
        let Err(difference) = compare(&ours, &theirs) else { return Ok(true) };
        let exact = reference::remaining(&options, &self.recent, self.tokens());
        // A logit that the temperature made infinite: no probability is a number, and llama.cpp
        // draws any token.
        if theirs.iter().chain(&exact).all(|each| each.p.is_nan()) {
            return Ok(false);
        }
        match compare(&ours, &exact) {
            Ok(()) => Ok(false),
            Err(error) => Err(format!("llama.cpp: {difference}; reference: {error}")),
        }
    }
}

/// Whether the same tokens remain with the same probabilities. Of equals at a cut, llama.cpp's
/// sort leaves any; ours leaves the first.
fn compare(ours: &[TokenCandidate], theirs: &[TokenCandidate]) -> Result<(), String> {
    let sorted = |remaining: &[TokenCandidate]| {
        let mut remaining: Vec<TokenCandidate> =
            remaining.iter().copied().filter(|each| each.p >= f32::MIN_POSITIVE).collect();
        remaining.sort_by(|a, b| b.p.total_cmp(&a.p).then(a.id.cmp(&b.id)));
        remaining
    };
    let (ours, theirs) = (sorted(ours), sorted(theirs));
    if ours.len() != theirs.len() {
        return Err(format!("{} remaining, not {}", ours.len(), theirs.len()));
    }
    let differs =
        |(ours, theirs): &(&TokenCandidate, &TokenCandidate)| (ours.p - theirs.p).abs() > TOLERANCE;
    if let Some((ours, theirs)) = ours.iter().zip(&theirs).find(differs) {
        return Err(format!("{ours:?}, not {theirs:?}"));
    }
    let ids = |remaining: &[TokenCandidate]| {
        let mut ids: Vec<TokenId> = remaining.iter().map(|each| each.id).collect();
        ids.sort_unstable();
        ids
    };
    let (own, other) = (ids(&ours), ids(&theirs));
    let only = |remaining: &[TokenCandidate], others: &[TokenId]| {
        let only = remaining.iter().filter(|each| others.binary_search(&each.id).is_err());
        let mut logits: Vec<f32> = only.map(|each| each.logit).collect();
        logits.sort_by(f32::total_cmp);
        logits
    };
    let (extra, missing) = (only(&ours, &other), only(&theirs, &own));
    // After adaptive-p and temperature, equal logits stay equal.
    let equal = extra.iter().zip(&missing).all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs().max(1.0));
    if equal { Ok(()) } else { Err(format!("{extra:?} in place of {missing:?}")) }
}

/// Random options: each sampler in one case of three, sometimes in another order.
fn members(numbers: &mut Numbers, whole_rows: bool, has_equals: bool) -> Value {
    let mut members = json!({ "top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1 });
    let mut set = |name: &str, value: Value| members[name] = value;
    let pick = |numbers: &mut Numbers, values: &[f64]| values[numbers.below(values.len())];
    if numbers.below(6) == 0 {
        set("mirostat", 2.into());
        set("mirostat_tau", pick(numbers, &[0.5, 3.0, 5.0, 9.0]).into());
    }
    if !whole_rows || numbers.below(2) == 0 {
        set("top_k", (pick(numbers, &[1.0, 2.0, 40.0, 41.0, 200.0, 3000.0, 1e9]) as i64).into());
    }
    // llama.cpp's typical-p computes with NaN if a token before it has lost all probability.
    let sigma = if numbers.below(2) == 0 { "top_n_sigma" } else { "typical_p" };
    for (name, values) in [
        ("top_p", &[0.0, 0.1, 0.5, 0.9, 0.95, 0.999][..]),
        ("min_p", &[0.01, 0.05, 0.5, 1.0]),
        ("typical_p", &[0.0, 0.2, 0.9, 0.99]),
        ("top_n_sigma", &[0.5, 1.0, 3.0]),
        ("temperature", &[0.0, 1e-6, 0.3, 0.7, 1.5, 100.0]),
        ("repeat_penalty", &[0.5, 1.1, 2.0]),
        ("presence_penalty", &[-1.0, 0.5, 2.0]),
        ("frequency_penalty", &[-0.5, 0.1, 1.0]),
        ("dry_multiplier", &[0.5, 2.0]),
    ] {
        let excluded = ["top_n_sigma", "dry_multiplier", "typical_p"].contains(&name)
            && (name == "typical_p") == (sigma == "top_n_sigma");
        if numbers.below(3) == 0 && !excluded {
            set(name, pick(numbers, values).into());
        }
    }
    set("repeat_last_n", (pick(numbers, &[0.0, 1.0, 7.0, 64.0]) as i64).into());
    set("dry_penalty_last_n", (pick(numbers, &[1.0, 16.0, 64.0]) as i64).into());
    set("dry_allowed_length", (pick(numbers, &[0.0, 1.0, 2.0, 5.0]) as i64).into());
    set("dry_base", pick(numbers, &[1.0, 1.75, 4.0]).into());
    set("dry_sequence_breakers", json!([]));
    if numbers.below(4) == 0 {
        set("xtc_probability", 1.into());
        set("xtc_threshold", pick(numbers, &[0.01, 0.05, 0.2, 0.5, 0.6]).into());
    }
    if numbers.below(4) == 0 {
        set("dynatemp_range", pick(numbers, &[0.2, 1.0]).into());
        set("dynatemp_exponent", pick(numbers, &[0.5, 1.0, 2.0]).into());
    }
    if numbers.below(6) == 0 {
        set(
            "logit_bias",
            json!({ "0": 5.5, "3": if sigma == "typical_p" { -2 } else { -100 }, "40": 2, "999999": 1 }),
        );
    }
    let mut names = vec![
        "penalties",
        "dry",
        "top_n_sigma",
        "top_k",
        "typ_p",
        "top_p",
        "min_p",
        "xtc",
        "temperature",
    ];
    if numbers.below(6) == 0 {
        names.push("adaptive_p");
        set("adaptive_target", pick(numbers, &[0.1, 0.5]).into());
    }
    // Of equals, another order may penalize one that llama.cpp has cut.
    if !has_equals && numbers.below(4) == 0 {
        for place in (1..names.len()).rev() {
            names.swap(place, numbers.below(place + 1));
        }
        names.truncate(1 + numbers.below(names.len()));
    }
    set("samplers", json!(names));
    members
}

fn case(numbers: &mut Numbers, real: &[Vec<f32>]) -> Case {
    let logits = match numbers.below(4) {
        0 if !real.is_empty() => real[numbers.below(real.len())].clone(),
        _ => row(numbers),
    };
    let n = logits.len();
    let mask = (numbers.below(3) == 0).then(|| {
        let mut mask = TokenMask::alloc(n);
        match numbers.below(3) {
            0 => mask.allow_token(numbers.below(n) as u32),
            1 => (0..n as u32).for_each(|token| mask.allow_token(token)),
            _ => {
                let every = 1 + numbers.below(50);
                (0..n / every).for_each(|_| mask.allow_token(numbers.below(n) as u32));
            }
        }
        mask
    });
    // Few different tokens, so that sequences repeat.
    let kinds = [3, 30][numbers.below(2)].min(n);
    let recent = (0..numbers.below(90)).map(|_| numbers.below(kinds) as TokenId).collect();
    let mut sorted = if n > 1000 { Vec::new() } else { logits.clone() };
    sorted.sort_by(f32::total_cmp);
    let has_equals = n > 1000 || sorted.windows(2).any(|pair| pair[0] == pair[1]);
    let members = members(numbers, n > 1000, has_equals);
    Case { logits, mask, recent, members }
}

#[test]
fn the_same_tokens_are_left_as_in_llama_cpp() {
    let wanted = std::env::var("LLB_SAMPLER_CASES").ok();
    let wanted = wanted.and_then(|number| number.parse().ok()).unwrap_or(USUAL_CASES);
    let text = "The quick brown fox jumps over 13 lazy dogs. def main():\n    print(\"hello\")\n";
    let real = if wanted > USUAL_CASES { real_model("gemma-3-270m-q4_k_m.gguf") } else { None };
    let real = real.map(|path| LlamaModel::open(&path, false).rows(text)).unwrap_or_default();
    let mut numbers = Numbers::new(1);
    let (mut inexact, mut problems) = (0, Vec::new());
    for number in 0..wanted {
        let case = case(&mut numbers, &real);
        match case.compare() {
            Ok(same) => inexact += usize::from(!same),
            Err(problem) => problems.push(format!(
                "case {number}, {} tokens, {}: {problem}",
                case.logits.len(),
                case.members
            )),
        }
    }
    assert!(problems.is_empty(), "{} differ:\n{}", problems.len(), problems.join("\n"));
    println!("{wanted} cases; in {inexact} of them llama.cpp is inexact by the reference");
    assert!(inexact * 20 <= wanted, "{inexact} of {wanted}");
}

#[test]
fn ties_extremes_and_few_tokens_are_as_in_llama_cpp() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let mut ties = vec![1.0; 50];
    ties.extend([3.0; 7]);
    let spread: Vec<f32> = (0..3000).map(|n| (n % 97) as f32 / 8.0).collect();
    let rows = [
        vec![0.0; 300],
        vec![-7.5],
        vec![nan, 1.0, -inf, 2.0, nan],
        vec![-inf, -inf, 0.5],
        vec![-inf; 70],
        vec![nan; 130],
        vec![1e30, -1e30, 0.0],
        ties,
        spread,
    ];
    for logits in rows {
        for members in [
            json!({}),
            json!({ "temperature": 0 }),
            json!({ "top_k": 1 }),
            json!({ "top_k": 3 }),
            json!({ "top_k": 100_000 }),
            json!({ "top_k": 0, "top_p": 0.5 }),
            json!({ "top_k": 0, "top_p": 0.5, "min_p": 0 }),
            json!({ "top_k": 0, "top_p": 1, "min_p": 0.3 }),
            json!({ "top_k": 0, "top_p": 1, "min_p": 0 }),
            json!({ "temperature": 1e-6 }),
            json!({ "temperature": 100 }),
            json!({ "top_n_sigma": 1 }),
            json!({ "mirostat": 2 }),
        ] {
            let mut one = TokenMask::alloc(logits.len());
            one.allow_token((logits.len() - 1) as u32);
            for mask in [None, Some(one), Some(TokenMask::alloc(logits.len()))] {
                let (logits, members) = (logits.clone(), members.clone());
                let case = Case { logits, mask, recent: Vec::new(), members };
                case.compare().unwrap_or_else(|problem| panic!("{}: {problem}", case.members));
            }
        }
    }
}

/// Mirostat and adaptive-p depend on what was drawn before, DRY and penalties on what was accepted.
#[test]
fn many_steps_are_as_in_llama_cpp() {
    for members in [
        json!({ "mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.3 }),
        json!({ "samplers": ["min_p", "adaptive_p"], "adaptive_target": 0.3, "adaptive_decay": 0.7 }),
        json!({ "dry_multiplier": 1.5, "dry_sequence_breakers": [], "repeat_penalty": 1.2 }),
    ] {
        let mut numbers = Numbers::new(5);
        let case = Case { logits: Vec::new(), mask: None, recent: Vec::new(), members };
        let mut ours = case.ours(&case.members);
        let mut chain = LlamaChain::new(&sampling(&case.members), 200, NO_VOCAB);
        for step in 0..200 {
            let logits: Vec<f32> = (0..200).map(|_| numbers.normal() * 3.0).collect();
            let (chosen, theirs) = chain.draw((0..200).zip(logits.iter().copied()));
            let mut maxima = Vec::new();
            let row = LogitRow::read(&logits, &mut maxima);
            // Draws until both have chosen the same.
            let agreed = (0..1_000_000).any(|_| ours.draw(&row, None) == Some(chosen));
            assert!(agreed, "{}: never draws {chosen} in step {step}", case.members);
            compare(ours.candidates(), &theirs)
                .unwrap_or_else(|difference| panic!("{}, step {step}: {difference}", case.members));
            ours.accept(chosen);
            chain.accept(chosen);
        }
    }
}

/// The tokens of sequence breakers, in the vocabulary of a real model.
#[test]
fn sequence_breakers_are_those_of_llama_cpp() {
    let Some(path) = real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") else { return };
    let options =
        CreateOptions::read(&json!({ "model": path, "n_ctx": 64, "n_threads": 1 })).unwrap();
    let files = files_of(&options, &path);
    let header = ModelHeader::read_file(Path::new(&path)).unwrap();
    let kept = KeptModel::open(&options, files, &header, &mut |_| true).unwrap();
    let loaded = kept.model().unwrap();
    let vocab = loaded.engine.vocab();
    let model = LlamaModel::open(&path, true);
    let never = Interrupt::default();
    for breakers in [json!(["\n", ":", "\"", "*"]), json!(["abc", "the end", "\u{fc}ber"])] {
        let members = json!({ "dry_multiplier": 1.0, "dry_allowed_length": 1, "dry_sequence_breakers": breakers,
            "samplers": ["dry"], "temperature": 1 });
        let sampling = sampling(&members);
        let texts = &sampling.dry_sequence_breakers;
        let known = Arc::new(DryBreakers::new(texts, vocab.as_ref(), &never).unwrap());
        let mut tokens = Vec::new();
        for text in
            texts.iter().map(String::as_str).chain(["x", " y", "ab", "c", "the", " end", "zab"])
        {
            tokens.extend(vocab.tokenize(text, false, &never).unwrap());
        }
        let mut numbers = Numbers::new(3);
        for _ in 0..20 {
            let logits = vec![0.0; vocab.len()];
            let mut ours = Sampler::new(&sampling, &[], &known).unwrap();
            let mut chain = LlamaChain::new(&sampling, vocab.len(), model.vocab());
            for _ in 0..60 {
                let token = tokens[numbers.below(tokens.len())];
                ours.accept(token);
                chain.accept(token);
            }
            let (_, theirs) = chain.draw((0..).zip(logits.iter().copied()));
            ours.draw(&LogitRow::read(&logits, &mut Vec::new()), None).unwrap();
            compare(ours.candidates(), &theirs).unwrap();
        }
    }
}
