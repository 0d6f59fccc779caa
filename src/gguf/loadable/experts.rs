//! Checks that each layer with experts uses at least one of them, and that groups of experts are
//! whole.
//!
//! llama.cpp checks only the largest number of all layers (`n_expert_used_max`). The sum of a layer
//! begins with the output of its first expert (`build_moe_ffn` in llama-graph.cpp), which is a null
//! pointer if the layer uses none. It divides the number of an expert by the size of a group, and
//! takes the result as the number of another expert without a check.

use super::hyperparameters::element;
use super::{Facts, refused};
use crate::error::Result;
use crate::gguf::value::{GgufValue, ValueType};

const USED: &str = "expert_used_count";
const COUNT: &str = "expert_count";
const PER_GROUP: &str = "experts_per_group";

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    groups(facts)?;
    used(facts)
}

fn groups(facts: &Facts<'_>) -> Result<()> {
    let (Some(count), Some(of_group)) = (facts.count(COUNT), facts.count(PER_GROUP)) else {
        return Ok(());
    };
    if of_group > 0 && count.is_multiple_of(of_group) {
        return Ok(());
    }
    Err(refused(format!(
        "{} is {of_group}, but must divide {}, {count}",
        facts.key(PER_GROUP),
        facts.key(COUNT)
    )))
}

fn used(facts: &Facts<'_>) -> Result<()> {
    // llama.cpp itself refuses one number for all layers if it is 0, and other lists.
    let Some(GgufValue::Array(ValueType::U32 | ValueType::I32 | ValueType::Bool, items)) =
        facts.value(USED)
    else {
        return Ok(());
    };
    // deepseek4 runs layers that predict further tokens as others, if they lack a tensor.
    for (layer, used) in items.iter().map(|item| element(item).unwrap_or(0)).enumerate() {
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
