//! The table of replies of every family, written by hand. The first call is `f` with 1, the second
//! is `g` with 2.

/// The replies of one family. `{name}`, `{value}` and `{id}` are slots of a call. `{calls}` is a
/// section with the first call.
pub(super) struct FamilyReplies {
    pub(super) family: &'static str,
    /// One call.
    call: &'static str,
    /// The text before the first call, between two calls, and after the last call.
    section: [&'static str; 3],
    /// A section with both calls, if it differs from `section` filled with `call`.
    both: Option<&'static str>,
    /// The ids of the two calls.
    ids: Option<[&'static str; 2]>,
    /// Whether the ids follow the arguments. The calls then get new ids.
    pub(super) late_ids: bool,
    /// A prompt, and a reply to it with the reasoning "R" and the first call.
    reasoning: Option<(&'static str, &'static str)>,
    /// The text "T" and the first call.
    text_before: &'static str,
    /// The first call and the text "Done."
    text_after: &'static str,
    /// The end of the prompt.
    pub(super) prompt: &'static str,
    /// Whether calls need no tag. Only names of given tools then make calls.
    pub(super) untagged: bool,
}

impl FamilyReplies {
    pub(super) fn one(&self) -> String {
        let [open, _, close] = self.section;
        format!("{open}{}{close}", self.filled("f", 1))
    }

    pub(super) fn two(&self) -> String {
        let [open, separator, close] = self.section;
        let both =
            || format!("{open}{}{separator}{}{close}", self.filled("f", 1), self.filled("g", 2));
        self.both.map_or_else(both, str::to_owned)
    }

    fn filled(&self, name: &str, value: usize) -> String {
        let id = self.ids.map_or("", |ids| ids[value - 1]);
        let call = self.call.replace("{name}", name).replace("{id}", id);
        call.replace("{value}", &value.to_string())
    }

    /// The ids of the parsed calls, if the parser takes them from the reply.
    pub(super) fn ids(&self) -> Option<[&'static str; 2]> {
        self.ids.filter(|_| !self.late_ids)
    }

    /// A prompt and a reply with reasoning, if the family has reasoning.
    pub(super) fn reasoning(&self) -> Option<(&'static str, String)> {
        let (prompt, reply) = self.reasoning?;
        Some((prompt, reply.replace("{calls}", &self.one())))
    }

    pub(super) fn text_before(&self) -> String {
        self.text_before.replace("{calls}", &self.one())
    }

    pub(super) fn text_after(&self) -> String {
        self.text_after.replace("{calls}", &self.one())
    }
}

const OBJECT: &str = r#"{"name": "{name}", "arguments": {"a": {value}}}"#;
const HERMES: FamilyReplies = FamilyReplies {
    family: "hermes",
    call: "<tool_call>\n{\"name\": \"{name}\", \"arguments\": {\"a\": {value}}}\n</tool_call>",
    section: ["", "\n", ""],
    both: None,
    ids: None,
    late_ids: false,
    reasoning: Some(("", "<think>\nR\n</think>\n\n{calls}")),
    text_before: "T\n{calls}",
    text_after: "{calls}\nDone.",
    prompt: "",
    untagged: false,
};
/// Calls without reasoning and with nothing between them.
const PLAIN: FamilyReplies = FamilyReplies { reasoning: None, section: ["", "", ""], ..HERMES };
const LLAMA: FamilyReplies = FamilyReplies {
    call: r#"{"name": "{name}", "parameters": {"a": {value}}}"#,
    section: ["", "; ", ""],
    text_before: "T {calls}",
    untagged: true,
    ..PLAIN
};
const DEEPSEEK: FamilyReplies = FamilyReplies {
    section: ["<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>"],
    reasoning: Some(("<think>\n", "R</think>{calls}")),
    ..PLAIN
};
const DSML: FamilyReplies = FamilyReplies {
    call: "<｜DSML｜invoke name=\"{name}\">\n\
           <｜DSML｜parameter name=\"a\" string=\"false\">{value}</｜DSML｜parameter>\n\
           </｜DSML｜invoke>\n",
    reasoning: Some(("<think>", "R</think>\n\n{calls}")),
    ..PLAIN
};
const GLM: FamilyReplies = FamilyReplies {
    call: "<tool_call>{name}\n<arg_key>a</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>",
    ..HERMES
};

/// One entry for each family.
pub(super) static TABLE: &[FamilyReplies] = &[
    HERMES,
    FamilyReplies { family: "polyfilled", ..HERMES },
    FamilyReplies {
        family: "exaone4",
        call: r#"<tool_call>{"name": "{name}", "arguments": {"a": {value}}}</tool_call>"#,
        reasoning: Some(("<think>\n", "R\n</think>\n\n{calls}")),
        ..HERMES
    },
    FamilyReplies {
        family: "hermes-reversed",
        call: "<tool_call>\n{ \"arguments\": {\"a\": {value}}, \"name\": \"{name}\"}\n</tool_call>",
        reasoning: None,
        ..HERMES
    },
    FamilyReplies { family: "llama3", ..LLAMA },
    FamilyReplies { family: "llama4", ..LLAMA },
    FamilyReplies {
        family: "mistral-array",
        call: r#"{"name": "{name}", "arguments": {"a": {value}}, "id": "{id}"}"#,
        section: ["[TOOL_CALLS][", ", ", "]"],
        ids: Some(["000000001", "000000002"]),
        late_ids: true,
        ..PLAIN
    },
    FamilyReplies {
        family: "mistral-id",
        call: r#"[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]{"a": {value}}"#,
        ids: Some(["123456789", "123456780"]),
        ..PLAIN
    },
    FamilyReplies {
        family: "mistral-args",
        call: r#"[TOOL_CALLS]{name}[ARGS]{"a": {value}}"#,
        reasoning: Some(("", "[THINK]R[/THINK]{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "deepseek-r1",
        call: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n\
               ```json\n{\"a\": {value}}\n```<｜tool▁call▁end｜>",
        section: ["<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>"],
        ..DEEPSEEK
    },
    FamilyReplies {
        family: "deepseek-v3.1",
        call: r#"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{"a": {value}}<｜tool▁call▁end｜>"#,
        ..DEEPSEEK
    },
    FamilyReplies {
        family: "deepseek-v3",
        call: "<｜tool▁call▁begin｜>{\"name\": \"{name}\", \"parameters\": {\"a\": \
               {value}}}<｜tool▁call▁end｜>",
        ..DEEPSEEK
    },
    FamilyReplies {
        family: "dsml",
        section: ["<｜DSML｜function_calls>\n", "", "</｜DSML｜function_calls>"],
        ..DSML
    },
    FamilyReplies {
        family: "dsml-v4",
        section: ["<｜DSML｜tool_calls>\n", "", "</｜DSML｜tool_calls>"],
        ..DSML
    },
    FamilyReplies {
        family: "cohere-action",
        call: r#"{"tool_call_id": "{id}", "tool_name": "{name}", "parameters": {"a": {value}}}"#,
        section: ["<|START_ACTION|>[\n    ", ",\n    ", "\n]<|END_ACTION|>"],
        ids: Some(["0", "1"]),
        reasoning: Some(("", "<|START_THINKING|>R<|END_THINKING|>{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "command-r-plus",
        call: "{\n        \"tool_name\": \"{name}\",\n        \"parameters\": {\"a\": {value}}\n    }",
        section: ["Action:\n```json\n[\n    ", ",\n    ", "\n]```"],
        ..PLAIN
    },
    FamilyReplies {
        family: "functionary-3.1",
        call: r#"<function={name}>{"a": {value}}</function>"#,
        ..PLAIN
    },
    FamilyReplies {
        family: "functionary-3.2",
        call: "{name}\n{\"a\": {value}}",
        section: ["", ">>>", ""],
        text_before: "all\nT>>>{calls}",
        text_after: "{calls}>>>all\nDone.",
        prompt: ">>>",
        untagged: true,
        ..PLAIN
    },
    FamilyReplies {
        family: "functionary-2.2",
        call: "<|from|>assistant\n<|recipient|>{name}\n<|content|>{\"a\": {value}}",
        section: ["", "\n", ""],
        text_before: "<|from|>assistant\n<|recipient|>all\n<|content|>T\n{calls}",
        text_after: "{calls}\n<|from|>assistant\n<|recipient|>all\n<|content|>Done.",
        untagged: true,
        ..PLAIN
    },
    FamilyReplies {
        family: "firefunction",
        call: OBJECT,
        section: [" functools[", ", ", "]"],
        ..PLAIN
    },
    FamilyReplies {
        family: "harmony",
        call: "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>\
               {\"a\": {value}}",
        section: ["", "<|end|><|start|>assistant", ""],
        reasoning: Some(("", "<|channel|>analysis<|message|>R<|end|><|start|>assistant{calls}")),
        text_before: "<|channel|>commentary<|message|>T<|end|><|start|>assistant to=functions.f\
                      <|channel|>commentary <|constrain|>json<|message|>{\"a\": 1}<|call|>",
        text_after: "<|channel|>commentary to=functions.f<|message|>{\"a\": 1}<|end|>\
                     <|start|>assistant<|channel|>final<|message|>Done.<|return|>",
        ..PLAIN
    },
    FamilyReplies {
        family: "harmony-spaced",
        call: "<|channel|> commentary to=functions.{name}<|message|> {\"a\": {value}}",
        both: Some(
            "<|channel|> commentary to=functions.f<|message|> {\"a\": 1}<|end|><|start|> assistant \
             to=functions.g<|channel|> commentary <|constrain|>  json<|message|> {\"a\": 2}",
        ),
        reasoning: Some((
            "",
            "<|channel|> analysis<|message|> R<|end|><|start|> assistant to=functions.f\
             <|channel|> commentary <|constrain|>  json<|message|> {\"a\": 1}",
        )),
        text_before: "<|channel|> commentary<|message|> T<|end|><|start|> assistant to=functions.f\
                      <|channel|> commentary<|message|> {\"a\": 1}",
        text_after: "{calls}<|end|><|start|> assistant<|channel|> final<|message|> Done.",
        ..PLAIN
    },
    FamilyReplies {
        family: "kimi-k2",
        call: "<|tool_call_begin|>{id}<|tool_call_argument_begin|>{\"a\": {value}}<|tool_call_end|>",
        section: ["<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>"],
        ids: Some(["functions.f:0", "functions.g:1"]),
        reasoning: Some(("", "<think>R</think>{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "kimi-k3",
        call: "<|open|>call tool=\"{name}\" index=\"{id}\"<|sep|>\
               <|open|>argument key=\"a\" type=\"number\"<|sep|>{value}<|close|>argument<|sep|>\
               <|close|>call<|sep|>",
        section: ["<|open|>tools<|sep|>", "", "<|close|>tools<|sep|>"],
        ids: Some(["1", "2"]),
        reasoning: Some((
            "<|open|>think<|sep|>",
            "R<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|>{calls}",
        )),
        text_before: "<|open|>response<|sep|>T<|close|>response<|sep|>{calls}\
                      <|close|>message<|sep|>",
        ..PLAIN
    },
    FamilyReplies {
        family: "minimax-m1",
        call: OBJECT,
        section: ["<tool_calls>\n", "\n", "\n</tool_calls>"],
        ..PLAIN
    },
    FamilyReplies {
        family: "minimax-m2",
        call: "<invoke name=\"{name}\">\n<parameter name=\"a\">{value}</parameter>\n</invoke>\n",
        section: ["<minimax:tool_call>\n", "", "</minimax:tool_call>"],
        reasoning: Some(("<think>\n", "R\n</think>\n\n{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "minimax-m3",
        call: "]<]minimax[>[<invoke name=\"{name}\">]<]minimax[>[<a>{value}]<]minimax[>[</a>\
               ]<]minimax[>[</invoke>\n",
        section: ["]<]minimax[>[<tool_call>\n", "", "]<]minimax[>[</tool_call>"],
        reasoning: Some(("", "<mm:think>R</mm:think>{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "qwen-xml",
        call: "<tool_call>\n<function={name}>\n<parameter=a>\n{value}\n</parameter>\n</function>\n\
               </tool_call>",
        reasoning: Some(("<think>\n", "R\n</think>\n\n{calls}")),
        ..HERMES
    },
    FamilyReplies {
        family: "seed-oss",
        call: "<seed:tool_call>\n<function={name}>\n<parameter=a>{value}</parameter>\n</function>\n\
               </seed:tool_call>",
        reasoning: Some(("", "<seed:think>R</seed:think>\n{calls}")),
        ..HERMES
    },
    FamilyReplies { family: "glm-kv", reasoning: Some(("", "<think>R</think>\n{calls}")), ..GLM },
    FamilyReplies {
        family: "glm-kv-compact",
        call: "<tool_call>{name}<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>",
        reasoning: Some(("<think>", "R</think>{calls}")),
        ..PLAIN
    },
    FamilyReplies { family: "ling", reasoning: Some(("<think>", "R{calls}")), ..GLM },
    FamilyReplies {
        family: "hy3",
        call: "<tool_call:opensource>{name}<tool_sep:opensource>\n\
               <arg_key:opensource>a</arg_key:opensource>\n\
               <arg_value:opensource>{value}</arg_value:opensource>\n</tool_call:opensource>\n",
        section: ["<tool_calls:opensource>\n", "", "</tool_calls:opensource>"],
        reasoning: Some(("", "<think:opensource>R</think:opensource>{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "hunyuan-a13b",
        call: OBJECT,
        section: ["<tool_calls>[", ", ", "]</tool_calls>"],
        reasoning: Some(("", "<think>\nR\n</think>\n{calls}")),
        text_before: "<answer>T</answer>{calls}",
        ..PLAIN
    },
    FamilyReplies {
        family: "gemma4",
        call: "<|tool_call>call:{name}{a:{value}}<tool_call|>",
        reasoning: Some(("", "<|channel>thought\nR\n<channel|>{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "toolcall-array",
        call: OBJECT,
        section: ["<TOOLCALL>[", ", ", "]</TOOLCALL>"],
        reasoning: Some(("<think>\n", "R\n</think>\n{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "apertus",
        call: r#"{"{name}": {"a": {value}}}"#,
        section: ["<|tools_prefix|>[", ", ", "]<|tools_suffix|>"],
        reasoning: Some(("", "<|inner_prefix|>R<|inner_suffix|>{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "lfm2",
        call: "{name}(a={value})",
        section: ["<|tool_call_start|>[", ", ", "]<|tool_call_end|>"],
        reasoning: Some(("", "<think>R</think>{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "olmo",
        call: "{name}(a={value})",
        section: ["<function_calls>", "\n", "</function_calls>"],
        reasoning: Some(("", "<think>R</think>{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "pythonic",
        call: "{name}(a={value})",
        section: ["[", ", ", "]"],
        text_before: "T {calls}",
        untagged: true,
        ..PLAIN
    },
    FamilyReplies {
        family: "apriel",
        call: OBJECT,
        section: ["<tool_calls>[", ", ", "]</tool_calls>"],
        reasoning: Some(("Here are my reasoning steps:\n", "R\n[BEGIN FINAL RESPONSE]\n{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "gigachat3",
        call: "<|message_sep|>\n\nfunction call<|role_sep|>\n\
               {\"name\": \"{name}\", \"arguments\": {\"a\": {value}}}",
        ..PLAIN
    },
    FamilyReplies {
        family: "gigachat3.1",
        call: r#"<|function_call|>{"name": "{name}", "arguments": {"a": {value}}}"#,
        ..PLAIN
    },
    FamilyReplies {
        family: "minicpm5",
        call: r#"<function name="{name}"><param name="a">{value}</param></function>"#,
        reasoning: Some(("<think>\n", "R\n</think>\n\n{calls}")),
        ..HERMES
    },
    FamilyReplies {
        family: "muse",
        call: " to={name}<|message|><atem:function_calls>\n<atem:invoke name=\"{name}\">\n\
               <atem:parameter name=\"a\">{value}</atem:parameter>\n</atem:invoke>\n\
               </atem:function_calls>",
        section: ["", "<|eom|><|start|>assistant", ""],
        reasoning: Some(("", " to=self<|message|>R<|eom|><|start|>assistant{calls}")),
        text_before: " to=user<|message|>T<|eom|><|start|>assistant{calls}",
        text_after: "{calls}<|eom|><|start|>assistant to=user<|message|>Done.<|eot|>",
        prompt: "<|start|>assistant",
        ..PLAIN
    },
    FamilyReplies {
        family: "solar",
        call: "<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>\
               {\"a\": {value}}<|tool_call:end|>",
        section: ["<|tool_calls|>", "", "<|calls|>"],
        ids: Some(["x-1", "x-2"]),
        reasoning: Some(("", "<|think|>R<|end|><|begin|>assistant{calls}")),
        text_before: "<|content|>T<|end|><|begin|>assistant{calls}",
        ..PLAIN
    },
    FamilyReplies {
        family: "granite-3.3",
        call: OBJECT,
        section: ["<|tool_call|>[", ", ", "]"],
        reasoning: Some(("", "<think>R</think>{calls}")),
        ..PLAIN
    },
    FamilyReplies {
        family: "phi4-mini",
        call: OBJECT,
        section: ["<|tool_call|>[", ", ", "]<|/tool_call|>"],
        ..PLAIN
    },
    FamilyReplies {
        family: "internlm2",
        call: "<|action_start|><|plugin|>\n\
               {\"name\": \"{name}\", \"arguments\": {\"a\": {value}}}<|action_end|>",
        ..PLAIN
    },
    FamilyReplies {
        family: "bare-array-id",
        call: r#"{"name": "{name}", "arguments": {"a": {value}}, "id": "{id}"}"#,
        section: ["[", ", ", "]"],
        ids: Some(["x", "y"]),
        late_ids: true,
        text_before: "T {calls}",
        untagged: true,
        ..PLAIN
    },
    FamilyReplies {
        family: "bare-array",
        call: OBJECT,
        section: ["[", ", ", "]"],
        text_before: "T {calls}",
        untagged: true,
        ..PLAIN
    },
];
