//! Vector operations on chunks of logits, where passes over a row spend their time.
//!
//! The vectors are explicit, because the compiler vectorizes a plain loop in one build and not in
//! the next.

use wide::{f32x8, f64x4, u32x8};

/// The number of tokens in a chunk. In smaller chunks, reducing the lanes takes longer than filling
/// them.
pub(super) const CHUNK: usize = 128;

/// The number of bits in a word of a token mask.
pub(super) const WORD: usize = 32;

/// The logits of a chunk.
pub(super) type Chunk = [f32; CHUNK];

/// The words of a token mask for one chunk.
pub(super) type MaskWords = [u32; CHUNK / WORD];

/// A mask that allows all tokens of a chunk.
pub(super) const ALL: MaskWords = [u32::MAX; CHUNK / WORD];

/// The number of floats in a vector.
pub(super) const LANES: usize = 8;

/// The greater number; `most` if `logit` is NaN.
pub(super) fn greater(logit: f32, most: f32) -> f32 {
    if logit > most { logit } else { most }
}

fn vectors(chunk: &Chunk) -> impl Iterator<Item = f32x8> {
    chunk.as_chunks::<LANES>().0.iter().map(|part| f32x8::new(*part))
}

/// Appends the greatest number of each chunk to `maxima`, or minus infinity for a chunk without a
/// number.
pub(super) fn greatest_of_each(chunks: &[Chunk], maxima: &mut Vec<f32>) {
    let first = maxima.len();
    // The result of `fast_max` for NaN depends on the processor. A sum stays NaN.
    let mut sum = f32x8::ZERO;
    maxima.extend(chunks.iter().map(|chunk| {
        let start = (f32x8::splat(f32::NEG_INFINITY), f32x8::ZERO);
        let (most, of_chunk) =
            vectors(chunk).fold(start, |(most, sum), part| (part.fast_max(most), sum + part));
        sum += of_chunk;
        greatest_lane(most)
    }));
    if sum.reduce_add().is_nan() {
        maxima.truncate(first);
        maxima.extend(chunks.iter().map(|chunk| greatest_allowed(chunk, ALL)));
    }
}

/// The greatest number of a chunk that contains no NaN.
#[inline]
pub(super) fn greatest(chunk: &Chunk) -> f32 {
    let none = f32x8::splat(f32::NEG_INFINITY);
    greatest_lane(vectors(chunk).fold(none, |most, part| part.fast_max(most)))
}

fn greatest_lane(lanes: f32x8) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes.to_array();
    let (low, high) =
        (greater(greater(a, b), greater(c, d)), greater(greater(e, f), greater(g, h)));
    greater(low, high)
}

/// The greatest logit that the mask allows and that is not NaN.
pub(super) fn greatest_allowed(chunk: &Chunk, words: MaskWords) -> f32 {
    let none = f32x8::splat(f32::NEG_INFINITY);
    let parts = vectors(chunk).enumerate();
    let allowed = parts.map(|(place, logits)| allowed(place, logits, words));
    greatest_lane(allowed.fold(none, |most, part| part.fast_max(most)))
}

/// Replaces NaN, and logits that the mask forbids, by minus infinity.
pub(super) fn masked(chunk: &Chunk, words: MaskWords) -> Chunk {
    let mut changed = [0.0; CHUNK];
    let parts = changed.as_chunks_mut::<LANES>().0.iter_mut();
    for (place, (part, logits)) in parts.zip(vectors(chunk)).enumerate() {
        *part = allowed(place, logits, words).to_array();
    }
    changed
}

/// Like [`masked`], for the vector at index `place`.
#[inline]
fn allowed(place: usize, logits: f32x8, words: MaskWords) -> f32x8 {
    const BITS: [u32x8; WORD / LANES] = [bits(0), bits(LANES), bits(2 * LANES), bits(3 * LANES)];
    let bits = BITS[place % BITS.len()];
    let word = u32x8::splat(words[place / BITS.len()]);
    let none = f32x8::splat(f32::NEG_INFINITY);
    let logits = logits.simd_gt(none).select(logits, none);
    (word & bits).simd_eq(bits).select(logits, none)
}

const fn bits(first: usize) -> u32x8 {
    let mut bits = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        bits[lane] = 1 << (first + lane);
        lane += 1;
    }
    u32x8::new(bits)
}

/// The sum of e to the power of (logit - `greatest`), with a relative error of about 1e-6 because
/// the difference is rounded. `greatest` is not NaN, and no logit exceeds it. A NaN among the
/// logits may make the sum NaN.
pub(super) fn weight(chunk: &Chunk, greatest: f32) -> f32 {
    let greatest = f32x8::splat(greatest);
    let weights = vectors(chunk).map(|logits| exponential(logits - greatest));
    weights.fold(f32x8::ZERO, |sum, weights| sum + weights).reduce_add()
}

/// Like [`weight`], with a relative error of about 1e-15, for a chunk without NaN.
pub(super) fn precise_weight(chunk: &Chunk, greatest: f32) -> f64 {
    let greatest = f64x4::splat(f64::from(greatest));
    let parts = chunk.as_chunks::<4>().0.iter();
    let weights = parts.map(|[a, b, c, d]| {
        let logits = f64x4::new([f64::from(*a), f64::from(*b), f64::from(*c), f64::from(*d)]);
        precise_exponential(logits - greatest)
    });
    weights.fold(f64x4::ZERO, |sum, weights| sum + weights).reduce_add()
}

/// Like [`exponential`], with a relative error of about 1e-15; 1e-304 below -700.
#[inline]
fn precise_exponential(x: f64x4) -> f64x4 {
    const ROUND: f64x4 = f64x4::splat(6_755_399_441_055_744.0);
    const LN_2_HIGH: f64x4 = f64x4::splat(0.693_145_751_953_125);
    const LN_2_LOW: f64x4 = f64x4::splat(1.428_606_820_309_417_2e-6);
    const FACTORS: [f64; 13] = [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let x = x.fast_max(f64x4::splat(-700.0));
    let rounded = x * f64x4::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let rest = x - whole * LN_2_HIGH - whole * LN_2_LOW;
    let mut polynomial = f64x4::splat(1.0 / 6_227_020_800.0);
    for factor in FACTORS {
        polynomial = polynomial * rest + f64x4::splat(factor);
    }
    let power = (rounded.to_bits() << 52) + f64x4::ONE.to_bits();
    polynomial * f64x4::from_bits(power)
}

/// The natural logarithm of the smallest normal `f32`.
const LEAST: f32 = -87.336_54;

/// e to the power of each number, which is at most 0, with a relative error of about 1e-7. 0 below
/// `LEAST`.
pub(super) fn exponentials(numbers: [f32; LANES]) -> [f32; LANES] {
    let x = f32x8::new(numbers);
    x.simd_lt(f32x8::splat(LEAST)).select(f32x8::ZERO, exponential(x)).to_array()
}

/// e to the power of `x`, which is at most 0, with a relative error of about 1e-7. The smallest
/// normal number below `LEAST`.
///
/// Two to the power of the nearest integer to `x / ln 2`, assembled from its bits, times a Taylor
/// polynomial of the rest. Takes half the time of `f32x8::exp`, which also handles infinities and
/// denormals.
#[inline]
fn exponential(x: f32x8) -> f32x8 {
    /// Adding this constant rounds to an integer, which is then in the low bits.
    const ROUND: f32x8 = f32x8::splat(12_582_912.0);
    const LN_2_HIGH: f32x8 = f32x8::splat(0.693_359_4);
    const LN_2_LOW: f32x8 = f32x8::splat(-2.121_944_4e-4);
    const FACTORS: [f32; 6] = [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let x = x.fast_max(f32x8::splat(LEAST));
    let rounded = x * f32x8::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let rest = x - whole * LN_2_HIGH - whole * LN_2_LOW;
    let mut polynomial = f32x8::splat(1.0 / 720.0);
    for factor in FACTORS {
        polynomial = polynomial * rest + f32x8::splat(factor);
    }
    let power = (rounded.to_bits() << 23) + f32x8::ONE.to_bits();
    polynomial * f32x8::from_bits(power)
}
