//! Checks that each layer with experts uses at least one of them.
//!
//! llama.cpp checks only the largest number of all layers (`n_expert_used_max`). The sum of a layer
//! begins with the output of its first expert (`build_moe_ffn` in llama-graph.cpp), which is a null
//! pointer if the layer uses none.

use super::{Facts, refused};
use crate::error::Result;
use crate::gguf::value::{GgufValue, ValueType};

const USED: &str = "expert_used_count";

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    // llama.cpp itself refuses one number for all layers if it is 0, and other lists.
    let Some(GgufValue::Array(ValueType::U32 | ValueType::I32 | ValueType::Bool, items)) =
        facts.value(USED)
    else {
        return Ok(());
    };
    for (layer, used) in facts.of_layers(USED).into_iter().enumerate().take(items.len()) {
        let of_layer = format!("blk.{layer}.");
        let is_of_experts = |name: &str| {
            name.strip_prefix(&of_layer).is_some_and(|rest| rest.ends_with("_exps.weight"))
        };
        if used == 0 && facts.tensors.iter().any(|tensor| is_of_experts(&tensor.name)) {
            return Err(refused(format!(
                "{} is 0 for layer {layer}, but the layer has experts",
                facts.key(USED)
            )));
        }
    }
    Ok(())
}
