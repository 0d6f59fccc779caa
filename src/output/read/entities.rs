//! Decodes entities in text that arrives one character at a time: `&lt;` is `<`.

/// The maximum length of an entity.
const MAX_ENTITY: usize = 12;

/// Decodes entities. An ampersand that begins no known entity is text.
#[derive(Debug, Clone, Default)]
pub(super) struct EntityDecoder {
    /// Text from an ampersand on that may be an entity.
    held: String,
}

impl EntityDecoder {
    /// Reads a character. Passes the characters that are now certain to `put`.
    pub(super) fn push(&mut self, c: char, mut put: impl FnMut(char)) {
        if self.held.is_empty() && c != '&' {
            return put(c);
        }
        let continues = c == ';' || c.is_ascii_alphanumeric() || c == '#';
        if !self.held.is_empty() && (!continues || self.held.len() >= MAX_ENTITY) {
            self.finish(&mut put);
            return self.push(c, put);
        }
        self.held.push(c);
        if c == ';' {
            match decoded(&self.held) {
                Some(character) => {
                    self.held.clear();
                    put(character);
                }
                None => self.finish(put),
            }
        }
    }

    /// Passes the held text to `put`, because the text ends.
    pub(super) fn finish(&mut self, put: impl FnMut(char)) {
        std::mem::take(&mut self.held).chars().for_each(put);
    }
}

/// A text without its entities.
pub(super) fn without_entities(text: &str) -> String {
    let mut decoder = EntityDecoder::default();
    let mut plain = String::with_capacity(text.len());
    text.chars().for_each(|c| decoder.push(c, |c| plain.push(c)));
    decoder.finish(|c| plain.push(c));
    plain
}

/// The character of an entity: `&lt;`, `&#39;`, `&#x27;`.
fn decoded(entity: &str) -> Option<char> {
    let name = entity.strip_prefix('&')?.strip_suffix(';')?;
    match name {
        "amp" => return Some('&'),
        "lt" => return Some('<'),
        "gt" => return Some('>'),
        "quot" => return Some('"'),
        "apos" => return Some('\''),
        _ => {}
    }
    let number = name.strip_prefix('#')?;
    let code = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    char::from_u32(code.ok()?)
}

#[cfg(test)]
mod tests {
    use super::without_entities;

    #[test]
    fn entities_of_a_text() {
        for (text, want) in [
            ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
            ("it&#39;s &#x41;&quot;&apos;", "it's A\"'"),
            ("a & b && c; &unknown; &", "a & b && c; &unknown; &"),
            ("&lt", "&lt"),
            ("&&lt;&#xFFFFFFFF;", "&<&#xFFFFFFFF;"),
            ("&aaaaaaaaaaaaaaaaaaaa;", "&aaaaaaaaaaaaaaaaaaaa;"),
        ] {
            assert_eq!(without_entities(text), want, "{text}");
        }
    }
}
