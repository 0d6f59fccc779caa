//! Compares rendering a request and compiling a template with transformers, bare jinja2,
//! @huggingface/jinja and minijinja.
//!
//! All sides do the same work: they turn the JSON text of a conversation into a prompt, using a
//! compiled template. A row is measured only if all sides write the same text, which must equal the
//! golden if there is one. Peers are separate processes that time themselves, except for minijinja,
//! which runs in this process as configured in tests/second_engine. Every round measures all sides
//! in rotating order. A figure is the median of the rounds, and a ratio is the median of the ratios
//! of each round. Nothing is asserted. `LLB_ROUNDS` is the number of rounds.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "template/data.rs"]
mod data;
#[path = "../tests/second_engine/dumps.rs"]
mod dumps;
#[path = "../tests/second_engine/engine.rs"]
mod engine;
#[allow(dead_code, reason = "no model is used here")]
#[path = "measure/mod.rs"]
mod measure;
#[path = "template/peer.rs"]
mod peer;

use std::time::Duration;

use data::{Conversation, Data, Golden, NOW, Template};
use engine::Engine;
use llb::template::{LocalTime, RenderInput, Sources, Templates};
use llb::template_requests;
use measure::{Figures, timed};
use peer::Peer;
use serde_json::{Value, json};

/// The minimum length of a measurement. Renders are repeated to reach it.
const BATCH: Duration = Duration::from_millis(4);
/// The warm-up time of a contestant, which JIT compilers need.
const WARM_UP: Duration = Duration::from_millis(150);

/// The contestants.
#[derive(Clone, Copy, PartialEq)]
enum Contestant {
    /// `Templates::render` of a compiled template.
    Llb,
    /// `llb_template_render` with the template in the request and polyfills off.
    Request,
    Transformers,
    Jinja2,
    Node,
    Minijinja,
}

const ALL: [Contestant; 6] = [
    Contestant::Llb,
    Contestant::Request,
    Contestant::Transformers,
    Contestant::Jinja2,
    Contestant::Node,
    Contestant::Minijinja,
];

/// The name of the template in minijinja.
const NAME: &str = "template";

fn main() {
    let Some(data) = Data::read() else { return };
    let rounds = measure::number("LLB_ROUNDS", 15);
    let mut bench = Bench { python: Peer::python(), node: Peer::node(), rounds };
    render(&mut bench, &data);
    compile(&mut bench, &data);
}

struct Bench {
    python: Option<Peer>,
    node: Option<Peer>,
    rounds: usize,
}

/// One row: what is rendered.
struct Row<'a> {
    templates: &'a Templates,
    minijinja: &'a Engine,
    tokens: [(&'static str, &'a str); 2],
    conversation: String,
    request: String,
}

fn render(bench: &mut Bench, data: &Data) {
    println!(
        "\nrendering: microseconds of llb, others as multiples of it; {} rounds",
        bench.rounds
    );
    println!(
        "{:<15} {:<15} {:>7} {:>9} {:>9} {:>12} {:>9} {:>9} {:>9}   {:>12} {:>7} {:>8} {:>9}",
        "template",
        "conversation",
        "bytes",
        "llb",
        "request",
        "transformers",
        "jinja2",
        "hf/jinja",
        "minijinja",
        "transformers",
        "jinja2",
        "hf/jinja",
        "minijinja"
    );
    let mut ratios: [Figures; 4] = Default::default();
    for template in &data.templates {
        let templates =
            Templates::compile(&sources(template, &template.source)).expect("it compiles");
        let ready = [&mut bench.python, &mut bench.node].map(|peer| {
            let compiled = |peer: &mut Peer| {
                peer.compile(&template.source, &template.bos_token, &template.eos_token, NOW)
            };
            peer.as_mut().is_some_and(|peer| {
                compiled(peer).inspect_err(|error| println!("{}: {error}", template.label)).is_ok()
            })
        });
        let mut minijinja = Engine::new(true);
        if let Err(error) = minijinja.compile(NAME, &template.source) {
            println!("{}: {}", template.label, error.message());
        }
        let engines = (&templates, &minijinja);
        for conversation in &data.conversations {
            let golden = data.golden(template, conversation);
            if !matches!(golden, Golden::Refused)
                && let Some(row) = render_row(bench, ready, template, engines, conversation, golden)
            {
                for (all, of_row) in ratios.iter_mut().zip(row) {
                    all.push(of_row);
                }
            }
        }
    }
    assert!(ratios.iter().any(|of| !of.0.is_empty()), "no row was measured");
    let median = |of: &Figures| {
        median(&Figures(of.0.iter().copied().filter(|ratio| !ratio.is_nan()).collect()))
    };
    let line = |title: &str, [transformers, jinja2, node, minijinja]: [String; 4]| {
        println!("{title:<97}   {transformers:>12} {jinja2:>7} {node:>8} {minijinja:>9}");
    };
    line("median of the rows", ratios.each_ref().map(median));
    line("minimum of the rows", ratios.each_ref().map(|of| format!("{:.1}", of.min())));
}

/// Prints a row. Returns the peers' times as multiples of llb's, or None if there is nothing to
/// measure.
fn render_row(
    bench: &mut Bench,
    [python, node]: [bool; 2],
    template: &Template,
    (templates, minijinja): (&Templates, &Engine),
    conversation: &Conversation,
    golden: Golden<'_>,
) -> Option<[f64; 4]> {
    let row = Row {
        templates,
        minijinja,
        tokens: [("bos_token", &template.bos_token), ("eos_token", &template.eos_token)],
        conversation: conversation.json.to_string(),
        request: request(template, &conversation.json),
    };
    let name = format!("{:<15} {:<15}", template.label, conversation.label);
    let expected = match (golden, bench.run(&row, Contestant::Llb, 1)) {
        (Golden::Text(text), _) => text.to_owned(),
        (_, Ok((_, text))) => text,
        // The template refuses a conversation that was made here.
        (_, Err(_)) => return None,
    };
    let mut times = [0; ALL.len()];
    for (contestant, times) in ALL.into_iter().zip(&mut times) {
        let there = match contestant {
            Contestant::Llb | Contestant::Request | Contestant::Minijinja => true,
            Contestant::Transformers | Contestant::Jinja2 => python,
            Contestant::Node => node,
        };
        if there {
            match bench.run(&row, contestant, 1) {
                Ok((_, text)) if text == expected => *times = bench.warm_up(&row, contestant),
                Ok((_, text)) => {
                    println!("{name} {}: {}", label(contestant), difference(&expected, &text))
                }
                Err(error) => println!("{name} {}: {error}", label(contestant)),
            }
        }
    }
    let mut figures: [Figures; ALL.len()] = Default::default();
    for round in 0..bench.rounds {
        let mut order = [0, 1, 2, 3, 4, 5];
        order.rotate_left(round % ALL.len());
        for contestant in order.into_iter().filter(|contestant| times[*contestant] > 0) {
            let (seconds, _) =
                bench.run(&row, ALL[contestant], times[contestant]).expect("it rendered before");
            figures[contestant].push(seconds * 1e6);
        }
    }
    let [llb, request, transformers, jinja2, node, minijinja] = &figures;
    let ratios = [transformers, jinja2, node, minijinja].map(|peer| peer.over(llb));
    println!(
        "{name} {:>7} {:>9} {:>9} {:>12} {:>9} {:>9} {:>9}   {:>12} {:>7} {:>8} {:>9}",
        expected.len(),
        median(llb),
        median(request),
        median(transformers),
        median(jinja2),
        median(node),
        median(minijinja),
        median(&ratios[0]),
        median(&ratios[1]),
        median(&ratios[2]),
        median(&ratios[3]),
    );
    Some(ratios.map(|ratio| ratio.median()))
}

impl Bench {
    /// Renders several times. Returns the seconds of each render, and the text.
    fn run(
        &mut self,
        row: &Row<'_>,
        contestant: Contestant,
        times: usize,
    ) -> Result<(f64, String), String> {
        let repeat = |once: &dyn Fn() -> Result<String, String>| {
            let (took, text) = timed(|| {
                let mut text = String::new();
                for _ in 0..times {
                    text = once()?;
                }
                Ok::<_, String>(text)
            });
            Ok((took.as_secs_f64() / times as f64, text?))
        };
        let words = |error: llb::error::Error| error.to_string();
        match contestant {
            Contestant::Llb => {
                repeat(&|| render_once(row.templates, &row.conversation).map_err(words))
            }
            Contestant::Request => repeat(&|| request_once(&row.request).map_err(words)),
            Contestant::Minijinja => repeat(&|| minijinja_once(row)),
            Contestant::Transformers | Contestant::Jinja2 => self
                .python
                .as_mut()
                .ok_or("no such peer")?
                .render(&row.conversation, times, contestant == Contestant::Jinja2),
            Contestant::Node => {
                self.node.as_mut().ok_or("no such peer")?.render(&row.conversation, times, false)
            }
        }
    }

    /// Warms up a contestant. Returns the number of renders that fill a measurement.
    fn warm_up(&mut self, row: &Row<'_>, contestant: Contestant) -> usize {
        let mut times = 1;
        let mut spent = 0.0;
        loop {
            let (seconds, _) = self.run(row, contestant, times).expect("it rendered before");
            spent += seconds * times as f64;
            times = ((BATCH.as_secs_f64() / seconds).ceil() as usize).clamp(1, 10_000);
            if spent >= WARM_UP.as_secs_f64() {
                return times;
            }
        }
    }
}

/// The work that is timed for llb. All sides do the same.
fn render_once(templates: &Templates, conversation: &str) -> llb::error::Result<String> {
    let context: Value = llb::api::parse(conversation, "conversation")?;
    let messages = context["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let prompt = templates.render(&RenderInput {
        tools: context["tools"].as_array().map(Vec::as_slice),
        documents: context["documents"].as_array().map(Vec::as_slice),
        add_generation_prompt: context["add_generation_prompt"] == true,
        kwargs: context["kwargs"].as_object(),
        ..RenderInput::new(messages, LocalTime::parse(NOW)?)
    })?;
    Ok(prompt.text)
}

/// The same work in minijinja. As in bare jinja2, messages are neither checked nor prepared.
fn minijinja_once(row: &Row<'_>) -> Result<String, String> {
    let context: Value =
        serde_json::from_str(&row.conversation).map_err(|error| error.to_string())?;
    let members = ["messages", "tools", "documents", "add_generation_prompt"];
    let members = members.map(|name| (name, engine::value(&context[name])));
    let tokens = row.tokens.map(|(name, token)| (name, token.into()));
    let kwargs = context["kwargs"].as_object().into_iter().flatten();
    let kwargs = kwargs.map(|(name, json)| (name.as_str(), engine::value(json)));
    let variables = members.into_iter().chain(tokens).chain(kwargs);
    let now = LocalTime::parse(NOW).map_err(|error| error.to_string())?;
    row.minijinja.render(NAME, variables, now).map_err(|error| error.message().to_owned())
}

fn request_once(request: &str) -> llb::error::Result<String> {
    let mut reply = template_requests::render(request)?;
    match reply["prompt"].take() {
        Value::String(prompt) => Ok(prompt),
        _ => Ok(String::new()),
    }
}

fn request(template: &Template, conversation: &Value) -> String {
    let mut request = json!({
        "chat_template": template.source,
        "bos_token": template.bos_token,
        "eos_token": template.eos_token,
        "polyfills": { "apply_polyfills": false },
        "messages": conversation["messages"],
        "add_generation_prompt": conversation["add_generation_prompt"],
        "chat_template_kwargs": conversation["kwargs"],
        "now": NOW,
    });
    for optional in ["tools", "documents"] {
        if let Some(value) = conversation.get(optional) {
            request[optional] = value.clone();
        }
    }
    request.to_string()
}

/// Every round has a new text, so that no side finds it in a cache. llb's second call repeats the
/// text.
fn compile(bench: &mut Bench, data: &Data) {
    println!(
        "\ncompiling: microseconds; llb_template_info compiles, probes and verifies the output format"
    );
    println!(
        "{:<15} {:>7} {:>9} {:>12} {:>12}   {:>9} {:>9} {:>9}",
        "template", "bytes", "llb", "info, first", "info, again", "jinja2", "hf/jinja", "minijinja"
    );
    for template in &data.templates {
        let mut figures: [Figures; 6] = Default::default();
        for round in 0..=bench.rounds {
            let source = format!("{}{{# {round} #}}", template.source);
            let request = json!({ "chat_template": source, "bos_token": template.bos_token, "eos_token": template.eos_token });
            let request = request.to_string();
            let mut order = [0, 1, 2, 3, 4];
            order.rotate_left(round % 5);
            for contestant in order {
                let (bos_token, eos_token) = (&template.bos_token, &template.eos_token);
                let peer = |peer: &mut Option<Peer>| {
                    peer.as_mut()?.compile(&source, bos_token, eos_token, NOW).ok()
                };
                let seconds = match contestant {
                    0 => Some(
                        timed(|| Templates::compile(&sources(template, &source)).is_ok())
                            .0
                            .as_secs_f64(),
                    ),
                    1 => {
                        let [first, again] =
                            [(); 2].map(|()| timed(|| template_requests::info(&request)));
                        assert_eq!(
                            first.1.ok(),
                            again.1.ok(),
                            "the second answer equals the first"
                        );
                        // The round before the first is a warm-up.
                        if round > 0 {
                            figures[2].push(again.0.as_secs_f64() * 1e6);
                        }
                        Some(first.0.as_secs_f64())
                    }
                    2 => peer(&mut bench.python),
                    3 => peer(&mut bench.node),
                    _ => {
                        let mut minijinja = Engine::new(true);
                        let (took, compiled) = timed(|| minijinja.compile(NAME, &source));
                        compiled.is_ok().then_some(took.as_secs_f64())
                    }
                };
                if let (Some(seconds), 1..) = (seconds, round) {
                    figures[[0, 1, 3, 4, 5][contestant]].push(seconds * 1e6);
                }
            }
        }
        measure::counted(template.label, figures[0].median());
        let [llb, first, again, jinja2, node, minijinja] = figures.each_ref().map(median);
        println!(
            "{:<15} {:>7} {llb:>9} {first:>12} {again:>12}   {jinja2:>9} {node:>9} {minijinja:>9}",
            template.label,
            template.source.len()
        );
    }
}

fn sources(template: &Template, source: &str) -> Sources {
    Sources {
        default: Some(source.to_owned()),
        bos_token: template.bos_token.clone(),
        eos_token: template.eos_token.clone(),
        ..Sources::default()
    }
}

fn label(contestant: Contestant) -> &'static str {
    match contestant {
        Contestant::Llb => "llb",
        Contestant::Request => "llb_template_render",
        Contestant::Transformers => "transformers",
        Contestant::Jinja2 => "jinja2",
        Contestant::Node => "@huggingface/jinja",
        Contestant::Minijinja => "minijinja",
    }
}

/// The median as text, or a dash without figures.
fn median(figures: &Figures) -> String {
    match figures.median() {
        none if none.is_nan() => "-".to_owned(),
        small if small < 100.0 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    }
}

fn difference(expected: &str, text: &str) -> String {
    let same = expected.chars().zip(text.chars()).take_while(|(a, b)| a == b).count();
    let from_there =
        |text: &str| text.chars().skip(same.saturating_sub(10)).take(40).collect::<String>();
    format!("NOT the same text: {:?}, expected {:?}", from_there(text), from_there(expected))
}
