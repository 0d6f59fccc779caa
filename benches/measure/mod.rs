//! Shared by the benchmarks: the model, statistics, and targets. A benchmark that counts nothing
//! ends with a panic.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The model that the requirements refer to.
const MODEL: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

/// `LLB_MODELS`, or the default folder of `make models`.
pub(crate) fn models_folder() -> PathBuf {
    let cache = || match std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"),
    };
    match std::env::var_os("LLB_MODELS").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => cache().join("llb/models"),
    }
}

/// The path of the model: `LLB_MODEL`, or the one that the requirements refer to. If the file does
/// not exist, prints why nothing is measured.
pub(crate) fn model_path() -> Option<String> {
    let named = std::env::var_os("LLB_MODEL").filter(|path| !path.is_empty());
    let path = named.map_or_else(|| models_folder().join(MODEL), PathBuf::from);
    if !path.is_file() {
        println!("skipped: {} does not exist; run: make models", path.display());
        return None;
    }
    Some(path.to_str().expect("the path of the models is UTF-8").to_owned())
}

/// The name of a model's file.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A figure that was measured. Panics if nothing was: no round, no token, no time.
pub(crate) fn counted(name: &str, figure: f64) -> f64 {
    assert!(figure.is_finite() && figure != 0.0, "{name}: nothing was counted");
    figure
}

/// A positive number from the environment.
pub(crate) fn number(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|n| *n > 0)
        .unwrap_or(default)
}

/// The time of a call, and its result.
pub(crate) fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = run();
    (start.elapsed(), result)
}

/// The figures of one quantity over all rounds.
#[derive(Debug, Default)]
pub(crate) struct Figures(pub(crate) Vec<f64>);

impl Figures {
    pub(crate) fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
        }
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The ratio of both figures in each round. Whatever slows down a whole round cancels out.
    pub(crate) fn over(&self, other: &Figures) -> Figures {
        Figures(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

/// Prints a heading with the columns of [`row`].
pub(crate) fn heading(title: &str) {
    println!("\n{title:<42} {:>10} {:>10} {:>10}", "median", "min", "max");
}

/// Prints the row of one quantity.
pub(crate) fn row(name: &str, figures: &Figures) {
    let median = counted(name, figures.median());
    let digits = if median < 10.0 { 3 } else { 1 };
    println!(
        "{name:<42} {median:>10.digits$} {:>10.digits$} {:>10.digits$}",
        figures.min(),
        figures.max()
    );
}

/// Prints whether a target is met.
pub(crate) fn target(text: &str, met: bool) {
    println!("  {} {text}", if met { "pass" } else { "MISS" });
}
