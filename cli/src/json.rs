//! Parses JSON text of users, clients and the library. No name of a member has a meaning.

#[path = "../../src/json/plain_value.rs"]
mod plain_value;

use serde_json::Value;

use plain_value::PlainValue;

pub(crate) fn value(text: impl AsRef<[u8]>) -> serde_json::Result<Value> {
    serde_json::from_slice(text.as_ref()).map(|PlainValue(value)| value)
}
