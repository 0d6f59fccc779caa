//! The key-value table of a GGUF file.
//!
//! In: a cursor behind the counts. Out: the scalars, strings and short integer arrays by key, and
//! where the token texts lie. Never stored: long arrays, and long strings nobody asks for; they are
//! walked or passed over.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use super::reader::{Cursor, invalid};
use crate::error::Result;

/// Known files have fewer than a hundred entries.
const MAX_ENTRIES: u64 = 16_384;
/// The format's own limit.
const MAX_KEY_BYTES: u64 = 65_535;
/// Keys, kept strings and kept arrays together; the largest chat template known is 40 kB.
const MAX_KEPT_BYTES: u64 = 8 * 1024 * 1024;
/// A longer string is kept only if it is a chat template (some converters store a whole
/// tokenizer.json).
const MAX_OTHER_STRING_BYTES: u64 = 64 * 1024;
/// Longer arrays are not per-layer figures.
const MAX_KEPT_ARRAY: u64 = 1_024;
/// String arrays must be walked element by element; vocabulary and merges of the largest models
/// take 12 MB.
const MAX_WALKED_BYTES: u64 = 64 * 1024 * 1024;
/// One remembered offset for this many token texts.
const CHECKPOINT_EVERY: u64 = 256;

/// What kind of token each one is.
const TYPES_KEY: &str = "tokenizer.ggml.token_type";
/// llama.cpp's `LLAMA_TOKEN_TYPE_CONTROL`.
const CONTROL: u32 = 3;
const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
const TEMPLATE_KEY: &str = "tokenizer.chat_template";

/// The types of a metadata value, with their numbers in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    fn from_number(number: u32) -> Option<ValueType> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Bytes of one value; `None` for strings and arrays.
    fn bytes(self) -> Option<u64> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }

    fn is_integer(self) -> bool {
        !matches!(
            self,
            ValueType::F32
                | ValueType::F64
                | ValueType::Bool
                | ValueType::String
                | ValueType::Array
        )
    }
}

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum GgufValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
    /// The element type, which also an empty array has, and the elements.
    Array(ValueType, Vec<GgufValue>),
}

impl GgufValue {
    /// The type this value is written with.
    pub fn value_type(&self) -> ValueType {
        match self {
            GgufValue::U8(_) => ValueType::U8,
            GgufValue::I8(_) => ValueType::I8,
            GgufValue::U16(_) => ValueType::U16,
            GgufValue::I16(_) => ValueType::I16,
            GgufValue::U32(_) => ValueType::U32,
            GgufValue::I32(_) => ValueType::I32,
            GgufValue::F32(_) => ValueType::F32,
            GgufValue::Bool(_) => ValueType::Bool,
            GgufValue::String(_) => ValueType::String,
            GgufValue::U64(_) => ValueType::U64,
            GgufValue::I64(_) => ValueType::I64,
            GgufValue::F64(_) => ValueType::F64,
            GgufValue::Array(..) => ValueType::Array,
        }
    }

    /// An integer of any width that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            GgufValue::U8(v) => Some(v.into()),
            GgufValue::U16(v) => Some(v.into()),
            GgufValue::U32(v) => Some(v.into()),
            GgufValue::U64(v) => Some(v),
            GgufValue::I8(v) => v.try_into().ok(),
            GgufValue::I16(v) => v.try_into().ok(),
            GgufValue::I32(v) => v.try_into().ok(),
            GgufValue::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// A string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            GgufValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            GgufValue::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// A float, or an integer as one.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            GgufValue::F32(v) => Some(v.into()),
            GgufValue::F64(v) => Some(v),
            GgufValue::I8(v) => Some(v.into()),
            GgufValue::I16(v) => Some(v.into()),
            GgufValue::I32(v) => Some(v.into()),
            GgufValue::I64(v) => Some(v as f64),
            _ => self.as_u64().map(|v| v as f64),
        }
    }
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for GgufValue {
            fn from(v: $from) -> Self {
                GgufValue::$variant(v)
            }
        }
        impl From<Vec<$from>> for GgufValue {
            fn from(items: Vec<$from>) -> Self {
                GgufValue::Array(ValueType::$variant, items.into_iter().map(GgufValue::from).collect())
            }
        }
    )*};
}
value_from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
    String => String, u64 => U64, i64 => I64, f64 => F64);

impl From<&str> for GgufValue {
    fn from(text: &str) -> Self {
        GgufValue::String(text.to_owned())
    }
}

/// Where the token texts lie.
struct Tokens {
    count: u64,
    /// Offsets of the elements 0, 256, 512, …
    checkpoints: Vec<u64>,
}

/// The table as read.
pub(crate) struct Metadata {
    /// `None` for what was passed over.
    entries: BTreeMap<String, Option<GgufValue>>,
    tokens: Option<Tokens>,
    /// Where the types of the tokens begin, and how many there are.
    types: Option<(u64, u64)>,
}

impl Metadata {
    /// Reads `count` entries.
    pub(crate) fn read<R: Read + Seek>(cursor: &mut Cursor<R>, count: u64) -> Result<Metadata> {
        if count > MAX_ENTRIES {
            return Err(invalid(
                cursor.offset(),
                format_args!(
                    "the file claims {count} metadata entries, more than the {MAX_ENTRIES} allowed,"
                ),
            ));
        }
        let mut table = Metadata { entries: BTreeMap::new(), tokens: None, types: None };
        let mut budget = ReadBudget { kept: MAX_KEPT_BYTES, walked: MAX_WALKED_BYTES };
        for _ in 0..count {
            let at = cursor.offset();
            let length = cursor.length(MAX_KEY_BYTES, "a metadata key")?;
            if length == 0 {
                return Err(invalid(at, "a metadata key is empty"));
            }
            budget.keep(length, at)?;
            let key = cursor.text(length, "a metadata key")?;
            if table.entries.contains_key(&key) {
                return Err(invalid(at, format_args!("metadata key {key:?} occurs twice, again")));
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
        match value_type(cursor, key)? {
            ValueType::Array => self.array(cursor, key, budget),
            ValueType::String => string(cursor, key, budget),
            scalar_type => scalar(cursor, scalar_type, key).map(Some),
        }
    }

    fn array<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        key: &str,
        budget: &mut ReadBudget,
    ) -> Result<Option<GgufValue>> {
        let at = cursor.offset();
        let element = value_type(cursor, key)?;
        let count = cursor.u64(key)?;
        // A string takes at least its length field.
        let total = count
            .checked_mul(element.bytes().unwrap_or(8))
            .filter(|total| *total <= cursor.remaining());
        let Some(total) = total else {
            return Err(invalid(
                at,
                format_args!(
                    "array {key:?} claims {count} elements, more than the {} bytes left in the file hold,",
                    cursor.remaining()
                ),
            ));
        };
        match element {
            ValueType::Array => Err(invalid(
                at,
                format_args!("array {key:?} holds arrays, which no reader supports,"),
            )),
            ValueType::String => {
                let checkpoints = walk_strings(cursor, key, count, budget)?;
                if key == TOKENS_KEY {
                    self.tokens = Some(Tokens { count, checkpoints });
                }
                Ok(None)
            }
            _ if element == ValueType::I32 && key == TYPES_KEY => {
                self.types = Some((cursor.offset(), count));
                cursor.skip(total, key).map(|()| None)
            }
            _ if element.is_integer() && count <= MAX_KEPT_ARRAY => {
                budget.keep(count * size_of::<GgufValue>() as u64, at)?;
                let items =
                    (0..count).map(|_| scalar(cursor, element, key)).collect::<Result<_>>()?;
                Ok(Some(GgufValue::Array(element, items)))
            }
            _ => cursor.skip(total, key).map(|()| None),
        }
    }

    /// A kept value.
    pub(crate) fn get(&self, key: &str) -> Option<&GgufValue> {
        self.entries.get(key)?.as_ref()
    }

    /// Whether the key occurs, kept or not.
    pub(crate) fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    pub(crate) fn str(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// Names of the string templates: `default` first, the others in the order of their names.
    pub(crate) fn template_names(&self) -> Vec<&str> {
        let default = self.str(TEMPLATE_KEY).map(|_| "default");
        let others = self.entries.iter().filter_map(|(key, value)| {
            value.as_ref()?.as_str()?;
            key.strip_prefix(TEMPLATE_KEY)?.strip_prefix('.').filter(|name| !name.is_empty())
        });
        default.into_iter().chain(others).collect()
    }

    /// How many token texts there are; `None` without a vocabulary.
    pub(crate) fn n_tokens(&self) -> Option<u64> {
        self.tokens.as_ref().map(|tokens| tokens.count)
    }

    /// Goes back and reads the text of one token; `None` outside the vocabulary.
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
        cursor.go_to(checkpoint);
        for _ in 0..id % CHECKPOINT_EVERY {
            let length = cursor.u64(TOKENS_KEY)?;
            cursor.skip(length, TOKENS_KEY)?;
        }
        let length = cursor.length(MAX_OTHER_STRING_BYTES, "a token text")?;
        cursor.text(length, "a token text").map(Some)
    }

    /// Goes back and reads the texts of the control tokens, at most `most` of them.
    pub(crate) fn controls<R: Read + Seek>(
        &self,
        cursor: &mut Cursor<R>,
        most: usize,
    ) -> Result<Vec<String>> {
        let (Some(tokens), Some((types, count))) = (&self.tokens, self.types) else {
            return Ok(Vec::new());
        };
        cursor.go_to(types);
        let mut controls = Vec::new();
        for id in 0..count.min(tokens.count) {
            if cursor.u32(TYPES_KEY)? == CONTROL && controls.len() < most {
                controls.push(id);
            }
        }
        let mut texts = Vec::with_capacity(controls.len());
        cursor.go_to(tokens.checkpoints.first().copied().unwrap_or_default());
        let mut at = 0;
        for id in controls {
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

/// What may still be kept and walked.
struct ReadBudget {
    kept: u64,
    walked: u64,
}

impl ReadBudget {
    fn keep(&mut self, bytes: u64, at: u64) -> Result<()> {
        self.kept = self.kept.checked_sub(bytes).ok_or_else(|| {
            invalid(
                at,
                format_args!("keys and strings of the header exceed {MAX_KEPT_BYTES} bytes"),
            )
        })?;
        Ok(())
    }
}

fn value_type<R: Read + Seek>(cursor: &mut Cursor<R>, key: &str) -> Result<ValueType> {
    let at = cursor.offset();
    let number = cursor.u32(key)?;
    ValueType::from_number(number).ok_or_else(|| {
        invalid(at, format_args!("metadata key {key:?} has the unknown type {number}"))
    })
}

fn string<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    key: &str,
    budget: &mut ReadBudget,
) -> Result<Option<GgufValue>> {
    let at = cursor.offset();
    let length = cursor.length(u64::MAX, key)?;
    if length > MAX_OTHER_STRING_BYTES && !key.starts_with(TEMPLATE_KEY) {
        return cursor.skip(length, key).map(|()| None);
    }
    budget.keep(length, at)?;
    Ok(Some(GgufValue::String(cursor.text(length, &format!("the value of {key:?}"))?)))
}

fn scalar<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    scalar_type: ValueType,
    key: &str,
) -> Result<GgufValue> {
    Ok(match scalar_type {
        ValueType::U8 => GgufValue::U8(cursor.u8(key)?),
        ValueType::I8 => GgufValue::I8(cursor.u8(key)?.cast_signed()),
        ValueType::U16 => GgufValue::U16(cursor.u16(key)?),
        ValueType::I16 => GgufValue::I16(cursor.u16(key)?.cast_signed()),
        ValueType::U32 => GgufValue::U32(cursor.u32(key)?),
        ValueType::I32 => GgufValue::I32(cursor.u32(key)?.cast_signed()),
        ValueType::F32 => GgufValue::F32(f32::from_bits(cursor.u32(key)?)),
        ValueType::Bool => GgufValue::Bool(cursor.u8(key)? != 0),
        ValueType::U64 => GgufValue::U64(cursor.u64(key)?),
        ValueType::I64 => GgufValue::I64(cursor.u64(key)?.cast_signed()),
        ValueType::F64 => GgufValue::F64(f64::from_bits(cursor.u64(key)?)),
        ValueType::String | ValueType::Array => {
            return Err(invalid(
                cursor.offset(),
                format_args!("metadata key {key:?} is not a scalar"),
            ));
        }
    })
}

/// Walks a string array, with the offset of every 256th element.
fn walk_strings<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    key: &str,
    count: u64,
    budget: &mut ReadBudget,
) -> Result<Vec<u64>> {
    let mut checkpoints = Vec::new();
    let mut left = count;
    while left > 0 {
        let start = cursor.offset();
        checkpoints.push(start);
        let n = left.min(CHECKPOINT_EVERY);
        for _ in 0..n {
            let length = cursor.u64(key)?;
            cursor.skip(length, key)?;
        }
        left -= n;
        budget.walked = budget.walked.checked_sub(cursor.offset() - start).ok_or_else(|| {
            invalid(
                start,
                format_args!("string arrays exceed {MAX_WALKED_BYTES} bytes, in {key:?}"),
            )
        })?;
    }
    Ok(checkpoints)
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
        check_refused(&long_key, 1, "65536 bytes long, more than the 65535 allowed");
        let mut nested = 9_u32.to_le_bytes().to_vec();
        nested.extend_from_slice(&0_u64.to_le_bytes());
        check_refused(&entry("a", 9, &nested), 1, "holds arrays");
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
    }

    #[test]
    fn long_strings_are_passed_over_unless_they_are_templates() {
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
        check_refused(&entry(TEMPLATE_KEY, 8, &text), 1, "exceed 8388608 bytes");
    }
}
