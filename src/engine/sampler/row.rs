//! A row of logits, read once. In: the logits where the backend keeps them. Out: the greatest logit
//! of each chunk, by which later passes skip all chunks that cannot matter.
//!
//! The loops over a chunk have a fixed length and no branches, so that the compiler turns them into
//! vector instructions on every processor.

use crate::engine::backend::{TokenId, TokenMask};

/// Tokens of one chunk. With fewer, finding the greatest of the lanes takes longer than the lanes.
pub(super) const CHUNK: usize = 128;

/// Bits of one word of a token mask.
const WORD: usize = 32;

/// The words of a token mask for one chunk.
type MaskWords = [u32; CHUNK / WORD];

/// A chunk whose greatest logit is this much below the row's has less than 1e-15 of its weight.
const NEGLIGIBLE: f32 = 36.0;

/// A row of logits and the greatest of each chunk.
#[derive(Debug, Clone, Copy)]
pub struct LogitRow<'a> {
    logits: &'a [f32],
    /// Minus infinity for a chunk without a number.
    maxima: &'a [f32],
}

impl<'a> LogitRow<'a> {
    /// Reads a row, one logit for each token of the vocabulary. `maxima` is overwritten; a buffer
    /// that is used again needs no allocation.
    pub fn read(logits: &'a [f32], maxima: &'a mut Vec<f32>) -> LogitRow<'a> {
        maxima.clear();
        let (chunks, rest) = logits.as_chunks::<CHUNK>();
        let none = none();
        maxima.extend(chunks.iter().map(|chunk| greatest(chunk, none)));
        if !rest.is_empty() {
            maxima.push(rest.iter().fold(f32::NEG_INFINITY, |most, logit| greater(*logit, most)));
        }
        LogitRow { logits, maxima }
    }

    /// The logits.
    pub fn logits(&self) -> &'a [f32] {
        self.logits
    }

    /// The greatest logit; minus infinity if there is no number.
    pub fn greatest(&self) -> f32 {
        all_greatest(self.maxima)
    }
}

/// The greater number; `most` if `logit` is NaN.
fn greater(logit: f32, most: f32) -> f32 {
    if logit > most { logit } else { most }
}

/// Minus infinity. Where the compiler knows the value, it makes a comparison with it a test for NaN
/// and infinity, one number at a time.
fn none() -> f32 {
    std::hint::black_box(f32::NEG_INFINITY)
}

/// The greatest number of a chunk, or `none`, which is minus infinity.
fn greatest(chunk: &[f32; CHUNK], none: f32) -> f32 {
    let mut lanes = [none; 16];
    for part in chunk.as_chunks::<16>().0 {
        for (lane, logit) in lanes.iter_mut().zip(part) {
            *lane = greater(*logit, *lane);
        }
    }
    for width in [8, 4, 2, 1] {
        let (low, high) = lanes.split_at_mut(width);
        for (lane, other) in low.iter_mut().zip(high) {
            *lane = greater(*other, *lane);
        }
    }
    lanes[0]
}

fn all_greatest(maxima: &[f32]) -> f32 {
    let (chunks, rest) = maxima.as_chunks::<CHUNK>();
    let rest = rest.iter().fold(f32::NEG_INFINITY, |most, logit| greater(*logit, most));
    let none = none();
    chunks.iter().map(|chunk| greatest(chunk, none)).fold(rest, greater)
}

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenCandidate {
    /// The token.
    pub id: TokenId,
    /// Its logit after the samplers so far.
    pub logit: f32,
    /// Its probability, where a sampler has computed it.
    pub p: f32,
}

impl TokenCandidate {
    pub(super) fn new(id: TokenId, logit: f32) -> TokenCandidate {
        TokenCandidate { id, logit, p: 0.0 }
    }

    /// The likeliest first; of equals, the one with the smaller id.
    pub(super) fn order(&self, other: &TokenCandidate) -> std::cmp::Ordering {
        let logits = other.logit.partial_cmp(&self.logit);
        logits.unwrap_or(std::cmp::Ordering::Equal).then(self.id.cmp(&other.id))
    }
}

/// The candidates of a row: tokens that the mask allows and that have a probability, some with
/// another logit than the row's. Nothing is copied but one chunk at a time.
#[derive(Clone, Copy)]
pub(super) struct CandidateRow<'a> {
    logits: &'a [f32],
    mask: Option<&'a [u32]>,
    /// Other logits than the row's, by token.
    changed: &'a [(TokenId, f32)],
    maxima: &'a [f32],
}

impl<'a> CandidateRow<'a> {
    /// `changed` is sorted by token, without repetitions and without ids of other vocabularies.
    /// `maxima` is a buffer.
    pub(super) fn new(
        row: &LogitRow<'a>,
        mask: Option<&'a TokenMask>,
        changed: &'a [(TokenId, f32)],
        maxima: &'a mut Vec<f32>,
    ) -> CandidateRow<'a> {
        let logits = row.logits;
        let Some(mask) = mask.map(TokenMask::as_slice) else {
            if changed.is_empty() {
                return CandidateRow { logits, mask: None, changed, maxima: row.maxima };
            }
            maxima.clear();
            maxima.extend_from_slice(row.maxima);
            update(&CandidateRow { logits, mask: None, changed, maxima: &[] }, maxima);
            return CandidateRow { logits, mask: None, changed, maxima };
        };
        let masked = CandidateRow { logits, mask: Some(mask), changed: &[], maxima: &[] };
        let none = none();
        maxima.clear();
        maxima.extend(row.maxima.iter().enumerate().map(
            |(chunk, most)| match masked.words(chunk) {
                words if words == [0; CHUNK / WORD] => f32::NEG_INFINITY,
                words if words == [u32::MAX; CHUNK / WORD] => *most,
                _ if *most == f32::NEG_INFINITY => f32::NEG_INFINITY,
                _ => greatest(&masked.chunk(chunk), none),
            },
        ));
        let masked = CandidateRow { changed, ..masked };
        update(&masked, maxima);
        CandidateRow { maxima, ..masked }
    }

    /// The words of the mask for a chunk.
    fn words(&self, chunk: usize) -> MaskWords {
        let Some(mask) = self.mask else { return [u32::MAX; CHUNK / WORD] };
        std::array::from_fn(|word| mask.get(chunk * CHUNK / WORD + word).copied().unwrap_or(0))
    }

    /// The logits of a chunk; minus infinity for what is no candidate, and beyond the end.
    fn chunk(&self, chunk: usize) -> [f32; CHUNK] {
        let start = chunk * CHUNK;
        let mut values = [none(); CHUNK];
        let end = (start + CHUNK).min(self.logits.len());
        let logits = self.logits.get(start..end).unwrap_or_default();
        for (value, logit) in values.iter_mut().zip(logits) {
            // NaN becomes minus infinity.
            *value = greater(*logit, *value);
        }
        let first = self.changed.partition_point(|(token, _)| (*token as usize) < start);
        let changed = self.changed.get(first..).unwrap_or_default();
        for (token, logit) in changed.iter().take_while(|(token, _)| (*token as usize) < end) {
            values[*token as usize - start] = greater(*logit, f32::NEG_INFINITY);
        }
        if self.mask.is_some() {
            for (word, values) in self.words(chunk).iter().zip(values.as_chunks_mut::<WORD>().0) {
                for (bit, value) in values.iter_mut().enumerate() {
                    let allowed = word & (1 << bit) != 0;
                    *value = if allowed { *value } else { f32::NEG_INFINITY };
                }
            }
        }
        values
    }

    /// Tokens of the row, candidates or not.
    pub(super) fn len(&self) -> usize {
        self.logits.len()
    }

    /// The greatest logit; minus infinity without candidates.
    pub(super) fn greatest(&self) -> f32 {
        all_greatest(self.maxima)
    }

    /// The likeliest candidate; the first of equals.
    pub(super) fn likeliest(&self) -> Option<TokenId> {
        let greatest = self.greatest();
        if greatest == f32::NEG_INFINITY {
            return None;
        }
        let chunk = self.maxima.iter().position(|most| *most == greatest)?;
        let place = self.chunk(chunk).iter().position(|logit| *logit == greatest)?;
        Some((chunk * CHUNK + place) as TokenId)
    }

    /// Calls `see` with each candidate whose logit is at least `least()`, by id. `see` may raise
    /// that.
    fn visit(&self, mut least: f32, mut see: impl FnMut(TokenId, f32) -> f32) {
        for (chunk, most) in self.maxima.iter().enumerate() {
            if *most < least || *most == f32::NEG_INFINITY {
                continue;
            }
            let values = self.chunk(chunk);
            for (place, logit) in values.iter().enumerate() {
                if *logit >= least && *logit > f32::NEG_INFINITY {
                    least = see((chunk * CHUNK + place) as TokenId, *logit);
                }
            }
        }
    }

    /// All candidates whose logit is at least `least`, by id.
    pub(super) fn at_least(&self, least: f32, found: &mut Vec<TokenCandidate>) {
        found.clear();
        self.visit(least, |id, logit| {
            found.push(TokenCandidate::new(id, logit));
            least
        });
    }

    /// The `k` likeliest candidates in [`TokenCandidate::order`]; all of them if there are fewer.
    /// `scratch` is a buffer.
    pub(super) fn likeliest_k(
        &self,
        k: usize,
        found: &mut Vec<TokenCandidate>,
        scratch: &mut Vec<f32>,
    ) {
        found.clear();
        if k == 0 {
            return;
        }
        // The k-th greatest maximum: at least k candidates reach it.
        let mut least = f32::NEG_INFINITY;
        if k <= self.maxima.len() {
            scratch.clear();
            scratch.extend_from_slice(self.maxima);
            least = *scratch.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1;
        }
        // More than this are cut to the k likeliest, which matters if many are equal.
        let many = k.saturating_mul(2).saturating_add(4096);
        self.visit(least, |id, logit| {
            found.push(TokenCandidate::new(id, logit));
            if found.len() >= many {
                let (_, last, _) = found.select_nth_unstable_by(k - 1, TokenCandidate::order);
                // A later one has a greater id, so it loses against its equal.
                least = last.logit.next_up();
                found.truncate(k);
            }
            least
        });
        if found.len() > k {
            found.select_nth_unstable_by(k - 1, TokenCandidate::order);
            found.truncate(k);
        }
        found.sort_unstable_by(TokenCandidate::order);
    }

    /// The sum of e to the power of (logit - `greatest`) over all candidates, in double precision:
    /// of 262,144 tokens, the last that a sum of 0.999 keeps has a share of 1e-8.
    pub(super) fn weight(&self, greatest: f32) -> f64 {
        let chunks = self.maxima.iter().enumerate();
        let heavy = chunks.filter(|(_, most)| **most >= greatest - NEGLIGIBLE);
        heavy.map(|(chunk, _)| precise_weight(&self.chunk(chunk), greatest)).sum()
    }

    /// The number of candidates, and the standard deviation of their logits.
    pub(super) fn spread(&self) -> (usize, f64) {
        let (mut count, mut sum, mut squares) = (0_usize, 0.0_f64, 0.0_f64);
        // Differences from the greatest logit keep the digits of the squares.
        let origin = self.greatest();
        for (chunk, most) in self.maxima.iter().enumerate() {
            if *most == f32::NEG_INFINITY {
                continue;
            }
            for logit in self.chunk(chunk) {
                let is_candidate = logit > f32::NEG_INFINITY;
                let offset = if is_candidate { f64::from(logit - origin) } else { 0.0 };
                count += usize::from(is_candidate);
                sum += offset;
                squares += offset * offset;
            }
        }
        let n = count.max(1) as f64;
        let mean = sum / n;
        (count, (squares / n - mean * mean).max(0.0).sqrt())
    }
}

/// Corrects the maxima of the chunks with changed logits.
fn update(row: &CandidateRow, maxima: &mut [f32]) {
    let mut done = None;
    for (token, _) in row.changed {
        let chunk = *token as usize / CHUNK;
        if done != Some(chunk)
            && let Some(most) = maxima.get_mut(chunk)
        {
            *most = greatest(&row.chunk(chunk), none());
            done = Some(chunk);
        }
    }
}

/// The sum of e to the power of (logit - `greatest`), in double precision.
fn precise_weight(chunk: &[f32; CHUNK], greatest: f32) -> f64 {
    let greatest = f64::from(greatest);
    chunk.iter().map(|logit| (f64::from(*logit) - greatest).exp()).sum()
}

/// The sum of e to the power of (logit - `greatest`), to about 1e-7 of it.
fn weight(chunk: &[f32; CHUNK], greatest: f32) -> f32 {
    let mut lanes = [0.0_f32; 16];
    for part in chunk.as_chunks::<16>().0 {
        for (lane, logit) in lanes.iter_mut().zip(part) {
            *lane += exponential(logit - greatest);
        }
    }
    lanes.iter().sum()
}

/// e to the power of `x`, at most 0, to about 1e-7 of it; 1.6e-38 below -87 and for NaN.
///
/// Vectorisable, unlike `f32::exp`: two to the power of the nearest whole number of `x / ln 2`, made
/// of its bits, times a Taylor polynomial of the rest.
fn exponential(x: f32) -> f32 {
    /// Adding it rounds to a whole number, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = greater(x, -87.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let rest = x - whole * LN_2_HIGH - whole * LN_2_LOW;
    let polynomial = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0]
        .into_iter()
        .fold(0.0_f32, |sum, factor| sum * rest + factor);
    polynomial * f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0_f32.to_bits()))
}

/// The natural logarithm of the sum of e to the power of (logit - greatest logit) over a whole row,
/// whatever may be drawn of it. NaN without a number.
pub(crate) fn log_weight(row: &LogitRow) -> f64 {
    /// Chunks that come as near to the greatest logit are summed in double precision.
    const NEAR: f32 = 4.0;
    let greatest = row.greatest();
    let all = CandidateRow { logits: row.logits, mask: None, changed: &[], maxima: row.maxima };
    let mut sum = 0.0;
    for (chunk, most) in row.maxima.iter().enumerate() {
        if *most >= greatest - NEAR {
            sum += precise_weight(&all.chunk(chunk), greatest);
        } else if *most >= greatest - NEGLIGIBLE {
            sum += f64::from(weight(&all.chunk(chunk), greatest));
        }
    }
    sum.ln()
}

/// The `n` tokens with the greatest logits of a whole row, in order; those with a NaN are left out.
pub(crate) fn likeliest_n(row: &LogitRow, n: usize) -> Vec<TokenId> {
    let all = CandidateRow { logits: row.logits, mask: None, changed: &[], maxima: row.maxima };
    let mut found = Vec::new();
    all.likeliest_k(n, &mut found, &mut Vec::new());
    let lacking = n - found.len();
    let without = row.logits.iter().enumerate().filter(|(_, logit)| **logit == f32::NEG_INFINITY);
    let without = without.map(|(token, _)| token as TokenId).take(lacking);
    found.iter().map(|candidate| candidate.id).chain(without).collect()
}
