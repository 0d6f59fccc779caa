//! JSON text to a value that has exactly the members of the text.
//!
//! With `arbitrary_precision`, serde_json passes a number on as an object with one member of a
//! private name, and its own `Value` reads any object that begins with that name as a number. Here
//! such an object stays an object. The program in cli/ reads JSON in the same way.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The name under which serde_json passes a number on.
const NUMBER: &str = "$serde_json::private::Number";

/// A value as its text spells it. Of members with the same name, the last one counts.
#[derive(Debug)]
pub struct PlainValue(pub Value);

impl<'de> Deserialize<'de> for PlainValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PlainValue, D::Error> {
        deserializer.deserialize_any(PlainVisitor).map(|read| PlainValue(read.into_value()))
    }
}

/// What serde_json passes to the visitor.
enum ReadValue {
    /// A string that serde_json owns. In a text, strings are borrowed, and only the digits of a
    /// number are owned.
    Owned(String),
    Value(Value),
}

impl ReadValue {
    fn into_value(self) -> Value {
        match self {
            ReadValue::Owned(text) => Value::String(text),
            ReadValue::Value(value) => value,
        }
    }
}

impl<'de> Deserialize<'de> for ReadValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ReadValue, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = ReadValue;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<ReadValue, E> {
        Ok(ReadValue::Value(Value::Null))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<ReadValue, E> {
        Ok(ReadValue::Value(flag.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<ReadValue, E> {
        Ok(ReadValue::Value(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<ReadValue, E> {
        Ok(ReadValue::Value(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<ReadValue, E> {
        Ok(ReadValue::Value(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<ReadValue, E> {
        Ok(ReadValue::Value(text.into()))
    }

    fn visit_string<E>(self, text: String) -> Result<ReadValue, E> {
        Ok(ReadValue::Owned(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ReadValue, A::Error> {
        let mut values = Vec::new();
        while let Some(PlainValue(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(ReadValue::Value(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<ReadValue, A::Error> {
        let mut object = Map::new();
        if let Some((name, value)) = members.next_entry::<String, ReadValue>()? {
            match value {
                ReadValue::Owned(digits) if name == NUMBER => {
                    let number = digits.parse::<Number>().map_err(A::Error::custom)?;
                    return Ok(ReadValue::Value(Value::Number(number)));
                }
                value => object.insert(name, value.into_value()),
            };
        }
        while let Some((name, PlainValue(value))) = members.next_entry()? {
            object.insert(name, value);
        }
        Ok(ReadValue::Value(Value::Object(object)))
    }
}
