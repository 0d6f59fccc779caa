//! The options that say where the weights of a model live: in main memory, or on which device.

use serde_json::{Value, json};

use super::fields::{Fields, expected};
use super::member::members;
use crate::error::Result;

/// The maximum number of pairs in `override_tensor`, and of bytes in one of its patterns.
const MAX_OVERRIDES: usize = 256;
const MAX_PATTERN_BYTES: usize = 1024;
/// llama.cpp's limit (`llama_max_devices`).
const MAX_SHARES: usize = 16;

named_enum! {
    /// How several devices divide a model.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum SplitMode {
        /// One device has all layers.
        None = "none",
        /// Each device has some of the layers.
        Layer = "layer",
        /// Each device has some rows of every matrix.
        Row = "row",
        /// Each device has a part of every tensor, and all of them compute each layer together.
        Tensor = "tensor",
    }
}

/// A pair of `override_tensor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorOverride {
    /// A regular expression. It selects the tensors in whose name it matches a part.
    pub pattern: String,
    /// The device that has them; `CPU` is main memory.
    pub device: String,
}

members! {
    /// Where the weights live.
    #[derive(Debug, Clone, PartialEq)]
    pub struct PlacementChoice {
        /// The number of layers, from the first one, whose experts stay in main memory. None is as
        /// many as let all other weights be on devices.
        n_cpu_moe: Option<u32> = None => integer_or_auto(0..=i32::MAX as i64),
        /// Pairs of a pattern and a device: the tensors whose names match live there. The first
        /// pair that matches decides.
        override_tensor: Vec<TensorOverride> = Vec::new()
            => custom(read_overrides) writes |_| json!([]),
        /// How several devices divide the model.
        split_mode: SplitMode = SplitMode::Layer => one_of(SplitMode::NAMES),
        /// The device that has all layers with `split_mode` "none", as its index in `devices`.
        main_gpu: u32 = 0 => whole(0..=i32::MAX as i64),
        /// The share of the model that each device gets. Empty divides by free memory.
        tensor_split: Vec<f32> = Vec::new() => custom(read_shares),
    }
}

impl PlacementChoice {
    /// The name of a device that is main memory.
    pub const MAIN_MEMORY: &str = "CPU";

    /// The first option that asks for a device other than the processor.
    pub(super) fn names_device(&self) -> Option<&'static str> {
        match () {
            () if self.puts_tensors_on_devices() => Some("override_tensor"),
            () if self.main_gpu > 0 => Some("main_gpu"),
            () if !self.tensor_split.is_empty() => Some("tensor_split"),
            () => None,
        }
    }

    /// Whether `override_tensor` names a device other than main memory.
    pub fn puts_tensors_on_devices(&self) -> bool {
        self.override_tensor.iter().any(|pair| pair.device != PlacementChoice::MAIN_MEMORY)
    }
}

/// Reads `override_tensor`, an array of `[pattern, device]`. Whether they exist is checked later.
fn read_overrides(fields: &mut Fields) -> Result<Option<Vec<TensorOverride>>> {
    const NAME: &str = "override_tensor";
    let Some(items) = fields.array(NAME)? else { return Ok(None) };
    if items.len() > MAX_OVERRIDES {
        let problem = format!("at most {MAX_OVERRIDES} pairs, got {}", items.len());
        return Err(fields.invalid(NAME, problem));
    }
    let pair = |(index, item): (usize, &Value)| {
        let at = format!("{NAME}[{index}]");
        let [pattern, device] = item.as_array().map(Vec::as_slice).unwrap_or_default() else {
            return Err(fields.invalid(&at, expected("an array [pattern, device]", item)));
        };
        let [pattern, device] = [(0, pattern), (1, device)].map(|(part, value)| {
            let text = value.as_str().filter(|text| !text.is_empty());
            let problem = || fields.invalid(&format!("{at}[{part}]"), expected("a name", value));
            text.map(str::to_owned).ok_or_else(problem)
        });
        let pattern = pattern?;
        if pattern.len() > MAX_PATTERN_BYTES {
            let problem = format!("at most {MAX_PATTERN_BYTES} bytes, got {}", pattern.len());
            return Err(fields.invalid(&format!("{at}[0]"), problem));
        }
        Ok(TensorOverride { pattern, device: device? })
    };
    items.iter().enumerate().map(pair).collect::<Result<_>>().map(Some)
}

/// Reads `tensor_split`, an array of numbers of which only the ratios count.
fn read_shares(fields: &mut Fields) -> Result<Option<Vec<f32>>> {
    const NAME: &str = "tensor_split";
    const MAX: f64 = 1e9;
    let Some(items) = fields.array(NAME)? else { return Ok(None) };
    if items.len() > MAX_SHARES {
        let problem = format!("at most {MAX_SHARES} numbers, got {}", items.len());
        return Err(fields.invalid(NAME, problem));
    }
    let share = |(index, item): (usize, &Value)| {
        let share = item.as_f64().filter(|share| (0.0..=MAX).contains(share));
        share.map(|share| share as f32).ok_or_else(|| {
            let problem = expected("a number that is not negative", item);
            fields.invalid(&format!("{NAME}[{index}]"), problem)
        })
    };
    let shares = items.iter().enumerate().map(share).collect::<Result<Vec<f32>>>()?;
    if !shares.is_empty() && shares.iter().sum::<f32>() <= 0.0 {
        return Err(fields.invalid(NAME, "all shares are 0; leave it out to divide by free memory"));
    }
    Ok(Some(shares))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &Value) -> Result<PlacementChoice> {
        let mut read = PlacementChoice::default();
        read.set(&mut Fields::new("", options)?)?;
        Ok(read)
    }

    #[test]
    fn placements_are_read() {
        let options = json!({
            "n_cpu_moe": 12, "override_tensor": [["ffn_.*_exps", "CPU"], ["^output", "CUDA0"]],
            "split_mode": "none", "main_gpu": 1, "tensor_split": [3, 0.5, 0],
        });
        let choice = read(&options).expect("valid");
        let pair = |pattern: &str, device: &str| TensorOverride {
            pattern: pattern.to_owned(),
            device: device.to_owned(),
        };
        assert_eq!((choice.n_cpu_moe, choice.main_gpu), (Some(12), 1));
        assert_eq!(choice.override_tensor, [pair("ffn_.*_exps", "CPU"), pair("^output", "CUDA0")]);
        assert_eq!(
            (choice.split_mode, choice.tensor_split),
            (SplitMode::None, vec![3.0, 0.5, 0.0])
        );
        let auto = json!({ "n_cpu_moe": "auto", "override_tensor": null, "tensor_split": [] });
        let choice = read(&auto).expect("valid");
        assert_eq!((choice.n_cpu_moe, choice.split_mode), (None, SplitMode::Layer));
        assert!(choice.override_tensor.is_empty() && choice.tensor_split.is_empty());
    }

    #[test]
    fn errors_name_the_option() {
        let long = "x".repeat(1025);
        for (options, message) in [
            (
                json!({ "n_cpu_moe": "all" }),
                r#"n_cpu_moe: expected "auto" or a whole number, got "all""#,
            ),
            (json!({ "n_cpu_moe": -1 }), "n_cpu_moe: must be from 0 to 2147483647, got -1"),
            (
                json!({ "override_tensor": "x=CPU" }),
                r#"override_tensor: expected an array, got "x=CPU""#,
            ),
            (
                json!({ "override_tensor": [["x", "CPU"], ["y"]] }),
                r#"override_tensor[1]: expected an array [pattern, device], got ["y"]"#,
            ),
            (
                json!({ "override_tensor": [["x", 0]] }),
                "override_tensor[0][1]: expected a name, got 0",
            ),
            (
                json!({ "override_tensor": [["", "CPU"]] }),
                r#"override_tensor[0][0]: expected a name, got """#,
            ),
            (
                json!({ "override_tensor": [[long, "CPU"]] }),
                "override_tensor[0][0]: at most 1024 bytes, got 1025",
            ),
            (
                json!({ "split_mode": "rows" }),
                r#"split_mode: unknown value "rows"; expected one of "none", "layer", "row", "tensor""#,
            ),
            (json!({ "main_gpu": "CUDA0" }), r#"main_gpu: expected a whole number, got "CUDA0""#),
            (
                json!({ "tensor_split": [1, -1] }),
                "tensor_split[1]: expected a number that is not negative, got -1",
            ),
            (
                json!({ "tensor_split": [0, 0] }),
                "tensor_split: all shares are 0; leave it out to divide by free memory",
            ),
            (json!({ "tensor_split": vec![1; 17] }), "tensor_split: at most 16 numbers, got 17"),
        ] {
            assert_eq!(read(&options).expect_err("refused").message(), message);
        }
    }
}
