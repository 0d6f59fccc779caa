//! Random rows of logits.
#![allow(dead_code, reason = "the test and the bench use parts of it")]

/// Pseudo-random numbers, the same in every run.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit.max(1)
    }

    /// From 0 to 1.
    fn share(&mut self) -> f32 {
        (self.next() as f32 + 0.5) / (1_u64 << 31) as f32
    }

    /// Of a normal distribution.
    pub fn normal(&mut self) -> f32 {
        (-2.0 * self.share().ln()).sqrt() * (std::f32::consts::TAU * self.share()).cos()
    }
}

/// A row of any size and shape.
pub fn row(numbers: &mut Numbers) -> Vec<f32> {
    // Most are short, so that thousands of cases take seconds.
    let sizes = [1, 2, 5, 63, 64, 65, 300, 700, 1000, 4096, 32_001, 152_064];
    let size = match numbers.below(20) {
        0 => sizes[numbers.below(12)],
        1 | 2 => sizes[numbers.below(10)],
        _ => sizes[numbers.below(9)],
    };
    let scale = [0.5, 1.0, 3.0, 8.0][numbers.below(4)];
    let kind = numbers.below(8);
    let mut row: Vec<f32> = (0..size).map(|_| numbers.normal() * scale).collect();
    match kind {
        // Equals.
        0 => row.iter_mut().for_each(|logit| *logit = logit.round()),
        1 => row.fill(scale),
        // In order.
        2 => row.sort_by(f32::total_cmp),
        // A few stand out.
        3 | 4 => (0..numbers.below(30)).for_each(|_| {
            let place = numbers.below(size);
            row[place] += 10.0;
        }),
        // Some are no numbers.
        5 => (0..size / 7).for_each(|_| {
            let place = numbers.below(size);
            row[place] = [f32::NAN, f32::NEG_INFINITY][numbers.below(2)];
        }),
        _ => {}
    }
    row
}

/// A row with the shape of a language model's: most logits near a normal distribution, some tokens
/// far above it.
pub fn language_row(numbers: &mut Numbers, n: usize) -> Vec<f32> {
    let mut row: Vec<f32> = (0..n).map(|_| numbers.normal() * 2.2).collect();
    for _ in 0..60 {
        let place = numbers.below(n);
        row[place] += 5.0 + numbers.below(10) as f32;
    }
    row
}
