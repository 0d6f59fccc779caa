//! Which template text is compiled, and in what spelling: the stored text in, the text for the engine out.

use super::failure::Failure;

/// The built-in template for files that have none.
pub(crate) const CHATML: &str = "{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}";

/// Where a template comes from. `default` is None when the file has no chat template.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `tokenizer.chat_template`, or the caller's override.
    pub default: Option<String>,
    /// `tokenizer.chat_template.tool_use`.
    pub tool_use: Option<String>,
    /// Text of the vocabulary's BOS token, empty when it has none.
    pub bos_token: String,
    /// Text of the vocabulary's EOS token, empty when it has none.
    pub eos_token: String,
}

impl Sources {
    /// The default template, unless the file leaves it to us (none, empty, or the name `chatml`).
    pub(crate) fn own_default(&self) -> Option<&str> {
        self.default.as_deref().filter(|text| !text.is_empty() && *text != "chatml")
    }

    /// The tool_use template, unless empty.
    pub(crate) fn own_tool_use(&self) -> Option<&str> {
        self.tool_use.as_deref().filter(|text| !text.is_empty())
    }
}

/// The longest tag that is compiled, in bytes that are neither blanks nor part of a string. The engine walks an expression by
/// recursion, so a chain of tens of thousands of operators would overflow the stack. The longest of 335 real templates has 295.
const TAG_BYTES: usize = 4096;
/// The most `elif` tags: each is nested in the one before it, out of sight of the engine's own limit on nesting.
const ELIF_TAGS: usize = 1000;

/// The source as the engine must read it to behave as Jinja2 with transformers' settings: newlines are LF, a newline after
/// `{% raw %}` is trimmed like after any block, and `{% generation %}` is a scope (`with`).
pub(crate) fn normalise(source: &str) -> Result<String, Failure> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    let mut elifs = 0;
    while let Some(at) = rest.find('{') {
        let (text, tag) = rest.split_at(at);
        out.push_str(text);
        let end = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map_or(tag.len(), |end| end + 2),
            Some(b'{') => expression_end(tag, "}}"),
            Some(b'%') => expression_end(tag, "%}"),
            _ => 1,
        };
        let (tag, after) = tag.split_at(end);
        elifs += usize::from(word(tag) == "elif");
        let too_much = if tag.len() > TAG_BYTES && !tag.starts_with("{#") && code_bytes(tag) > TAG_BYTES {
            Some(format!("a tag is longer than {TAG_BYTES} bytes, strings left out"))
        } else if elifs > ELIF_TAGS {
            Some(format!("more than {ELIF_TAGS} elif tags"))
        } else {
            None
        };
        if let Some(message) = too_much {
            let line = source[..source.len() - rest.len() + at].matches('\n').count() + 1;
            return Err(Failure { kind: "limit", message, line: Some(line) });
        }
        rest = after;
        match word(tag) {
            "raw" => {
                let body = raw_length(after);
                let (body, after) = after.split_at(body);
                out.push_str(tag);
                out.push_str(if tag.ends_with("-%}") || tag.ends_with("+%}") {
                    body
                } else {
                    body.strip_prefix('\n').unwrap_or(body)
                });
                rest = after;
            }
            "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(tag),
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Bytes of a tag that are neither blanks nor part of a string.
fn code_bytes(tag: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    let mut count = 0;
    for byte in tag.bytes() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if byte == b'\\' => escaped = true,
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if byte == b'\'' || byte == b'"' => quote = Some(byte),
            None => count += usize::from(!byte.is_ascii_whitespace()),
        }
    }
    count
}

/// The first word of a block tag; empty for everything else.
fn word(tag: &str) -> &str {
    let Some(inside) = tag.strip_prefix("{%") else { return "" };
    let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside).trim_start();
    let end = inside.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inside.len());
    &inside[..end]
}

/// Where the tag that starts `tag` ends, seeing string literals.
fn expression_end(tag: &str, close: &str) -> usize {
    let bytes = tag.as_bytes();
    let mut quote = None;
    let mut brackets = 0usize;
    let mut at = 2;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'\'' | b'"')) => quote = Some(byte),
            (None, b'{') => brackets += 1,
            (None, b'}') if brackets > 0 => brackets -= 1,
            (None, _) if bytes[at..].starts_with(close.as_bytes()) => return at + close.len(),
            (None, _) => {}
        }
        at += 1;
    }
    tag.len()
}

/// Length of the text before `{% endraw %}`.
fn raw_length(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%") {
        if word(&text[from + at..]) == "endraw" {
            return from + at;
        }
        from += at + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &str) {
        assert_eq!(normalise(source).unwrap(), expected);
    }

    #[test]
    fn a_tag_is_bounded_but_for_its_strings() {
        let chain = format!("x\n{{{{ 1{} }}}}", "+1".repeat(TAG_BYTES));
        let failure = normalise(&chain).unwrap_err();
        assert_eq!((failure.kind, failure.line), ("limit", Some(2)));
        let branches = format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(ELIF_TAGS + 1));
        assert_eq!(normalise(&branches).unwrap_err().kind, "limit");
        let text = format!("{{{{ '{}' }}}}", "+1\\'".repeat(TAG_BYTES));
        check(&text, &text);
        let comment = format!("{{# {} #}}", "+1".repeat(TAG_BYTES));
        check(&comment, &comment);
    }

    #[test]
    fn newlines() {
        check("a\r\nb\rc\n", "a\nb\nc\n");
        check("{% raw %}\n{{ x }}\n{% endraw %}\n", "{% raw %}{{ x }}\n{% endraw %}\n");
        check("{% raw -%}\nx{% endraw %}", "{% raw -%}\nx{% endraw %}");
    }

    #[test]
    fn generation_is_a_scope() {
        check("{% generation %}x{% endgeneration %}", "{% with %}x{% endwith %}");
        check("{%- generation -%}x{%- endgeneration +%}", "{%- with -%}x{%- endwith +%}");
        check("{{ '{% generation %}' }}{# {% generation %} #}", "{{ '{% generation %}' }}{# {% generation %} #}");
        check("{% raw %}{% generation %}{% endraw %}", "{% raw %}{% generation %}{% endraw %}");
        check("{% set generation = 1 %}{ % {", "{% set generation = 1 %}{ % {");
    }

    #[test]
    fn tags_end_outside_of_strings_and_braces() {
        check("{{ '}}' ~ {'a': {'b': 1}} }}{%generation%}", "{{ '}}' ~ {'a': {'b': 1}} }}{%with%}");
        check("{{ 'é\\'}}' }}{% generation", "{{ 'é\\'}}' }}{% with");
        check("{{ é", "{{ é");
    }
}
