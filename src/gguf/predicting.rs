//! Finds layers that predict further tokens ("multi-token prediction") and that llama.cpp can compute.

use super::header::ModelHeader;
use super::value::GgufValue;

/// The architectures whose layers can be used: llama.cpp has a graph for them
/// (`LLM_GRAPH_TYPE_DECODER_MTP`), and drafts can be removed from the cache and the states of the
/// others. Each has the maximum number of these layers for which that graph was written.
const ARCHITECTURES: [(&str, u64); 10] = [
    ("bailingmoe3", 1),
    ("cohere2moe", 1),
    ("deepseek2", 1),
    ("glm4moe", 1),
    ("hy_v3", u64::MAX),
    ("mimo2", u64::MAX),
    ("nemotron_h_moe", 1),
    ("qwen35", 1),
    ("qwen35moe", 1),
    ("step35", u64::MAX),
];
/// Tensors that each such layer has, after `blk.N.nextn.`.
const TENSORS: [&str; 3] = ["eh_proj.weight", "enorm.weight", "hnorm.weight"];

impl ModelHeader {
    /// The numbers of the blocks that predict further tokens. The error is a message that says why
    /// there are none, or why they cannot be used.
    pub fn predicting_blocks(&self) -> Result<std::ops::Range<u64>, String> {
        let architecture = self.architecture();
        let key = format!("{architecture}.nextn_predict_layers");
        let count = self.get(&key).and_then(GgufValue::as_u64).unwrap_or(0);
        let blocks = self.block_count().unwrap_or(0);
        if count == 0 {
            return Err("the model has no layers that predict further tokens".to_owned());
        }
        let Some(first) = blocks.checked_sub(count).filter(|first| *first > 0) else {
            return Err(format!("{key} is {count}, but the model has {blocks} layers in all"));
        };
        let known = ARCHITECTURES.iter().find(|(name, _)| *name == architecture);
        let Some((_, most)) = known else {
            let names = ARCHITECTURES.map(|(name, _)| name).join(", ");
            return Err(format!(
                "the layers that predict further tokens cannot be used for {architecture}, only for \
                 {names}"
            ));
        };
        if count > *most {
            return Err(format!("{key} is {count}, but llama.cpp computes at most {most}"));
        }
        for block in first..blocks {
            for tensor in TENSORS {
                let name = format!("blk.{block}.nextn.{tensor}");
                if !self.shapes().any(|(other, _)| other == name) {
                    return Err(format!("tensor {name:?} is missing"));
                }
            }
        }
        Ok(first..blocks)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::gguf::gguf_writer::GgufWriter;

    #[test]
    fn blocks_are_found_if_llama_cpp_can_compute_them() {
        let read = |architecture: &str, blocks: u32, count: u32, of: &[u32], without: &str| {
            let name = |key: &str| format!("{architecture}.{key}");
            let writer = GgufWriter::new()
                .metadata("general.architecture", architecture)
                .metadata(name("block_count"), blocks)
                .metadata(name("nextn_predict_layers"), count);
            let names = of
                .iter()
                .flat_map(|block| TENSORS.map(|tensor| format!("blk.{block}.nextn.{tensor}")));
            let names = names.filter(|name| name != without);
            let writer = names.fold(writer, |writer, name| writer.tensor(name, &[1], &[0.0]));
            let bytes = writer.to_bytes();
            let size = bytes.len() as u64;
            ModelHeader::read(Cursor::new(bytes), size).unwrap().predicting_blocks()
        };
        assert_eq!(read("glm4moe", 3, 1, &[2], ""), Ok(2..3));
        assert_eq!(read("mimo2", 4, 2, &[2, 3], ""), Ok(2..4));
        let refused = |result: Result<std::ops::Range<u64>, String>, part: &str| {
            let message = result.unwrap_err();
            assert!(message.contains(part), "{message}");
        };
        refused(read("glm4moe", 3, 0, &[2], ""), "no layers");
        refused(read("glm4moe", 1, 1, &[0], ""), "nextn_predict_layers is 1, but the model has 1");
        refused(read("glm4moe", 2, u32::MAX, &[1], ""), "nextn_predict_layers is 4294967295");
        refused(read("llama", 3, 1, &[2], ""), "cannot be used for llama");
        // llama.cpp cannot take back the states of these, or has no graph.
        for architecture in ["qwen3next", "qwen4exp", "nemotron_h"] {
            refused(read(architecture, 3, 1, &[2], ""), "cannot be used for");
        }
        refused(read("glm4moe", 4, 2, &[2, 3], ""), "nextn_predict_layers is 2");
        refused(read("mimo2", 4, 2, &[2], ""), "\"blk.3.nextn.eh_proj.weight\" is missing");
        let hnorm = "blk.2.nextn.hnorm.weight";
        refused(read("glm4moe", 3, 1, &[2], hnorm), "hnorm");
    }
}
