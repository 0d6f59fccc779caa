//! A vocabulary for tests, written to a file and loaded by llama.cpp.

use std::sync::Arc;

use crate::error::Result;
use crate::gguf::gguf_writer::GgufWriter;
use crate::llama::context::ModelOptions;
use crate::llama::devices::{DeviceSelection, DeviceSplit};
use crate::llama::vocab::*;

pub(super) const NORMAL: i32 = 1;
pub(super) const UNKNOWN: i32 = 2;
pub(super) const CONTROL: i32 = 3;
pub(super) const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// A vocabulary as a file contains it.
pub(super) struct TestVocab {
    pub(super) kind: &'static str,
    pub(super) pre: String,
    texts: Vec<String>,
    pub(super) types: Vec<i32>,
    scores: Vec<f32>,
    merges: Vec<String>,
    /// Token ids by key, without `tokenizer.ggml.` and `_token_id`.
    ids: Vec<(&'static str, u32)>,
    /// Options by key, without `tokenizer.ggml.normalizer.`.
    pub(super) normalizer: Vec<(&'static str, bool)>,
}

impl TestVocab {
    pub(super) fn new(kind: &'static str, pre: &str) -> TestVocab {
        TestVocab {
            kind,
            pre: pre.to_owned(),
            texts: Vec::new(),
            types: Vec::new(),
            scores: Vec::new(),
            merges: Vec::new(),
            ids: Vec::new(),
            normalizer: Vec::new(),
        }
    }

    /// Adds a token unless the vocabulary already has it.
    pub(super) fn add(&mut self, text: &str, token_type: i32, score: f32) -> &mut Self {
        if !self.texts.iter().any(|known| known == text) {
            self.texts.push(text.to_owned());
            self.types.push(token_type);
            self.scores.push(score);
        }
        self
    }

    /// Adds a token that two others merge into.
    pub(super) fn merge(&mut self, left: &str, right: &str, token_type: i32) -> &mut Self {
        self.merges.push(format!("{left} {right}"));
        self.add(&format!("{left}{right}"), token_type, 1.0)
    }

    pub(super) fn role(&mut self, role: &'static str, text: &str) -> &mut Self {
        let token = self.texts.iter().position(|known| known == text).expect("a token");
        self.ids.push((role, token as u32));
        self
    }

    /// `<0x00>` to `<0xFF>`.
    pub(super) fn add_bytes(&mut self) -> &mut Self {
        (0..=255).for_each(|byte| {
            self.add(&format!("<0x{byte:02X}>"), BYTE, -1000.0);
        });
        self
    }

    /// The 256 characters that GPT-2 uses for bytes.
    pub(super) fn add_letters(&mut self) -> &mut Self {
        (0..=255).for_each(|byte| {
            self.add(&letter(byte).to_string(), NORMAL, 0.0);
        });
        self
    }

    pub(super) fn load(&self) -> LlamaVocab {
        let model = TestVocab::model(&self.file());
        LlamaVocab::new(Arc::new(model.unwrap_or_else(|error| panic!("{}: {error}", self.pre))))
    }

    /// A model file with this vocabulary.
    pub(super) fn file(&self) -> Vec<u8> {
        let n_vocab = self.texts.len() as u64;
        let zeros = vec![0.0_f32; 32 * n_vocab.max(32) as usize];
        let matrix = |rows: u64| &zeros[..(32 * rows) as usize];
        let mut writer = GgufWriter::new()
            .metadata("general.architecture", "llama")
            .metadata("general.name", "test")
            .metadata("llama.vocab_size", n_vocab as u32)
            .metadata("llama.context_length", 64_u32)
            .metadata("llama.embedding_length", 32_u32)
            .metadata("llama.block_count", 1_u32)
            .metadata("llama.feed_forward_length", 32_u32)
            .metadata("llama.attention.head_count", 1_u32)
            .metadata("llama.rope.dimension_count", 32_u32)
            .metadata("llama.attention.layer_norm_rms_epsilon", 1e-6_f32)
            .metadata("tokenizer.ggml.model", self.kind)
            .metadata("tokenizer.ggml.tokens", self.texts.clone())
            .metadata("tokenizer.ggml.token_type", self.types.clone())
            .metadata("tokenizer.ggml.scores", self.scores.clone())
            .metadata("tokenizer.ggml.merges", self.merges.clone());
        if !self.pre.is_empty() {
            writer = writer.metadata("tokenizer.ggml.pre", self.pre.as_str());
        }
        for (role, token) in &self.ids {
            writer = writer.metadata(format!("tokenizer.ggml.{role}_token_id"), *token);
        }
        for (option, value) in &self.normalizer {
            writer = writer.metadata(format!("tokenizer.ggml.normalizer.{option}"), *value);
        }
        for tensor in ["token_embd", "output"] {
            writer = writer.tensor(format!("{tensor}.weight"), &[32, n_vocab], matrix(n_vocab));
        }
        for tensor in ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"] {
            writer = writer.tensor(format!("{tensor}.weight"), &[32], matrix(1));
        }
        for tensor in
            ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
        {
            writer = writer.tensor(format!("blk.0.{tensor}.weight"), &[32, 32], matrix(32));
        }
        writer.to_bytes()
    }

    pub(super) fn model(bytes: &[u8]) -> Result<Model> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("a file");
        let options = ModelOptions {
            path: file.path().to_str().expect("a path").to_owned(),
            n_gpu_layers: Some(0),
            devices: DeviceSelection::Default,
            split: DeviceSplit::BY_LAYERS,
            n_cpu_moe: None,
            rules: Vec::new(),
            use_mmap: true,
            use_mlock: false,
            repacks: true,
            predicts: false,
        };
        Model::load(&options, &mut |_| true)
    }
}

/// The character for a byte in GPT-2's vocabulary.
pub(super) fn letter(byte: u8) -> char {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(&byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !printable(other)).count() as u32;
    char::from_u32(0x100 + before).expect("a letter")
}
