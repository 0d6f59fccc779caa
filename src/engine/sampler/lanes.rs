//! Vector operations on chunks of logits, where passes over a row spend their time.
//!
//! The vectors are explicit, because the compiler vectorizes a plain loop in one build and not in
//! the next. Each pass is compiled for several generations of processors, and `dispatch!` chooses
//! one of them at run time. All of them give the same numbers: the number of lanes does not depend
//! on the processor, sums have a fixed order, and products and sums are rounded separately.
//!
//! Functions with a `simd` argument must be inlined into the pass. Otherwise they are compiled for
//! the oldest processor.

use fearless_simd::prelude::{Bytes, Select, SimdBase, SimdMask, SimdSplit, SimdWiden};
use fearless_simd::{Level, Simd, dispatch, f32x16, f64x8, mask32x16, u32x16, u64x8};

use crate::process::Lazy;

/// The generation of this processor. The crate finds it once, while it holds a lock that a forked
/// child would inherit.
pub(super) fn level() -> Level {
    static LEVEL: Lazy<Level> = Lazy::new(Level::new);
    *LEVEL
}

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
pub(super) const LANES: usize = 16;

/// The greater number; `most` if `logit` is NaN.
pub(super) fn greater(logit: f32, most: f32) -> f32 {
    if logit > most { logit } else { most }
}

#[inline(always)]
fn vectors<S: Simd>(simd: S, chunk: &Chunk) -> impl Iterator<Item = f32x16<S>> {
    chunk.as_chunks::<LANES>().0.iter().map(move |part| f32x16::load_array_ref(simd, part))
}

#[inline(always)]
fn none<S: Simd>(simd: S) -> f32x16<S> {
    f32x16::splat(simd, f32::NEG_INFINITY)
}

/// Appends the greatest number of each chunk to `maxima`, or minus infinity for a chunk without a
/// number.
pub(super) fn greatest_of_each(chunks: &[Chunk], maxima: &mut Vec<f32>) {
    let first = maxima.len();
    maxima.resize(first + chunks.len(), f32::NEG_INFINITY);
    let maxima = &mut maxima[first..];
    let level = level();
    let are_numbers = dispatch!(level, simd => greatest_of_numbers(simd, chunks, maxima));
    if !are_numbers {
        dispatch!(level, simd => {
            for (chunk, most) in chunks.iter().zip(maxima) {
                *most = greatest_allowed(simd, chunk, ALL);
            }
        });
    }
}

/// Sets `maxima` to the greatest number of each chunk. Returns false, with any maxima, if there is
/// a NaN.
#[inline(always)]
fn greatest_of_numbers<S: Simd>(simd: S, chunks: &[Chunk], maxima: &mut [f32]) -> bool {
    // The maximum of a number and NaN depends on the processor. A sum stays NaN.
    let mut sums = f32x16::splat(simd, 0.0);
    for (chunk, greatest) in chunks.iter().zip(maxima) {
        let (mut most, mut sum) = (none(simd), f32x16::splat(simd, 0.0));
        for part in vectors(simd, chunk) {
            most = most.max(part);
            sum += part;
        }
        sums += sum;
        *greatest = most.reduce_max();
    }
    !sum_of(sums).is_nan()
}

/// The sum of all lanes, in an order that does not depend on the processor.
#[inline(always)]
fn sum_of<S: Simd>(lanes: f32x16<S>) -> f32 {
    let (low, high) = lanes.split();
    let (low, high) = (low + high).split();
    let [a, b, c, d] = (low + high).to_array();
    (a + c) + (b + d)
}

/// The greatest number of a chunk that contains no NaN.
pub(super) fn greatest(chunk: &Chunk) -> f32 {
    dispatch!(level(), simd => {
        let mut most = none(simd);
        for part in vectors(simd, chunk) {
            most = most.max(part);
        }
        most.reduce_max()
    })
}

/// The greatest logit that the mask allows and that is not NaN.
#[inline(always)]
pub(super) fn greatest_allowed<S: Simd>(simd: S, chunk: &Chunk, words: MaskWords) -> f32 {
    let mut most = none(simd);
    for (place, logits) in vectors(simd, chunk).enumerate() {
        most = most.max(allowed(simd, place, logits, words));
    }
    most.reduce_max()
}

/// Replaces NaN, and logits that the mask forbids, by minus infinity.
#[inline(always)]
pub(super) fn masked<S: Simd>(simd: S, chunk: &Chunk, words: MaskWords) -> Chunk {
    let mut changed = [0.0; CHUNK];
    let parts = changed.as_chunks_mut::<LANES>().0.iter_mut();
    for (place, (part, logits)) in parts.zip(vectors(simd, chunk)).enumerate() {
        allowed(simd, place, logits, words).store_array(part);
    }
    changed
}

/// Like [`masked`], for the vector at index `place`.
#[inline(always)]
fn allowed<S: Simd>(simd: S, place: usize, logits: f32x16<S>, words: MaskWords) -> f32x16<S> {
    const PER_WORD: usize = WORD / LANES;
    let none = none(simd);
    let bits = words[place / PER_WORD] >> (place % PER_WORD * LANES) & 0xFFFF;
    let allowed = mask32x16::from_bitmask(simd, u64::from(bits)) & logits.simd_gt(none);
    allowed.select(logits, none)
}

/// The places of a chunk whose logits are at least `least`, as bits.
#[inline(always)]
pub(super) fn at_least<S: Simd>(simd: S, chunk: &Chunk, least: f32) -> u128 {
    let least = f32x16::splat(simd, least);
    let mut places = 0;
    for (place, logits) in vectors(simd, chunk).enumerate() {
        places |= u128::from(logits.simd_ge(least).to_bitmask()) << (place * LANES);
    }
    places
}

/// The sum of e to the power of (logit - `greatest`), with a relative error of about 1e-6 because
/// the difference is rounded. `greatest` is not NaN, and no logit exceeds it. A NaN among the
/// logits may make the sum NaN.
#[inline(always)]
pub(super) fn weight<S: Simd>(simd: S, chunk: &Chunk, greatest: f32) -> f32 {
    let mut sum = f32x16::splat(simd, 0.0);
    for logits in vectors(simd, chunk) {
        sum += exponential(simd, logits - greatest);
    }
    sum_of(sum)
}

/// Like [`weight`], with a relative error of about 1e-15, for a chunk without NaN.
#[inline(always)]
pub(super) fn precise_weight<S: Simd>(simd: S, chunk: &Chunk, greatest: f32) -> f64 {
    let greatest = f64::from(greatest);
    let mut sum = f64x8::splat(simd, 0.0);
    for logits in vectors(simd, chunk) {
        let (low, high) = logits.widen();
        sum += precise_exponential(simd, low - greatest);
        sum += precise_exponential(simd, high - greatest);
    }
    let (low, high) = sum.split();
    let [a, b, c, d] = (low + high).to_array();
    (a + c) + (b + d)
}

/// Like [`exponential`], with a relative error of about 1e-15; 1e-304 below -700.
#[inline(always)]
fn precise_exponential<S: Simd>(simd: S, x: f64x8<S>) -> f64x8<S> {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN_2_HIGH: f64 = 0.693_145_751_953_125;
    const LN_2_LOW: f64 = 1.428_606_820_309_417_2e-6;
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
    let x = x.max(-700.0);
    let rounded = x * std::f64::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let rest = x - whole * LN_2_HIGH - whole * LN_2_LOW;
    let mut polynomial = f64x8::splat(simd, 1.0 / 6_227_020_800.0);
    for factor in FACTORS {
        polynomial = polynomial * rest + factor;
    }
    let power: u64x8<S> = (rounded.bitcast::<u64x8<S>>() << 52) + 1.0_f64.to_bits();
    polynomial * power.bitcast::<f64x8<S>>()
}

/// The natural logarithm of the smallest normal `f32`.
const MIN: f32 = -87.336_54;

/// e to the power of each number, which is at most 0, with a relative error of about 1e-7. 0 below
/// `MIN`.
#[inline(always)]
pub(super) fn exponentials<S: Simd>(simd: S, numbers: [f32; LANES]) -> [f32; LANES] {
    let x = f32x16::load_array(simd, numbers);
    let none = f32x16::splat(simd, 0.0);
    x.simd_lt(MIN).select(none, exponential(simd, x)).to_array()
}

/// e to the power of `x`, which is at most 0, with a relative error of about 1e-7. The smallest
/// normal number below `MIN`.
///
/// Two to the power of the nearest integer to `x / ln 2`, assembled from its bits, times a Taylor
/// polynomial of the rest.
#[inline(always)]
fn exponential<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    /// Adding this constant rounds to an integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    const FACTORS: [f32; 6] = [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let x = x.max(MIN);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let rest = x - whole * LN_2_HIGH - whole * LN_2_LOW;
    let mut polynomial = f32x16::splat(simd, 1.0 / 720.0);
    for factor in FACTORS {
        polynomial = polynomial * rest + factor;
    }
    let power: u32x16<S> = (rounded.bitcast::<u32x16<S>>() << 23) + 1.0_f32.to_bits();
    polynomial * power.bitcast::<f32x16<S>>()
}
