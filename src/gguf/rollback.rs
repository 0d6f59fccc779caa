//! Decides whether llama.cpp can take back the states of recurrent layers by a few tokens.

use super::header::ModelHeader;
use super::value::GgufValue;

/// The architectures whose graphs keep earlier states (`llm_arch_supports_rs_rollback`), except
/// deepseek4, whose cache is another one, and glm5-next and qwen4exp. These two attend to blocks of
/// tokens that depend on the batches, so it cannot be tested whether a state is the right one.
const ARCHITECTURES: [&str; 8] = [
    "bailingmoe3",
    "kimi-k3",
    "lfm2",
    "lfm2moe",
    "nemotron_h",
    "nemotron_h_moe",
    "qwen35",
    "qwen35moe",
];

impl ModelHeader {
    /// Whether the states of the model can be taken back. False for a model without states. Windows
    /// drop cells that are needed again, so a model with windows has to compute its tokens again.
    pub fn can_take_back_states(&self) -> bool {
        let window = self.architecture_value("attention.sliding_window");
        ARCHITECTURES.contains(&self.architecture())
            && window.and_then(GgufValue::as_u64).unwrap_or(0) == 0
    }
}
