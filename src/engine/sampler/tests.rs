//! Compares the samplers with tables computed by hand. `tests/samplers` compares them with
//! llama.cpp.

use std::collections::BTreeSet;

use fearless_simd::{Level, Simd, dispatch};
use serde_json::{Value, json};

use super::*;
use crate::api::ChatRequest;

/// Probabilities 0.4, 0.3, 0.15, 0.1 and 0.05, not sorted.
const ODDS: [f32; 5] = [0.1, 0.4, 0.05, 0.3, 0.15];

fn sampling(members: Value) -> Sampling {
    // Turns off all samplers except the draw by probability; a case may turn some on.
    let mut request = json!({ "messages": [{ "role": "user", "content": "x" }], "temperature": 1.0, "top_k": 0, "top_p": 1.0,
        "min_p": 0.0, "typical_p": 1.0 });
    let members = members.as_object().expect("an object").clone();
    request.as_object_mut().expect("an object").extend(members);
    ChatRequest::read(request).expect("a request").sampling
}

fn sampler(members: Value, recent: &[TokenId]) -> Sampler {
    let sampler = Sampler::new(&sampling(members), &[], &Arc::default());
    let mut sampler = sampler.expect("a sampler");
    recent.iter().for_each(|token| sampler.accept(*token));
    sampler
}

fn draw(sampler: &mut Sampler, logits: &[f32], mask: Option<&TokenMask>) -> Option<TokenId> {
    sampler.draw(&LogitRow::read(logits, &mut Vec::new()), mask)
}

fn logits(odds: &[f32]) -> Vec<f32> {
    odds.iter().map(|odds| odds.ln()).collect()
}

fn draws(mut sampler: Sampler, logits: &[f32], count: usize) -> Vec<TokenId> {
    (0..count).map(|_| draw(&mut sampler, logits, None).expect("a token")).collect()
}

/// Checks which tokens remain. 2000 draws from five tokens miss one only with negligible
/// probability.
#[track_caller]
fn remaining(members: Value, recent: &[TokenId], expected: &[TokenId]) {
    let drawn: BTreeSet<TokenId> =
        draws(sampler(members.clone(), recent), &logits(&ODDS), 2000).into_iter().collect();
    assert_eq!(drawn, expected.iter().copied().collect(), "{members}");
}

#[test]
fn truncation_cuts_where_the_sums_say() {
    remaining(json!({ "seed": 1 }), &[], &[0, 1, 2, 3, 4]);
    remaining(json!({ "seed": 1, "top_k": 1 }), &[], &[1]);
    remaining(json!({ "seed": 1, "top_k": 3 }), &[], &[1, 3, 4]);
    // 0.4 + 0.3 is 0.7. The token that reaches p is kept.
    remaining(json!({ "seed": 1, "top_p": 0.69 }), &[], &[1, 3]);
    remaining(json!({ "seed": 1, "top_p": 0.71 }), &[], &[1, 3, 4]);
    remaining(json!({ "seed": 1, "top_p": 0.0 }), &[], &[1]);
    // At least p times the likeliest: 0.3 * 0.4 is 0.12, so 0.1 and 0.05 are removed.
    remaining(json!({ "seed": 1, "min_p": 0.3 }), &[], &[1, 3, 4]);
    remaining(json!({ "seed": 1, "min_p": 0.24 }), &[], &[0, 1, 3, 4]);
    remaining(json!({ "seed": 1, "min_p": 1.0 }), &[], &[1]);
    // The entropy is 1.392. The surprisals are 0.92, 1.20, 1.90, 2.30 and 3.00, so the
    // distances are 0.48, 0.19, 0.50, 0.91 and 1.60.
    remaining(json!({ "seed": 1, "typical_p": 0.2 }), &[], &[3]);
    remaining(json!({ "seed": 1, "typical_p": 0.5 }), &[], &[1, 3]);
    remaining(json!({ "seed": 1, "typical_p": 0.8 }), &[], &[1, 3, 4]);
}

#[test]
fn the_order_is_that_of_llama_cpp() {
    // top_k comes first. Three tokens add up to 0.85, so 0.47 and 0.35 reach 0.8. Of all five
    // tokens it would take three.
    remaining(json!({ "seed": 1, "top_k": 3, "top_p": 0.8 }), &[], &[1, 3]);
    // typical_p comes before top_p. It leaves 0.3, 0.4 and 0.15, of which 0.47 alone reaches 0.4.
    remaining(json!({ "seed": 1, "typical_p": 0.8, "top_p": 0.4 }), &[], &[1]);
    remaining(json!({ "seed": 1, "typical_p": 0.2, "top_k": 2 }), &[], &[1]);
    // The temperature comes last: it neither restores removed tokens nor removes any.
    remaining(json!({ "seed": 1, "top_p": 0.69, "temperature": 50.0 }), &[], &[1, 3]);
    remaining(json!({ "seed": 1, "min_p": 0.3, "temperature": 50.0 }), &[], &[1, 3, 4]);
    // Penalties and bias come first.
    remaining(json!({ "seed": 1, "top_k": 1, "presence_penalty": 1.0 }), &[1], &[3]);
    remaining(json!({ "seed": 1, "top_k": 1, "logit_bias": { "1": -100 } }), &[], &[3]);
    // Bias comes before penalties: ln 0.05 plus 4 is 1.0, and a tenth of it is above all others. In
    // the other order, -30 plus 4 would be below them.
    remaining(
        json!({ "seed": 1, "top_k": 1, "logit_bias": { "2": 4 }, "repeat_penalty": 10.0 }),
        &[2],
        &[2],
    );
}

#[test]
fn suppressed_tokens_are_never_drawn() {
    for members in
        [json!({ "temperature": 0 }), json!({ "top_k": 1 }), json!({ "logit_bias": { "3": 100 } })]
    {
        let sampler =
            Sampler::new(&sampling(members), &[3, 1], &Arc::default()).expect("a sampler");
        let drawn = draws(sampler, &logits(&ODDS), 100);
        assert!(!drawn.contains(&1) && !drawn.contains(&3) && drawn.contains(&4), "{drawn:?}");
    }
}

#[test]
fn bias_forbids_and_forces() {
    remaining(json!({ "seed": 1, "logit_bias": { "1": -100, "3": -100 } }), &[], &[0, 2, 4]);
    remaining(json!({ "seed": 1, "logit_bias": { "2": 100 } }), &[], &[2]);
    remaining(json!({ "temperature": 0, "logit_bias": { "2": 100 } }), &[], &[2]);
    remaining(json!({ "temperature": 0, "logit_bias": { "1": -100 } }), &[], &[3]);
    // A token outside the vocabulary is ignored.
    remaining(json!({ "temperature": 0, "logit_bias": { "77": 100 } }), &[], &[1]);
}

#[test]
fn penalties_see_recent_tokens() {
    // The penalty multiplies negative logits: ln 0.4 * 2 is -1.83, ln 0.3 is -1.20.
    let logits = logits(&ODDS);
    for (members, recent, expected) in [
        (json!({ "repeat_penalty": 2.0 }), vec![1], 3),
        (json!({ "repeat_penalty": 1.2 }), vec![1], 1),
        (json!({ "repeat_penalty": 2.0 }), vec![1, 3], 1),
        // 0.4 / 0.3 is e to the 0.288.
        (json!({ "presence_penalty": 0.2 }), vec![1, 1], 1),
        (json!({ "presence_penalty": 0.4 }), vec![1, 1], 3),
        (json!({ "frequency_penalty": 0.2 }), vec![1], 1),
        (json!({ "frequency_penalty": 0.2 }), vec![1, 1], 3),
        (json!({ "presence_penalty": -2.0 }), vec![0], 0),
        // Only the last 64 tokens count.
        (json!({ "presence_penalty": 0.4 }), [vec![1], vec![0; 64]].concat(), 1),
        (json!({ "presence_penalty": 0.4 }), [vec![1], vec![0; 63]].concat(), 3),
    ] {
        let mut members = members;
        members["temperature"] = 0.into();
        assert_eq!(
            draws(sampler(members.clone(), &recent), &logits, 1),
            [expected],
            "{members} after {recent:?}"
        );
        // The result is the same if the tokens arrive during generation.
        let mut accepted = sampler(members, &[]);
        recent.iter().for_each(|token| accepted.accept(*token));
        assert_eq!(draws(accepted, &logits, 1), [expected]);
    }
}

#[test]
fn a_seed_gives_the_same_draws() {
    let logits = logits(&ODDS);
    let of = |seed: Value| draws(sampler(json!({ "seed": seed }), &[]), &logits, 64);
    for seed in [json!(0), json!(7), json!(u32::MAX - 1), json!(u32::MAX)] {
        assert_eq!(of(seed.clone()), of(seed));
    }
    assert_ne!(of(json!(7)), of(json!(8)));
    // Without a seed, or with a negative one, draws are random.
    assert_ne!(of(json!(null)), of(json!(null)));
    assert_ne!(of(json!(-1)), of(json!(-1)));
}

#[test]
fn draws_follow_the_probabilities() {
    let drawn = draws(sampler(json!({ "seed": 5 }), &[]), &logits(&ODDS), 20_000);
    for (token, odds) in ODDS.iter().enumerate() {
        let share =
            drawn.iter().filter(|drawn| **drawn == token as TokenId).count() as f32 / 20_000.0;
        // Six standard deviations are 0.009 for the rarest token and 0.021 for the likeliest.
        assert!((share - odds).abs() < 0.021, "{token}: {share}");
    }
    // Twice the temperature takes the square root: 4 to 1 becomes 2 to 1.
    let drawn =
        draws(sampler(json!({ "seed": 5, "temperature": 2.0 }), &[]), &logits(&ODDS), 20_000);
    let count = |token| drawn.iter().filter(|drawn| **drawn == token).count() as f32;
    assert!((count(1) / count(0) - 2.0).abs() < 0.2, "{} to {}", count(1), count(0));
}

#[test]
fn a_mask_holds_before_truncation() {
    let mut mask = TokenMask::alloc(ODDS.len());
    [0, 2].into_iter().for_each(|token| mask.allow_token(token));
    for members in [
        json!({ "seed": 1, "top_k": 1 }),
        json!({ "temperature": 0 }),
        json!({ "seed": 1, "min_p": 1.0 }),
    ] {
        let mut sampler = sampler(members, &[]);
        assert_eq!(draw(&mut sampler, &logits(&ODDS), Some(&mask)), Some(0));
    }
}

/// A chunk of numbers from -6 to 6.
fn chunk(seed: u64) -> lanes::Chunk {
    let mut random = Pcg64::seed_from_u64(seed);
    std::array::from_fn(|_| (12.0 * chance(&mut random) - 6.0) as f32)
}

fn greatest_allowed(chunk: &lanes::Chunk, words: lanes::MaskWords) -> f32 {
    dispatch!(Level::new(), simd => lanes::greatest_allowed(simd, chunk, words))
}

fn exponentials(x: f32) -> [f32; lanes::LANES] {
    dispatch!(Level::new(), simd => lanes::exponentials(simd, [x; lanes::LANES]))
}

/// The generations of processors that this one can run, for all of which the passes are compiled.
fn levels() -> Vec<Level> {
    let newest = Level::new();
    #[cfg(target_arch = "x86_64")]
    let older = [
        newest.as_sse2().map(Level::Sse2),
        newest.as_sse4_2().map(Level::Sse4_2),
        newest.as_avx2().map(Level::Avx2),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let older = [None];
    older.into_iter().flatten().chain([newest]).collect()
}

#[test]
fn every_generation_of_processors_computes_the_same_numbers() {
    /// The results of all passes over a chunk.
    #[inline(always)]
    fn results<S: Simd>(simd: S, chunk: &lanes::Chunk, words: lanes::MaskWords) -> Vec<u64> {
        let bits = |number: f32| u64::from(number.to_bits());
        let [numbers, ..] = chunk.as_chunks().0 else { panic!("a chunk has several vectors") };
        let places = lanes::at_least(simd, chunk, 3.0);
        let all = [
            bits(lanes::greatest_allowed(simd, chunk, words)),
            bits(lanes::weight(simd, chunk, 6.5)),
            lanes::precise_weight(simd, chunk, 6.5).to_bits(),
            places as u64,
            (places >> 64) as u64,
        ];
        let exponentials = lanes::exponentials(simd, numbers.map(|number| number - 6.0));
        let vectors = lanes::masked(simd, chunk, words).into_iter().chain(exponentials);
        all.into_iter().chain(vectors.map(bits)).collect()
    }
    let levels = levels();
    if cfg!(target_arch = "x86_64") {
        assert!(levels.len() >= 2, "{levels:?}");
    }
    for seed in 0..200 {
        let chunk = chunk(seed);
        let mut random = Pcg64::seed_from_u64(seed);
        let words: lanes::MaskWords = std::array::from_fn(|_| random.next_u64() as u32);
        let expected: Vec<bool> = chunk.iter().map(|logit| *logit >= 3.0).collect();
        let places = dispatch!(Level::new(), simd => lanes::at_least(simd, &chunk, 3.0));
        for (place, expected) in expected.into_iter().enumerate() {
            assert_eq!(places >> place & 1 == 1, expected, "{place}");
        }
        let mut found =
            levels.iter().map(|level| dispatch!(*level, simd => results(simd, &chunk, words)));
        let first = found.next();
        assert!(found.all(|other| Some(other) == first), "{seed}");
    }
}

#[test]
fn the_greatest_of_a_chunk_is_found_at_each_place_beside_any_number() {
    for place in 0..lanes::CHUNK {
        for other in [f32::NAN, -f32::NAN, f32::NEG_INFINITY, f32::MIN, 0.0] {
            let mut chunk = chunk(place as u64);
            chunk[(place + 1) % lanes::CHUNK] = other;
            chunk[(place + 9) % lanes::CHUNK] = other;
            for greatest in [7.0, f32::INFINITY] {
                chunk[place] = greatest;
                let mut maxima = vec![1.0];
                lanes::greatest_of_each(&[chunk; 3], &mut maxima);
                assert_eq!(maxima, [1.0, greatest, greatest, greatest], "{place} {other}");
                assert_eq!(greatest_allowed(&chunk, lanes::ALL), greatest);
                let mut words = lanes::ALL;
                words[place / lanes::WORD] &= !(1 << (place % lanes::WORD));
                assert!(greatest_allowed(&chunk, words) < 6.0, "{place} {other}");
                let masked = dispatch!(Level::new(), simd => lanes::masked(simd, &chunk, words));
                for (at, (logit, before)) in masked.into_iter().zip(chunk).enumerate() {
                    let is_gone = at == place || before.is_nan();
                    let expected = if is_gone { f32::NEG_INFINITY } else { before };
                    assert_eq!(logit, expected, "{place} {other} {at}");
                }
            }
        }
    }
    for nothing in [f32::NAN, f32::NEG_INFINITY] {
        let mut maxima = Vec::new();
        lanes::greatest_of_each(&[[nothing; lanes::CHUNK]], &mut maxima);
        assert_eq!(maxima, [f32::NEG_INFINITY]);
    }
}

#[test]
fn weights_are_as_precise_as_promised() {
    for seed in 0..200 {
        let greatest = 6.0 + seed as f32 / 4.0;
        let chunk = chunk(seed);
        let exact: f64 =
            chunk.iter().map(|logit| (f64::from(*logit) - f64::from(greatest)).exp()).sum();
        let error = |weight: f64| (weight / exact - 1.0).abs();
        let weight = dispatch!(Level::new(), simd => lanes::weight(simd, &chunk, greatest));
        let weight = f64::from(weight);
        assert!(error(weight) < 3e-6, "{greatest}: {}", error(weight));
        let weight = dispatch!(Level::new(), simd => lanes::precise_weight(simd, &chunk, greatest));
        assert!(error(weight) < 3e-15, "{greatest}: {}", error(weight));
    }
    for x in [f32::NEG_INFINITY, f32::MIN, -1000.0, -87.4] {
        assert_eq!(exponentials(x), [0.0; lanes::LANES]);
    }
    for step in 0..1000 {
        let x = -87.3 * step as f32 / 999.0;
        let [found, ..] = exponentials(x);
        let exact = f64::from(x).exp();
        assert!((f64::from(found) / exact - 1.0).abs() < 3e-7, "{x}: {found} {exact}");
    }
}

#[test]
fn the_kth_greatest_number_is_that_of_a_sorted_list() {
    let mut random = Pcg64::seed_from_u64(5);
    for length in [1, 2, 40, 79, 80, 81, 250, 1188] {
        // With few different numbers, many are equal.
        for different in [3.0, 1e6] {
            let number = |random: &mut Pcg64| (different * chance(random)).floor() as f32;
            let numbers: Vec<f32> = (0..length).map(|_| number(&mut random)).collect();
            let mut sorted = numbers.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            for k in [1_usize, 2, 20, 40, length / 2, length, length + 1] {
                let Some(place) = k.checked_sub(1) else { continue };
                let expected = sorted.get(place).copied().unwrap_or(f32::NEG_INFINITY);
                let found = row::kth_greatest(&numbers, k, &mut Vec::new());
                assert_eq!(found, expected, "{k} of {length}");
            }
        }
    }
}
