//! Tokens as JSON: each with its text. Written token by token, because a long text has millions.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeSeq, Serializer};

use crate::engine::TokenId;
use crate::llama::FileVocabulary;

/// Tokens of a vocabulary.
pub(super) struct TokenList {
    pub(super) vocabulary: Arc<FileVocabulary>,
    pub(super) ids: Vec<TokenId>,
}

/// One of them. A token may end inside a character: `text` then has U+FFFD for bytes that are not
/// UTF-8, and `bytes` has all.
#[derive(serde::Serialize)]
struct TokenEntry<'a> {
    id: TokenId,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'a [u8]>,
    special: bool,
}

impl Serialize for TokenList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let vocab = self.vocabulary.vocab();
        let special = vocab.special_tokens();
        let mut entries = serializer.serialize_seq(Some(self.ids.len()))?;
        for id in &self.ids {
            let piece = vocab.piece(*id, true);
            let text = String::from_utf8_lossy(&piece);
            let bytes = text.contains(char::REPLACEMENT_CHARACTER).then_some(&*piece);
            let bytes = bytes.filter(|bytes| *bytes != text.as_bytes());
            let special = special.reserved(*id).is_some();
            entries.serialize_element(&TokenEntry { id: *id, text: &text, bytes, special })?;
        }
        entries.end()
    }
}
