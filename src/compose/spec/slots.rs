//! Text with named slots: `<|im_start|>user\n{content}<|im_end|>`.
//!
//! `{name}` is a slot. `{{` and `}}` are literal braces. The value of a slot is never parsed for
//! slots.

use crate::compose::fault::{Reason, SpecFault};

/// One part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlotPart {
    /// Literal text.
    Text(String),
    /// The slot with this name.
    Slot(String),
}

/// Which slots a pattern may have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slots {
    /// These slots. Each has a rule for how often it occurs.
    Of(&'static [(&'static str, Occurs)]),
    /// Slots with any name: the members of an object that the caller defines.
    Any,
}

/// How often a slot may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occurs {
    /// Any number of times.
    Freely,
    AtMostOnce,
    Once,
    /// At least once.
    Somewhere,
}

impl Occurs {
    fn allows(self, count: usize) -> bool {
        match self {
            Occurs::Freely => true,
            Occurs::AtMostOnce => count <= 1,
            Occurs::Once => count == 1,
            Occurs::Somewhere => count >= 1,
        }
    }
}

/// A text with slots, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotPattern {
    source: String,
    parts: Vec<SlotPart>,
}

impl SlotPattern {
    /// Parses the text of the field at `path`.
    ///
    /// `unbalanced_brace` for an unmatched brace. `bad_slot` for a slot that is unknown, missing or
    /// repeated.
    pub(crate) fn parse(source: &str, path: &str, slots: Slots) -> Result<SlotPattern, SpecFault> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = source;
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            let brace = &rest[at..at + 1];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                text.push_str(brace);
                rest = after;
                continue;
            }
            let closing = rest.find('}').filter(|_| brace == "{");
            let Some(end) = closing.filter(|end| !rest[..*end].contains(['{', '\n'])) else {
                let seen: String =
                    source[source.len() - rest.len() - 1..].chars().take(24).collect();
                let problem = format!(
                    "unmatched brace at {seen:?}; write a literal brace twice: {{{{ or }}}}"
                );
                return Err(SpecFault::new(Reason::UnbalancedBrace, path, problem));
            };
            if !text.is_empty() {
                parts.push(SlotPart::Text(std::mem::take(&mut text)));
            }
            parts.push(SlotPart::Slot(rest[..end].to_owned()));
            rest = &rest[end + 1..];
        }
        text.push_str(rest);
        if !text.is_empty() {
            parts.push(SlotPart::Text(text));
        }
        let pattern = SlotPattern { source: source.to_owned(), parts };
        pattern.check(path, slots)?;
        Ok(pattern)
    }

    fn check(&self, path: &str, slots: Slots) -> Result<(), SpecFault> {
        let bad_slot = |problem: String| Err(SpecFault::new(Reason::BadSlot, path, problem));
        let Slots::Of(allowed) = slots else {
            let empty = self.slots().any(|slot| slot.trim().is_empty());
            return if empty {
                bad_slot("a slot without a name; write a literal brace twice".to_owned())
            } else {
                Ok(())
            };
        };
        let names =
            allowed.iter().map(|(name, _)| format!("{{{name}}}")).collect::<Vec<_>>().join(", ");
        if let Some(unknown) =
            self.slots().find(|slot| !allowed.iter().any(|(name, _)| name == slot))
        {
            let allowed = if names.is_empty() {
                "this field has no slots".to_owned()
            } else {
                format!("expected {names}")
            };
            return bad_slot(format!(
                "unknown slot {{{unknown}}}; {allowed}; write a literal brace twice: {{{{ or }}}}"
            ));
        }
        for (name, occurs) in allowed {
            let count = self.count(name);
            if !occurs.allows(count) {
                let expected = if *occurs == Occurs::Somewhere { "at least once" } else { "once" };
                return bad_slot(format!(
                    "the slot {{{name}}} occurs {count} times, expected {expected}"
                ));
            }
        }
        Ok(())
    }

    /// The text as written.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The parts in order. Two texts are never adjacent.
    pub(crate) fn parts(&self) -> &[SlotPart] {
        &self.parts
    }

    fn slots(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            SlotPart::Slot(name) => Some(name.as_str()),
            SlotPart::Text(_) => None,
        })
    }

    fn count(&self, name: &str) -> usize {
        self.slots().filter(|slot| *slot == name).count()
    }

    /// Whether the text has this slot.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.count(name) > 0
    }

    /// Whether the first slot precedes the second.
    pub(crate) fn comes_before(&self, name: &str, other: &str) -> bool {
        self.slots().find(|slot| [name, other].contains(slot)) == Some(name)
    }

    /// The text before this slot, without any slots in it.
    pub(crate) fn text_before(&self, name: &str) -> String {
        let before = self
            .parts
            .iter()
            .take_while(|part| !matches!(part, SlotPart::Slot(slot) if slot == name));
        before
            .map(|part| if let SlotPart::Text(text) = part { text.as_str() } else { "" })
            .collect()
    }

    /// The text before the first slot.
    pub(crate) fn head(&self) -> &str {
        match self.parts.first() {
            Some(SlotPart::Text(text)) => text,
            _ => "",
        }
    }

    /// The pattern without this prefix. None if it does not begin with the prefix.
    pub(crate) fn without_prefix(&self, prefix: &str) -> Option<SlotPattern> {
        let Some(SlotPart::Text(text)) = self.parts.first() else { return None };
        let rest = SlotPart::Text(text.strip_prefix(prefix)?.to_owned());
        let mut pattern = self.clone();
        pattern.parts[0] = rest;
        Some(pattern)
    }

    /// The pattern without the text before its first slot.
    pub(crate) fn without_head(&self) -> SlotPattern {
        let mut pattern = self.clone();
        if let Some(SlotPart::Text(_)) = pattern.parts.first() {
            pattern.parts.remove(0);
        }
        pattern
    }

    /// The text after the last slot, or the whole text if there is no slot.
    pub(crate) fn text_after(&self) -> &str {
        match self.parts.last() {
            Some(SlotPart::Text(text)) => text,
            _ => "",
        }
    }
}

/// Parses a source without slots to its literal text: doubled braces become single ones.
pub(crate) fn literal(source: &str, path: &str) -> Result<String, SpecFault> {
    let pattern = SlotPattern::parse(source, path, Slots::Of(&[]))?;
    Ok(pattern.text_after().to_owned())
}

/// Escapes a literal text: braces are doubled.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const CONTENT: Slots = Slots::Of(&[("content", Occurs::Once), ("tools", Occurs::AtMostOnce)]);

    fn parts(source: &str) -> Vec<SlotPart> {
        SlotPattern::parse(source, "f", CONTENT).unwrap().parts().to_vec()
    }

    #[test]
    fn slots_and_braces() {
        let (text, slot) = (
            |text: &str| SlotPart::Text(text.to_owned()),
            |name: &str| SlotPart::Slot(name.to_owned()),
        );
        assert_eq!(parts("a{content}b"), [text("a"), slot("content"), text("b")]);
        assert_eq!(parts("{tools}{content}"), [slot("tools"), slot("content")]);
        assert_eq!(parts("{{\"x\": 1}}{content}"), [text("{\"x\": 1}"), slot("content")]);
        assert_eq!(parts("{{content}}{content}"), [text("{content}"), slot("content")]);
        assert_eq!(parts("ü{{{content}}}"), [text("ü{"), slot("content"), text("}")]);
        assert_eq!(literal("a {{b}}", "f").unwrap(), "a {b}");
        assert_eq!(
            SlotPattern::parse("a{tools}b{content}c", "f", CONTENT).unwrap().text_before("content"),
            "ab"
        );
        assert_eq!(literal(&escaped("{x}} {"), "f").unwrap(), "{x}} {");
    }

    #[test]
    fn bad_slots_and_braces() {
        for (source, reason) in [
            ("", Reason::BadSlot),
            ("{content}{content}", Reason::BadSlot),
            ("{content}{tool}", Reason::BadSlot),
            ("{content}{\"name\": 1}", Reason::BadSlot),
            ("{content}{", Reason::UnbalancedBrace),
            ("ü{content}}", Reason::UnbalancedBrace),
            ("{content}{a{tools}", Reason::UnbalancedBrace),
        ] {
            assert_eq!(
                SlotPattern::parse(source, "f", CONTENT).unwrap_err().reason,
                reason,
                "{source}"
            );
        }
        assert!(SlotPattern::parse("{name} {what ever}", "f", Slots::Any).is_ok());
        assert!(SlotPattern::parse("{ }", "f", Slots::Any).is_err());
    }
}
