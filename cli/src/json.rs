//! Parses JSON text of users, clients and the library. No name of a member has a meaning.

use llb::json::PlainValue;
use serde_json::Value;

pub(crate) fn value(text: impl AsRef<[u8]>) -> serde_json::Result<Value> {
    serde_json::from_slice(text.as_ref()).map(|PlainValue(value)| value)
}
