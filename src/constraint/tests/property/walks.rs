//! Walks through the grammar, random or of a model that has something else in mind: what the grammar
//! allows is read as a call that obeys the schema, with nothing left over.

use super::*;
use crate::constraint::tests::random::WalkRandom;

/// A schema with values of every kind. No text is long, so that walks end.
fn tools() -> Vec<Value> {
    vec![
        tool(
            "save file",
            json!({"type": "object", "additionalProperties": false, "required": ["path", "text"], "properties": {
                "path": {"type": "string"},
                "text": {"type": "string"},
                "$mode": {"enum": ["a", "ab", "b c", "</", 1, null]},
            }}),
        ),
        tool(
            "save",
            json!({"type": "object", "additionalProperties": false, "required": ["n"], "properties": {
                "n": {"type": "integer"},
                "list": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 8}},
                "o": {"type": "object", "additionalProperties": false, "properties": {
                    "x y": {"type": "boolean"}, "t": {"type": "string", "maxLength": 6}}},
                "u": {"type": ["string", "null"]},
                "d": {"type": "string", "pattern": "^[a-c</>]{1,5}$"},
                "p": {"type": "object", "allOf": [
                    {"properties": {"i": {"type": ["integer", "string"]}, "e": {"enum": ["x", "y", 2]}}, "required": ["i"]},
                    {"properties": {"i": {"type": ["integer", "null"]}, "e": {"enum": [2, "y", "z"]}}}]},
            }}),
        ),
    ]
}

/// Calls that break the schemas of [`tools`]. A model may write them all the same.
fn faulty_calls() -> Vec<(&'static str, Value)> {
    vec![
        ("save", json!({"n": "seven", "temperature": 10})),
        ("save", json!({"list": ["a", 1, "far too long for this", "d"], "n": 1.5})),
        ("save", json!({"n": 1, "o": {"x y": "yes", "t": null, "z": [1]}, "d": "xyz</d>"})),
        ("save", json!({"n": null, "u": {"a": {"b": "</"}}, "n ": 2})),
        ("save file", json!({"text": "a\nb", "$mode": "c"})),
        ("save file", json!({"path": ["/tmp"], "text": true, "$mode": "ab", "path2": "x"})),
        ("delete", json!({"path": "/"})),
        ("", json!({})),
    ]
}

/// How many tokens of its intention a model gives up at once.
const AHEAD: usize = 30;

/// The next token that a model wants to write and may write, and what it wants to write after it.
/// None if none of the next tokens is allowed.
fn intended<'a>(constraint: &mut Constraint, intention: &'a [i32]) -> Option<(i32, &'a [i32])> {
    let is_allowed = |token: &i32| constraint.allows(std::slice::from_ref(token)).unwrap();
    let at = intention.iter().take(AHEAD).position(is_allowed)?;
    Some((intention[at], &intention[at + 1..]))
}

/// Writes what `intention` says as far as it is allowed, then draws allowed tokens at random until
/// the reply ends. Tokens of formats are preferred, increasingly so with length, so that walks end.
fn walk(constraint: &mut Constraint, mut intention: &[i32], seed: u64) -> Result<Vec<i32>, String> {
    let mut random = WalkRandom(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut tokens = Vec::new();
    for step in 0..3000 {
        if constraint.is_finished() || (step > 60 && constraint.may_end().unwrap()) {
            return Ok(tokens);
        }
        if let Some((token, rest)) = intended(constraint, intention) {
            intention = rest;
            constraint.accept(token).unwrap();
            tokens.push(token);
            continue;
        }
        intention = &[];
        let mask = constraint
            .mask()
            .map_err(|error| format!("{} after {:?}", error.message(), spelled(&tokens)))?;
        let count = *FIRST_CONTROL + TAGS.len() + 1;
        let allowed: Vec<i32> =
            (0..count as i32).filter(|token| mask.is_allowed(*token as u32)).collect();
        if allowed.is_empty() {
            return Err(format!("a dead end after {:?}", spelled(&tokens)));
        }
        let is_marker = |token: &&i32| {
            **token >= 256 || b"}]\"'<>/)\n|".contains(&u8::try_from(**token).unwrap_or(0))
        };
        let is_ascii = |token: &&i32| (32..127).contains(*token) || **token == 10 || **token == 13;
        let markers: Vec<i32> = allowed.iter().filter(is_marker).copied().collect();
        let ascii: Vec<i32> = allowed.iter().filter(is_ascii).copied().collect();
        let pool = match random.below(20) {
            0 => &allowed,
            draw if draw < 8 + step / 50 && !markers.is_empty() => &markers,
            _ if ascii.is_empty() => &allowed,
            _ => &ascii,
        };
        let token = pool[random.below(pool.len())];
        constraint.accept(token).unwrap();
        if token as usize == count - 1 {
            return Ok(tokens);
        }
        tokens.push(token);
        // Close what is open: from here on, the shortest way is to follow the format.
        if step > 300 {
            close(constraint, &mut tokens);
        }
    }
    Ok(Vec::new())
}

/// Accepts a closing text if one is allowed.
fn close(constraint: &mut Constraint, tokens: &mut Vec<i32>) {
    const CLOSINGS: &[&str] = &[
        "\n</parameter>\n</function>",
        "</parameter>\n</function>",
        "</parameter>\n</invoke>",
        "</param></function>",
        "\"}",
        "'",
        "\"",
    ];
    let tags =
        TAGS.iter().filter(|tag| tag.contains('/') || tag.contains("close")).map(String::as_str);
    for text in CLOSINGS.iter().copied().chain(tags) {
        let bytes: Vec<i32> = text.bytes().map(i32::from).collect();
        if constraint.allows(&bytes).unwrap() {
            for token in bytes {
                constraint.accept(token).unwrap();
                tokens.push(token);
            }
            return;
        }
    }
}

/// What is wrong with the calls of a walk; None if nothing is.
fn fault(parsed: &ParsedReply, tools: &[Value]) -> Option<String> {
    if parsed.tool_calls.is_empty() {
        return Some("no call".into());
    }
    for call in &parsed.tool_calls {
        let Some(tool) = tools.iter().find(|tool| tool["function"]["name"] == *call.name) else {
            return Some(format!("name {:?}", call.name));
        };
        let Ok(arguments) = serde_json::from_str(&call.arguments) else {
            return Some(format!("arguments {}", call.arguments));
        };
        if let Some(violation) = violation(&tool["function"]["parameters"], &arguments) {
            return Some(format!("{violation} in {}", call.arguments));
        }
    }
    None
}

/// The first violation of a schema, for the keywords of [`tools`].
fn violation(schema: &Value, value: &Value) -> Option<String> {
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = |name: &&str| match *name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        "string" => value.is_string(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    if !types.is_empty() && !types.iter().any(is) {
        return Some(format!("{value} is not {types:?}"));
    }
    if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
        return Some(format!("{value} is not in {}", schema["enum"]));
    }
    let mut parts = schema["allOf"].as_array().into_iter().flatten();
    if let Some(found) = parts.find_map(|part| violation(part, value)) {
        return Some(found);
    }
    let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    if value.as_str().is_some_and(|text| text.chars().count() as u64 > most) {
        return Some(format!("{value} is too long"));
    }
    let in_pattern = |c: char| "abc</>".contains(c);
    if schema.get("pattern").is_some()
        && !value.as_str().is_some_and(|text| text.chars().all(in_pattern))
    {
        return Some(format!("{value} does not match"));
    }
    if let Some(items) = value.as_array() {
        if items.len() as u64 > schema["maxItems"].as_u64().unwrap_or(u64::MAX) {
            return Some("too many items".into());
        }
        return items.iter().find_map(|item| violation(&schema["items"], item));
    }
    let members = value.as_object()?;
    let required = schema["required"].as_array();
    if let Some(name) = required
        .into_iter()
        .flatten()
        .find(|name| value.get(name.as_str().unwrap_or_default()).is_none())
    {
        return Some(format!("{name} is missing"));
    }
    members.iter().find_map(|(key, value)| match schema["properties"].get(key) {
        Some(schema) => violation(schema, value),
        None if schema.get("additionalProperties").is_none() => None,
        None => Some(format!("the key {key:?}")),
    })
}

/// What a model has in mind at the start of a reply: nothing, or a call that breaks a schema, in the
/// format under test or as JSON.
fn intentions(subject: &TestedFormat, random: usize) -> Vec<Vec<i32>> {
    let faulty = faulty_calls().into_iter().flat_map(|(name, arguments)| {
        let json = json!({"name": name, "arguments": arguments}).to_string();
        let id = "aB3dE6gH9".into();
        let (text, values) = subject.written(&WrittenCall { name: name.into(), arguments, id });
        [subject.tokens(&text, &values), subject.tokens(&json, &[])]
    });
    std::iter::repeat_n(Vec::new(), random).chain(faulty).collect()
}

#[test]
fn random_walks() {
    let (mut findings, mut tried) = (Findings::default(), 0);
    let tools = tools();
    for (index, subject) in subjects(time().is_some()).into_iter().enumerate() {
        let lark = match subject.lark(&tools) {
            Ok(lark) => lark,
            Err(error) => {
                // The name with a space, or the key with a space, cannot be written.
                assert!(
                    error.message().contains("cannot be written"),
                    "{}: {}",
                    subject.name,
                    error.message()
                );
                match subject.lark(&tools[1..]) {
                    Ok(lark) => lark,
                    Err(_) => continue,
                }
            }
        };
        let at_length = time().is_some();
        let all = intentions(&subject, if at_length { 20 } else { 2 });
        // Without a time, two random walks and two of the others.
        let is_tried = |at: usize| at_length || at < 2 || (at + index).is_multiple_of(8);
        for (seed, intention) in all.iter().enumerate().filter(|(at, _)| is_tried(*at)) {
            let mut constraint = match GRAMMARS.compile(&lark, &CompileTime::unlimited()) {
                Ok(constraint) => constraint,
                Err(error) => {
                    findings
                        .add("does not compile", format!("{}: {}", subject.name, error.message()));
                    break;
                }
            };
            let tokens = match walk(&mut constraint, intention, (seed * 1000 + index) as u64 + 1) {
                Ok(tokens) if tokens.is_empty() => continue,
                Ok(tokens) => tokens,
                Err(end) => {
                    findings.add("dead ends", format!("{}: {end}", subject.name));
                    continue;
                }
            };
            tried += 1;
            let text = spelled(&tokens);
            if text.contains(char::REPLACEMENT_CHARACTER) {
                continue;
            }
            match subject.read(&tools, &text) {
                Ok(parsed) => {
                    // In a reply of several messages, others may precede the call.
                    let left = || leftover(&parsed).filter(|_| subject.format.channels.is_none());
                    if let Some(fault) = fault(&parsed, &tools).or_else(left) {
                        findings.add(
                            &format!("{}: misread", subject.name),
                            format!("{text:?}\n        {fault}"),
                        );
                    }
                }
                Err(streams) => {
                    findings.add("streams differ", format!("{}: {text:?}: {streams}", subject.name))
                }
            }
        }
    }
    findings.check(tried);
}
