//! The messages and tools of a chat's last request, used again: a conversation that goes on is
//! mostly what it was.
//!
//! In: the text of a request. Out: its members as JSON. Of `messages` and `tools` only those
//! elements are parsed that are not, byte for byte, what the last request had in their place.

use serde::de::DeserializeOwned;
use serde_json::{Deserializer, Map, Value};

/// Bytes of lists that are kept. Longer ones, which pictures make, are parsed anew.
const MOST_BYTES: usize = 1 << 20;

/// The lists of a request.
#[derive(Debug, Default)]
pub struct ParsedLists {
    messages: ParsedList,
    tools: ParsedList,
}

/// A list of objects: the texts of its elements, one behind the other, and what they say.
#[derive(Debug, Default)]
pub(super) struct ParsedList {
    pub(super) texts: ItemTexts,
    pub(super) items: Vec<Value>,
    /// How many at the start are those of the request before.
    pub(super) same: usize,
}

/// The JSON of a list's elements, one behind the other.
#[derive(Debug, Default)]
pub(super) struct ItemTexts {
    all: String,
    ends: Vec<usize>,
}

impl ItemTexts {
    fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        Some(&self.all[self.start(index)..end])
    }

    /// All of them, if there are so many.
    pub(super) fn of(&self, count: usize) -> Option<&str> {
        (self.ends.len() == count).then_some(self.all.as_str())
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    fn push(&mut self, text: &str) {
        self.all.push_str(text);
        self.ends.push(self.all.len());
    }
}

impl ParsedList {
    /// Leaves only those elements that are the same.
    fn cut(&mut self) {
        self.texts.all.truncate(self.texts.start(self.same));
        self.texts.ends.truncate(self.same);
        self.items.truncate(self.same);
    }
}

/// A request taken apart.
#[derive(Debug, Default)]
pub(super) struct RequestMembers {
    pub(super) messages: ParsedList,
    pub(super) tools: ParsedList,
    pub(super) others: Map<String, Value>,
}

impl ParsedLists {
    /// Lists of a request whose elements are objects, for the next one.
    pub(super) fn of(
        messages: (ItemTexts, Vec<Value>),
        tools: (ItemTexts, Vec<Value>),
    ) -> ParsedLists {
        // A request that was not read from text has none.
        let is_whole =
            [&messages, &tools].iter().all(|(texts, items)| texts.ends.len() == items.len());
        if !is_whole || messages.0.all.len() + tools.0.all.len() > MOST_BYTES {
            return ParsedLists::default();
        }
        let list = |(texts, items)| ParsedList { texts, items, same: 0 };
        ParsedLists { messages: list(messages), tools: list(tools) }
    }

    /// Takes a request apart. None where it is no object, or a list is neither an array nor null.
    pub(super) fn split(self, text: &str) -> Option<RequestMembers> {
        let (mut known_messages, mut known_tools) = (Some(self.messages), Some(self.tools));
        let mut members = RequestMembers::default();
        let mut rest = Rest { text, at: 0 };
        rest.sequence(b'{', b'}', |rest| {
            let name: String = rest.value()?;
            rest.eat(b':').then_some(())?;
            // Of members of one name the last counts.
            match name.as_str() {
                "messages" => {
                    members.messages = rest.list(known_messages.take().unwrap_or_default())?
                }
                "tools" => members.tools = rest.list(known_tools.take().unwrap_or_default())?,
                _ => drop(members.others.insert(name, rest.value()?)),
            }
            Some(())
        })?;
        rest.peek().is_none().then_some(members)
    }
}

/// JSON text that is still to be read.
struct Rest<'a> {
    text: &'a str,
    at: usize,
}

impl Rest<'_> {
    /// The next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let blanks =
            rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.at += blanks;
        rest.get(blanks).copied()
    }

    /// Goes over this byte, if it is the next one.
    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut values = Deserializer::from_str(&self.text[self.at..]).into_iter();
        let value = values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(value)
    }

    /// What `item` reads, any number of times, between brackets and commas.
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

    /// An array or null. Elements that `list` has in their place are taken over, up to the first
    /// that differs.
    fn list(&mut self, mut list: ParsedList) -> Option<ParsedList> {
        if self.peek() == Some(b'n') {
            return self.value::<()>().map(|()| ParsedList::default());
        }
        list.same = 0;
        let mut is_same = true;
        self.sequence(b'[', b']', |rest| {
            if is_same {
                let known = list
                    .texts
                    .get(list.same)
                    .filter(|known| rest.text[rest.at..].starts_with(known));
                if let Some(known) = known {
                    // It is an object, which nothing behind it makes another value.
                    rest.at += known.len();
                    list.same += 1;
                    return Some(());
                }
                is_same = false;
                list.cut();
            }
            let start = rest.at;
            list.items.push(rest.value()?);
            list.texts.push(&rest.text[start..rest.at]);
            Some(())
        })?;
        if is_same {
            list.cut();
        }
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ChatRequest;
    use serde_json::json;

    fn parse(text: &str) -> Option<RequestMembers> {
        ParsedLists::default().split(text)
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
    fn what_is_no_request_is_not_taken_apart() {
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

    /// Requests one behind the other: each has the messages and tools it has alone, and as many
    /// taken over.
    #[track_caller]
    fn check(requests: &[(Value, Value, usize)]) {
        let mut known = ParsedLists::default();
        for (messages, tools, same) in requests {
            let text = json!({ "messages": messages, "tools": tools, "max_tokens": 1 }).to_string();
            let members = known.split(&text).expect("a request");
            assert_eq!(members.messages.same, *same, "{text}");
            assert_eq!(
                json!([members.messages.items, members.tools.items]),
                json!([messages, tools])
            );
            let (messages, tools) = (members.messages, members.tools);
            known = ParsedLists::of((messages.texts, messages.items), (tools.texts, tools.items));
        }
    }

    #[test]
    fn elements_are_taken_over_up_to_the_first_that_differs() {
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
        for (length, same) in [(10, 1), (MOST_BYTES, 0)] {
            let text = request(length);
            let read = ChatRequest::parse(&text, ParsedLists::default()).expect("a request");
            assert_eq!(
                read.into_parsed_lists().split(&text).expect("a request").messages.same,
                same
            );
        }
    }
}
