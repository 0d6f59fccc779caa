//! A row of logits, read once. In: the logits in the backend's memory. Out: the greatest logit of
//! each chunk, so that later passes skip chunks that cannot matter.

use fearless_simd::{Simd, dispatch};

use super::lanes::{
    ALL, CHUNK, Chunk, MaskWords, WORD, at_least, greater, greatest, greatest_allowed,
    greatest_of_each, level, masked, precise_weight, weight,
};
use crate::engine::backend::{TokenId, TokenMask};

/// A chunk whose greatest logit is this far below the row's greatest has less than 1e-15 of the
/// total weight.
const NEGLIGIBLE: f32 = 36.0;

/// A row of logits, and the greatest logit of each chunk.
#[derive(Debug, Clone, Copy)]
pub struct LogitRow<'a> {
    logits: &'a [f32],
    /// The greatest logit of each chunk; minus infinity for a chunk without a number.
    maxima: &'a [f32],
}

impl<'a> LogitRow<'a> {
    /// Reads a row with one logit for each token of the vocabulary. `maxima` is overwritten; pass
    /// the same buffer again to avoid an allocation.
    pub fn read(logits: &'a [f32], maxima: &'a mut Vec<f32>) -> LogitRow<'a> {
        maxima.clear();
        let (chunks, rest) = logits.as_chunks::<CHUNK>();
        greatest_of_each(chunks, maxima);
        if !rest.is_empty() {
            maxima.push(rest.iter().fold(f32::NEG_INFINITY, |most, logit| greater(*logit, most)));
        }
        LogitRow { logits, maxima }
    }

    /// The logits.
    pub fn logits(&self) -> &'a [f32] {
        self.logits
    }

    /// The greatest logit; minus infinity if every logit is NaN.
    pub fn greatest(&self) -> f32 {
        all_greatest(self.maxima)
    }
}

fn all_greatest(maxima: &[f32]) -> f32 {
    let (chunks, rest) = maxima.as_chunks::<CHUNK>();
    let rest = rest.iter().fold(f32::NEG_INFINITY, |most, logit| greater(*logit, most));
    chunks.iter().map(greatest).fold(rest, greater)
}

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenCandidate {
    /// The token.
    pub id: TokenId,
    /// The logit after the samplers that have run so far.
    pub logit: f32,
    /// The probability, once a sampler has computed it.
    pub p: f32,
}

impl TokenCandidate {
    pub(super) fn new(id: TokenId, logit: f32) -> TokenCandidate {
        TokenCandidate { id, logit, p: 0.0 }
    }

    /// Sorts the likeliest first; of equally likely tokens, the smaller id.
    pub(super) fn order(&self, other: &TokenCandidate) -> std::cmp::Ordering {
        let logits = other.logit.partial_cmp(&self.logit);
        logits.unwrap_or(std::cmp::Ordering::Equal).then(self.id.cmp(&other.id))
    }
}

/// The candidates of a row: the tokens that the mask allows and that have a probability. Some have
/// another logit than in the row. Never more than one chunk is copied.
#[derive(Clone, Copy)]
pub(super) struct CandidateRow<'a> {
    logits: &'a [f32],
    mask: Option<&'a [u32]>,
    /// The logits that differ from the row's, sorted by token.
    changed: &'a [(TokenId, f32)],
    maxima: &'a [f32],
}

impl<'a> CandidateRow<'a> {
    /// `changed` is sorted by token and has no duplicates and no ids outside the vocabulary.
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
        let unchanged = CandidateRow { logits, mask: Some(mask), changed: &[], maxima: &[] };
        maxima.clear();
        maxima.extend_from_slice(row.maxima);
        dispatch!(level(), simd => unchanged.mask_maxima(simd, maxima));
        let row = CandidateRow { changed, ..unchanged };
        update(&row, maxima);
        CandidateRow { maxima, ..row }
    }

    /// Replaces the greatest logit of each chunk by the greatest that the mask allows.
    #[inline(always)]
    fn mask_maxima<S: Simd>(&self, simd: S, maxima: &mut [f32]) {
        for (chunk, most) in maxima.iter_mut().enumerate() {
            let words = self.words(chunk);
            if words == ALL || *most == f32::NEG_INFINITY {
                continue;
            }
            *most = match self.whole(chunk) {
                _ if words == [0; CHUNK / WORD] => f32::NEG_INFINITY,
                Some(logits) => greatest_allowed(simd, logits, words),
                None => greatest(&self.chunk(chunk)),
            };
        }
    }

    /// The words of the mask for one chunk.
    fn words(&self, chunk: usize) -> MaskWords {
        let Some(mask) = self.mask else { return ALL };
        std::array::from_fn(|word| mask.get(chunk * CHUNK / WORD + word).copied().unwrap_or(0))
    }

    /// The row's own logits of a chunk. `None` for the last chunk if it is shorter than the others.
    fn whole(&self, chunk: usize) -> Option<&'a Chunk> {
        self.logits.get(chunk * CHUNK..)?.first_chunk()
    }

    /// The row's own logits of a chunk, if the mask allows all of them and none has changed. There
    /// may be NaN among them.
    fn unchanged(&self, chunk: usize) -> Option<&'a Chunk> {
        let is_unchanged = self.words(chunk) == ALL && self.changes(chunk).is_empty();
        self.whole(chunk).filter(|_| is_unchanged)
    }

    /// The logits of a chunk that differ from the row's.
    fn changes(&self, chunk: usize) -> &'a [(TokenId, f32)] {
        let start = chunk * CHUNK;
        let first = self.changed.partition_point(|(token, _)| (*token as usize) < start);
        let changed = self.changed.get(first..).unwrap_or_default();
        let count = changed.partition_point(|(token, _)| (*token as usize) < start + CHUNK);
        changed.get(..count).unwrap_or_default()
    }

    /// The logits of a chunk; minus infinity for tokens that are not candidates, and beyond the end
    /// of the row.
    fn chunk(&self, chunk: usize) -> Chunk {
        let start = chunk * CHUNK;
        let words = self.words(chunk);
        let mut last = [f32::NEG_INFINITY; CHUNK];
        let logits = self.whole(chunk).unwrap_or_else(|| {
            let rest = self.logits.get(start..).unwrap_or_default();
            last[..rest.len()].copy_from_slice(rest);
            &last
        });
        let mut logits = dispatch!(level(), simd => masked(simd, logits, words));
        for (token, logit) in self.changes(chunk) {
            let place = *token as usize - start;
            if words[place / WORD] & (1 << (place % WORD)) != 0 {
                logits[place] = greater(*logit, f32::NEG_INFINITY);
            }
        }
        logits
    }

    /// The number of tokens in the row, candidates or not.
    pub(super) fn len(&self) -> usize {
        self.logits.len()
    }

    /// The greatest logit of a candidate; minus infinity without candidates.
    pub(super) fn greatest(&self) -> f32 {
        all_greatest(self.maxima)
    }

    /// The likeliest candidate; of equal ones, the first.
    pub(super) fn likeliest(&self) -> Option<TokenId> {
        let greatest = self.greatest();
        if greatest == f32::NEG_INFINITY {
            return None;
        }
        let chunk = self.maxima.iter().position(|most| *most == greatest)?;
        let place = self.chunk(chunk).iter().position(|logit| *logit == greatest)?;
        Some((chunk * CHUNK + place) as TokenId)
    }

    /// Calls `see` in order of id with each candidate whose logit is at least `least`. `see`
    /// returns the new `least`, which may be greater.
    fn visit(&self, mut least: f32, mut see: impl FnMut(TokenId, f32) -> f32) {
        for (chunk, most) in self.maxima.iter().enumerate() {
            if *most < least || *most == f32::NEG_INFINITY {
                continue;
            }
            let changed;
            let values = match self.unchanged(chunk) {
                Some(logits) => logits,
                None => {
                    changed = self.chunk(chunk);
                    &changed
                }
            };
            let mut places = dispatch!(level(), simd => at_least(simd, values, least));
            while places != 0 {
                let place = places.trailing_zeros() as usize;
                places &= places - 1;
                let logit = values[place];
                if logit >= least && logit > f32::NEG_INFINITY {
                    least = see((chunk * CHUNK + place) as TokenId, logit);
                }
            }
        }
    }

    /// Appends all candidates whose logit is at least `least`, in order of id.
    pub(super) fn at_least(&self, least: f32, found: &mut Vec<TokenCandidate>) {
        found.clear();
        self.visit(least, |id, logit| {
            found.push(TokenCandidate::new(id, logit));
            least
        });
    }

    /// The `k` likeliest candidates, sorted by [`TokenCandidate::order`]; all candidates if there
    /// are fewer. `scratch` is a buffer.
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
        // The k-th greatest maximum: at least k candidates are not below it.
        let mut least = kth_greatest(self.maxima, k, scratch);
        // A longer list is cut to the k likeliest, which matters if many logits are equal.
        let many = k.saturating_mul(2).saturating_add(4096);
        self.visit(least, |id, logit| {
            found.push(TokenCandidate::new(id, logit));
            if found.len() >= many {
                let (_, last, _) = found.select_nth_unstable_by(k - 1, TokenCandidate::order);
                // A later candidate with an equal logit has a greater id, so it would come after
                // this one.
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

    /// The sum of e to the power of (logit - `greatest`) over all candidates. Double precision is
    /// needed: of 262,144 tokens, the last token that a sum of 0.999 keeps has a share of 1e-8.
    pub(super) fn weight(&self, greatest: f32) -> f64 {
        let mut sum = 0.0;
        dispatch!(level(), simd => {
            for (chunk, most) in self.maxima.iter().enumerate() {
                if *most >= greatest - NEGLIGIBLE {
                    sum += precise_weight(simd, &self.chunk(chunk), greatest);
                }
            }
        });
        sum
    }

    /// The number of candidates, and the standard deviation of their logits.
    pub(super) fn spread(&self) -> (usize, f64) {
        let (mut count, mut sum, mut squares) = (0_usize, 0.0_f64, 0.0_f64);
        // Differences from the greatest logit keep the digits that squaring would lose.
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

/// The `k`th greatest number, where `k` is at least 1; minus infinity if there are fewer. `scratch`
/// is a buffer.
pub(super) fn kth_greatest(numbers: &[f32], k: usize, scratch: &mut Vec<f32>) -> f32 {
    fn select(numbers: &mut [f32], k: usize) -> f32 {
        *numbers.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
    }
    if k > numbers.len() {
        return f32::NEG_INFINITY;
    }
    scratch.clear();
    // The k-th greatest of the maxima of some groups is not above the k-th greatest number. Few
    // numbers reach it.
    let group = numbers.len() / (2 * k);
    if group < 2 {
        scratch.extend_from_slice(numbers);
        return select(scratch, k);
    }
    let most = |group: &[f32]| group.iter().fold(f32::NEG_INFINITY, |most, n| greater(*n, most));
    scratch.extend(numbers.chunks(group).map(most));
    let least = select(scratch, k);
    scratch.clear();
    scratch.extend(numbers.iter().filter(|number| **number >= least));
    select(scratch, k)
}

/// Updates the maxima of the chunks whose logits have changed.
fn update(row: &CandidateRow, maxima: &mut [f32]) {
    let mut done = None;
    for (token, _) in row.changed {
        let chunk = *token as usize / CHUNK;
        if done != Some(chunk)
            && let Some(most) = maxima.get_mut(chunk)
        {
            *most = greatest(&row.chunk(chunk));
            done = Some(chunk);
        }
    }
}

/// The natural logarithm of the sum of e to the power of (logit - greatest logit) over the whole
/// row, including tokens that are not candidates. NaN if the greatest logit is infinite.
pub(crate) fn log_weight(row: &LogitRow) -> f64 {
    /// Chunks whose greatest logit is this near to the row's are summed in double precision.
    const NEAR: f32 = 4.0;
    let greatest = row.greatest();
    if !greatest.is_finite() {
        return f64::NAN;
    }
    let all = CandidateRow { logits: row.logits, mask: None, changed: &[], maxima: row.maxima };
    let mut sum = 0.0;
    dispatch!(level(), simd => {
        for (chunk, most) in row.maxima.iter().enumerate() {
            if *most >= greatest - NEAR {
                sum += precise_weight(simd, &all.chunk(chunk), greatest);
            } else if *most >= greatest - NEGLIGIBLE {
                let of_chunk = all.whole(chunk).map(|logits| weight(simd, logits, greatest));
                // The weight of a chunk with NaN may be NaN.
                let of_chunk = of_chunk.filter(|weight| !weight.is_nan());
                let of_chunk =
                    of_chunk.unwrap_or_else(|| weight(simd, &all.chunk(chunk), greatest));
                sum += f64::from(of_chunk);
            }
        }
    });
    sum.ln()
}

/// The `n` tokens of the whole row with the greatest logits, in descending order. NaN is skipped.
pub(crate) fn likeliest_n(row: &LogitRow, n: usize) -> Vec<TokenId> {
    let all = CandidateRow { logits: row.logits, mask: None, changed: &[], maxima: row.maxima };
    let mut found = Vec::new();
    all.likeliest_k(n, &mut found, &mut Vec::new());
    let lacking = n - found.len();
    let without = row.logits.iter().enumerate().filter(|(_, logit)| **logit == f32::NEG_INFINITY);
    let without = without.map(|(token, _)| token as TokenId).take(lacking);
    found.iter().map(|candidate| candidate.id).chain(without).collect()
}
