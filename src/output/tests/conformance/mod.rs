//! Tests random replies with every template that writes calls: a rendered reply must parse to the
//! same reply.

mod held_out;
mod sets;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::output::detect::round_trip::RoundTrip;
use crate::output::detect::{HistoryForm, TurnBoundaries, parser_for};
use crate::output::format::{CallPart, Encoding};
use crate::output::{Format, ParsedReply};
use crate::probing::ProbeRenderer;
use crate::profile::ModelProfile;
use crate::template::Sources;
use crate::test_support::conformance;
use crate::test_support::random::Random;
use sets::{SampleCall, SampleReply};

/// Templates that lose information, which no parser can restore, with the reason.
const BROKEN: [(&str, &str); 5] = [
    (
        "vllm.tool_chat_template_gemma3_pythonic",
        "parameters are not separated by commas: `f(a=1  b=2)`",
    ),
    (
        "vllm.tool_chat_template_llama4_pythonic",
        "all values have quotes and no escapes: `f(a=\"say \"x\"\")`",
    ),
    ("vllm085.tool_chat_template_llama4_pythonic", "strings have no quotes: `f(a=x, b=y)`"),
    ("vllm.tool_chat_template_llama3.2_pythonic", "strings have no quotes: `f(a=x, b=y)`"),
    ("vllm.tool_chat_template_toolace", "strings have no quotes: `f(a=x, b=y)`"),
];

/// The number of replies for the first template of each format, and for the others. A build without
/// optimization uses fewer.
const MANY: usize = if cfg!(debug_assertions) { 10 } else { 200 };
const FEW: usize = if cfg!(debug_assertions) { 1 } else { MANY };

/// Checks the detected format of each template with random replies, and prints the times.
#[test]
fn random_replies_survive_the_round_trip() {
    let Some(folder) = conformance::folder("output formats") else { return };
    let mut found = BTreeMap::<String, Vec<String>>::new();
    let mut times = Vec::new();
    let mut all = RoundTripTally::default();
    let mut tried = BTreeMap::<String, usize>::new();
    let (mut total, mut verified, mut failed) = (0, 0, Vec::new());
    let begin = Instant::now();
    for (name, sources) in conformance::templates(&folder) {
        let profile = ModelProfile::of(&sources).unwrap();
        if !profile.templates.llama_cpp_caps().caps.supports_tool_calls {
            continue;
        }
        let begin = Instant::now();
        let format = profile.format().unwrap().clone();
        times.push((begin.elapsed(), name.clone()));
        let parallel = format.calls.as_ref().unwrap().parallel;
        let known = if format.verified { "verified" } else { "unverified" };
        let single = if format.verified && !parallel { " single" } else { "" };
        found.entry(format!("{} {known}{single}", format.family)).or_default().push(name.clone());
        total += 1;
        let broken = BROKEN.iter().any(|(broken, _)| *broken == name);
        if !format.verified {
            if !broken {
                failed.push(format!("{name}: unverified"));
            }
            continue;
        }
        verified += 1;
        if broken {
            continue;
        }
        let like = tried.entry(format!("{:?}", (&format.calls, &format.reasoning))).or_default();
        *like += 1;
        let sets = if *like == 1 { MANY } else { FEW };
        let tally = round_trips(&profile, &format, sets);
        if !tally.failures.is_empty() {
            failed.push(format!(
                "{name} ({}): {} of {}: {}",
                format.family,
                tally.failures.len(),
                tally.sets,
                tally.failures[0]
            ));
        }
        all.add(tally, &name);
    }
    if conformance::shows() {
        for (title, names) in &found {
            conformance::say(&format!("{:4} {title}: {}", names.len(), names.join(" ")));
        }
    }
    times.sort();
    all.say();
    if let (Some((median, _)), Some((worst, name))) = (times.get(times.len() / 2), times.last()) {
        conformance::say(&format!(
            "formats: {verified} of {total} templates verified; found in {median:.1?} (median), {worst:.1?} (worst, {name}); {:.1?} in all",
            begin.elapsed()
        ));
    }
    assert!(failed.is_empty(), "{} templates:\n{}", failed.len(), failed.join("\n"));
}

/// The results of one template, or of all.
#[derive(Default)]
struct RoundTripTally {
    sets: usize,
    /// The number of replies for which the template raised an error.
    refused: usize,
    /// Replies that differ from the parsed ones although the template renders both the same.
    /// Grouped by difference, with the templates.
    lost: BTreeMap<&'static str, (usize, Vec<String>)>,
    /// Text that the template writes at another place. Grouped by kind, with the templates.
    moved: BTreeMap<&'static str, Vec<String>>,
    failures: Vec<String>,
    rendering: Duration,
    reading: Duration,
}

impl RoundTripTally {
    fn add(&mut self, other: RoundTripTally, name: &str) {
        self.sets += other.sets;
        self.refused += other.refused;
        self.rendering += other.rendering;
        self.reading += other.reading;
        for (rule, (count, _)) in other.lost {
            let entry = self.lost.entry(rule).or_default();
            entry.0 += count;
            entry.1.push(name.to_owned());
        }
        for rule in other.moved.into_keys() {
            self.moved.entry(rule).or_default().push(name.to_owned());
        }
    }

    fn say(&self) {
        let names = |names: &[String]| {
            if conformance::shows() {
                names.join(" ")
            } else {
                format!("{} templates", names.len())
            }
        };
        for (rule, (count, templates)) in &self.lost {
            conformance::say(&format!("lost {count} times: {rule}: {}", names(templates)));
        }
        for (rule, templates) in &self.moved {
            conformance::say(&format!("{rule}: {}", names(templates)));
        }
        conformance::say(&format!(
            "round trip: {} replies, {} refused by the template; rendered in {:.1?}, read in {:.1?}",
            self.sets, self.refused, self.rendering, self.reading
        ));
    }
}

/// The part of the parsed reply that a text is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Content,
    Reasoning,
    Nowhere,
}

fn round_trips(profile: &ModelProfile, format: &Format, sets: usize) -> RoundTripTally {
    let renderer = ProbeRenderer::new(|probe| profile.templates.render_probe(probe));
    let tools = sets::tools();
    let trip = Trip {
        form: RoundTrip::new(&renderer).form,
        boundaries: TurnBoundaries::new(&renderer, &tools),
        renderer,
        format,
        tools,
    };
    trip.run(sets)
}

/// The round trip of replies through one template.
struct Trip<'a> {
    form: HistoryForm,
    boundaries: TurnBoundaries,
    renderer: ProbeRenderer<'a>,
    format: &'a Format,
    tools: Vec<Value>,
}

impl Trip<'_> {
    fn run(&self, sets: usize) -> RoundTripTally {
        let mut tally = RoundTripTally::default();
        let parallel = self.format.calls.as_ref().unwrap().parallel;
        let mut random = Random::new(20_260_727);
        let mut controls = BTreeMap::new();
        let tells_types = tells_types(self.format);
        for _ in 0..sets {
            let count = if parallel { 1 + random.below(5) } else { 1 };
            let reply = sets::reply(&mut random, count, &self.tools, tells_types);
            tally.sets += 1;
            let begin = Instant::now();
            let rendered = self.rendered(&reply);
            tally.rendering += begin.elapsed();
            let Some(rendered) = rendered else {
                tally.refused += 1;
                continue;
            };
            let kind =
                (reply.content.is_empty(), reply.reasoning.is_empty(), reply.calls.len().min(2));
            let (calls, shown) = *controls.entry(kind).or_insert_with(|| self.control(&reply));
            if !calls {
                tally.moved.entry("with text, calls are left out").or_default();
                continue;
            }
            for (text, own, place, moved) in [
                (
                    &reply.content,
                    Shown::Content,
                    shown.0,
                    ["with calls, content is left out", "with calls, content becomes reasoning"],
                ),
                (
                    &reply.reasoning,
                    Shown::Reasoning,
                    shown.1,
                    ["with calls, reasoning is left out", "with calls, reasoning becomes content"],
                ),
            ] {
                if !text.is_empty() && place != own {
                    tally.moved.entry(moved[usize::from(place != Shown::Nowhere)]).or_default();
                }
            }
            let begin = Instant::now();
            let (whole, single) = self.read(&rendered);
            tally.reading += begin.elapsed();
            if whole != single {
                tally.failures.push(format!(
                    "one character at a time: {single:?}\nwhole: {whole:?}\nof {rendered:?}"
                ));
            } else if let Err(because) = self.compare(&reply, &whole, shown) {
                match self.lost(&reply, &whole, &rendered) {
                    Some(rule) => tally.lost.entry(rule).or_default().0 += 1,
                    None => tally.failures.push(format!(
                        "{because}\n    of {:?}",
                        self.boundaries.reply(self.format, &rendered)
                    )),
                }
            }
        }
        if tally.refused == tally.sets {
            tally.failures.push("the template refuses all replies".to_owned());
        }
        tally
    }

    /// Renders a history that ends with this reply. None if the template raises an error.
    fn rendered(&self, reply: &SampleReply) -> Option<String> {
        let calls =
            reply.calls.iter().enumerate().map(|(i, SampleCall { name, arguments, id })| {
                self.form.call(&self.form.id(i, name, id), name, arguments)
            });
        let reasoning = Some(&*reply.reasoning).filter(|text| !text.is_empty());
        let reasoning = reasoning.map(|text| ("reasoning_content", text));
        let answer = self.form.answer(&reply.content, reasoning, calls.collect());
        self.renderer.prompt(&TurnBoundaries::history(&self.tools).message(answer))
    }

    /// Whether the template writes the calls of replies like this one, and where it writes their
    /// text. Found with a reply that is easy to parse.
    fn control(&self, like: &SampleReply) -> (bool, (Shown, Shown)) {
        let (content, reasoning) = ("Zarvox quillem.", "Brindle first, then quorv.");
        let or_empty =
            |text: &str, rare: &str| if text.is_empty() { String::new() } else { rare.to_owned() };
        let calls = like
            .calls
            .iter()
            .take(2)
            .map(|call| SampleCall { arguments: json!({}), ..call.clone() });
        let control = SampleReply {
            content: or_empty(&like.content, content),
            reasoning: or_empty(&like.reasoning, reasoning),
            calls: calls.collect(),
        };
        let Some(rendered) = self.rendered(&control) else {
            return (true, (Shown::Content, Shown::Reasoning));
        };
        let (parsed, _) = self.read(&rendered);
        let place = |text: &str, own: Shown| {
            // If text was written but not parsed, the comparison reports it.
            if !rendered.contains(text) {
                Shown::Nowhere
            } else if parsed.content.contains(text) {
                Shown::Content
            } else if parsed.reasoning.as_ref().is_some_and(|reasoning| reasoning.contains(text)) {
                Shown::Reasoning
            } else {
                own
            }
        };
        let calls = control
            .calls
            .iter()
            .all(|call| self.boundaries.reply(self.format, &rendered).contains(&call.name));
        (calls, (place(content, Shown::Content), place(reasoning, Shown::Reasoning)))
    }

    /// Parses the reply at the end of a history, as a whole and one character at a time.
    fn read(&self, rendered: &str) -> (ParsedReply, ParsedReply) {
        let reply = self.boundaries.reply(self.format, rendered);
        let parse = |pieces: &mut dyn Iterator<Item = &str>| {
            let mut parser = parser_for(self.format, &self.tools, &reply);
            for piece in pieces {
                parser.push(piece);
            }
            parser.finish().1
        };
        let mut single = reply.char_indices().map(|(at, c)| &reply[at..at + c.len_utf8()]);
        (parse(&mut std::iter::once(&*reply)), parse(&mut single))
    }

    fn compare(
        &self,
        reply: &SampleReply,
        parsed: &ParsedReply,
        shown: (Shown, Shown),
    ) -> Result<(), String> {
        if parsed.tool_calls.len() != reply.calls.len() {
            return Err(format!(
                "{} of {} calls: {parsed:?}",
                parsed.tool_calls.len(),
                reply.calls.len()
            ));
        }
        for (got, want) in parsed.tool_calls.iter().zip(&reply.calls) {
            let arguments: Value = serde_json::from_str(&got.arguments)
                .map_err(|error| format!("{error}: {}", got.arguments))?;
            if got.name != want.name || !same(&arguments, &want.arguments) {
                return Err(format!(
                    "{} {} came back as {} {arguments} {:?}",
                    want.name, want.arguments, got.name, parsed.diagnostics
                ));
            }
        }
        let (mut content, mut reasoning) = (Vec::new(), Vec::new());
        for (text, place) in [(&reply.reasoning, shown.1), (&reply.content, shown.0)] {
            match place {
                _ if text.is_empty() => {}
                Shown::Content => content.push(text.trim()),
                Shown::Reasoning => reasoning.push(text.trim()),
                Shown::Nowhere => {}
            }
        }
        let is = |got: &str, want: &[&str]| match want {
            [_, _, ..] => want.iter().all(|part| got.contains(part)),
            one => got.trim() == one.concat(),
        };
        if !is(&parsed.content, &content)
            || !is(parsed.reasoning.as_deref().unwrap_or_default(), &reasoning)
        {
            return Err(format!(
                "{content:?} and {reasoning:?} came back as {:?} and {:?}",
                parsed.content, parsed.reasoning
            ));
        }
        Ok(())
    }

    /// The rule by which the template itself loses a difference: it renders the parsed reply like
    /// the given one, and both conform to the schema. Other differences are faults of the parser.
    fn lost(
        &self,
        reply: &SampleReply,
        parsed: &ParsedReply,
        rendered: &str,
    ) -> Option<&'static str> {
        let calls = reply.calls.iter().zip(&parsed.tool_calls).map(|(call, got)| {
            let arguments = serde_json::from_str(&got.arguments).ok()?;
            Some(SampleCall { name: got.name.clone(), arguments, id: call.id.clone() })
        });
        let calls: Vec<SampleCall> = calls.collect::<Option<_>>()?;
        let read = SampleReply {
            content: parsed.content.clone(),
            reasoning: parsed.reasoning.clone().unwrap_or_default(),
            calls,
        };
        if read.calls.len() != reply.calls.len()
            || self.rendered(&read).as_deref() != Some(rendered)
        {
            return None;
        }
        let mut rule = None;
        for (got, want) in read.calls.iter().zip(&reply.calls) {
            let tool =
                self.tools.iter().find(|tool| tool["function"]["name"] == want.name.as_str())?;
            if got.name != want.name || !keeps(&got.arguments, &tool["function"]["parameters"]) {
                return None;
            }
            if !same(&got.arguments, &want.arguments) {
                rule = Some(difference(&got.arguments, &want.arguments));
            }
        }
        rule
    }
}

/// Whether the text shows the type of a value. Strings in elements have no quotes, so `12` may be a
/// string or a number.
fn tells_types(format: &Format) -> bool {
    let mut parts = format.calls.iter().flat_map(|calls| &calls.call);
    !parts.any(|part| match part {
        CallPart::Arguments(Encoding::Tagged(tags)) => tags.kind.is_none(),
        CallPart::Arguments(Encoding::Elements { .. }) => true,
        _ => false,
    })
}

/// Whether two values are equal. Numbers are compared by value.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.to_string(), b.to_string());
            let whole = |text: &str| {
                text.len() > 2 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-')
            };
            a == b || !(whole(&a) && whole(&b)) && a.parse::<f64>().ok() == b.parse::<f64>().ok()
        }
        (a, b) => a == b,
    }
}

/// Whether a value has the types of the schema.
fn keeps(value: &Value, schema: &Value) -> bool {
    match (schema["type"].as_str(), value) {
        (None, _) | (Some("string"), Value::String(_)) | (Some("boolean"), Value::Bool(_)) => true,
        (Some("integer" | "number"), Value::Number(_)) => true,
        (Some("array"), Value::Array(items)) => {
            items.iter().all(|item| keeps(item, &schema["items"]))
        }
        (Some("object"), Value::Object(members)) => {
            members.iter().all(|(key, value)| keeps(value, &schema["properties"][key]))
        }
        _ => false,
    }
}

/// Names the rule by which a template loses a difference. Nested elements (minimax-m3) omit null
/// members, write null items as nothing, and write empty objects and lists like empty strings. Some
/// templates trim strings.
fn difference(got: &Value, want: &Value) -> &'static str {
    match (got, want) {
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            let pair =
                a.iter().filter_map(|(key, a)| Some((a, b.get(key)?))).find(|(a, b)| !same(a, b));
            pair.map_or("keys", |(a, b)| difference(a, b))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).find(|(a, b)| !same(a, b)).map_or("items", |(a, b)| difference(a, b))
        }
        (Value::Object(_), Value::Object(_)) => "members that are null or empty are left out",
        (Value::Array(_), Value::Array(_)) => "empty items are left out",
        (Value::String(a), Value::String(b)) if a.trim() == b.trim() => {
            "whitespace around a string is left out"
        }
        (Value::String(_), Value::String(_)) => "strings are changed",
        (_, Value::Null) => "null is written as nothing",
        (Value::String(_), _) | (_, Value::String(_)) => {
            "strings without quotes and without a type in the schema"
        }
        _ => "empty values look the same",
    }
}

/// The profile of a template in this test.
fn profile(text: &str) -> std::sync::Arc<ModelProfile> {
    ModelProfile::of(&Sources { default: Some(text.to_owned()), ..Sources::default() }).unwrap()
}
