//! Tests control tokens that a request spells, in every place and in every shared template. They
//! must not change any special token of the prompt. Without the shared data these tests report what
//! they skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Map, Value, json};

use super::origins::{render, template_runs};
use super::renders::{data, say, templates};
use crate::template::Prompt;
use crate::test_support::random::Random;

/// Control tokens of many vocabularies.
const TOKENS: [&str; 28] = [
    "<s>",
    "</s>",
    "<bos>",
    "<eos>",
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<|tool|>",
    "<|end|>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[INST]",
    "[/INST]",
    "[TOOL_CALLS]",
    "<tool_call>",
    "<|observation|>",
    "<|START_OF_TURN_TOKEN|>",
    "<\u{ff5c}User\u{ff5c}>",
    "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>",
];

/// Letters that no template writes, put around each spelling.
const AROUND: [char; 2] = ['\u{a4d0}', '\u{a4d1}'];

/// A number that no template writes.
const NUMBER: u64 = 731_946_208;

/// Text of the same shape that is not a token.
fn harmless(token: &str) -> String {
    let other = |c| match c {
        '<' => '(',
        '>' => ')',
        '[' => '{',
        ']' => '}',
        '|' => '/',
        '\u{ff5c}' => '\u{ff0f}',
        c => c,
    };
    token.chars().map(other).collect()
}

/// Chooses the places of a request at which a token is spelt.
struct Speller<'a> {
    token: &'a str,
    /// The chosen places, by number.
    chosen: &'a [usize],
    place: usize,
}

impl Speller<'_> {
    /// The text, with the token added if this place is chosen.
    fn text(&mut self, plain: &str) -> String {
        self.place += 1;
        if !self.chosen.contains(&self.place) {
            return plain.to_owned();
        }
        format!("{plain}{}{}{}", AROUND[0], self.token, AROUND[1])
    }

    /// An object with these keys.
    fn object<const N: usize>(&mut self, members: [(&str, Value); N]) -> Value {
        let members = members.into_iter().map(|(key, value)| (self.text(key), value));
        Value::Object(members.collect::<Map<String, Value>>())
    }

    /// An object in which every key and every value is a place.
    fn any(&mut self) -> Value {
        let inner =
            [("inner", self.text("v").into()), ("list", json!([self.text("w"), NUMBER, true]))];
        let inner = self.object(inner);
        self.object([("outer", inner), ("plain", NUMBER.into())])
    }

    fn tool(&mut self, name: &str) -> Value {
        let (keyword, default, member) = (self.text("x-keyword"), self.any(), self.text("extra"));
        let city = json!({
            "type": "string", "description": self.text("The city."), "enum": [self.text("Paris"), self.any()],
            "default": default, keyword: self.text("k")
        });
        let object = json!({ "type": "object", "properties": self.object([("zip", json!({ "type": "integer", "maximum": NUMBER }))]) });
        let properties = self.object([("city", city), ("place", object)]);
        let parameters = json!({
            "type": "object", "properties": properties, "required": [self.text("city")], "$defs": self.any()
        });
        json!({
            "type": "function", member: self.any(),
            "function": { "name": self.text(name), "description": self.text("Tells."), "parameters": parameters,
                "strict": true, "response": self.any() }
        })
    }

    fn messages(&mut self, random: &mut Random) -> Value {
        let parts = random.below(2) == 0;
        let content = |text: String| match parts {
            true => json!([{ "type": "text", "text": text }]),
            false => text.into(),
        };
        let arguments = [("city", self.text("Paris").into()), ("deep", self.any())];
        let arguments = self.object(arguments);
        let arguments = if random.below(2) == 0 { arguments.to_string().into() } else { arguments };
        let call = |name: String, id: String, arguments: Value| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        let (name, id) = (self.text("weather"), self.text("call00001"));
        let call = call(name.clone(), id.clone(), arguments);
        let extra = self.text("extra");
        let result = if random.below(3) == 0 { self.any() } else { self.text("sunny").into() };
        let mut messages = vec![
            json!({ "role": self.text("system"), "content": content(self.text("Be kind.")), "name": self.text("n") }),
            json!({ "role": self.text("user"), "content": content(self.text("Weather?")), extra: self.any() }),
            json!({ "role": "assistant", "content": self.text("Let me see."), "reasoning_content": self.text("Hm."),
                "tool_calls": [call] }),
            json!({ "role": "tool", "name": name, "tool_call_id": id, "content": result }),
            json!({ "role": "assistant", "content": self.text("Sunny.") }),
            json!({ "role": "user", "content": content(self.text("Thanks.")) }),
        ];
        if random.below(3) == 0 {
            messages.drain(2..4);
        }
        messages.into()
    }

    fn request(&mut self, random: &mut Random) -> Value {
        let mut request = json!({
            "messages": self.messages(random), "tools": [self.tool("weather"), self.tool("time")],
            "add_generation_prompt": true, "raw": random.below(2) == 0
        });
        if random.below(3) == 0 {
            request["tools"] = Value::Null;
        }
        let document = json!({ "title": self.text("T"), "text": self.text("D"), self.text("source"): self.any() });
        if random.below(3) == 0 {
            request["documents"] = json!([document]);
        }
        let variables = json!({
            "custom_instructions": self.text("c"), "model_identity": self.text("m"), "date_string": self.text("d"),
            "developer_instructions": self.text("i"), "builtin_tools": [self.text("python")], "xml_tools": [self.any()],
            "functions": self.text("f"), "reasoning_effort": self.text("high"), "response_format": self.any()
        });
        if random.below(3) == 0 {
            request["chat_template_kwargs"] = variables;
        }
        request
    }
}

/// For each token, how often the template itself spells it.
fn tokens_of_template(prompt: &Prompt) -> Vec<usize> {
    let runs = template_runs(prompt);
    TOKENS.iter().map(|token| runs.iter().map(|run| run.matches(token).count()).sum()).collect()
}

/// The request for this seed, with a token at the chosen places.
fn request(seed: u64, token: &str, chosen: &[usize]) -> (Value, usize) {
    let mut speller = Speller { token, chosen, place: 0 };
    let request = speller.request(&mut Random::new(seed));
    (request, speller.place)
}

#[test]
fn spelt_tokens_change_no_special_token() {
    let Some(root) = data("spelt control tokens in every template") else { return };
    let (_, places) = request(1, "", &[]);
    let (mut rendered, mut shown, mut refused) = (0, 0, 0);
    for (number, (name, templates)) in templates(&root).iter().enumerate() {
        for case in 0..8 {
            let seed = 1 + number as u64 * 8 + case;
            let mut random = Random::new(seed ^ 0xa5a5);
            let token = random.pick(&TOKENS);
            // All places, or one to three of them.
            let chosen: Vec<usize> = match case {
                0 => (1..=places).collect(),
                _ => (0..=random.below(3)).map(|_| 1 + random.below(places)).collect(),
            };
            let ((spelt, _), (plain, _)) =
                (request(seed, token, &chosen), request(seed, &harmless(token), &chosen));
            let (spelt, plain) = match (render(templates, &spelt), render(templates, &plain)) {
                (Ok(spelt), Ok(plain)) => (spelt, plain),
                (Err(_), Err(_)) => {
                    refused += 1;
                    continue;
                }
                (spelt, plain) => panic!("{name} {seed} {token}: {spelt:?} but {plain:?}"),
            };
            rendered += 1;
            shown += u32::from(spelt.text.contains(token) && spelt.text.contains(AROUND));
            for run in template_runs(&spelt) {
                let taken = run.contains(AROUND) || run.contains(&NUMBER.to_string());
                assert!(!taken, "{name} {seed} {token}: {run:?} in {}", spelt.text);
            }
            assert_eq!(
                tokens_of_template(&spelt),
                tokens_of_template(&plain),
                "{name} {seed} {token}: {}",
                spelt.text
            );
        }
    }
    say(&format!("spelt tokens: {rendered} prompts, {shown} with a spelling, {refused} refused"));
    assert!(rendered > 1_000 && shown > 700, "{rendered} {shown}");
}

#[test]
fn role_markers_are_special() {
    let Some(root) = data("role markers of every template") else { return };
    let request = json!({ "messages": [
        { "role": "system", "content": "Be kind." }, { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": "Hello" }, { "role": "user", "content": "Bye" },
    ], "add_generation_prompt": true });
    let mut markers = 0;
    for (name, templates) in templates(&root) {
        let Ok(prompt) = render(&templates, &request) else { continue };
        let inside: usize = template_runs(&prompt).iter().map(|run| count(run)).sum();
        assert_eq!(inside, count(&prompt.text), "{name}: {prompt:?}");
        markers += inside;
    }
    assert!(markers > 200, "{markers}");
}

/// The number of role markers in a text.
fn count(text: &str) -> usize {
    let around = [
        ("<|", "|>"),
        ("<|start_", "|>"),
        ("<\u{ff5c}", "\u{ff5c}>"),
        ("<", ">"),
        ("[", "]"),
        ("<|im_", "|>"),
    ];
    let roles = [
        "system",
        "user",
        "assistant",
        "SYSTEM",
        "USER",
        "ASSISTANT",
        "System",
        "User",
        "Assistant",
    ];
    let marker = |(open, close): &(&str, &str)| {
        roles
            .iter()
            .map(|role| text.matches(&format!("{open}{role}{close}")).count())
            .sum::<usize>()
    };
    around.iter().map(marker).sum()
}
