//! Additions to a rendered prompt: expanded vision tokens and a training mask.
//!
//! Both are read before the template runs and applied to the rendered prompt.

use serde_json::{Map, Value};

use crate::api::{Fields, Polyfills};
use crate::compose::Composed;
use crate::diagnostic::Diagnostic;
use crate::error::Result;
use crate::template::{MaskScope, PolyfillTarget, Prompt, PromptMask, RenderInput, Templates};
use crate::vision::{Vision, VisionDefaults};

/// The additions that a request asks for.
pub(crate) struct Additions {
    vision: Option<Vision>,
    turns: Option<MaskScope>,
}

/// The additions to one prompt.
pub(crate) struct AppliedAdditions {
    vision: Option<Value>,
    mask: Option<PromptMask>,
}

impl Additions {
    /// Reads `vision` and `mask`. `defaults` are the vision settings that the template declares.
    pub(crate) fn read(fields: &mut Fields, defaults: &VisionDefaults) -> Result<Additions> {
        Ok(Additions { vision: Vision::read(fields, defaults)?, turns: MaskScope::read(fields)? })
    }

    /// Whether the render must record the origin of its bytes.
    pub(crate) fn need_spans(&self) -> bool {
        self.turns.is_some()
    }

    /// Finds the mask of the prompt of `input`, then expands the prompt and adjusts all byte
    /// offsets. `composed` is the source of the template, `sent` are the messages before
    /// `polyfills`, and `bos_token` is the template's.
    pub(crate) fn apply(
        self,
        prompt: &mut Prompt,
        composed: Option<&Composed>,
        templates: &Templates,
        input: &RenderInput<'_>,
        (sent, target, polyfills): (&[Value], PolyfillTarget<'_>, &Polyfills),
        bos_token: &str,
    ) -> Result<AppliedAdditions> {
        let mask = |turns| match composed
            .map(|composed| composed.mask(turns, prompt, input, sent))
            .transpose()?
            .flatten()
        {
            Some(mask) => Ok(mask),
            None => templates.mask(turns, input, sent, (target, polyfills), prompt),
        };
        let mut mask = self.turns.map(mask).transpose()?;
        if let Some(vision) = &self.vision {
            let edits = vision.expand(prompt, bos_token, input.limits.output_bytes)?;
            mask.iter_mut().for_each(|mask| mask.shift(&edits));
        }
        Ok(AppliedAdditions { vision: self.vision.map(|vision| vision.to_json()), mask })
    }
}

impl AppliedAdditions {
    /// Writes `vision`, `mask` and the diagnostics of the mask into the reply.
    pub(crate) fn write(self, reply: &mut Map<String, Value>, diagnostics: &mut Vec<Diagnostic>) {
        if let Some(vision) = self.vision {
            reply.insert("vision".to_owned(), vision);
        }
        if let Some(mask) = self.mask {
            reply.insert("mask".to_owned(), mask.to_json());
            diagnostics.extend(mask.diagnostics());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::template_requests::render;
    use crate::test_support::conformance::{folder, say, templates};

    /// The prompt without its marks, and the ranges of its trainable bytes. In `text`, « and » mark
    /// them.
    fn unmarked(text: &str) -> (String, Vec<(usize, usize)>) {
        let (mut prompt, mut ranges, mut start) = (String::new(), Vec::new(), 0);
        for character in text.chars() {
            match character {
                '«' => start = prompt.len(),
                '»' => ranges.push((start, prompt.len())),
                other => prompt.push(other),
            }
        }
        (prompt, ranges)
    }

    /// Renders with these additional members. `expected` is the prompt with marks, and `messages`
    /// are the messages of the ranges.
    #[track_caller]
    fn check(
        mut request: Value,
        members: Value,
        expected: &str,
        messages: &[usize],
        omitted: &[&str],
    ) {
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        // Avoids a time limit, because the test must not depend on time.
        request["template_limits"] = json!({ "ms": 60_000 });
        let reply = render(&request.to_string()).unwrap();
        let (prompt, ranges) = unmarked(expected);
        assert_eq!(reply["prompt"], prompt, "{members}");
        let expected: Vec<Value> = messages
            .iter()
            .zip(&ranges)
            .map(
                |(message, (start, end))| json!({ "message": message, "start": start, "end": end }),
            )
            .collect();
        assert_eq!(
            (reply["mask"].as_array().unwrap(), messages.len()),
            (&expected, ranges.len()),
            "{members}"
        );
        let diagnostics = reply["diagnostics"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let paths: Vec<&str> = diagnostics
            .filter(|diagnostic| diagnostic["code"] == "mask_unavailable")
            .map(|diagnostic| diagnostic["path"].as_str().unwrap())
            .collect();
        assert_eq!(paths, omitted, "{members}");
    }

    fn of_template(root: &std::path::Path, name: &str) -> Value {
        let sources = &templates(root)[name];
        json!({ "chat_template": sources.default, "bos_token": sources.bos_token, "eos_token": sources.eos_token,
            "polyfills": { "apply_polyfills": false }, "now": "2024-07-26T00:00:00" })
    }

    fn turn(role: &str, content: &str) -> Value {
        json!({ "role": role, "content": content })
    }

    /// The expected masks come from reading the templates.
    #[test]
    fn masks_of_real_templates() {
        let Some(root) = folder("masks") else { return };
        let two = json!([
            turn("user", "Hé"),
            turn("assistant", "Yo"),
            turn("user", "Bye"),
            turn("assistant", "Seé you")
        ]);
        let three = json!([turn("user", "Hé"), turn("assistant", "Yo"), turn("user", "Bye")]);
        let closed = json!({ "messages": two, "mask": "all", "add_generation_prompt": false });
        let open = json!({ "messages": three, "mask": "all" });
        let check =
            |name: &str, members: &Value, expected: &str, messages: &[usize], omitted: &[&str]| {
                check(of_template(&root, name), members.clone(), expected, messages, omitted);
            };
        // The next turn writes the end of a turn, so it is unknown whether the end belongs to the
        // turn.
        let name = "vllm.template_chatml";
        check(
            name,
            &closed,
            "<|im_start|>user\nHé<|im_end|>\n<|im_start|>assistant\n«Yo»<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n\
            <|im_start|>assistant\n«Seé you»",
            &[1, 3],
            &[],
        );
        let name = "trl.gemma3";
        check(
            name,
            &open,
            "<bos><start_of_turn>user\nHé<end_of_turn>\n<start_of_turn>model\n«Yo<end_of_turn>»\n<start_of_turn>user\n\
            Bye<end_of_turn>\n<start_of_turn>model\n",
            &[1],
            &[],
        );
        let name = "trl.llama3";
        let last = json!({ "messages": two, "mask": "last", "add_generation_prompt": false });
        check(
            name,
            &last,
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHé<|eot_id|><|start_header_id|>assistant\
            <|end_header_id|>\n\nYo<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant\
            <|end_header_id|>\n\n«Seé you<|eot_id|>»",
            &[3],
            &[],
        );
        // The generation blocks of this template include the line end.
        let name = "trl.qwen3_training";
        let thinks = "<think>\n\n</think>\n\n";
        check(
            name,
            &closed,
            &format!(
                "<|im_start|>user\nHé<|im_end|>\n<|im_start|>assistant\n«{thinks}Yo<|im_end|>\n»<|im_start|>user\n\
            Bye<|im_end|>\n<|im_start|>assistant\n«{thinks}Seé you<|im_end|>\n»"
            ),
            &[1, 3],
            &[],
        );
        // This template writes a reasoning block only in the answer that ends the conversation.
        let name = "trl.qwen3";
        check(
            name,
            &closed,
            &format!(
                "<|im_start|>user\nHé<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\n\
            Bye<|im_end|>\n<|im_start|>assistant\n«{thinks}Seé you<|im_end|>»\n"
            ),
            &[3],
            &["messages[1]"],
        );
        say("masks: five templates, as worked out by hand");
    }

    const CHATML: &str = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text or '[I]' }}{% endfor %}</>\n{% endfor %}\
                          {% if add_generation_prompt %}<assistant>{% endif %}";

    /// All byte offsets in the reply refer to the expanded prompt.
    #[test]
    fn offsets_are_of_the_final_prompt() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let messages = json!([
            { "role": "user", "content": [text("Look: "), { "type": "image" }] },
            { "role": "assistant", "content": [text("A cat.")] },
            { "role": "user", "content": [{ "type": "image" }, text("And?")] },
            { "role": "assistant", "content": [text("A dog.")] },
        ]);
        let request = json!({ "chat_template": CHATML, "polyfills": { "apply_polyfills": false }, "messages": messages,
            "spans": true, "mask": "all", "add_generation_prompt": false, "spare": 1,
            "vision": { "rule": { "family": "llava", "size": 2, "patch": 1, "tail": 0 }, "image_token": "[I]", "images": [{ "c": 1 }, {}] } });
        let image = "[I]".repeat(4);
        let expected = format!(
            "<user>Look: {image}</>\n<assistant>«A cat.</>»\n<user>{image}And?</>\n<assistant>«A dog.</>»\n"
        );
        check(request.clone(), json!({}), &expected, &[1, 3], &[]);
        let reply = render(&request.to_string()).unwrap();
        assert_eq!(reply["vision"], json!({ "images": [4, 4], "videos": [] }));
        assert_eq!(
            reply["ignored_keys"],
            json!(["spare", "vision.rule.tail", "vision.images[0].c"])
        );
        let prompt = reply["prompt"].as_str().unwrap();
        let spans = reply["spans"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|span| span["origin"] == "message")
            .map(|span| {
                let at = |key: &str| usize::try_from(span[key].as_u64().unwrap()).unwrap();
                (span["path"].as_str().unwrap(), &prompt[at("start")..at("end")])
            });
        let spans: Vec<(&str, &str)> = spans.filter(|(path, _)| path.ends_with("text")).collect();
        assert_eq!(
            spans,
            [
                ("messages[0].content[0].text", "Look: "),
                ("messages[1].content[0].text", "A cat."),
                ("messages[2].content[1].text", "And?"),
                ("messages[3].content[0].text", "A dog."),
            ]
        );
    }

    /// A mask refers to messages as they were sent, before polyfills.
    #[test]
    fn masks_of_polyfilled_messages() {
        // A template without system messages and without consecutive user messages.
        let template = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}\
            {% endif %}[{{ m.role }}] {{ m.content }}.\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}";
        let messages = json!([
            turn("system", "S"),
            turn("user", "a"),
            turn("user", "b"),
            turn("assistant", "c"),
            turn("user", "d")
        ]);
        let request = json!({ "chat_template": template, "messages": messages, "mask": "all" });
        check(
            request.clone(),
            json!({}),
            "[user] S\na\n\nb.\n[assistant] «c.»\n[user] d.\n[assistant] ",
            &[3],
            &[],
        );
        // Without a mask in the request, there is none in the reply.
        let mut silent = request;
        silent["mask"] = json!("none");
        let reply = render(&silent.to_string()).unwrap();
        assert!(
            reply.get("mask").is_none()
                && reply.get("vision").is_none()
                && reply.get("spans").is_none(),
            "{reply}"
        );
        silent["mask"] = json!("some");
        assert!(
            render(&silent.to_string()).unwrap_err().message().starts_with("mask: unknown value"),
            "an unknown value is refused"
        );
    }

    /// Generation blocks are ignored unless each of them contains exactly one assistant message.
    #[test]
    fn generation_blocks_around_other_messages() {
        let template = "{% for m in messages %}{% if loop.first %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}\
            {{ '[' ~ m.role ~ ']' ~ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
        let request = json!({ "chat_template": template, "polyfills": { "apply_polyfills": false }, "mask": "all",
            "messages": [turn("user", "a"), turn("assistant", "b")], "add_generation_prompt": false });
        check(request, json!({}), "a[assistant]«b»", &[1], &[]);
    }
}
