//! The table of families: how known models write reasoning, text and tool calls. It is one file so
//! that similar families can be compared.
//!
//! Patterns are text with slots. Every brace that is not part of a slot is text, so JSON needs no
//! escapes.
//!
//! | pattern | slots |
//! |---|---|
//! | section | `{call}` twice; the text between them separates two calls |
//! | call | `{name}`, `{id}`, `{arguments}` |
//! | parameter | `{key}`, `{value}`, and `{is_string}` or `{type}` |
//!
//! A parser accepts either of two families that differ only in whitespace. Both are listed where
//! constrained generation must reproduce the whitespace.

use crate::output::format::{
    CallPart, CallSyntax, Channels, Encoding, Format, FormatSource, FormatText, IdForm,
    ReasoningTags, Tagged, TypeWords, ValueKind, Wrapper,
};
use crate::process::Lazy;

/// Every family that detection can find, in the order in which it tries them. Longer markers come
/// first where nothing else distinguishes two families, families without a marker last.
pub fn all() -> Vec<Format> {
    FAMILIES.clone()
}

/// The families of [`all`], and the forms of calls that no template writes but prompts may show.
pub(crate) fn shown_in_prompts() -> Vec<Format> {
    FAMILIES.iter().chain(OTHER_FORMS.iter()).cloned().collect()
}

/// What the polyfill's prompt teaches a model whose template has no tool calls. Fenced calls and
/// the envelope of `polyfill_tool_calls` are accepted too. Detection never finds it.
pub(crate) fn polyfilled() -> Format {
    let family = family("polyfilled")
        .reasoning("<think>", "</think>")
        .section("{call}\n{call}")
        .call("<tool_call>\n{\"name\": \"{name}\", \"arguments\": {arguments}}\n</tool_call>")
        .untagged();
    Format { source: FormatSource::Polyfill, envelope: true, ..*family.0 }
}

/// The call syntax of every family without channels, and of forms that no template shows. It is for
/// parsers that accept the calls of other families.
pub(crate) fn calls() -> &'static [(FormatText, CallSyntax)] {
    static CALLS: Lazy<Vec<(FormatText, CallSyntax)>> = Lazy::new(|| {
        let families = FAMILIES.iter().filter(|format| format.channels.is_none());
        let families = families.chain(OTHER_FORMS.iter());
        families.filter_map(|format| Some((format.family.clone(), format.calls.clone()?))).collect()
    });
    &CALLS
}

/// Every tag of the calls of [`calls`].
pub(crate) fn call_markers() -> Vec<String> {
    let mut markers: Vec<String> =
        calls().iter().flat_map(|(_, calls)| calls.tags()).map(str::to_owned).collect();
    markers.sort_unstable();
    markers.dedup();
    markers
}

/// The markers of [`call_markers`] that do not end turns in any family.
pub(crate) fn control_markers() -> &'static [String] {
    static MARKERS: Lazy<Vec<String>> = Lazy::new(|| {
        let ends = |marker: &String| {
            FAMILIES.iter().any(|format| format.ends.contains(&marker.as_str().into()))
        };
        call_markers().into_iter().filter(|marker| !ends(marker)).collect()
    });
    &MARKERS
}

/// llama.cpp's names of the formats that have a dedicated parser there, each with the text by which
/// llama.cpp recognises the template.
const CHAT_FORMATS: [(&str, &str); 2] =
    [("]<]minimax[>[", "peg-minimax-m3"), ("<|tool_call>call:", "peg-gemma4")];

/// llama.cpp's name of the parser for all other templates.
const GENERIC_CHAT_FORMAT: &str = "peg-native";

/// llama.cpp's name of a template's format. `contains` returns whether the template's source
/// contains a text. The name is only informative.
pub fn chat_format(contains: &dyn Fn(&str) -> bool) -> &'static str {
    let own = CHAT_FORMATS.iter().find(|(marker, _)| contains(marker));
    own.map_or(GENERIC_CHAT_FORMAT, |(_, name)| name)
}

/// The most common pattern of a call.
const OBJECT: &str = r#"{"name": "{name}", "arguments": {arguments}}"#;

const DSML_PARAMETER: &str =
    "<｜DSML｜parameter name=\"{key}\" string=\"{is_string}\">{value}</｜DSML｜parameter>\n";

static FAMILIES: Lazy<Vec<Format>> = Lazy::new(|| {
    let families = [
        // Hermes 2 Pro and 3, Qwen 2.5, QwQ, Qwen 3, Bielik 3, MiMo-VL, Granite 4, Reka Edge (no
        // newline between two calls), SmolLM3, MiniCPM-V 4.5, RNJ-1.
        family("hermes")
            .reasoning("<think>", "</think>")
            .section("{call}\n{call}")
            .call("<tool_call>\n{\"name\": \"{name}\", \"arguments\": {arguments}}\n</tool_call>")
            .ends(&["<|im_end|>"]),
        // EXAONE 4. Hermes without newlines.
        family("exaone4")
            .reasoning("<think>", "</think>")
            .section("{call}\n{call}")
            .call(r#"<tool_call>{"name": "{name}", "arguments": {arguments}}</tool_call>"#)
            .ends(&["[|endofturn|]"]),
        // The JSON Schema variant of Hermes 2 Pro.
        family("hermes-reversed")
            .section("{call}\n{call}")
            .call("<tool_call>\n{ \"arguments\": {arguments}, \"name\": \"{name}\"}\n</tool_call>")
            .ends(&["<|im_end|>"]),
        // Llama 3.1, 3.2 and 3.3. Their templates reject a second call, but the models still write
        // several, separated by `; `.
        family("llama3")
            .section("{call}; {call}")
            .call(r#"{"name": "{name}", "parameters": {arguments}}"#)
            .single()
            .ends(&["<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]),
        // Llama 4.
        family("llama4")
            .wrapper("<|python_start|>", "<|python_end|>")
            .call(r#"{"name": "{name}", "parameters": {arguments}}"#)
            .ends(&["<|eom|>", "<|eot|>"]),
        // Mistral 7B v0.3, Mistral Nemo, Mistral Small 2409 and older. Their templates reject ids
        // that do not have this length.
        family("mistral-array")
            .section("[TOOL_CALLS][{call}, {call}]")
            .call(r#"{"name": "{name}", "arguments": {arguments}, "id": "{id}"}"#)
            .id(IdForm::Alphanumeric(9))
            .ends(&["</s>"])
            .untagged(),
        // Mistral Small 3.2.
        family("mistral-id")
            .call("[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]{arguments}")
            .id(IdForm::Alphanumeric(9))
            .ends(&["</s>"])
            .untagged(),
        // Ministral 3, Devstral 2507, Magistral.
        family("mistral-args")
            .reasoning("[THINK]", "[/THINK]")
            .call("[TOOL_CALLS]{name}[ARGS]{arguments}")
            .ends(&["</s>"])
            .untagged(),
        // DeepSeek V3, R1, R1-Distill-Qwen and -Llama, DeepSeek-Prover V2. The newline before the
        // closing fence may be missing.
        family("deepseek-r1")
            .reasoning("<think>", "</think>")
            .close_only()
            .section("<｜tool▁calls▁begin｜>{call}\n{call}<｜tool▁calls▁end｜>")
            .call(
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n\
                 ```json\n{arguments}\n```<｜tool▁call▁end｜>",
            )
            .ends(&["<｜end▁of▁sentence｜>"]),
        // DeepSeek V3.1, V3.2-Exp.
        family("deepseek-v3.1")
            .reasoning("<think>", "</think>")
            .close_only()
            .section("<｜tool▁calls▁begin｜>{call}{call}<｜tool▁calls▁end｜>")
            .call("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>")
            .ends(&["<｜end▁of▁sentence｜>"]),
        // DeepSeek V3 with the prompts of some servers.
        family("deepseek-v3")
            .reasoning("<think>", "</think>")
            .close_only()
            .section("<｜tool▁calls▁begin｜>{call}{call}<｜tool▁calls▁end｜>")
            .call(
                "<｜tool▁call▁begin｜>{\"name\": \"{name}\", \"parameters\": \
                 {arguments}}<｜tool▁call▁end｜>",
            )
            .ends(&["<｜end▁of▁sentence｜>"]),
        // DeepSeek V3.2.
        family("dsml")
            .reasoning("<think>", "</think>")
            .closed_by_call()
            .close_only()
            .section("<｜DSML｜function_calls>\n{call}\n{call}\n</｜DSML｜function_calls>")
            .call("<｜DSML｜invoke name=\"{name}\">\n{arguments}</｜DSML｜invoke>")
            .parameter(DSML_PARAMETER)
            .ends(&["<｜end▁of▁sentence｜>"]),
        // DeepSeek V4 and V4-Flash.
        family("dsml-v4")
            .reasoning("<think>", "</think>")
            .closed_by_call()
            .close_only()
            .section("<｜DSML｜tool_calls>\n{call}\n{call}\n</｜DSML｜tool_calls>")
            .call("<｜DSML｜invoke name=\"{name}\">\n{arguments}</｜DSML｜invoke>")
            .parameter(DSML_PARAMETER)
            .ends(&["<｜end▁of▁sentence｜>"]),
        // Command-R7B, Command A, Cohere2MoE (which writes text between `<|START_TEXT|>` and
        // `<|END_TEXT|>`).
        family("cohere-action")
            .reasoning("<|START_THINKING|>", "<|END_THINKING|>")
            .wrapper("<|START_RESPONSE|>", "<|END_RESPONSE|>")
            .wrapper("<|START_TEXT|>", "<|END_TEXT|>")
            .section("<|START_ACTION|>[\n    {call},\n    {call}\n]<|END_ACTION|>")
            .call(r#"{"tool_call_id": "{id}", "tool_name": "{name}", "parameters": {arguments}}"#)
            .id(IdForm::Index(0))
            .ends(&["<|END_OF_TURN_TOKEN|>"]),
        // Command-R and R+. The name `directly-answer` means no call.
        family("command-r-plus")
            .section("Action:\n```json\n[\n    {call},\n    {call}\n]```")
            .call(
                "{\n        \"tool_name\": \"{name}\",\n        \"parameters\": {arguments}\n    }",
            )
            .ends(&["<|END_OF_TURN_TOKEN|>"]),
        // Functionary 3.1; Llama 3.1 with that prompt.
        family("functionary-3.1")
            .call("<function={name}>{arguments}</function>")
            .ends(&["<|eom_id|>", "<|eot_id|>"]),
        // Functionary 3.2: `>>>all\nTEXT>>>f\n{"a": 1}`. The prompt ends in `>>>`.
        family("functionary-3.2")
            .channels(Channels {
                turn: text(">>>"),
                body: text("\n"),
                content: texts(&["all"]),
                ..Channels::default()
            })
            .section("{call}>>>{call}")
            .call("{name}\n{arguments}")
            .ends(&["<|eot_id|>"]),
        // Functionary 2.2.
        family("functionary-2.2")
            .channels(Channels {
                turn: text("<|from|>assistant\n<|recipient|>"),
                body: text("\n<|content|>"),
                ends: texts(&["<|stop|>"]),
                content: texts(&["all"]),
                ..Channels::default()
            })
            .section("{call}\n{call}")
            .call("<|from|>assistant\n<|recipient|>{name}\n<|content|>{arguments}")
            .ends(&["<|stop|>"]),
        // FireFunction v2.
        family("firefunction")
            .section(" functools[{call}, {call}]")
            .call(OBJECT)
            .ends(&["<|eot_id|>"]),
        // gpt-oss. The template writes the recipient before the channel, the model in either order.
        family("harmony")
            .channels(harmony("<|start|>assistant"))
            .section("{call}<|end|><|start|>assistant{call}")
            .call(
                "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>\
                 {arguments}",
            )
            .single()
            .ends(&["<|call|>", "<|return|>", "<|end|>"]),
        // LLM-jp 4.1. Harmony with a space after every marker.
        family("harmony-spaced")
            .channels(harmony("<|start|> assistant"))
            .section("{call}<|end|><|start|> assistant{call}")
            .call(
                " to=functions.{name}<|channel|> commentary <|constrain|>  json<|message|> \
                 {arguments}",
            )
            .ends(&["<|call|>", "<|return|>", "<|end|>"]),
        // Kimi K2, K2-Instruct, K2-Thinking. The id contains the name: `functions.f:0`.
        family("kimi-k2")
            .reasoning("<think>", "</think>")
            .closed_by_call()
            .section("<|tool_calls_section_begin|>{call}{call}<|tool_calls_section_end|>")
            .call("<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>")
            .id(IdForm::Named { prefix: text("functions."), infix: text(":") })
            .ends(&["<|im_end|>"]),
        // Kimi K3.
        family("kimi-k3")
            .reasoning("<|open|>think<|sep|>", "<|close|>think<|sep|>")
            .close_only()
            .wrapper("<|open|>response<|sep|>", "<|close|>response<|sep|>")
            .section("<|open|>tools<|sep|>{call}{call}<|close|>tools<|sep|>")
            .call(
                "<|open|>call tool=\"{name}\" index=\"{id}\"<|sep|>\
                 {arguments}<|close|>call<|sep|>",
            )
            .parameter(
                "<|open|>argument key=\"{key}\" type=\"{type}\"<|sep|>\
                 {value}<|close|>argument<|sep|>",
            )
            .id(IdForm::Index(1))
            .ends(&["<|close|>message<|sep|>", "<|end_of_msg|>"]),
        // MiniMax M1.
        family("minimax-m1")
            .reasoning("<think>", "</think>")
            .section("<tool_calls>\n{call}\n{call}\n</tool_calls>")
            .call(OBJECT)
            .ends(&["<end_of_sentence>"]),
        // MiniMax M2, M2.5, M2.7.
        family("minimax-m2")
            .reasoning("<think>", "</think>")
            .section("<minimax:tool_call>\n{call}\n{call}\n</minimax:tool_call>")
            .call("<invoke name=\"{name}\">\n{arguments}</invoke>")
            .parameter("<parameter name=\"{key}\">{value}</parameter>\n")
            .ends(&["[e~["]),
        // MiniMax M3. Every tag of the arguments has the prefix:
        // `]<]minimax[>[<a>1]<]minimax[>[</a>`. `</mm:think>` alone means no reasoning.
        family("minimax-m3")
            .reasoning("<mm:think>", "</mm:think>")
            .close_only()
            .section("]<]minimax[>[<tool_call>\n{call}\n{call}\n]<]minimax[>[</tool_call>")
            .call(r#"]<]minimax[>[<invoke name="{name}">{arguments}]<]minimax[>[</invoke>"#)
            .arguments(Encoding::Elements { prefix: text("]<]minimax[>["), item: text("item") })
            .ends(&["[e~["]),
        // Qwen3-Coder, Qwen 3.5, 3.6 and 3.8, Nemotron 3, Step 3.5. The opening `<tool_call>` may
        // be missing.
        family("qwen-xml")
            .reasoning("<think>", "</think>")
            .closed_by_call()
            .section("{call}\n{call}")
            .call("<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>")
            .parameter("<parameter={key}>\n{value}\n</parameter>\n")
            .ends(&["<|im_end|>"]),
        // Seed-OSS.
        family("seed-oss")
            .reasoning("<seed:think>", "</seed:think>")
            .section("{call}\n{call}")
            .call("<seed:tool_call>\n<function={name}>\n{arguments}</function>\n</seed:tool_call>")
            .parameter("<parameter={key}>{value}</parameter>\n")
            .ends(&["<seed:eos>"]),
        // GLM 4.5, 4.5V and 4.6, Laguna-XS.
        family("glm-kv")
            .reasoning("<think>", "</think>")
            .close_only()
            .section("{call}\n{call}")
            .call("<tool_call>{name}\n{arguments}</tool_call>")
            .parameter("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n")
            .ends(&["<|user|>", "<|observation|>", "</assistant>"]),
        // GLM 4.7, 5.1, 5.2 and 5.3, Spark 2.5, Laguna-S. `glm-kv` without newlines.
        family("glm-kv-compact")
            .reasoning("<think>", "</think>")
            .close_only()
            .call("<tool_call>{name}{arguments}</tool_call>")
            .parameter("<arg_key>{key}</arg_key><arg_value>{value}</arg_value>")
            .ends(&["<|user|>", "<|observation|>", "</assistant>"]),
        // Ling 3.0.
        family("ling")
            .reasoning("<think>", "</think>")
            .closed_by_call()
            .close_only()
            .section("{call}\n{call}")
            .call("<tool_call>{name}\n{arguments}\n</tool_call>")
            .parameter("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>")
            .ends(&["<|role_end|>"]),
        // Hunyuan Hy3.
        family("hy3")
            .reasoning("<think:opensource>", "</think:opensource>")
            .section("<tool_calls:opensource>\n{call}\n{call}\n</tool_calls:opensource>")
            .call(
                "<tool_call:opensource>{name}<tool_sep:opensource>\n\
                 {arguments}</tool_call:opensource>",
            )
            .parameter(
                "<arg_key:opensource>{key}</arg_key:opensource>\n\
                 <arg_value:opensource>{value}</arg_value:opensource>\n",
            )
            .ends(&["<｜hy_eos:opensource｜>"]),
        // Hunyuan A13B. The same calls as Apriel, with tags around reasoning and text.
        family("hunyuan-a13b")
            .reasoning("<think>", "</think>")
            .wrapper("<answer>", "</answer>")
            .section("<tool_calls>[{call}, {call}]</tool_calls>")
            .call(OBJECT)
            .ends(&["<|eos|>"]),
        // Gemma 4, DiffusionGemma: `<|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|>`. The
        // template writes text after the calls, the models write it before. A thought that is
        // opened twice leaves `<|channel>`, the first half of its tag.
        family("gemma4")
            .reasoning("<|channel>thought", "<channel|>")
            .close_only()
            .call("<|tool_call>call:{name}{arguments}<tool_call|>")
            .arguments(Encoding::Pairs { quote: text("<|\"|>") })
            .ends(&["<turn|>", "<|tool_response>", "<|channel>"]),
        // Nemotron Nano v2.
        family("toolcall-array")
            .reasoning("<think>", "</think>")
            .section("<TOOLCALL>[{call}, {call}]</TOOLCALL>")
            .call(OBJECT)
            .ends(&["<SPECIAL_12>"]),
        // Apertus.
        family("apertus")
            .reasoning("<|inner_prefix|>", "<|inner_suffix|>")
            .section("<|tools_prefix|>[{call}, {call}]<|tools_suffix|>")
            .call(r#"{"{name}": {arguments}}"#)
            .ends(&["<|assistant_end|>"]),
        // LFM2, LFM2.5 (which may omit the markers): `[f(a=1, b='x'), g()]` between the markers.
        family("lfm2")
            .reasoning("<think>", "</think>")
            .section("<|tool_call_start|>[{call}, {call}]<|tool_call_end|>")
            .call("{name}({arguments})")
            .arguments(Encoding::python())
            .ends(&["<|im_end|>"])
            .untagged(),
        // OLMo 3 and 3.1: `f(a=1, b="x")` and `g()` on separate lines.
        family("olmo")
            .reasoning("<think>", "</think>")
            .section("<function_calls>{call}\n{call}</function_calls>")
            .call("{name}({arguments})")
            .arguments(Encoding::python())
            .ends(&["<|im_end|>", "<|endoftext|>"]),
        // Llama 3.2, Llama 4, ToolACE and Gemma 3 with a pythonic prompt: `[f(a=1, b='x'), g()]`.
        // Without a marker, a list counts only if every name is a tool of the request.
        family("pythonic")
            .section("[{call}, {call}]")
            .call("{name}({arguments})")
            .arguments(Encoding::python())
            .ends(&["<|eot_id|>", "<|eot|>", "<end_of_turn>"]),
        // Apriel 1.5 and 1.6. Reasoning has no opening tag; the prompt ends in `Here are my
        // reasoning steps:`.
        family("apriel")
            .reasoning("", "[BEGIN FINAL RESPONSE]")
            .close_only()
            .section("<tool_calls>[{call}, {call}]</tool_calls>")
            .call(OBJECT)
            .ends(&["<|end|>"]),
        // GigaChat 3. A call is a message of the role `function call`; the template writes only
        // the first one.
        family("gigachat3")
            .call(
                "<|message_sep|>\n\nfunction call<|role_sep|>\n\
                 {\"name\": \"{name}\", \"arguments\": {arguments}}",
            )
            .single()
            .ends(&["<|message_sep|>"]),
        // GigaChat 3.1. The template writes only the first call.
        family("gigachat3.1")
            .call(r#"<|function_call|>{"name": "{name}", "arguments": {arguments}}"#)
            .single()
            .ends(&["<|message_sep|>"]),
        // MiniCPM 5. Values may be wrapped in `<![CDATA[…]]>`.
        family("minicpm5")
            .reasoning("<think>", "</think>")
            .section("{call}\n{call}")
            .call(r#"<function name="{name}">{arguments}</function>"#)
            .parameter(r#"<param name="{key}">{value}</param>"#)
            .ends(&["<|im_end|>"]),
        // Muse Glimmer. Each call is a message; its recipient is the function's name.
        family("muse")
            .channels(Channels {
                turn: text("<|start|>assistant"),
                body: text("<|message|>"),
                ends: texts(&["<|eom|>", "<|eot|>"]),
                recipient: text("to="),
                reasoning: texts(&["self"]),
                content: texts(&["user"]),
                ..Channels::default()
            })
            .section("{call}<|eom|><|start|>assistant{call}")
            .call(
                " to={name}<|message|><atem:function_calls>\n\
                 <atem:invoke name=\"{name}\">\n\
                 {arguments}</atem:invoke>\n\
                 </atem:function_calls>",
            )
            .parameter("<atem:parameter name=\"{key}\">{value}</atem:parameter>\n")
            .ends(&["<|eom|>", "<|eot|>"]),
        // Solar Open.
        family("solar")
            .reasoning("<|think|>", "<|end|>")
            .wrapper("<|content|>", "<|end|>")
            .section("<|tool_calls|>{call}{call}<|calls|>")
            .call(
                "<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>\
                 {arguments}<|tool_call:end|>",
            )
            .ends(&["<|begin|>assistant", "<|calls|>", "<|end|>"]),
        // Granite 3.0 to 3.3. The list has no closing marker.
        family("granite-3.3")
            .reasoning("<think>", "</think>")
            .wrapper("<response>", "</response>")
            .section("<|tool_call|>[{call}, {call}]")
            .call(OBJECT)
            .ends(&["<|end_of_text|>"])
            .untagged(),
        // Phi-4-mini.
        family("phi4-mini")
            .section("<|tool_call|>[{call}, {call}]<|/tool_call|>")
            .call(OBJECT)
            .ends(&["<|end|>"]),
        // InternLM 2 and 2.5 (which write `parameters` for `arguments`).
        family("internlm2")
            .call(
                "<|action_start|><|plugin|>\n\
                 {\"name\": \"{name}\", \"arguments\": {arguments}}<|action_end|>",
            )
            .ends(&["<|im_end|>"]),
        // Cogito. Without a marker, a list counts only if every name is a tool of the request.
        family("bare-array-id")
            .section("[{call}, {call}]")
            .call(r#"{"name": "{name}", "arguments": {arguments}, "id": "{id}"}"#)
            .ends(&["<|eot_id|>"]),
        // xLAM. Without a marker, a list counts only if every name is a tool of the request.
        family("bare-array").section("[{call}, {call}]").call(OBJECT),
    ];
    families.into_iter().map(|family| *family.0).collect()
});

/// Forms of calls that models write although their templates do not show them. The parser reads
/// them; detection finds them only in the text of a prompt.
static OTHER_FORMS: Lazy<Vec<Format>> = Lazy::new(|| {
    let forms = [
        // ReAct prompts, of LangChain and others.
        family("react").section("{call}\n{call}").call("Action: {name}\nAction Input: {arguments}"),
        // Qwen-Agent's prompt for Qwen 1.5 and 2.
        family("qwen-agent")
            .section("{call}\n{call}")
            .call("✿FUNCTION✿: {name}\n✿ARGS✿: {arguments}"),
        // LM Studio's prompt for models without tools.
        family("lm-studio").section("{call}\n{call}").call(
            "[TOOL_REQUEST]{\"name\": \"{name}\", \"arguments\": {arguments}}\
                 [END_TOOL_REQUEST]",
        ),
        // Qwen 2.5 Coder, which confuses the tag of a call with the tag of the tool list.
        family("tools-tag")
            .section("{call}\n{call}")
            .call("<tools>\n{\"name\": \"{name}\", \"arguments\": {arguments}}\n</tools>"),
        // Granite 20B and others. The closing tag is often missing.
        family("function-call-tag").section("{call}\n{call}").call(
            "<function_call>{\"name\": \"{name}\", \"arguments\": \
                 {arguments}}</function_call>",
        ),
        // Models tuned on Glaive's data set, whose arguments are a string in single quotes.
        family("glaive")
            .section("{call}\n{call}<|endoftext|>")
            .call("<functioncall> {\"name\": \"{name}\", \"arguments\": {arguments}}"),
        // The tag of Hermes and others without its underscore.
        family("joined-tag")
            .section("{call}\n{call}")
            .call("<toolcall>{\"name\": \"{name}\", \"arguments\": {arguments}}</toolcall>"),
        // Children in place of a JSON object.
        family("tool-call-elements").section("{call}\n{call}").call(
            "<tool_call>\n<name>{name}</name>\n<arguments>{arguments}</arguments>\n</tool_call>",
        ),
        // The name in the tag of the call.
        family("tool-call-attribute")
            .section("{call}\n{call}")
            .call("<tool_call name=\"{name}\">\n{arguments}\n</tool_call>"),
        // Qwen3-Coder and others, which confuse its parameters with Claude's.
        family("function-parameters")
            .section("{call}\n{call}")
            .call("<function={name}>\n{arguments}</function>")
            .parameter("<parameter name=\"{key}\">\n{value}\n</parameter>\n"),
        family("named-parameters")
            .section("{call}\n{call}")
            .call("<function name=\"{name}\">\n{arguments}</function>")
            .parameter("<parameter name=\"{key}\">{value}</parameter>\n"),
        // DeepSeek R1 and its distillations, which sometimes spell the tags with underscores.
        family("deepseek-underscores")
            .section("<｜tool_calls_begin｜>{call}\n{call}<｜tool_calls_end｜>")
            .call(
                "<｜tool_call_begin｜>function<｜tool_sep｜>{name}\n\
                 ```json\n{arguments}\n```<｜tool_call_end｜>",
            ),
        // Hunyuan's dense models, which sometimes write a fence around the arguments.
        family("named-object")
            .section("{call}\n{call}")
            .call("<tool_call>{name}\n{arguments}\n</tool_call>"),
        // Claude's notation, which other models were trained on.
        family("claude")
            .section("<function_calls>\n{call}\n{call}\n</function_calls>")
            .call("<invoke name=\"{name}\">\n{arguments}</invoke>")
            .parameter("<parameter name=\"{key}\">{value}</parameter>\n"),
        // Llama 3.1 and later, with built-in tools: the tag precedes JSON or Python.
        family("python-tag")
            .section("{call}; {call}")
            .call(r#"<|python_tag|>{"name": "{name}", "parameters": {arguments}}"#),
        family("python-tag-call")
            .section("{call}; {call}")
            .call("<|python_tag|>{name}.call({arguments})")
            .arguments(Encoding::python()),
        // Llama 4 with a pythonic prompt.
        family("python-start")
            .section("<|python_start|>[{call}, {call}]<|python_end|>")
            .call("{name}({arguments})")
            .arguments(Encoding::python()),
        // FunctionGemma.
        family("functiongemma")
            .call("<start_function_call>call:{name}{arguments}<end_function_call>")
            .arguments(Encoding::Pairs { quote: text("<escape>") }),
        // LongCat Flash.
        family("longcat")
            .section("{call}\n{call}")
            .call("<longcat_tool_call>{name}\n{arguments}</longcat_tool_call>")
            .parameter(
                "<longcat_arg_key>{key}</longcat_arg_key>\n\
                 <longcat_arg_value>{value}</longcat_arg_value>\n",
            ),
        // Step 3.
        family("step3")
            .section("<｜tool_calls_begin｜>{call}\n{call}<｜tool_calls_end｜>")
            .call(
                "<｜tool_call_begin｜>function<｜tool_sep｜>\
                 <steptml:invoke name=\"{name}\">{arguments}</steptml:invoke><｜tool_call_end｜>",
            )
            .parameter("<steptml:parameter name=\"{key}\">{value}</steptml:parameter>"),
        // DeepSeek V4.1, whose tags have a space.
        family("dsml-spaced")
            .section("<｜DSML｜ calls>\n{call}\n{call}\n</｜DSML｜ calls>")
            .call("<｜DSML｜ invoke name=\"{name}\">\n{arguments}</｜DSML｜ invoke>")
            .parameter(
                "<｜DSML｜ parameter name=\"{key}\" string=\"{is_string}\">\
                 {value}</｜DSML｜ parameter>\n",
            ),
        // Hunyuan Hy3 without the suffix of its tags.
        family("hy3-plain")
            .section("<tool_calls>\n{call}\n{call}\n</tool_calls>")
            .call("<tool_call>{name}<tool_sep>\n{arguments}</tool_call>")
            .parameter("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"),
        // Hunyuan Hy4, with and without the suffix.
        family("hy4")
            .section("<tool_calls:opensource>{call}{call}</tool_calls:opensource>")
            .call("<tool_call:opensource>{name}{arguments}</tool_call:opensource>")
            .parameter(
                "<arg_key:opensource>{key}</arg_key:opensource>\
                 <arg_value:opensource>{value}</arg_value:opensource>",
            ),
        family("hy4-plain")
            .section("<tool_calls>{call}{call}</tool_calls>")
            .call("<tool_call>{name}{arguments}</tool_call>")
            .parameter("<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"),
        // K2 Horizon, which may also write the type of a value, or a JSON object.
        family("k2-horizon")
            .section("<ifm|tool_calls>{call}\n{call}</ifm|tool_calls>")
            .call("<ifm|tool_call>{name}{arguments}</ifm|tool_call>")
            .parameter("<ifm|arg_key>{key}</ifm|arg_key><ifm|arg_value>{value}</ifm|arg_value>"),
        family("k2-horizon-typed")
            .section("<ifm|tool_calls>{call}\n{call}</ifm|tool_calls>")
            .call("<ifm|tool_call>{name}{arguments}</ifm|tool_call>")
            .parameter(
                "<ifm|arg_key>{key}</ifm|arg_key><ifm|arg_type>{type}</ifm|arg_type>\
                 <ifm|arg_value>{value}</ifm|arg_value>",
            ),
        // Gemma 4, which sometimes leaves out the word before the name, or all of it but the colon.
        family("gemma4-colon")
            .call("<|tool_call>:{name}{arguments}<tool_call|>")
            .arguments(Encoding::Pairs { quote: text("<|\"|>") }),
        family("gemma4-name")
            .call("<|tool_call>{name}{arguments}<tool_call|>")
            .arguments(Encoding::Pairs { quote: text("<|\"|>") }),
        // FireFunction v2, which sometimes writes this word for its own.
        family("functions-list").section("functions[{call}, {call}]").call(OBJECT),
        // Kimi K3, if the arguments are one text instead of an element for each.
        family("kimi-k3-object")
            .section("<|open|>tools<|sep|>{call}{call}<|close|>tools<|sep|>")
            .call(
                "<|open|>call tool=\"{name}\" index=\"{id}\"<|sep|>\
                 <|open|>json type=\"object\"<|sep|>\
                 {arguments}<|close|>json<|sep|><|close|>call<|sep|>",
            )
            .id(IdForm::Index(1)),
        // openPangu.
        family("pangu").section("[unused11][{call}, {call}][unused12]").call(OBJECT),
        // Gorilla OpenFunctions.
        family("gorilla")
            .section("{call}, {call}")
            .call("<<function>>{name}({arguments})")
            .arguments(Encoding::python()),
        // NexusRaven.
        family("nexusraven")
            .section("{call}; {call}<bot_end>")
            .call("Call: {name}({arguments})")
            .arguments(Encoding::python()),
    ];
    forms.into_iter().map(|family| *family.0).collect()
});

/// Builds a [`Format`]. A step sets the field of its name. Boxed because each step moves it.
struct Family(Box<Format>);

/// A format with no reasoning, calls or other parts.
fn family(name: &'static str) -> Family {
    let calls = Some(CallSyntax { parallel: true, ..CallSyntax::default() });
    Family(Box::new(Format { family: text(name), calls, ..Format::default() }))
}

impl Family {
    fn reasoning(mut self, open: &'static str, close: &'static str) -> Self {
        self.0.reasoning = Some(ReasoningTags::new(text(open), text(close)));
        self
    }

    fn closed_by_call(mut self) -> Self {
        self.0.reasoning =
            self.0.reasoning.map(|tags| ReasoningTags { closed_by_call: true, ..tags });
        self
    }

    fn close_only(mut self) -> Self {
        self.0.reasoning = self.0.reasoning.map(|tags| ReasoningTags { close_only: true, ..tags });
        self
    }

    fn wrapper(mut self, open: &'static str, close: &'static str) -> Self {
        self.0.wrappers.push(Wrapper { open: text(open), close: text(close) });
        self
    }

    fn channels(mut self, channels: Channels) -> Self {
        self.0.channels = Some(channels);
        self
    }

    fn section(self, pattern: &'static str) -> Self {
        let (open, rest) = split_slot(pattern, "{call}");
        let (separator, close) = split_slot(rest, "{call}");
        let (open, close, separator) = (text(open), text(close), text(separator));
        self.calls(|calls| CallSyntax { open, close, separator, ..calls })
    }

    /// The id is any text and the arguments are JSON unless a later step replaces them.
    fn call(self, pattern: &'static str) -> Self {
        self.calls(|calls| CallSyntax { call: call_parts(pattern), ..calls })
    }

    /// The template writes at most one call in a turn.
    fn single(self) -> Self {
        self.calls(|calls| CallSyntax { parallel: false, ..calls })
    }

    fn id(self, form: IdForm) -> Self {
        self.replace(&CallPart::Id(IdForm::Free), &CallPart::Id(form))
    }

    fn arguments(self, encoding: Encoding) -> Self {
        self.replace(&CallPart::Arguments(Encoding::Json), &CallPart::Arguments(encoding))
    }

    /// How each argument is written.
    fn parameter(self, pattern: &'static str) -> Self {
        self.arguments(Encoding::Tagged(tagged(pattern)))
    }

    fn ends(mut self, ends: &[&'static str]) -> Self {
        self.0.ends = texts(ends);
        self
    }

    fn untagged(mut self) -> Self {
        self.0.untagged = true;
        self
    }

    fn calls(mut self, change: impl FnOnce(CallSyntax) -> CallSyntax) -> Self {
        self.0.calls = self.0.calls.map(change);
        self
    }

    fn replace(self, old: &CallPart, new: &CallPart) -> Self {
        let replaced = |part| if part == *old { new.clone() } else { part };
        self.calls(|calls| CallSyntax {
            call: calls.call.into_iter().map(replaced).collect(),
            ..calls
        })
    }
}

fn harmony(turn: &'static str) -> Channels {
    Channels {
        turn: text(turn),
        header: text("<|channel|>"),
        body: text("<|message|>"),
        ends: texts(&["<|end|>", "<|call|>", "<|return|>"]),
        recipient: text("to="),
        function: text("functions."),
        reasoning: texts(&["analysis"]),
        content: texts(&["final", "commentary"]),
    }
}

/// Splits the pattern of a call at its slots.
fn call_parts(pattern: &'static str) -> Vec<CallPart> {
    let slots = [
        ("{name}", CallPart::Name),
        ("{id}", CallPart::Id(IdForm::Free)),
        ("{arguments}", CallPart::Arguments(Encoding::Json)),
    ];
    let mut parts = Vec::new();
    let mut rest = pattern;
    while !rest.is_empty() {
        if let Some((slot, part)) = slots.iter().find(|(slot, _)| rest.starts_with(slot)) {
            parts.push(part.clone());
            rest = &rest[slot.len()..];
            continue;
        }
        let end = slots.iter().filter_map(|(slot, _)| rest.find(slot)).min().unwrap_or(rest.len());
        parts.push(CallPart::Text(text(&rest[..end])));
        rest = &rest[end..];
    }
    parts
}

/// Splits the pattern of a parameter at its slots.
fn tagged(pattern: &'static str) -> Tagged {
    let (open, rest) = split_slot(pattern, "{key}");
    let (between, close) = split_slot(rest, "{value}");
    let slots = [
        ("{is_string}", TypeWords::of_strings("true", "false")),
        ("{type}", TypeWords::type_names()),
    ];
    let kind = slots.into_iter().find_map(|(slot, words)| Some((between.split_once(slot)?, words)));
    let (after_key, kind) = match kind {
        Some(((after_key, after), words)) => (
            after_key,
            Some(Box::new(ValueKind { words, before_key: false, after: text(after), item: None })),
        ),
        None => (between, None),
    };
    let (open, after_key, close) = (text(open), text(after_key), text(close));
    Tagged { open, after_key, kind, close, ..Tagged::default() }
}

fn split_slot(pattern: &'static str, slot: &str) -> (&'static str, &'static str) {
    pattern.split_once(slot).expect("a pattern of the table has every slot it needs")
}

fn text(text: &'static str) -> FormatText {
    FormatText::Borrowed(text)
}

fn texts(texts: &[&'static str]) -> Vec<FormatText> {
    texts.iter().copied().map(text).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let formats = all();
        let names: BTreeSet<_> = formats.iter().map(|format| &format.family).collect();
        assert_eq!(names.len(), formats.len());
        assert!(formats.iter().all(|format| format.source == FormatSource::Family
            && !format.verified
            && !format.family.is_empty()));
    }

    #[test]
    fn a_call_names_its_function_and_has_arguments_once() {
        for format in all().into_iter().chain([polyfilled()]) {
            let call = format.calls.unwrap().call;
            let arguments =
                call.iter().filter(|part| matches!(part, CallPart::Arguments(_))).count();
            let named = call
                .iter()
                .any(|part| matches!(part, CallPart::Name | CallPart::Id(IdForm::Named { .. })));
            assert!(arguments == 1 && named, "{}", format.family);
            let texts: Vec<&FormatText> = call
                .iter()
                .filter_map(|part| if let CallPart::Text(text) = part { Some(text) } else { None })
                .collect();
            assert!(texts.iter().all(|text| !text.is_empty()), "{}", format.family);
        }
    }

    #[test]
    fn tags_have_no_surrounding_whitespace() {
        for format in all() {
            let reasoning = format.reasoning.iter().flat_map(|tags| [&tags.open, &tags.close]);
            let wrappers = format.wrappers.iter().flat_map(|tags| [&tags.open, &tags.close]);
            for tag in reasoning.chain(wrappers).chain(&format.ends) {
                assert_eq!(tag.trim(), &**tag, "{}", format.family);
            }
        }
    }

    #[test]
    fn every_slot_is_known() {
        for format in all().into_iter().chain([polyfilled()]) {
            let unknown = |text: &str| {
                text.split('{')
                    .skip(1)
                    .any(|rest| rest.starts_with(|next: char| next.is_ascii_lowercase()))
            };
            assert!(!format.texts().into_iter().any(unknown), "{}", format.family);
        }
    }
}
