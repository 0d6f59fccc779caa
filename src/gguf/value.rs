//! The values of a GGUF file's metadata and their types.

use std::io::{Read, Seek};

use super::reader::{Cursor, invalid};
use crate::error::Result;

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

    /// Reads the type of the value of `key`.
    pub(super) fn read<R: Read + Seek>(cursor: &mut Cursor<R>, key: &str) -> Result<ValueType> {
        let at = cursor.offset();
        let number = cursor.u32(key)?;
        Self::from_number(number).ok_or_else(|| {
            invalid(at, format_args!("metadata key {key:?} has the unknown type {number}"))
        })
    }

    fn from_number(number: u32) -> Option<ValueType> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The size of one value in bytes; `None` for strings and arrays.
    pub(super) fn bytes(self) -> Option<u64> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }

    pub(super) fn is_integer(self) -> bool {
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
    /// The element type and the elements. An empty array has a type too.
    Array(ValueType, Vec<GgufValue>),
}

impl GgufValue {
    /// Reads the value of `key`, or an element of it, if it is of a scalar type.
    pub(super) fn read_scalar<R: Read + Seek>(
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

    /// The type with which this value is written to a file.
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

    /// The value as an element of a list, as llama.cpp reads it: a mark is 0 or 1, a signed number an
    /// unsigned one.
    pub(super) fn as_element(&self) -> Option<u64> {
        match self {
            GgufValue::Bool(mark) => Some((*mark).into()),
            GgufValue::I32(number) => Some(number.cast_unsigned().into()),
            _ => self.as_u64(),
        }
    }

    /// The value of a non-negative integer of any width.
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

    /// The value of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            GgufValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a float, or of an integer converted to a float.
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
