//! The grammar and the reply parser agree, for every family, for the formats of all templates, and
//! for the polyfill, in both directions:
//!
//! - A call that can be expressed is in the language of the grammar, and is read as itself.
//! - A random walk through the grammar is read as a call that obeys the schema, and nothing else.
//!
//! What cannot be expressed is refused by the grammar, so it is never cut.

mod drafts;
mod samples;
mod walks;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::*;
use crate::output::call_writer::{ValueStyle, WrittenCall, section_text};
use crate::output::{ParsedReply, PreparedFormat, ReplyParser, ReplyParserInput, families};
use crate::profile::ModelProfile;
use crate::test_support::{call_requirements, conformance};
use samples::Sample;

/// The texts of all tags of all families. Some of them are control tokens in some models.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut tags: Vec<String> = Vec::new();
    for format in families::all().iter().chain([&families::polyfilled()]) {
        tags.extend(
            format.texts().into_iter().flat_map(crate::output::format::tags).map(str::to_owned),
        );
    }
    tags.retain(|tag| tag.len() > 2 && tag.len() < 40);
    tags.sort();
    tags.dedup();
    tags
});

/// The first token that is a control token. The tokens before it are bytes, and tags as text.
static FIRST_CONTROL: LazyLock<usize> = LazyLock::new(|| 256 + TAGS.len() + PIECES.len());

/// Texts that are one token.
const PIECES: &[&str] =
    &["\n", "\\n", "\", \"", "\": ", "<![CDATA[", "]]>", "</", "'", "\\\"", "='", "null", "true"];

static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| {
    Grammars::new(|| {
        let bytes = (0..=255u8).map(|byte| vec![byte]);
        let words = TAGS.iter().map(|tag| tag.as_bytes().to_vec());
        let pieces = PIECES.iter().map(|text| text.as_bytes().to_vec());
        let control = TAGS.iter().map(|tag| [&[0xFF], tag.as_bytes()].concat());
        let end = [b"\xFF<|end-of-text|>".to_vec()];
        Vocabulary {
            token_bytes: bytes.chain(words).chain(pieces).chain(control).chain(end).collect(),
            end_tokens: vec![(*FIRST_CONTROL + TAGS.len()) as u32],
            tokenize: Box::new(|text| text.bytes().map(u32::from).collect()),
        }
    })
});

/// The tags that are control tokens in most vocabularies that have them.
fn is_control(tag: &str) -> bool {
    tag.contains(['|', '｜', '▁'])
        || tag.chars().all(|c| c.is_ascii_uppercase() || "[]/_".contains(c))
}

fn controls(text: &str) -> Vec<(Range<usize>, i32)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let tag = TAGS
            .iter()
            .enumerate()
            .filter(|(_, tag)| is_control(tag) && text[at..].starts_with(tag.as_str()));
        match tag.max_by_key(|(_, tag)| tag.len()) {
            Some((index, tag)) => {
                found.push((at..at + tag.len(), (*FIRST_CONTROL + index) as i32));
                at += tag.len();
            }
            None => at += text[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

fn no_controls(_: &str) -> Vec<(Range<usize>, i32)> {
    Vec::new()
}

/// A format under test.
struct TestedFormat {
    name: String,
    format: Format,
    calls: CallSyntax,
    prepared: PreparedFormat,
    style: ValueStyle,
    /// Whether tags are control tokens.
    controls: bool,
}

impl TestedFormat {
    fn new(name: &str, format: Format, controls: bool) -> Option<TestedFormat> {
        let calls = format.calls.clone().filter(|calls| !calls.call.is_empty())?;
        let style = if calls.is_python() { ValueStyle::repr() } else { ValueStyle::default() };
        let name = if controls { format!("{name} (control tokens)") } else { name.to_owned() };
        let prepared = PreparedFormat::new(&format);
        Some(TestedFormat { name, prepared, format, calls, style, controls })
    }

    /// The text of a call, and the ranges of its name and its values.
    fn written(&self, call: &WrittenCall) -> (String, Vec<Range<usize>>) {
        let written = section_text(&self.calls, std::slice::from_ref(call), self.style);
        // The prompt ends with the start of the turn.
        let turn = self.format.channels.as_ref().map_or("", |channels| &*channels.turn);
        let text = written.text.strip_prefix(turn).unwrap_or(&written.text).to_owned();
        let cut = written.text.len() - text.len();
        let values = written.values.iter().map(|value| &value.bytes);
        (text, values.map(|bytes| bytes.start - cut..bytes.end - cut).collect())
    }

    fn parser(&self, tools: &[Value]) -> ReplyParser {
        let input = ReplyParserInput {
            format: Some(&self.format),
            tools: tools.to_vec().into(),
            calls_allowed: true,
            reasoning: true,
            json: false,
            parallel: true,
            new_id: Box::new(|| "id".into()),
        };
        let mut parser = ReplyParser::with_prepared(&self.prepared, input);
        if let Some(channels) = &self.format.channels {
            parser.prime(&channels.turn, false);
        }
        parser
    }

    /// The parsed reply. One character at a time, the result must be the same.
    fn read(&self, tools: &[Value], text: &str) -> Result<ParsedReply, String> {
        let mut parser = self.parser(tools);
        parser.push(text);
        let (_, whole) = parser.finish();
        let mut parser = self.parser(tools);
        for (at, c) in text.char_indices() {
            parser.push(&text[at..at + c.len_utf8()]);
        }
        let (_, single) = parser.finish();
        if whole == single {
            Ok(whole)
        } else {
            Err(format!("streamed {single:?}, whole {whole:?}"))
        }
    }

    /// Whether the encoding cannot express the arguments, though they may be read.
    fn is_inexpressible(&self, sample: &Sample) -> bool {
        let arguments = &sample.arguments;
        let encoding = self.calls.call.iter().find_map(|part| match part {
            CallPart::Arguments(encoding) => Some(encoding),
            _ => None,
        });
        match encoding {
            // Texts in nested elements cannot have the start of an element.
            Some(Encoding::Tagged(Tagged { kind: Some(kind), .. })) => {
                let start = kind.item.as_ref().and_then(|item| item.split_whitespace().next());
                let is_nested = |value: &&Value| value.is_array() || value.is_object();
                let values = arguments.as_object().into_iter().flat_map(|members| members.values());
                let mut nested = values.filter(is_nested);
                start.is_some_and(|start| nested.any(|value| value.to_string().contains(start)))
            }
            Some(Encoding::Elements { prefix, item }) => {
                let schema = &sample.tools[1]["function"]["parameters"];
                let has_markup = match prefix.is_empty() {
                    true => {
                        let texts = self.format.texts().into_iter();
                        let tags: Vec<_> = texts.flat_map(crate::output::format::tags).collect();
                        has_tags(arguments, &mut Vec::new(), &tags)
                    }
                    false => arguments.to_string().contains(&**prefix),
                };
                has_markup || !are_elements(arguments, schema, item.is_empty(), false)
            }
            _ => false,
        }
    }

    fn lark(&self, tools: &[Value]) -> crate::error::Result<String> {
        let requirements = ReplyRequirements { untagged: true, ..call_requirements(tools) };
        let specials: SpecialTokenFinder = if self.controls { &controls } else { &no_controls };
        let grammar = reply_grammar(Some(&self.format), &requirements, specials)?;
        Ok(grammar.lark.expect("a forced call has a grammar"))
    }

    /// The tokens of a text. Texts in names and values are never control tokens.
    fn tokens(&self, text: &str, values: &[Range<usize>]) -> Vec<i32> {
        let mut controls = if self.controls { controls(text) } else { Vec::new() };
        let overlaps = |range: &Range<usize>, value: &Range<usize>| {
            value.start < range.end && range.start < value.end
        };
        controls.retain(|(range, _)| !values.iter().any(|value| overlaps(range, value)));
        let mut tokens = Vec::new();
        let mut at = 0;
        for (range, token) in controls {
            tokens.extend(text.as_bytes()[at..range.start].iter().map(|byte| i32::from(*byte)));
            tokens.push(token);
            at = range.end;
        }
        tokens.extend(text.as_bytes()[at..].iter().map(|byte| i32::from(*byte)));
        tokens
    }

    /// Whether the grammar allows the tokens. The error is where they are refused.
    fn allows(&self, mut constraint: Constraint, tokens: &[i32]) -> Result<(), String> {
        for (at, token) in tokens.iter().enumerate() {
            if !constraint.validate(*token).unwrap() {
                let before = spelled(&tokens[at.saturating_sub(60)..at]);
                return Err(format!("refused after {before:?}"));
            }
            constraint.accept(*token).unwrap();
        }
        if constraint.may_end().unwrap() { Ok(()) } else { Err("more must follow".into()) }
    }
}

/// Whether a text has a tag of an element around it, or of the format.
fn has_tags(value: &Value, around: &mut Vec<String>, tags: &[&str]) -> bool {
    match value {
        Value::String(text) => {
            let own = |name: &String| {
                text.contains(&format!("<{name}>")) || text.contains(&format!("</{name}>"))
            };
            around.iter().any(own) || tags.iter().any(|tag| text.contains(tag))
        }
        Value::Array(items) => {
            around.push("item".into());
            let found = items.iter().any(|item| has_tags(item, around, tags));
            around.pop();
            found
        }
        Value::Object(members) => members.iter().any(|(key, value)| {
            around.push(key.clone());
            let found = has_tags(value, around, tags);
            around.pop();
            found
        }),
        _ => false,
    }
}

/// Whether a value can be written as elements. Without a schema, objects are JSON, and a text that
/// begins with a tag is an object. If an array repeats the element of its key, it has items and a
/// schema, and is in no other array.
fn are_elements(value: &Value, schema: &Value, repeats: bool, in_array: bool) -> bool {
    match value {
        Value::String(text) => schema != &json!({}) || !text.trim_start().starts_with('<'),
        Value::Array(items) => {
            let is_possible =
                !repeats || schema.get("type").is_some() && !in_array && !items.is_empty();
            let any = json!({});
            let schema = schema.get("items").unwrap_or(&any);
            is_possible && items.iter().all(|item| are_elements(item, schema, repeats, true))
        }
        Value::Object(members) => members.iter().all(|(key, value)| {
            let schema = schema.get("properties").and_then(|all| all.get(key));
            schema.is_some_and(|schema| are_elements(value, schema, repeats, false))
        }),
        _ => true,
    }
}

/// The bytes of tokens, as text.
fn spelled(tokens: &[i32]) -> String {
    let mut bytes = Vec::new();
    for token in tokens {
        let token = *token as usize;
        match token {
            0..256 => bytes.push(token as u8),
            _ if token < 256 + TAGS.len() => bytes.extend(TAGS[token - 256].bytes()),
            _ if token < *FIRST_CONTROL => bytes.extend(PIECES[token - 256 - TAGS.len()].bytes()),
            _ if token < *FIRST_CONTROL + TAGS.len() => {
                bytes.extend(TAGS[token - *FIRST_CONTROL].bytes())
            }
            _ => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The difference of a parsed reply from this single call. None if the reply is that call.
fn difference(parsed: &ParsedReply, name: &str, arguments: &Value) -> Option<String> {
    let [call] = parsed.tool_calls.as_slice() else {
        return Some(format!(
            "{} calls, content {:?}",
            parsed.tool_calls.len(),
            shown(&parsed.content)
        ));
    };
    if call.name != name {
        return Some(format!("name {:?}", call.name));
    }
    if serde_json::from_str::<Value>(&call.arguments).ok().as_ref() != Some(arguments) {
        return Some(format!("arguments {}", shown(&call.arguments)));
    }
    leftover(parsed)
}

/// What a reply has besides its calls.
fn leftover(parsed: &ParsedReply) -> Option<String> {
    content_left(parsed).or_else(|| {
        let codes = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code);
        codes.filter(|code| *code != "id_generated").map(|code| format!("diagnostic {code}")).next()
    })
}

fn content_left(parsed: &ParsedReply) -> Option<String> {
    let (content, reasoning) = (&parsed.content, &parsed.reasoning);
    let is_left = !content.trim().is_empty() || reasoning.is_some();
    is_left.then(|| format!("content {content:?} and reasoning {reasoning:?} are left"))
}

fn shown(text: &str) -> String {
    if text.chars().count() > 300 {
        format!("{}…", text.chars().take(300).collect::<String>())
    } else {
        text.to_owned()
    }
}

/// Every family, the polyfill, nested elements, and every different format of the templates in the
/// conformance set.
fn subjects(templates: bool) -> Vec<TestedFormat> {
    let mut formats: Vec<(String, Format)> = families::all()
        .into_iter()
        .chain([families::polyfilled()])
        .map(|format| (format.family.to_string(), format))
        .chain([
            ("nested elements".to_owned(), super::families::nested_elements()),
            ("types before keys".to_owned(), super::families::types_before_keys(false)),
            ("nested, types first".to_owned(), super::families::types_before_keys(true)),
            ("repeated elements".to_owned(), super::families::repeated_elements()),
        ])
        .chain(ENTITY_SETS.into_iter().map(|entities| {
            let name = format!("entities in JSON, {} of them", entities.len());
            (name, super::families::entities_in_json(entities))
        }))
        .chain([
            ("elements".to_owned(), super::families::calls_of_elements("", "item")),
            ("elements that repeat".to_owned(), super::families::calls_of_elements("", "")),
        ])
        .collect();
    if templates && let Some(folder) = conformance::folder("grammars and parsers") {
        let mut seen: Vec<_> = formats
            .iter()
            .map(|(_, format)| (format.calls.clone(), format.channels.clone()))
            .collect();
        for (name, sources) in conformance::templates(&folder) {
            let profile = ModelProfile::of(&sources).unwrap();
            let Some(format) = profile.format() else { continue };
            let kind = (format.calls.clone(), format.channels.clone());
            if !seen.contains(&kind) {
                seen.push(kind);
                formats.push((format!("{} of {name}", format.family), format.clone()));
            }
        }
    }
    let both = formats.into_iter().flat_map(|(name, format)| {
        [false, true].map(|controls| TestedFormat::new(&name, format.clone(), controls))
    });
    both.flatten().collect()
}

/// Findings, by kind.
#[derive(Default)]
struct Findings(BTreeMap<String, Vec<String>>);

impl Findings {
    fn add(&mut self, kind: &str, finding: String) {
        self.0.entry(kind.to_owned()).or_default().push(finding);
    }

    fn check(&self, tried: usize) {
        conformance::say(&format!("grammar and parser: {tried} replies"));
        if time().is_some() {
            let wrong: usize = self.0.values().map(Vec::len).sum();
            conformance::say(&format!("harden: inputs={tried} wrong={wrong}"));
        }
        let mut report = String::new();
        for (kind, findings) in &self.0 {
            report.push_str(&format!("{kind}: {}\n", findings.len()));
            let limit = if conformance::shows() { usize::MAX } else { 3 };
            findings
                .iter()
                .take(limit)
                .for_each(|finding| report.push_str(&format!("    {finding}\n")));
        }
        assert!(self.0.is_empty(), "{report}");
    }
}

/// One of so many samples of each format is tried. `make harden` sets a time, in which further
/// samples and the formats of all templates are tried.
const SAMPLED: usize = 97;

/// The time in which further samples are tried.
fn time() -> Option<Duration> {
    let seconds = std::env::var("LLB_PROPERTY_SECONDS").ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// A call that the grammar allows is read as itself. A call that is read as itself is allowed.
#[test]
fn written_calls() {
    let (mut findings, mut tried) = (Findings::default(), 0);
    let end = time().map(|time| Instant::now() + time);
    let subjects = subjects(end.is_some());
    for round in 0..if end.is_some() { SAMPLED } else { 1 } {
        for (offset, subject) in subjects.iter().enumerate() {
            if round > 0 && end.is_some_and(|end| Instant::now() > end) {
                break;
            }
            let mut grammar = None;
            let samples = samples::all(subject).into_iter();
            for sample in samples.skip((offset + round) % SAMPLED).step_by(SAMPLED) {
                tried += 1;
                // The order of properties matters, which values do not compare.
                let tools = json!(sample.tools).to_string();
                if grammar.as_ref().is_none_or(|(built, _)| *built != tools) {
                    grammar = Some((tools, subject.lark(&sample.tools)));
                }
                let lark = grammar.as_ref().map(|(_, lark)| lark.as_ref()).unwrap();
                check(subject, &sample, lark, &mut findings);
            }
        }
    }
    findings.check(tried);
}

fn check(
    subject: &TestedFormat,
    sample: &Sample,
    lark: Result<&String, &crate::error::Error>,
    findings: &mut Findings,
) {
    let Sample { what, tools, name, arguments } = sample;
    let id = "aB3dE6gH9".into();
    let call = WrittenCall { name: name.clone(), arguments: arguments.clone(), id };
    let (text, values) = subject.written(&call);
    let allowed = match lark.map(|lark| GRAMMARS.compile(lark, &CompileTime::unlimited())) {
        Ok(Ok(constraint)) => subject.allows(constraint, &subject.tokens(&text, &values)),
        Ok(Err(error)) => {
            let finding = format!("{}: {what}: {}", subject.name, error.message());
            return findings.add("does not compile", finding);
        }
        Err(error) => {
            assert_eq!(error.code(), Code::SchemaUnsupported);
            Err(error.message().to_owned())
        }
    };
    let parsed = match subject.read(tools, &text) {
        Ok(parsed) => parsed,
        Err(streams) => {
            return findings.add("streams differ", format!("{}: {what}: {streams}", subject.name));
        }
    };
    let shown = shown(&format!("{text:?}"));
    let difference = difference(&parsed, name, arguments).filter(|_| {
        // Without a type, the text `1` is a number and a string.
        let read =
            parsed.tool_calls.first().and_then(|call| serde_json::from_str(&call.arguments).ok());
        let again = read.map(|arguments| WrittenCall { arguments, ..call.clone() });
        leftover(&parsed).is_some() || again.is_none_or(|again| subject.written(&again).0 != text)
    });
    match (allowed, difference) {
        (Ok(()), Some(difference)) => findings.add(
            &format!("{}: cut", subject.name),
            format!("{what}: {shown}\n        {difference}"),
        ),
        (Err(reason), None) if !subject.is_inexpressible(sample) => findings.add(
            &format!("{}: excluded", subject.name),
            format!("{what}: {shown}\n        {reason}"),
        ),
        _ => {}
    }
}
