//! Vocabularies of every kind that llama.cpp supports, and their possible faults.

use llb::gguf::{GgufValue, ValueType};

use super::scripted::gguf_writer::GgufWriter;
use super::scripted::{PLAIN_TEMPLATE, letter};

/// The tokenizer metadata of a file.
#[derive(Clone)]
pub struct Vocabulary {
    pub keys: Vec<(String, GgufValue)>,
    /// Texts to replace in the finished file by other bytes of the same length.
    pub replaced: Vec<(String, Vec<u8>)>,
}

/// The number of tokens in every vocabulary here. The table of architectures has the same number,
/// except for the few architectures whose graphs need more (`Vocabulary::write`).
pub const N_TOKENS: usize = 263;

/// The type of tokens that are not in use.
const UNUSED: i32 = 5;

const SPECIAL: [&str; 7] =
    ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>", "<s>", "</s>", "<pad>"];

impl Vocabulary {
    /// One token for each byte, in GPT-2's letters, and seven control tokens.
    pub fn bytes() -> Vocabulary {
        let texts = (0..=255_u8).map(|byte| letter(byte).to_string());
        Vocabulary::of("gpt2", texts.collect(), 1)
            .with("tokenizer.ggml.pre", "gpt-2")
            .with("tokenizer.ggml.merges", vec!["a b".to_owned()])
    }

    /// A vocabulary of each kind of tokenizer.
    pub fn all() -> Vec<Vocabulary> {
        let bytes = || (0..=255_u8).map(|byte| format!("<0x{byte:02X}>")).collect::<Vec<_>>();
        let words = (0..=255_u8).map(|byte| match byte {
            b'!'..=b'~' => format!("\u{2581}{}", char::from(byte)),
            _ => format!("##{byte}"),
        });
        let escaped = (0..=255_u8).map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' => format!("'{}'", char::from(byte)),
            _ => format!("b'\\x{byte:02x}'"),
        });
        let scores = |length: usize| (0..length).map(|id| -(id as f32)).collect::<Vec<f32>>();
        vec![
            Vocabulary::bytes(),
            Vocabulary::of("llama", bytes(), 6).with("tokenizer.ggml.scores", scores(N_TOKENS)),
            Vocabulary::of("bert", words.collect(), 1),
            Vocabulary::of("t5", bytes(), 6).with("tokenizer.ggml.scores", scores(N_TOKENS)),
            Vocabulary::of("rwkv", escaped.collect(), 1),
            Vocabulary::of("plamo2", bytes(), 6).with("tokenizer.ggml.scores", scores(N_TOKENS)),
            Vocabulary::of(
                "gemma4",
                (0..=255_u8).map(|byte| letter(byte).to_string()).collect(),
                1,
            )
            .with("tokenizer.ggml.merges", vec!["a b".to_owned()]),
        ]
    }

    fn of(model: &str, mut texts: Vec<String>, kind: i32) -> Vocabulary {
        let mut types = vec![kind; texts.len()];
        texts.extend(SPECIAL.map(str::to_owned));
        types.resize(texts.len(), 3);
        assert_eq!(texts.len(), N_TOKENS);
        Vocabulary { keys: Vec::new(), replaced: Vec::new() }
            .with("tokenizer.ggml.model", model)
            .with("tokenizer.ggml.tokens", texts)
            .with("tokenizer.ggml.token_type", types)
            .with("tokenizer.ggml.bos_token_id", 256_u32)
            .with("tokenizer.ggml.eos_token_id", 258_u32)
            .with("tokenizer.ggml.unknown_token_id", 259_u32)
            .with("tokenizer.ggml.padding_token_id", 262_u32)
            .with("tokenizer.ggml.add_bos_token", false)
            .with("tokenizer.chat_template", PLAIN_TEMPLATE)
    }

    fn with(mut self, key: &str, value: impl Into<GgufValue>) -> Vocabulary {
        self.keys.push((key.to_owned(), value.into()));
        self
    }

    pub fn value(&mut self, key: &str) -> Option<&mut GgufValue> {
        self.keys.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub fn kind(&self) -> &str {
        match &self.keys[0].1 {
            GgufValue::String(kind) => kind,
            _ => "",
        }
    }

    /// Lists with an item for each token are extended to `n_tokens` by tokens that no text has.
    pub fn write(&self, mut writer: GgufWriter, n_tokens: usize) -> GgufWriter {
        for (key, value) in &self.keys {
            let mut value = value.clone();
            if let GgufValue::Array(element, items) = &mut value
                && items.len() == N_TOKENS
            {
                let item = |id: usize| match element {
                    ValueType::String => format!("'<|unused {id}|>'").into(),
                    ValueType::F32 => (-(id as f32)).into(),
                    ValueType::I32 => UNUSED.into(),
                    _ => items[0].clone(),
                };
                let more: Vec<GgufValue> = (N_TOKENS..n_tokens).map(item).collect();
                items.extend(more);
            }
            writer = writer.metadata(key, value);
        }
        writer
    }

    /// Inserts bytes that cannot be part of a text.
    pub fn finish(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        for (text, replacement) in &self.replaced {
            let at = bytes.windows(text.len()).position(|window| window == text.as_bytes());
            let at = at.expect("the text is in the file");
            bytes[at..at + text.len()].copy_from_slice(replacement);
        }
        bytes
    }
}

/// The faults of a vocabulary: the name of each, and the changed vocabulary.
pub fn faults(kind: &Vocabulary) -> Vec<(String, Vocabulary)> {
    let mut faults = Vec::new();
    let mut add = |name: String, change: &dyn Fn(&mut Vocabulary)| {
        let mut broken = kind.clone();
        change(&mut broken);
        faults.push((format!("{} vocabulary: {name}", kind.kind()), broken));
    };
    add("unchanged".to_owned(), &|_| ());
    for (index, (key, value)) in kind.keys.iter().enumerate() {
        let key = key.strip_prefix("tokenizer.").unwrap_or(key);
        add(format!("{key} missing"), &|it| drop(it.keys.remove(index)));
        for (name, other) in other_values(value) {
            add(format!("{key} {name}"), &|it| it.keys[index].1 = other.clone());
        }
    }
    for (key, value) in extra_keys() {
        add(format!("{key} added: {value:?}"), &|it| {
            it.keys.retain(|(name, _)| name != key);
            it.keys.push((key.to_owned(), value.clone()));
        });
    }
    let texts = "tokenizer.ggml.tokens";
    let mut set = |name: &str, id: usize, text: String| {
        add(format!("token {id} {name}"), &|it| {
            if let Some(GgufValue::Array(_, items)) = it.value(texts) {
                items[id] = text.clone().into();
            }
        });
    };
    for id in [0, 10, 97, 200, 256, 258, 262] {
        set("empty", id, String::new());
        set("duplicate", id, "<|im_start|>".to_owned());
        set("very long", id, "x".repeat(100_000));
        set("NUL", id, "a\0b".to_owned());
        set("only a quote", id, "'".to_owned());
        set("an escape without an end", id, "'\\x".to_owned());
        set("a byte without an end", id, "<0x".to_owned());
        set("a byte beyond", id, "<0xZZ>".to_owned());
        set("whitespace", id, " \n\t ".to_owned());
    }
    for (id, kind) in [(0, None), (97, None), (256, None), (97, Some(4)), (98, Some(4))] {
        let of_type = kind.map_or(String::new(), |kind| format!(", of type {kind}"));
        add(format!("token {id} not UTF-8{of_type}"), &|it| {
            if let Some(GgufValue::Array(_, items)) = it.value(texts) {
                items[id] = "\u{E000}\u{E001}\u{E002}".into();
            }
            if let (Some(kind), Some(GgufValue::Array(_, items))) =
                (kind, it.value("tokenizer.ggml.token_type"))
            {
                items[id] = GgufValue::from(kind);
            }
            let bytes = vec![0xFF, 0xFE, 0xC0, 0x80, 0xF8, 0x88, 0x80, 0x80, 0x80];
            it.replaced.push(("\u{E000}\u{E001}\u{E002}".to_owned(), bytes));
        });
    }
    faults
}

/// Other values for the same key, which differ in length, type or range.
fn other_values(value: &GgufValue) -> Vec<(&'static str, GgufValue)> {
    let mut others: Vec<(&'static str, GgufValue)> = vec![
        ("a text", "x".into()),
        ("a float", f32::NAN.into()),
        ("-1", (-1_i32).into()),
        ("an empty array", GgufValue::Array(ValueType::U8, Vec::new())),
    ];
    match value {
        GgufValue::U32(_) => {
            for (name, id) in [
                ("0", 0),
                ("the length", N_TOKENS as u32),
                ("huge", i32::MAX as u32),
                ("max", u32::MAX),
            ] {
                others.push((name, id.into()));
            }
            others.push(("64 bits", u64::MAX.into()));
        }
        GgufValue::Array(element, items) => {
            others.push(("short", GgufValue::Array(*element, items[..items.len() / 2].to_vec())));
            others.push(("one", GgufValue::Array(*element, items[..1].to_vec())));
            let twice = items.iter().chain(items).cloned().collect();
            others.push(("long", GgufValue::Array(*element, twice)));
            let same = vec![items[0].clone(); items.len()];
            others.push(("all the same", GgufValue::Array(*element, same)));
            match element {
                ValueType::I32 => {
                    for kind in [-1, 0, 1, 2, 3, 4, 5, 6, 7, i32::MAX] {
                        others.push(("of one type", vec![kind; items.len()].into()));
                    }
                    others.push(("of 8 bits", vec![1_u8; items.len()].into()));
                }
                ValueType::F32 => {
                    for score in [0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                        others.push(("of one score", vec![score; items.len()].into()));
                    }
                    others.push(("of 64 bits", vec![0.0_f64; items.len()].into()));
                    others.push(("of 8 bits", vec![1_u8; items.len()].into()));
                }
                _ => {
                    let none = vec![String::new(); items.len()];
                    others.push(("empty texts", none.into()));
                    others.push(("of numbers", vec![1_u32; items.len()].into()));
                    let spaces = vec![" ".to_owned(); items.len()];
                    others.push(("spaces", spaces.into()));
                }
            }
        }
        GgufValue::String(_) => {
            for name in [
                "",
                "gpt2",
                "llama",
                "bert",
                "t5",
                "rwkv",
                "plamo2",
                "gemma4",
                "hybriddna",
                "whitespace",
                "no_vocab",
                "none",
                "\u{FFFD}",
            ] {
                others.push(("another name", name.into()));
            }
        }
        _ => (),
    }
    others
}

/// Normalization rules of SentencePiece that replace the letter `i` by a text of this length.
fn replaced_letter(length: usize) -> Vec<u8> {
    const LETTER: u32 = b'i' as u32;
    // An entry has the letter, the mark of a leaf, and a base. From the root's base, 0, the letter
    // leads to entry LETTER. From there its base, 1, leads to the entry with the text's offset, 0.
    let mut table = vec![0_u32; 128];
    table[LETTER as usize] = LETTER | 1 << 8 | 1 << 10;
    let table: Vec<u8> = table.into_iter().flat_map(u32::to_le_bytes).collect();
    let size = (table.len() as u32).to_le_bytes();
    [size.as_slice(), &table, &vec![b'x'; length], &[0]].concat()
}

/// Keys that a vocabulary may have in addition.
fn extra_keys() -> Vec<(&'static str, GgufValue)> {
    let mut extra: Vec<(&'static str, GgufValue)> = Vec::new();
    for key in [
        "eot",
        "eom",
        "seperator",
        "mask",
        "cls",
        "prefix",
        "suffix",
        "middle",
        "fim_pre",
        "fim_pad",
    ] {
        for id in [0_u32, 97, N_TOKENS as u32, 0x7FFF_FFFF, u32::MAX] {
            let name: &'static str = format!("tokenizer.ggml.{key}_token_id").leak();
            extra.push((name, id.into()));
        }
    }
    for key in ["add_eos_token", "add_sep_token", "add_space_prefix", "remove_extra_whitespaces"] {
        let name: &'static str = format!("tokenizer.ggml.{key}").leak();
        extra.extend([(name, true.into()), (name, 1_u32.into())]);
    }
    for pre in [
        "default",
        "llama-bpe",
        "qwen2",
        "deepseek-llm",
        "chatglm-bpe",
        "tekken",
        "viking",
        "superbpe",
        "kimi-k2",
        "x",
    ] {
        extra.push(("tokenizer.ggml.pre", pre.into()));
    }
    for length in [0_usize, 1, 3, 4, 7, 8, 1024] {
        for byte in [0_u8, 1, 0xFF] {
            extra.push(("tokenizer.ggml.precompiled_charsmap", vec![byte; length].into()));
        }
    }
    for length in [16, 128, 129, 65_536, 1 << 20] {
        extra.push(("tokenizer.ggml.precompiled_charsmap", replaced_letter(length).into()));
    }
    for ids in [vec![], vec![0_u32], vec![N_TOKENS as u32], vec![u32::MAX]] {
        extra.push(("tokenizer.ggml.suppress_tokens", ids.into()));
    }
    extra.push(("tokenizer.ggml.suppress_tokens", vec![-1_i32].into()));
    for count in [0_u32, 1, u32::MAX] {
        extra.push(("tokenizer.ggml.token_type_count", count.into()));
    }
    extra
}
