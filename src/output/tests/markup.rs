//! Markup that never reaches a user.

use super::*;
use crate::profile::ModelProfile;
use crate::template::Sources;
use crate::test_support::replies::drive;

fn sources(template: &str) -> Sources {
    Sources { default: Some(template.to_owned()), ..Sources::default() }
}

#[test]
fn tags_that_a_template_writes_around_content_are_markup() {
    #[track_caller]
    fn check(template: &str, reply: &str, content: &str) {
        let profile = ModelProfile::of(&sources(template)).unwrap();
        let format = profile.format().unwrap();
        assert_eq!(parse(format, &tools(), PLAIN, reply).content, content, "{reply:?}");
    }
    // No calls: the format is that of the polyfill.
    let plain = "{% for m in messages %}{% if m.role == 'assistant' %}<|bot|><|say|>{{ m.content }}<|/say|><|stop|>\
                 {% else %}<|{{ m.role }}|>{{ m.content }}<|stop|>{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}<|bot|>{% endif %}";
    check(plain, "<|say|>Hello.<|/say|>", "Hello.");
    check(plain, "Hello.", "Hello.");
    check(plain, "<|sa", "<|sa");
    // Calls of a family, and content in tags only after reasoning.
    let hermes = "{% for m in messages %}<|im_start|>{{ m.role }}\n\
                  {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think><reply>{{ m.content }}</reply>\
                  {% else %}{{ m.content or '' }}{% endif %}\
                  {% for c in m.tool_calls %}<tool_call>\n{\"name\": {{ c.function.name | tojson }}, \"arguments\": \
                  {{ c.function.arguments | tojson }}}\n</tool_call>{% if not loop.last %}\n{% endif %}{% endfor %}<|im_end|>\n\
                  {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    check(hermes, "<think>r</think><reply>Hello.</reply>", "Hello.");
    check(hermes, &format!("<reply>Look.</reply>{C}"), "Look.");
    // No generation prompt.
    let bare = "{% for m in messages %}{% if m.role == 'user' %}<|q|>{{ m.content }}<|e|>\
                {% else %}<answer>{{ m.content }}</answer><|e|>{% endif %}{% endfor %}";
    check(bare, "<answer>\nHello.\n</answer>", "Hello.");
}

/// Parses with reasoning that stays in the content.
fn unsplit(family: &str, prompt: &str, reply: &str) -> ParsedReply {
    let format = super::family(family);
    let parser = || {
        let mut parser = ReplyParser::new(ReplyParserInput {
            format: Some(&format),
            tools: tools().into(),
            calls_allowed: true,
            reasoning: false,
            json: false,
            parallel: true,
            new_id: Box::new(|| "id1".to_owned()),
        });
        parser.prime(prompt, true);
        parser
    };
    let whole = drive(parser(), [reply]);
    let single: Vec<String> = reply.chars().map(String::from).collect();
    assert_eq!(whole, drive(parser(), single.iter().map(String::as_str)), "{reply:?}");
    whole
}

#[test]
fn an_opened_block_without_text_is_not_shown() {
    #[track_caller]
    fn check(prompt: &str, reply: &str, content: &str, calls: usize) {
        let parsed = unsplit("qwen-xml", prompt, reply);
        assert_eq!((&*parsed.content, parsed.tool_calls.len()), (content, calls), "{reply:?}");
        assert!(parsed.diagnostics.is_empty(), "{reply:?} {:?}", parsed.diagnostics);
    }
    let call =
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
    let open = "<think>\n";
    check(open, "", "", 0);
    check(open, "R\n</think>\n\nT", "<think>\nR\n</think>\n\nT", 0);
    check(open, "R", "<think>\nR", 0);
    check(open, "</think>\n\nT", "T", 0);
    check(open, "\n</think>\n\nT", "T", 0);
    check(open, "</thin", "<think>\n</thin", 0);
    check(open, "</think>", "", 0);
    check(open, &format!("</think>\n\n{call}"), "", 1);
    check(open, call, "", 1);
    check(open, &format!("R</think>\n{call}"), "<think>\nR</think>", 1);
    check(open, "<think>\nR\n</think>\n\nT", "<think>\n\nR\n</think>\n\nT", 0);
    check(open, "<think>\n\n</think>\n\nT", "T", 0);
    // The prompt has text of the block, or closes it.
    check("<think>\nSo", " R</think>T", "<think>\nSo R</think>T", 0);
    check("<think>\n\n</think>\n\n", "T", "T", 0);
    // The model writes the block itself.
    check("", "<think>\n\n</think>\n\nT", "<think>\n\n</think>\n\nT", 0);
}
