//! Keeps the parsed messages and tools of a chat's last request, because most messages of a
//! conversation are sent again with every request.
//!
//! In: the text of a request. Out: its members as JSON. An element of `messages` or `tools` is
//! parsed only if it differs, byte for byte, from the element at the same index of the last
//! request.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use crate::json::{self, PlainValue};

/// The maximum size of a list that is kept, in bytes. Longer lists usually contain images.
const MAX_BYTES: usize = 1 << 20;

/// The messages and tools of a request.
#[derive(Debug, Default)]
pub struct ParsedLists {
    messages: ParsedList,
    tools: ParsedList,
}

/// A list of objects, as text and parsed.
#[derive(Debug, Default)]
pub(super) struct ParsedList {
    pub(super) texts: ItemTexts,
    pub(super) items: Vec<Value>,
    /// How many elements at the start equal those of the last request.
    pub(super) reused: usize,
}

/// The JSON text of a list's elements, concatenated.
#[derive(Debug, Default)]
pub(super) struct ItemTexts {
    text: String,
    ends: Vec<usize>,
}

impl ItemTexts {
    fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        Some(&self.text[self.start_of(index)..end])
    }

    /// All texts, if there are exactly `count` of them.
    pub(super) fn all(&self, count: usize) -> Option<&str> {
        (self.ends.len() == count).then_some(self.text.as_str())
    }

    fn start_of(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }
}

impl ParsedList {
    /// Removes all elements after the reused ones.
    fn truncate(&mut self) {
        self.texts.text.truncate(self.texts.start_of(self.reused));
        self.texts.ends.truncate(self.reused);
        self.items.truncate(self.reused);
    }
}

#[derive(Debug, Default)]
pub(super) struct RequestMembers {
    pub(super) messages: ParsedList,
    pub(super) tools: ParsedList,
    pub(super) others: Map<String, Value>,
}

impl ParsedLists {
    /// Keeps lists of objects for the next request.
    pub(super) fn of(
        messages: (ItemTexts, Vec<Value>),
        tools: (ItemTexts, Vec<Value>),
    ) -> ParsedLists {
        // A request that was not parsed from text has no element texts.
        let has_texts =
            [&messages, &tools].iter().all(|(texts, items)| texts.ends.len() == items.len());
        if !has_texts || messages.0.text.len() + tools.0.text.len() > MAX_BYTES {
            return ParsedLists::default();
        }
        let list = |(texts, items)| ParsedList { texts, items, reused: 0 };
        ParsedLists { messages: list(messages), tools: list(tools) }
    }

    /// Splits a request into its members. None if it is not an object, or if a list is neither an
    /// array nor null.
    ///
    /// Only known members are parsed. The value of any other member becomes null.
    pub(super) fn split(self, text: &str, is_known: fn(&str) -> bool) -> Option<RequestMembers> {
        let (mut last_messages, mut last_tools) = (Some(self.messages), Some(self.tools));
        let mut members = RequestMembers::default();
        let left = json::exceeds_limit(text.as_bytes()).then_some(json::MAX_VALUES);
        let mut rest = Rest { text, at: 0, left };
        rest.sequence(b'{', b'}', |rest| {
            let name: String = rest.value()?;
            rest.eat(b':').then_some(())?;
            // Of duplicate members, the last one counts.
            match name.as_str() {
                "messages" => {
                    members.messages = rest.list(last_messages.take().unwrap_or_default())?
                }
                "tools" => members.tools = rest.list(last_tools.take().unwrap_or_default())?,
                known if is_known(known) => {
                    let PlainValue(value) = rest.value()?;
                    members.others.insert(name, value);
                }
                _ => {
                    let IgnoredAny = rest.parsed()?;
                    members.others.insert(name, Value::Null);
                }
            }
            Some(())
        })?;
        rest.peek().is_none().then_some(members)
    }
}

/// The JSON text that has not been read yet.
struct Rest<'a> {
    text: &'a str,
    at: usize,
    /// How many more values and member names may follow. None if the text is too short to exceed
    /// the limit.
    left: Option<usize>,
}

impl Rest<'_> {
    /// Skips whitespace and returns the next byte without consuming it.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let whitespace =
            rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.at += whitespace;
        rest.get(whitespace).copied()
    }

    /// Consumes the next byte if it is `byte`.
    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Reads a value. Returns None if the text then has too many values.
    fn value<T: DeserializeOwned>(&mut self) -> Option<T> {
        if let Some(left) = self.left {
            let start = self.at;
            let IgnoredAny = self.parsed()?;
            let text = &self.text.as_bytes()[start..self.at];
            self.left = Some(left.checked_sub(1 + json::values(text))?);
            self.at = start;
        }
        self.parsed()
    }

    fn parsed<T: DeserializeOwned>(&mut self) -> Option<T> {
        let (value, length) = json::leading(&self.text[self.at..])?;
        self.at += length;
        Some(value)
    }

    /// Reads items between brackets, separated by commas.
    fn sequence(
        &mut self,
        open: u8,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.eat(open).then_some(())?;
        if self.eat(close) {
            return Some(());
        }
        loop {
            self.peek();
            item(self)?;
            if !self.eat(b',') {
                return self.eat(close).then_some(());
            }
        }
    }

    /// Reads an array or null. Elements of `list` are reused up to the first one that differs.
    fn list(&mut self, mut list: ParsedList) -> Option<ParsedList> {
        if self.peek() == Some(b'n') {
            return self.value::<()>().map(|()| ParsedList::default());
        }
        list.reused = 0;
        let mut reuses = true;
        self.sequence(b'[', b']', |rest| {
            if reuses {
                let last = list
                    .texts
                    .get(list.reused)
                    .filter(|last| rest.text[rest.at..].starts_with(last));
                if let Some(last) = last {
                    // The element is an object, so the bytes after it cannot change its value.
                    rest.at += last.len();
                    list.reused += 1;
                    return Some(());
                }
                reuses = false;
                list.truncate();
            }
            let start = rest.at;
            let PlainValue(item) = rest.value()?;
            list.items.push(item);
            list.texts.push(&rest.text[start..rest.at]);
            Some(())
        })?;
        if reuses {
            list.truncate();
        }
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ChatRequest;
    use crate::api::ReplyShape;
    use serde_json::json;

    /// Whether a member is one of the requests in these tests.
    fn is_known(name: &str) -> bool {
        ["n", "x", "y", "z", "a", "max_tokens"].contains(&name)
    }

    fn parse(text: &str) -> Option<RequestMembers> {
        ParsedLists::default().split(text, is_known)
    }

    #[test]
    fn members_are_what_serde_json_reads() {
        for text in [
            r#"{"messages":[{"role":"user","content":"a\"]}"},{}],"n":1.50,"tools":[{"a":[1,{}]}],"x":{"messages":[1]}}"#,
            " {\n\"messages\" :\t[ {} , {\"a\" : 1} ] ,\r\"y\":null, \"z\" : [ ] } ",
            r#"{"messages":[{"a":1}],"messages":[{"b":2},{"a":1}]}"#,
            r#"{"messages":null,"tools":[{}],"tools":null}"#,
            r#"{"m\u0065ssages":[{}]}"#,
            "{}",
        ] {
            let RequestMembers { messages, tools, others } = parse(text).expect(text);
            let mut whole: Map<String, Value> = serde_json::from_str(text).expect("an object");
            let mut list = |name: &str| {
                whole.remove(name).and_then(|list| list.as_array().cloned()).unwrap_or_default()
            };
            assert_eq!((messages.items, tools.items), (list("messages"), list("tools")), "{text}");
            assert_eq!(others, whole, "{text}");
        }
    }

    #[test]
    fn other_text_is_not_split() {
        for text in [
            "",
            "[]",
            "{",
            "{}x",
            "{,}",
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            r#"{a:1}"#,
            r#"{"a":1x}"#,
            r#"{"a":01}"#,
            r#"{"a":"b"c}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"messages":{}}"#,
            r#"{"messages":[{},]}"#,
            r#"{"messages":[{} {}]}"#,
            r#"{"messages":[{}}"#,
            r#"{"messages":nul}"#,
            r#"{"tools":"x"}"#,
            r#"{"messages":[{"a":"\ud800"}]}"#,
            r#"{"messages":[{}]"#,
            r#"{"a"}"#,
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    /// Splits requests in order. Each must yield its own messages and tools, and reuse the given
    /// number of messages.
    #[track_caller]
    fn check(requests: &[(Value, Value, usize)]) {
        let mut last = ParsedLists::default();
        for (messages, tools, reused) in requests {
            let text = json!({ "messages": messages, "tools": tools, "max_tokens": 1 }).to_string();
            let members = last.split(&text, is_known).expect("a request");
            assert_eq!(members.messages.reused, *reused, "{text}");
            assert_eq!(
                json!([members.messages.items, members.tools.items]),
                json!([messages, tools])
            );
            let (messages, tools) = (members.messages, members.tools);
            last = ParsedLists::of((messages.texts, messages.items), (tools.texts, tools.items));
        }
    }

    #[test]
    fn elements_are_reused_up_to_the_first_that_differs() {
        let [a, b, c] = [
            json!({ "content": "a" }),
            json!({ "content": "a", "b": [{}] }),
            json!({ "content": "\"}" }),
        ];
        let (none, tools) =
            (json!([]), json!([{ "function": { "name": "f" } }, { "function": { "name": "g" } }]));
        check(&[
            (json!([a]), none.clone(), 0),
            (json!([a, b]), tools.clone(), 1),
            (json!([a, b, c]), tools.clone(), 2),
            (json!([a, b, c]), json!([tools[1]]), 3),
            (json!([a, c, c]), tools.clone(), 1),
            (json!([c, a, c]), tools, 0),
            (json!([c]), none.clone(), 1),
            (none.clone(), none.clone(), 0),
            (json!([a]), none, 0),
        ]);
    }

    #[test]
    fn long_lists_are_not_kept() {
        let request = |length: usize| {
            json!({ "messages": [{ "role": "user", "content": "x".repeat(length) }] }).to_string()
        };
        for (length, reused) in [(10, 1), (MAX_BYTES, 0)] {
            let text = request(length);
            let read = ChatRequest::parse(
                &text,
                ParsedLists::default(),
                ReplyShape::Current,
                &Default::default(),
            )
            .expect("a request");
            assert_eq!(
                read.into_parsed_lists().split(&text, is_known).expect("a request").messages.reused,
                reused
            );
        }
    }
}
