//! Tests when whitespace of a reply is emitted.

use super::*;
use crate::output::{Delta, ReplyParser, ReplyParserInput};

fn parser(format: Option<&Format>, calls_allowed: bool, streams: bool) -> ReplyParser {
    let mut parser = ReplyParser::new(ReplyParserInput {
        format,
        tools: tools().into(),
        calls_allowed,
        reasoning: true,
        json: false,
        parallel: true,
        new_id: Box::new(|| "id1".to_owned()),
    });
    if streams {
        parser.stream_whitespace();
    }
    parser
}

/// The content after each character of a reply, and after its end.
fn contents(mut parser: ReplyParser, reply: &str) -> Vec<String> {
    let mut content = String::new();
    let mut all = Vec::new();
    let mut add = |deltas: Vec<Delta>| {
        for delta in deltas {
            if let Delta::Content(text) = delta {
                content.push_str(&text);
            }
        }
        all.push(content.clone());
    };
    for c in reply.chars() {
        add(parser.push(c.encode_utf8(&mut [0; 4])));
    }
    let (rest, parsed) = parser.finish();
    add(rest);
    assert_eq!(all.last(), Some(&parsed.content), "{reply:?}");
    all
}

#[test]
fn whitespace_inside_plain_content_is_emitted_at_once() {
    let reply = "One,\n\n two  three \n";
    for format in [None, Some(super::family("hermes"))] {
        let all = contents(parser(format.as_ref(), false, true), reply);
        let expected: Vec<&str> = (1..=reply.len()).map(|end| &reply[..end]).collect();
        assert_eq!(all[..reply.len()], expected);
        assert_eq!(all[reply.len()], reply);
        // The same message without it.
        let held = contents(parser(format.as_ref(), false, false), reply);
        assert_eq!(held.last(), all.last());
        assert_eq!(held[4], "One,");
    }
}

#[test]
fn whitespace_that_may_belong_to_markup_is_held() {
    let hermes = super::family("hermes");
    let call = format!("One.\n{C}");
    let all = contents(parser(Some(&hermes), true, true), &call);
    assert_eq!((all[4].as_str(), all.last().map(String::as_str)), ("One.", Some("One.")));
    // Before the content there may be reasoning.
    let reply = "<think>\nr\n</think>\n\nOne. two";
    let all = contents(parser(Some(&hermes), false, true), reply);
    assert_eq!(all.last().map(String::as_str), Some("One. two"));
    assert_eq!(all[reply.len() - 4], "One. ");
}
