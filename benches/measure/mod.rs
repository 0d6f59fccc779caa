//! What the benchmarks share: where the models are, spreads, and how a target is judged.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The model the requirements are stated for.
pub(crate) const MODEL: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

/// `LLB_MODELS`, else where `make models` puts them.
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

/// The model's path, or one line that says why there is nothing to measure.
pub(crate) fn model_path() -> Option<String> {
    let path = models_folder().join(MODEL);
    if !path.is_file() {
        println!("skipped: {} is not there; `make models` fetches it", path.display());
        return None;
    }
    Some(path.to_str().expect("the path of the models is UTF-8").to_owned())
}

/// A positive number from the environment.
pub(crate) fn number(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|n| *n > 0)
        .unwrap_or(default)
}

/// How long something takes, and what it gives.
pub(crate) fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = run();
    (start.elapsed(), result)
}

/// Figures of one quantity over all rounds.
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

    /// Round by round, so that what slows a whole round down does not count.
    pub(crate) fn over(&self, other: &Figures) -> Figures {
        Figures(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

/// A heading with the columns of [`row`].
pub(crate) fn heading(title: &str) {
    println!("\n{title:<42} {:>10} {:>10} {:>10}", "median", "min", "max");
}

/// One quantity.
pub(crate) fn row(name: &str, figures: &Figures) {
    let digits = if figures.median() < 10.0 { 3 } else { 1 };
    println!(
        "{name:<42} {:>10.digits$} {:>10.digits$} {:>10.digits$}",
        figures.median(),
        figures.min(),
        figures.max()
    );
}

/// One requirement, met or not.
pub(crate) fn target(text: &str, met: bool) {
    println!("  {} {text}", if met { "pass" } else { "MISS" });
}
