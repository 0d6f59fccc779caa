//! The key-value table of a GGUF file.
//!
//! In: a cursor after the counts. Out: scalars, strings, short arrays of integers or flags and the
//! word lists of `general.` by key, and the offsets of the token texts. Long arrays and long strings
//! are skipped.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use super::reader::{Cursor, invalid};
use super::value::{GgufValue, ValueType};
use crate::error::Result;

/// The maximum number of entries. Known files have fewer than a hundred.
const MAX_ENTRIES: u64 = 16_384;
/// The format's own limit.
const MAX_KEY_BYTES: u64 = 65_535;
/// The maximum size of keys, kept strings and kept arrays in bytes. The largest known chat template
/// has 40 kB.
const MAX_KEPT_BYTES: u64 = 8 * 1024 * 1024;
/// The maximum size of a kept string that is not a chat template. Some converters store a whole
/// tokenizer.json.
const MAX_OTHER_STRING_BYTES: u64 = 64 * 1024;
/// The keys of the vocabulary that llama.cpp reads. Their strings are names.
const VOCABULARY_PREFIX: &str = "tokenizer.ggml.";
const MAX_VOCABULARY_STRING_BYTES: u64 = 1024;
/// The general keys that are names.
const GENERAL_NAMES: [&str; 2] = ["general.architecture", "general.type"];
/// The maximum length of a kept array. Longer arrays do not have one value per layer.
const MAX_KEPT_ARRAY: u64 = 1_024;
/// The prefix of string arrays that are kept. They are lists of words: tags, languages, datasets.
const WORDS_PREFIX: &str = "general.";
const MAX_WORDS: u64 = 64;
const MAX_WORD_BYTES: u64 = 256;
/// The maximum size of string arrays, which must be read element by element. Vocabulary and merges
/// of the largest models take 12 MB.
const MAX_WALKED_BYTES: u64 = 64 * 1024 * 1024;
/// The offset of every 256th token text is kept.
const CHECKPOINT_EVERY: u64 = 256;

/// The key of the array with the type of each token.
const TYPES_KEY: &str = "tokenizer.ggml.token_type";
/// llama.cpp's `LLAMA_TOKEN_TYPE_CONTROL`.
pub(crate) const CONTROL: u32 = 3;
/// llama.cpp's `LLAMA_TOKEN_TYPE_USER_DEFINED`.
pub(crate) const USER_DEFINED: u32 = 4;
const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
/// The key of SentencePiece's normalization rules.
pub(crate) const CHARSMAP_KEY: &str = "tokenizer.ggml.precompiled_charsmap";
const TEMPLATE_KEY: &str = "tokenizer.chat_template";

/// The offsets of the token texts.
struct Tokens {
    count: u64,
    /// The offsets of the elements 0, 256, 512, …
    checkpoints: Vec<u64>,
    lengths: TokenLengths,
}

/// Sums over the lengths of all tokens in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TokenLengths {
    pub(super) longest: u64,
    pub(super) sum: u64,
    pub(super) squares: u128,
    pub(super) cubes: u128,
}

impl TokenLengths {
    #[inline]
    pub(super) fn add(&mut self, length: u64) {
        self.longest = self.longest.max(length);
        self.sum = self.sum.saturating_add(length);
        let length = u128::from(length);
        self.squares = self.squares.saturating_add(length.saturating_mul(length));
        self.cubes = self.cubes.saturating_add(length.saturating_pow(3));
    }
}

/// The key-value table of a file.
pub(crate) struct Metadata {
    /// The value of each key; `None` for a value that was skipped.
    entries: BTreeMap<String, Option<GgufValue>>,
    tokens: Option<Tokens>,
    /// The offset of the token types, and the number of tokens.
    types: Option<(u64, u64)>,
    /// The offset and the number of bytes of the normalization rules.
    charsmap: Option<(u64, u64)>,
}

impl Metadata {
    /// Reads `count` entries.
    pub(crate) fn read<R: Read + Seek>(cursor: &mut Cursor<R>, count: u64) -> Result<Metadata> {
        if count > MAX_ENTRIES {
            return Err(invalid(
                cursor.offset(),
                format_args!(
                    "the file claims {count} metadata entries, more than the limit of {MAX_ENTRIES}"
                ),
            ));
        }
        let mut table =
            Metadata { entries: BTreeMap::new(), tokens: None, types: None, charsmap: None };
        let mut budget = ReadBudget { kept: MAX_KEPT_BYTES, walked: MAX_WALKED_BYTES };
        for _ in 0..count {
            let at = cursor.offset();
            let length = cursor.length(MAX_KEY_BYTES, "a metadata key")?;
            if length == 0 {
                return Err(invalid(at, "a metadata key is empty"));
            }
            budget.keep(length, at)?;
            let key = cursor.name(length, "a metadata key")?;
            if table.entries.contains_key(&key) {
                return Err(invalid(at, format_args!("metadata key {key:?} occurs twice")));
            }
            let value = table.value(cursor, &key, &mut budget)?;
            table.entries.insert(key, value);
        }
        Ok(table)
    }

    fn value<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        key: &str,
        budget: &mut ReadBudget,
    ) -> Result<Option<GgufValue>> {
        match ValueType::read(cursor, key)? {
            ValueType::Array => self.array(cursor, key, budget),
            ValueType::String => string(cursor, key, budget),
            scalar => GgufValue::read_scalar(cursor, scalar, key).map(Some),
        }
    }

    fn array<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        key: &str,
        budget: &mut ReadBudget,
    ) -> Result<Option<GgufValue>> {
        let at = cursor.offset();
        let element = ValueType::read(cursor, key)?;
        let count = cursor.u64(key)?;
        // A string takes at least the size of its length field.
        let total = count
            .checked_mul(element.bytes().unwrap_or(8))
            .filter(|total| *total <= cursor.remaining());
        let Some(total) = total else {
            return Err(invalid(
                at,
                format_args!(
                    "array {key:?} claims {count} elements, which do not fit in the remaining {} bytes",
                    cursor.remaining()
                ),
            ));
        };
        match element {
            ValueType::Array => Err(invalid(
                at,
                format_args!("array {key:?} has arrays as elements, which no reader supports"),
            )),
            ValueType::String if key.starts_with(WORDS_PREFIX) => {
                words(cursor, key, count, budget).map(Some)
            }
            ValueType::String => {
                let tokens = walk_strings(cursor, key, count, budget)?;
                if key == TOKENS_KEY {
                    self.tokens = Some(tokens);
                }
                Ok(None)
            }
            _ if element == ValueType::I32 && key == TYPES_KEY => {
                self.types = Some((cursor.offset(), count));
                cursor.skip(total, key).map(|()| None)
            }
            _ if element.bytes() == Some(1) && key == CHARSMAP_KEY => {
                self.charsmap = Some((cursor.offset(), count));
                cursor.skip(total, key).map(|()| None)
            }
            _ if (element.is_integer() || element == ValueType::Bool)
                && count <= MAX_KEPT_ARRAY =>
            {
                budget.keep(count * size_of::<GgufValue>() as u64, at)?;
                let item = |_| GgufValue::read_scalar(cursor, element, key);
                let items = (0..count).map(item).collect::<Result<_>>()?;
                Ok(Some(GgufValue::Array(element, items)))
            }
            _ => cursor.skip(total, key).map(|()| None),
        }
    }

    /// The value of a key, if it was kept.
    pub(crate) fn get(&self, key: &str) -> Option<&GgufValue> {
        self.entries.get(key)?.as_ref()
    }

    /// The keys that begin with `prefix`, in alphabetical order.
    pub(crate) fn keys<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.entries.keys().map(String::as_str).filter(move |key| key.starts_with(prefix))
    }

    /// Whether the key exists, even if its value was skipped.
    pub(crate) fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    pub(crate) fn str(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// The names of the chat templates that are strings: `default` first, then the others in
    /// alphabetical order.
    pub(crate) fn template_names(&self) -> Vec<&str> {
        let default = self.str(TEMPLATE_KEY).map(|_| "default");
        let others = self.entries.iter().filter_map(|(key, value)| {
            value.as_ref()?.as_str()?;
            key.strip_prefix(TEMPLATE_KEY)?.strip_prefix('.').filter(|name| !name.is_empty())
        });
        default.into_iter().chain(others).collect()
    }

    /// The number of token texts; `None` without a vocabulary.
    pub(crate) fn n_tokens(&self) -> Option<u64> {
        self.tokens.as_ref().map(|tokens| tokens.count)
    }

    /// Seeks back and reads the text of one token; `None` outside the vocabulary.
    pub(crate) fn token<R: Read + Seek>(
        &self,
        cursor: &mut Cursor<R>,
        id: u64,
    ) -> Result<Option<String>> {
        let Some(tokens) = self.tokens.as_ref().filter(|tokens| id < tokens.count) else {
            return Ok(None);
        };
        let Some(&checkpoint) =
            usize::try_from(id / CHECKPOINT_EVERY).ok().and_then(|i| tokens.checkpoints.get(i))
        else {
            return Ok(None);
        };
        cursor.seek_to(checkpoint);
        for _ in 0..id % CHECKPOINT_EVERY {
            let length = cursor.u64(TOKENS_KEY)?;
            cursor.skip(length, TOKENS_KEY)?;
        }
        let length = cursor.length(MAX_OTHER_STRING_BYTES, "a token text")?;
        cursor.text(length, "a token text").map(Some)
    }

    /// Statistics of the lengths of the token texts; `None` without a vocabulary.
    pub(crate) fn token_lengths(&self) -> Option<TokenLengths> {
        self.tokens.as_ref().map(|tokens| tokens.lengths)
    }

    /// Seeks back and reads every token text.
    pub(crate) fn each_token<R: Read + Seek>(
        &self,
        cursor: &mut Cursor<R>,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let Some(tokens) = &self.tokens else { return Ok(()) };
        cursor.seek_to(tokens.checkpoints.first().copied().unwrap_or_default());
        for _ in 0..tokens.count {
            let length = cursor.length(MAX_WALKED_BYTES, TOKENS_KEY)?;
            visit(&cursor.byte_string(length, TOKENS_KEY)?);
        }
        Ok(())
    }

    /// Seeks back and reads the normalization rules in blocks; nothing without any.
    pub(crate) fn charsmap<R: Read + Seek>(
        &self,
        cursor: &mut Cursor<R>,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        const BLOCK: u64 = 64 * 1024;
        let Some((offset, mut remaining)) = self.charsmap else { return Ok(()) };
        cursor.seek_to(offset);
        while remaining > 0 {
            let length = remaining.min(BLOCK);
            visit(&cursor.byte_string(length, CHARSMAP_KEY)?);
            remaining -= length;
        }
        Ok(())
    }

    /// Seeks back and reads the texts of up to `most` tokens of these types.
    pub(crate) fn tokens_of_types<R: Read + Seek>(
        &self,
        cursor: &mut Cursor<R>,
        wanted: &[u32],
        most: usize,
    ) -> Result<Vec<String>> {
        let (Some(tokens), Some((types, count))) = (&self.tokens, self.types) else {
            return Ok(Vec::new());
        };
        cursor.seek_to(types);
        let mut ids = Vec::new();
        for id in 0..count.min(tokens.count) {
            if wanted.contains(&cursor.u32(TYPES_KEY)?) && ids.len() < most {
                ids.push(id);
            }
        }
        let mut texts = Vec::with_capacity(ids.len());
        cursor.seek_to(tokens.checkpoints.first().copied().unwrap_or_default());
        let mut at = 0;
        for id in ids {
            for _ in at..id {
                let length = cursor.u64(TOKENS_KEY)?;
                cursor.skip(length, TOKENS_KEY)?;
            }
            let length = cursor.length(MAX_OTHER_STRING_BYTES, "a token text")?;
            texts.push(cursor.text(length, "a token text")?);
            at = id + 1;
        }
        Ok(texts)
    }
}

/// How many more bytes may be kept or read.
struct ReadBudget {
    kept: u64,
    walked: u64,
}

impl ReadBudget {
    fn keep(&mut self, bytes: u64, at: u64) -> Result<()> {
        self.kept = self.kept.checked_sub(bytes).ok_or_else(|| {
            invalid(
                at,
                format_args!(
                    "keys and strings of the header exceed the limit of {MAX_KEPT_BYTES} bytes"
                ),
            )
        })?;
        Ok(())
    }
}

fn string<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    key: &str,
    budget: &mut ReadBudget,
) -> Result<Option<GgufValue>> {
    let at = cursor.offset();
    let length = cursor.length(u64::MAX, key)?;
    let what = format!("the value of {key:?}");
    if key.starts_with(VOCABULARY_PREFIX) && length > MAX_VOCABULARY_STRING_BYTES {
        return Err(invalid(
            at,
            format_args!(
                "{what} has {length} bytes, more than the limit of {MAX_VOCABULARY_STRING_BYTES}"
            ),
        ));
    }
    if length > MAX_OTHER_STRING_BYTES && !key.starts_with(TEMPLATE_KEY) {
        return cursor.skip(length, key).map(|()| None);
    }
    budget.keep(length, at)?;
    // Of the general keys, these decide how the file is read.
    let is_prose = key.starts_with("general.") && !GENERAL_NAMES.contains(&key);
    let text = if is_prose { cursor.text(length, &what)? } else { cursor.name(length, &what)? };
    Ok(Some(GgufValue::String(text)))
}

/// Reads the first elements of a string array. Skips those that are too long or not UTF-8.
fn words<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    key: &str,
    count: u64,
    budget: &mut ReadBudget,
) -> Result<GgufValue> {
    let kept = count.min(MAX_WORDS);
    let mut words = Vec::new();
    for _ in 0..kept {
        let at = cursor.offset();
        let length = cursor.u64(key)?;
        if length > MAX_WORD_BYTES {
            cursor.skip(length, key)?;
            continue;
        }
        budget.keep(length + size_of::<GgufValue>() as u64, at)?;
        let word = String::from_utf8(cursor.byte_string(length, key)?);
        words.extend(word.ok().map(GgufValue::String));
    }
    walk_strings(cursor, key, count - kept, budget)?;
    Ok(GgufValue::Array(ValueType::String, words))
}

/// Reads a string array without keeping its elements.
fn walk_strings<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    key: &str,
    count: u64,
    budget: &mut ReadBudget,
) -> Result<Tokens> {
    let mut checkpoints = Vec::new();
    let mut lengths = TokenLengths::default();
    let mut remaining = count;
    while remaining > 0 {
        let start = cursor.offset();
        checkpoints.push(start);
        let n = remaining.min(CHECKPOINT_EVERY);
        for _ in 0..n {
            let length = cursor.u64(key)?;
            cursor.skip(length, key)?;
            lengths.add(length);
        }
        remaining -= n;
        budget.walked = budget.walked.checked_sub(cursor.offset() - start).ok_or_else(|| {
            invalid(
                start,
                format_args!(
                    "{key:?}: the string arrays exceed the limit of {MAX_WALKED_BYTES} bytes"
                ),
            )
        })?;
    }
    Ok(Tokens { count, checkpoints, lengths })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::Cursor as Bytes;

    use super::*;
    use crate::error::Error;

    fn read(bytes: &[u8], count: u64) -> Result<Metadata, Error> {
        Metadata::read(&mut Cursor::new(Bytes::new(bytes), bytes.len() as u64), count)
    }

    fn entry(key: &str, value_type: u32, value: &[u8]) -> Vec<u8> {
        let mut bytes = (key.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(&value_type.to_le_bytes());
        bytes.extend_from_slice(value);
        bytes
    }

    #[track_caller]
    fn check_refused(bytes: &[u8], count: u64, message: &str) {
        let error = read(bytes, count).err().unwrap();
        assert!(error.message().contains(message), "{error}");
        assert!(error.message().contains("at byte"), "{error}");
    }

    #[test]
    fn refusals() {
        check_refused(&[], 1 << 63, "claims 9223372036854775808 metadata entries");
        check_refused(&entry("", 4, &[0; 4]), 1, "key is empty");
        check_refused(&entry("a", 13, &[0; 4]), 1, "unknown type 13");
        check_refused(
            &[entry("a", 4, &[0; 4]), entry("a", 4, &[0; 4])].concat(),
            2,
            "\"a\" occurs twice",
        );
        check_refused(&u64::MAX.to_le_bytes(), 1, "needs 18446744073709551615 bytes");
        let mut long_key = 65_536_u64.to_le_bytes().to_vec();
        long_key.resize(70_000, b'k');
        check_refused(&long_key, 1, "65536 bytes long, more than the limit of 65535");
        let mut nested = 9_u32.to_le_bytes().to_vec();
        nested.extend_from_slice(&0_u64.to_le_bytes());
        check_refused(&entry("a", 9, &nested), 1, "has arrays as elements");
        for element in [0_u32, 4, 8, 10] {
            for claimed in [1_u64 << 63, u64::MAX, 1 << 61, 1 << 32] {
                let mut array = element.to_le_bytes().to_vec();
                array.extend_from_slice(&claimed.to_le_bytes());
                array.extend_from_slice(&[0; 64]);
                check_refused(&entry("a", 9, &array), 1, "claims");
            }
        }
        let mut text = 2_u64.to_le_bytes().to_vec();
        text.extend_from_slice(&[b'a', 0xC3]);
        check_refused(&entry("a", 8, &text), 1, "the value of \"a\" is not valid UTF-8");
        check_refused(&entry("a\0", 4, &[0; 4]), 1, "a metadata key contains a NUL character");
        let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        for key in ["general.architecture", "general.type", "tokenizer.ggml.model", "x.pooling"] {
            let problem = format!("the value of {key:?} contains a NUL character");
            check_refused(&entry(key, 8, &text("llama\0x")), 1, &problem);
        }
        assert!(read(&entry("general.description", 8, &text("a\0b")), 1).is_ok());
        // A long value would be skipped, and its beginning would not be known.
        let long = text(&format!("rwkv\0{}", "x".repeat(100_000)));
        let problem = "has 100005 bytes, more than the limit of 1024";
        check_refused(&entry("tokenizer.ggml.model", 8, &long), 1, problem);
        assert!(read(&entry("tokenizer.huggingface.json", 8, &long), 1).is_ok());
    }

    #[test]
    fn words_that_are_not_text_are_left_out() {
        let mut words = [8_u32.to_le_bytes().to_vec(), 4_u64.to_le_bytes().to_vec()].concat();
        for word in [&b"chat"[..], b"\xFF\xFE", &[b'x'; 257], b"en"] {
            words.extend_from_slice(&(word.len() as u64).to_le_bytes());
            words.extend_from_slice(word);
        }
        let table = read(&entry("general.tags", 9, &words), 1).unwrap();
        let kept = ["chat", "en"].map(GgufValue::from).to_vec();
        assert_eq!(table.get("general.tags"), Some(&GgufValue::Array(ValueType::String, kept)));
        let table = read(&entry("tokenizer.ggml.merges", 9, &words), 1).unwrap();
        assert_eq!(table.get("tokenizer.ggml.merges"), None);
    }

    #[test]
    fn long_strings_are_skipped_unless_they_are_templates() {
        let mut text = 100_000_u64.to_le_bytes().to_vec();
        text.resize(100_008, 0xFF);
        let table = read(&entry("tokenizer.huggingface.json", 8, &text), 1).unwrap();
        assert!(
            table.contains("tokenizer.huggingface.json")
                && table.get("tokenizer.huggingface.json").is_none()
        );
        let mut text = 100_000_u64.to_le_bytes().to_vec();
        text.resize(100_008, b'x');
        let table = read(&entry(TEMPLATE_KEY, 8, &text), 1).unwrap();
        assert_eq!(table.str(TEMPLATE_KEY).unwrap().len(), 100_000);
        let mut text = (MAX_KEPT_BYTES + 1).to_le_bytes().to_vec();
        text.resize(MAX_KEPT_BYTES as usize + 9, b'x');
        check_refused(&entry(TEMPLATE_KEY, 8, &text), 1, "exceed the limit of 8388608 bytes");
    }
}
