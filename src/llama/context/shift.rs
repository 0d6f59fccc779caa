//! Whether a context can be shifted: whether llama.cpp can move the keys of a sequence to other
//! positions and leave all other keys unchanged.
//!
//! llama.cpp rotates the keys of all cells; cells that stay are rotated by zero (llama.cpp b11429,
//! `llama_kv_cache::build_graph_shift`). Its own check, `llama_memory_can_shift`, is not
//! sufficient:
//!
//! - The rotation of bf16 is not implemented (`ggml_compute_forward_rope` aborts). A quantised
//!   cache is dequantised and quantised again as a whole. This changes the keys of all sequences,
//!   and aborts if the rotated part of a head is not contiguous.
//! - Recurrent states have no positions that could be removed.
//! - Where the rotation also scales (YaRN, LongRoPE: `rope_yarn`), each shift scales all keys
//!   again, including those that stay.
//! - The keys of an indexer are stored in another basis, and the shift does not convert them before
//!   the rotation.

use super::model::Model;
use super::options::ContextOptions;
use crate::api::CacheType;

/// How far rounding may move a factor from 1.
const TOLERANCE: f32 = 1e-4;

/// The reason why a context with these options cannot be shifted. `can_shift` is llama.cpp's own
/// answer.
pub(crate) fn refusal(
    model: &Model,
    options: &ContextOptions,
    can_shift: bool,
) -> Option<&'static str> {
    if model.has_state() {
        return Some("this model keeps one state for all tokens, from which none can be dropped");
    }
    if !can_shift {
        return Some("llama.cpp cannot move the tokens of this model to other positions");
    }
    if !matches!(options.cache_type_k, CacheType::F16 | CacheType::F32) {
        return Some("keys of this cache_type_k cannot be moved; set cache_type_k to f16 or f32");
    }
    let architecture = model.metadata("general.architecture")?;
    let text = |key: &str| model.metadata(&format!("{architecture}.{key}"));
    if text("attention.indexer.key_length").is_some() {
        return Some("the keys of this model's indexer cannot be moved to other positions");
    }
    let number = |key: &str| text(key)?.parse::<f32>().ok();
    let scaling = RopeScaling {
        is_yarn: text("rope.scaling.type").as_deref() == Some("yarn"),
        factor: number("rope.scaling.factor").or_else(|| number("rope.scale_linear")),
        attention: number("rope.scaling.attn_factor"),
        extrapolation: number("rope.scaling.yarn_ext_factor"),
    };
    let scales = "the positions of this model also scale its keys, which would be scaled again";
    scaling.scales().then_some(scales)
}

/// The metadata about the rotation that may change the length of keys.
#[derive(Default)]
struct RopeScaling {
    is_yarn: bool,
    factor: Option<f32>,
    attention: Option<f32>,
    extrapolation: Option<f32>,
}

impl RopeScaling {
    /// Whether the rotation multiplies keys by a factor. YaRN's factor grows with the logarithm of
    /// the scaling. Some models divide by it elsewhere; they are treated like the others.
    fn scales(&self) -> bool {
        let differs = |factor: Option<f32>| factor.is_some_and(|it| (it - 1.0).abs() > TOLERANCE);
        let is_yarn = self.is_yarn || self.extrapolation.is_some_and(|factor| factor > 0.0);
        let is_scaled = self.factor.is_some_and(|factor| factor != 0.0) && differs(self.factor);
        differs(self.attention) || is_yarn && is_scaled
    }
}

#[cfg(test)]
mod tests {
    use super::RopeScaling;

    #[test]
    fn yarn_and_factors_scale_keys() {
        let yarn = RopeScaling { is_yarn: true, ..RopeScaling::default() };
        let linear = RopeScaling { factor: Some(4.0), ..RopeScaling::default() };
        assert!(!RopeScaling::default().scales() && !linear.scales() && !yarn.scales());
        assert!(RopeScaling { factor: Some(4.0), ..yarn }.scales());
        assert!(RopeScaling { extrapolation: Some(1.0), ..linear }.scales());
        let long = RopeScaling { attention: Some(1.19), ..RopeScaling::default() };
        assert!(long.scales());
        assert!(!RopeScaling { attention: Some(1.0), ..RopeScaling::default() }.scales());
    }
}
