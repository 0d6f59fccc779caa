//! Generated test models: tiny GGUF files whose greedy reply is a known text.
//!
//! In: a script, cut into pieces, and chat templates. Out: a file that llama.cpp loads, tokenises
//! with, and decodes. Its one block has zero weights, so the state after a token is that token's
//! embedding alone:
//!
//! - Dimension 0 is 1 for every token. From it the output derives a small preference for tokens
//!   that end things (`"`, `}`, `]`, the end of turn), so that constrained generation ends, and a
//!   small penalty for whitespace.
//! - One dimension for each scripted piece raises the next piece far above all others. The last
//!   piece raises the end of turn.
//! - One dimension for all other tokens, which end a prompt, raises the first piece.
//!
//! The vocabulary is byte-level BPE without merges. A prompt has one token per byte, except for
//! markers, and never contains a scripted piece. Pieces have at least two bytes and are all
//! different. `Model::to_bytes` asserts this, because duplicate token texts make llama.cpp end the
//! process. A marker (`<tool_call>`) may be a piece; it is then that special token.

#![allow(dead_code, unreachable_pub, reason = "each user of this module uses a part of it")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use llb::gguf::GgufValue;

use gguf_writer::GgufWriter;

pub mod agent;
pub mod encoder;
pub mod gguf_writer;
pub mod learned;
pub mod projector;
pub mod random;
pub mod reranker;

/// The reply of `text.gguf`, `no_tools.gguf`, `tool_use.gguf`, `no_template.gguf` and
/// `bad_template.gguf`.
pub const TEXT: &str = "Grüße aus Köln: naïve 東京, and an emoji 😀 cut in two.";
/// Its pieces. The cuts are inside ü, ß, ï, 京 and the emoji.
pub const TEXT_PIECES: &[&[u8]] = &[
    b"Gr\xC3",
    b"\xBC\xC3",
    b"\x9Fe aus",
    b" K\xC3\xB6ln:",
    b" na\xC3",
    b"\xAFve",
    b" \xE6\x9D\xB1\xE4",
    b"\xBA\xAC,",
    b" and an",
    b" emoji \xF0\x9F",
    b"\x98\x80 cut",
    b" in two.",
];

/// The reply of `tool_call.gguf`.
pub const TOOL_CALL: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
pub const TOOL_CALL_PIECES: &[&[u8]] = &[
    b"<tool_call>",
    b"\n{\"",
    b"name",
    b"\": \"",
    b"get_",
    b"weather\",",
    b" \"arg",
    b"uments\":",
    b" {\"city",
    b"\": \"Par",
    b"is\"",
    b"}}\n",
    b"</tool_call>",
];

/// The reply of `reasoning.gguf`: the reasoning, and the text after it.
pub const REASONING: [&str; 2] = ["One, two, drei fünf, six.", "The answer."];
/// The third piece ends inside ü.
pub const REASONING_PIECES: &[&[u8]] = &[
    b"<think>",
    b"\nOne, two,",
    b" drei f\xC3",
    b"\xBCnf,",
    b" six.\n",
    b"</think>",
    b"\n\nThe",
    b" answer.",
];

/// `long.gguf` counts up to this number.
pub const LONG_COUNT: usize = 300;
/// Tokens in the reply of `long.gguf`, without the end of turn.
pub const LONG_TOKENS: usize = LONG_COUNT + 2;

/// The reply of `long.gguf`: `Counting: 1 2 3 … 300 done.`
pub fn long_text() -> String {
    long_pieces().concat()
}

pub fn long_pieces() -> Vec<String> {
    let numbers = (1..=LONG_COUNT).map(|number| format!(" {number}"));
    std::iter::once("Counting:".to_owned())
        .chain(numbers)
        .chain(std::iter::once(" done.".to_owned()))
        .collect()
}

/// The context length that the models state.
pub const N_CTX: u32 = 2048;

/// ChatML with tools in the style of Hermes.
pub const TOOLS_TEMPLATE: &str = include_str!("tools.jinja").trim_ascii_end();
/// ChatML without tools.
pub const PLAIN_TEMPLATE: &str = include_str!("plain.jinja").trim_ascii_end();
/// A template with a Jinja error.
pub const BAD_TEMPLATE: &str = "{% for message in messages %}{{ message.content }";

pub const BOS: &str = "<|endoftext|>";
const TURN_START: &str = "<|im_start|>";
pub const TURN_END: &str = "<|im_end|>";
/// Special tokens, whose ids follow those of the bytes, and their types: 3 is control, 4 is user-defined.
pub const MARKERS: [(&str, i32); 7] = [
    (BOS, 3),
    (TURN_START, 3),
    (TURN_END, 3),
    ("<tool_call>", 4),
    ("</tool_call>", 4),
    ("<think>", 4),
    ("</think>", 4),
];

/// Logit of the scripted token. All others are lower by at least `SCRIPT_LOGIT - END_LOGIT`.
const SCRIPT_LOGIT: f32 = 60.0;
const END_LOGIT: f32 = 24.0;
/// Byte tokens with a preference or a penalty after any token. In a JSON string `}` is text, so `"`
/// must have the larger preference.
const BYTE_LOGITS: [(u8, f32); 9] = [
    (b'"', 20.0),
    (b'}', 16.0),
    (b']', 16.0),
    (b',', 8.0),
    (b':', 8.0),
    (b' ', -20.0),
    (b'\n', -20.0),
    (b'\t', -20.0),
    (b'\r', -20.0),
];

/// Head size: rotations need an even number, a quantised cache a multiple of 32.
const HEAD_LENGTH: u64 = 32;
const N_FF: u64 = 32;

/// The specification of a model.
pub struct Model {
    /// `general.name`.
    pub name: String,
    /// The script.
    pub pieces: Vec<Vec<u8>>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
    /// `tokenizer.chat_template.tool_use`.
    pub tool_use_template: Option<String>,
    /// `llama.context_length`.
    pub n_ctx: u32,
    /// `tokenizer.ggml.model`. Under a name other than `gpt2` the vocabulary stays as it is, and
    /// lacks what such a tokenizer needs.
    pub tokenizer: &'static str,
    /// The order of generated pieces, as indices into `pieces`. Other pieces are never generated.
    /// Two models with the same pieces have the same vocabulary, whatever their order.
    pub order: Vec<usize>,
    /// The piece that follows the last one instead of the end of turn, as an index into `pieces`.
    /// The reply then never ends.
    pub continues_with: Option<usize>,
    /// The piece that is followed by another one than by `order`, and that one, as indices into
    /// `pieces`: the reply goes round in a circle unless something else leads it out.
    pub turns_back: Option<(usize, usize)>,
    /// Pieces that are followed by the end of turn, as indices into `pieces`.
    pub ends: Vec<usize>,
    /// The pieces that are control tokens, besides the markers of every vocabulary.
    pub controls: Vec<String>,
    /// Further metadata.
    pub metadata: Vec<(String, GgufValue)>,
    /// A layer that predicts a further token.
    pub predicting: Predicting,
}

/// A layer that predicts the token after the next one. It computes with the embedding of the next
/// token alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predicting {
    /// The file has none.
    None,
    /// It predicts what the model generates.
    Right,
    /// It predicts what the model generates after another token.
    Wrong,
}

impl Model {
    /// A model that replies with these pieces and has one chat template.
    pub fn new(
        name: &str,
        pieces: impl IntoIterator<Item = impl AsRef<[u8]>>,
        chat_template: Option<&str>,
    ) -> Model {
        let pieces: Vec<Vec<u8>> =
            pieces.into_iter().map(|piece| piece.as_ref().to_vec()).collect();
        Model {
            name: name.to_owned(),
            order: (0..pieces.len()).collect(),
            continues_with: None,
            turns_back: None,
            ends: Vec::new(),
            pieces,
            chat_template: chat_template.map(str::to_owned),
            tool_use_template: None,
            n_ctx: N_CTX,
            tokenizer: "gpt2",
            controls: Vec::new(),
            metadata: Vec::new(),
            predicting: Predicting::None,
        }
    }

    /// Builds the file.
    ///
    /// # Panics
    /// If there is no piece, a piece has less than two bytes, or a piece occurs twice.
    pub fn to_bytes(&self) -> Vec<u8> {
        let vocabulary = Vocabulary::with_controls(&self.pieces, &self.controls);
        let (n_script, n_vocab) = (self.pieces.len(), vocabulary.texts.len());
        // Dimension 0: all tokens; 1..=n_script: the pieces; n_script + 1: all other tokens.
        let n_embd = (n_script + 2).next_multiple_of(32);
        let other = n_script + 1;
        let mut embedding = vec![0.0_f32; n_vocab * n_embd];
        for row in embedding.chunks_exact_mut(n_embd) {
            row[0] = 1.0;
            row[other] = 1.0;
        }
        for (position, token) in vocabulary.script.iter().enumerate() {
            embedding[token * n_embd + other] = 0.0;
            embedding[token * n_embd + position + 1] = 1.0;
        }
        // Two ones among n_embd numbers: the norm before the output scales each to this.
        let scale = (n_embd as f32 / 2.0).sqrt();
        let mut output = vec![0.0_f32; n_vocab * n_embd];
        let mut put = |token: usize, dimension: usize, logit: f32| {
            output[token * n_embd + dimension] = logit / scale
        };
        for (byte, logit) in BYTE_LOGITS {
            put(usize::from(byte), 0, logit);
        }
        put(vocabulary.turn_end, 0, END_LOGIT);
        let states = std::iter::once(other).chain(self.order.iter().map(|index| index + 1));
        let last =
            self.continues_with.map_or(vocabulary.turn_end, |index| vocabulary.script[index]);
        let lifted =
            self.order.iter().map(|index| vocabulary.script[*index]).chain(std::iter::once(last));
        for (state, token) in states.zip(lifted) {
            if self.ends.iter().any(|index| state == index + 1) {
                put(vocabulary.turn_end, state, SCRIPT_LOGIT);
                continue;
            }
            match self.turns_back.filter(|(from, _)| state == from + 1) {
                Some((_, to)) => put(vocabulary.script[to], state, SCRIPT_LOGIT),
                None => put(token, state, SCRIPT_LOGIT),
            }
        }
        self.file(&vocabulary, n_embd as u64, &embedding, &output)
    }

    /// A LoRA adapter for this model. Applied at a scale above one half, it makes the piece `to`
    /// follow the piece `from`, both indices into `pieces`. It changes only the output weights,
    /// with rank 1.
    pub fn adapter(&self, from: usize, to: usize) -> Adapter {
        let vocabulary = Vocabulary::of(&self.pieces);
        let n_embd = (self.pieces.len() + 2).next_multiple_of(32);
        let mut a = vec![0.0; n_embd];
        a[from + 1] = 1.0;
        let mut b = vec![0.0; vocabulary.texts.len()];
        b[vocabulary.script[to]] = 2.0 * SCRIPT_LOGIT / (n_embd as f32 / 2.0).sqrt();
        Adapter {
            kind: "adapter",
            architecture: "llama",
            weight: "output.weight",
            a,
            b,
            alpha: Some(1.0),
            extra: None,
        }
    }

    fn file(
        &self,
        vocabulary: &Vocabulary,
        n_embd: u64,
        embedding: &[f32],
        output: &[f32],
    ) -> Vec<u8> {
        let n_vocab = vocabulary.texts.len() as u64;
        let zeros = vec![0.0_f32; (n_embd * HEAD_LENGTH.max(N_FF)) as usize];
        let ones = vec![1.0_f32; n_embd as usize];
        let matrix = |rows: u64| &zeros[..(n_embd * rows) as usize];
        // hy_v3 is a llama with norms of heads, and with layers that predict further tokens.
        let predicts = self.predicting != Predicting::None;
        let architecture = if predicts { "hy_v3" } else { "llama" };
        let own = |key: &str| format!("{architecture}.{key}");
        let mut writer = GgufWriter::new()
            .metadata("general.architecture", architecture)
            .metadata("general.name", self.name.as_str())
            .metadata("general.license", "mit")
            .metadata("general.file_type", 0_u32)
            .metadata(own("vocab_size"), n_vocab as u32)
            .metadata(own("context_length"), self.n_ctx)
            .metadata(own("embedding_length"), n_embd as u32)
            .metadata(own("block_count"), if predicts { 2_u32 } else { 1 })
            .metadata(own("feed_forward_length"), N_FF as u32)
            .metadata(own("attention.head_count"), 1_u32)
            .metadata(own("attention.head_count_kv"), 1_u32)
            .metadata(own("attention.key_length"), HEAD_LENGTH as u32)
            .metadata(own("attention.value_length"), HEAD_LENGTH as u32)
            .metadata(own("rope.dimension_count"), HEAD_LENGTH as u32)
            .metadata(own("attention.layer_norm_rms_epsilon"), 1e-6_f32);
        if predicts {
            writer = writer
                .metadata(own("expert_feed_forward_length"), N_FF as u32)
                .metadata(own("nextn_predict_layers"), 1_u32);
        }
        writer = vocabulary
            .write(writer, self.tokenizer)
            .metadata("tokenizer.ggml.padding_token_id", vocabulary.bos as u32);
        if let Some(template) = &self.chat_template {
            writer = writer.metadata("tokenizer.chat_template", template.as_str());
        }
        if let Some(template) = &self.tool_use_template {
            writer = writer.metadata("tokenizer.chat_template.tool_use", template.as_str());
        }
        let further = self.metadata.iter().cloned();
        writer = further.fold(writer, |writer, (key, value)| writer.metadata(key, value));
        writer = writer.tensor("token_embd.weight", &[n_embd, n_vocab], embedding);
        for block in 0..if predicts { 2 } else { 1 } {
            let name = |tensor: &str| format!("blk.{block}.{tensor}.weight");
            writer = writer
                .tensor(name("attn_norm"), &[n_embd], &ones)
                .tensor(name("attn_q"), &[n_embd, HEAD_LENGTH], matrix(HEAD_LENGTH))
                .tensor(name("attn_k"), &[n_embd, HEAD_LENGTH], matrix(HEAD_LENGTH))
                .tensor(name("attn_v"), &[n_embd, HEAD_LENGTH], matrix(HEAD_LENGTH))
                .tensor(name("attn_output"), &[HEAD_LENGTH, n_embd], matrix(HEAD_LENGTH))
                .tensor(name("ffn_norm"), &[n_embd], &ones)
                .tensor(name("ffn_gate"), &[n_embd, N_FF], matrix(N_FF))
                .tensor(name("ffn_up"), &[n_embd, N_FF], matrix(N_FF))
                .tensor(name("ffn_down"), &[N_FF, n_embd], matrix(N_FF));
            if predicts {
                let ones = &ones[..HEAD_LENGTH as usize];
                writer = writer.tensor(name("attn_q_norm"), &[HEAD_LENGTH], ones).tensor(
                    name("attn_k_norm"),
                    &[HEAD_LENGTH],
                    ones,
                );
            }
        }
        if predicts {
            // The first half of its input is the embedding, the second one the hidden state.
            let from = usize::from(self.predicting == Predicting::Wrong);
            let mut projection = vec![0.0; 2 * (n_embd * n_embd) as usize];
            for (row, columns) in projection.chunks_exact_mut(2 * n_embd as usize).enumerate() {
                columns[(row + from) % n_embd as usize] = 1.0;
            }
            writer = writer
                .tensor("blk.1.nextn.eh_proj.weight", &[2 * n_embd, n_embd], &projection)
                .tensor("blk.1.nextn.enorm.weight", &[n_embd], &ones)
                .tensor("blk.1.nextn.hnorm.weight", &[n_embd], &ones);
        }
        writer
            .tensor("output_norm.weight", &[n_embd], &ones)
            .tensor("output.weight", &[n_embd, n_vocab], output)
            .to_bytes()
    }
}

/// The specification of a LoRA adapter of rank 1.
pub struct Adapter {
    /// `general.type`.
    pub kind: &'static str,
    /// `general.architecture`.
    pub architecture: &'static str,
    /// The tensor that it changes.
    pub weight: &'static str,
    /// One for each column of the weight.
    pub a: Vec<f32>,
    /// One for each row.
    pub b: Vec<f32>,
    /// `adapter.lora.alpha`; None writes a text instead of a number.
    pub alpha: Option<f32>,
    /// A further tensor: name, shape, type number and bytes.
    pub extra: Option<(&'static str, Vec<u64>, u32, Vec<u8>)>,
}

impl Adapter {
    /// Builds the file with two copies of both tensors along a third dimension, which no weight of
    /// these models has.
    pub fn stacked(&self) -> Vec<u8> {
        let twice = |elements: &[f32]| [elements, elements].concat();
        let doubled = Adapter { a: twice(&self.a), b: twice(&self.b), extra: None, ..*self };
        doubled.file([&[self.a.len() as u64, 1, 2], &[1, self.b.len() as u64, 2]])
    }

    /// Builds the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.file([&[self.a.len() as u64, 1], &[1, self.b.len() as u64]])
    }

    fn file(&self, [a, b]: [&[u64]; 2]) -> Vec<u8> {
        let writer = GgufWriter::new()
            .metadata("general.type", self.kind)
            .metadata("general.architecture", self.architecture)
            .metadata("adapter.type", "lora");
        let writer = match self.alpha {
            Some(alpha) => writer.metadata("adapter.lora.alpha", alpha),
            None => writer.metadata("adapter.lora.alpha", "one"),
        };
        let writer = writer.tensor(format!("{}.lora_a", self.weight), a, &self.a).tensor(
            format!("{}.lora_b", self.weight),
            b,
            &self.b,
        );
        match &self.extra {
            Some((name, shape, number, bytes)) => {
                writer.tensor_bytes(*name, shape, *number, bytes.clone())
            }
            None => writer,
        }
        .to_bytes()
    }
}

/// Token texts as a byte-level tokenizer stores them: 256 bytes (token id = byte), the markers, the
/// pieces.
struct Vocabulary {
    texts: Vec<String>,
    types: Vec<i32>,
    bos: usize,
    turn_end: usize,
    /// Token ids of the script.
    script: Vec<usize>,
}

impl Vocabulary {
    /// Adds the tokenizer to a model's metadata.
    fn write(&self, writer: GgufWriter, tokenizer: &str) -> GgufWriter {
        writer
            .metadata("tokenizer.ggml.model", tokenizer)
            .metadata("tokenizer.ggml.pre", "gpt-2")
            .metadata("tokenizer.ggml.tokens", self.texts.clone())
            .metadata("tokenizer.ggml.token_type", self.types.clone())
            .metadata("tokenizer.ggml.merges", Vec::<String>::new())
            .metadata("tokenizer.ggml.bos_token_id", self.bos as u32)
            .metadata("tokenizer.ggml.eos_token_id", self.turn_end as u32)
            .metadata("tokenizer.ggml.add_bos_token", false)
    }

    fn of(pieces: &[Vec<u8>]) -> Vocabulary {
        Vocabulary::with_controls(pieces, &[])
    }

    fn with_controls(pieces: &[Vec<u8>], controls: &[String]) -> Vocabulary {
        assert!(!pieces.is_empty(), "a script needs a piece");
        let mut texts: Vec<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
        let mut types = vec![1; texts.len()];
        for (text, token_type) in MARKERS {
            texts.push(text.to_owned());
            types.push(token_type);
        }
        let marker = |text: &str| {
            MARKERS.iter().position(|(marker, _)| *marker == text).map(|index| 256 + index)
        };
        let mut script = Vec::new();
        for piece in pieces {
            assert!(
                piece.len() >= 2,
                "piece {:?} is shorter than two bytes",
                piece.escape_ascii().to_string()
            );
            let text: String = piece.iter().map(|byte| letter(*byte)).collect();
            let token = marker(&text).unwrap_or(texts.len());
            let used = script.contains(&token) || token == texts.len() && texts.contains(&text);
            assert!(!used, "piece {:?} occurs twice", piece.escape_ascii().to_string());
            if token == texts.len() {
                types.push(if controls.contains(&text) { 3 } else { 1 });
                texts.push(text);
            }
            script.push(token);
        }
        let known = |text| marker(text).expect("the marker is in the table");
        Vocabulary { bos: known(BOS), turn_end: known(TURN_END), texts, types, script }
    }
}

/// The character for a byte in GPT-2's vocabulary: printable Latin-1 characters are themselves, the
/// rest follows from U+0100 on in order.
pub fn letter(byte: u8) -> char {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(&byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !printable(other)).count() as u32;
    char::from_u32(0x100 + before).expect("68 letters from U+0100 exist")
}

/// `text.gguf`: replies with `TEXT`; its template supports tools.
pub fn text_model() -> Model {
    Model::new("Scripted text", TEXT_PIECES, Some(TOOLS_TEMPLATE))
}

/// Replies with `TEXT`; its template supports tools.
pub fn text() -> Vec<u8> {
    text_model().to_bytes()
}

/// Replies with `TOOL_CALL`; its template supports tools.
pub fn tool_call() -> Vec<u8> {
    Model::new("Scripted tool call", TOOL_CALL_PIECES, Some(TOOLS_TEMPLATE)).to_bytes()
}

/// Replies with `REASONING`; its template supports tools.
pub fn reasoning() -> Vec<u8> {
    Model::new("Scripted reasoning", REASONING_PIECES, Some(TOOLS_TEMPLATE)).to_bytes()
}

/// Replies with `long_text()`; its template supports tools.
pub fn long() -> Vec<u8> {
    Model::new("Scripted long text", long_pieces(), Some(TOOLS_TEMPLATE)).to_bytes()
}

/// Replies with `TEXT`; its template ignores tools.
pub fn no_tools() -> Vec<u8> {
    Model::new("Scripted without tools", TEXT_PIECES, Some(PLAIN_TEMPLATE)).to_bytes()
}

/// Replies with `TEXT`; only its second template, `tool_use`, supports tools.
pub fn tool_use() -> Vec<u8> {
    let mut model = Model::new("Scripted tool use", TEXT_PIECES, Some(PLAIN_TEMPLATE));
    model.tool_use_template = Some(TOOLS_TEMPLATE.to_owned());
    model.to_bytes()
}

/// Replies with `TEXT`; has no template.
pub fn no_template() -> Vec<u8> {
    Model::new("Scripted without template", TEXT_PIECES, None).to_bytes()
}

/// Replies with `TEXT`; its template is not valid Jinja.
pub fn bad_template() -> Vec<u8> {
    Model::new("Scripted bad template", TEXT_PIECES, Some(BAD_TEMPLATE)).to_bytes()
}

/// `text()`, truncated in the middle of its tensor data.
pub fn truncated() -> Vec<u8> {
    let mut bytes = text();
    bytes.truncate(bytes.len() / 2);
    bytes
}

/// A chat model with random weights.
fn random_dense() -> Vec<u8> {
    random::random(random::Memory::Dense)
}

/// A file name and the function that builds the file.
type Made = (&'static str, fn() -> Vec<u8>);

/// All models by file name.
pub const MODELS: [Made; 14] = [
    ("text.gguf", text),
    ("tool_call.gguf", tool_call),
    ("reasoning.gguf", reasoning),
    ("long.gguf", long),
    ("no_tools.gguf", no_tools),
    ("tool_use.gguf", tool_use),
    ("no_template.gguf", no_template),
    ("bad_template.gguf", bad_template),
    ("truncated.gguf", truncated),
    ("embedding.gguf", encoder::embedding),
    ("reranker.gguf", encoder::reranker),
    ("decoder_reranker.gguf", reranker::decoder),
    ("random.gguf", random_dense),
    ("agent.gguf", agent::agent),
];

/// Writes all models into a directory, which is created if necessary.
///
/// # Errors
/// Any error of the file system.
pub fn write_all(dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    let write = |(name, bytes): &Made| {
        let path = dir.join(name);
        fs::write(&path, bytes())?;
        Ok(path)
    };
    MODELS.iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use llb::gguf::ModelHeader;

    use super::*;

    #[test]
    fn pieces_spell_the_texts() {
        assert_eq!(String::from_utf8(TEXT_PIECES.concat()).unwrap(), TEXT);
        assert_eq!(String::from_utf8(TOOL_CALL_PIECES.concat()).unwrap(), TOOL_CALL);
        let reasoning = format!("<think>\n{}\n</think>\n\n{}", REASONING[0], REASONING[1]);
        assert_eq!(String::from_utf8(REASONING_PIECES.concat()).unwrap(), reasoning);
        assert!(TEXT_PIECES.iter().any(|piece| str::from_utf8(piece).is_err()));
        assert_eq!(long_pieces().len(), LONG_TOKENS);
        assert!(long_text().starts_with("Counting: 1 2 3 ") && long_text().ends_with(" 300 done."));
    }

    #[test]
    fn letters_are_those_of_gpt2() {
        let pairs = [
            (b' ', 'Ġ'),
            (b'\n', 'Ċ'),
            (b'a', 'a'),
            (0, 'Ā'),
            (0x7F, 'ġ'),
            (0xAD, 'Ń'),
            (0xC3, 'Ã'),
        ];
        pairs.iter().for_each(|(byte, expected)| assert_eq!(letter(*byte), *expected));
    }

    #[test]
    #[should_panic(expected = "occurs twice")]
    fn a_piece_cannot_occur_twice() {
        Model::new("x", ["ab", "cd", "ab"], None).to_bytes();
    }

    #[test]
    #[should_panic(expected = "shorter than two bytes")]
    fn a_piece_cannot_be_a_byte() {
        Model::new("x", ["a"], None).to_bytes();
    }

    #[test]
    fn every_model_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let paths = write_all(dir.path()).unwrap();
        assert_eq!(paths.len(), MODELS.len());
        for path in paths {
            let file_name = path.file_name().unwrap().to_str().unwrap();
            let header = ModelHeader::read_file(&path).unwrap();
            if header.name().unwrap().starts_with("Random") {
                let makes_text = header.architecture() == "llama";
                assert_eq!(header.pooling().unwrap().is_none(), makes_text, "{file_name}");
                continue;
            }
            assert!(header.file_size() < 2_000_000, "{file_name}: {}", header.file_size());
            assert_eq!(header.architecture(), "llama", "{file_name}");
            assert_eq!(
                (header.bos_token(), header.eos_token()),
                (Some(BOS), Some(TURN_END)),
                "{file_name}"
            );
            assert_eq!(
                header.context_length(),
                Some(if file_name == "agent.gguf" { 1 << 18 } else { 2048 }),
                "{file_name}"
            );
            assert_eq!(
                (header.quantization().as_str(), header.n_tensors()),
                ("F32", 12),
                "{file_name}"
            );
            assert_eq!(header.kv_bytes_per_token(2.0, 2.0), Some(128), "{file_name}");
            let problems: Vec<_> =
                header.diagnostics().iter().map(|problem| problem.code).collect();
            let (templates, expected): (&[&str], &[&str]) = match file_name {
                "no_template.gguf" => (&[], &[]),
                "tool_use.gguf" => (&["default", "tool_use"], &[]),
                "truncated.gguf" => (&["default"], &["file_truncated"]),
                _ => (&["default"], &[]),
            };
            assert_eq!(
                (header.template_names(), problems.as_slice()),
                (templates.to_vec(), expected),
                "{file_name}"
            );
        }
    }
}
