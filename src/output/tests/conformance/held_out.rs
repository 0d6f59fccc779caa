//! Templates that the corpus does not contain: formats of the family table, and invented formats.

use super::{profile, round_trips};
use crate::output::format::{CallPart, Encoding};

/// A template with this text in the assistant's turns. `EACH` … `DONE` is a loop over the calls `c`
/// with the functions `f`. `PAIRS` … `DONE` is a loop over keys `k` and values `v`. `JSON` is the
/// arguments, `THOUGHT` the reasoning, and `RAW` a value whose strings have no quotes.
fn template(turn: &str) -> String {
    framed("<|assistant|>", turn, "<|end|>")
}

fn framed(open: &str, turn: &str, end: &str) -> String {
    let turn = turn
        .replace(
            "EACH",
            "{%- for c in m.tool_calls -%}{%- set f = c.function -%}{%- set outer = loop -%}",
        )
        .replace("PAIRS", "{%- for k, v in f.arguments.items() -%}")
        .replace("DONE", "{%- endfor -%}")
        .replace("JSON", "{{- f.arguments if f.arguments is string else f.arguments | tojson -}}")
        .replace("RAW", "{{- v if v is string else v | tojson -}}")
        .replace("THOUGHT", "{{- m.reasoning_content -}}")
        .replace("TEXT", "{{- m.content or '' -}}");
    format!(
        "{{%- if tools -%}}<|tools|>{{{{ tools | tojson }}}}{end}{{%- endif -%}}{{%- for m in messages -%}}\
         {{%- if m.role == 'assistant' -%}}{{{{- {open:?} -}}}}{turn}{{{{- {end:?} -}}}}\
         {{%- else -%}}{{{{- '<|' ~ m.role ~ '|>' ~ m.content -}}}}{end}{{%- endif -%}}{{%- endfor -%}}\
         {{%- if add_generation_prompt -%}}{{{{- {open:?} -}}}}{{%- endif -%}}"
    )
}

#[track_caller]
fn check(name: &str, template: &str, parallel: bool) {
    let profile = profile(template);
    let caps = &profile.templates.llama_cpp_caps().caps;
    let format = profile.format().unwrap();
    assert!(format.verified, "{name}: {caps:?} {format:?}");
    assert_eq!(format.calls.as_ref().unwrap().parallel, parallel, "{name}: {format:?}");
    let tally = round_trips(&profile, format, 200);
    crate::test_support::conformance::say(&format!(
        "{name}: {} {} lost {:?} moved {:?}",
        format.family, tally.sets, tally.lost, tally.moved
    ));
    assert!(
        tally.failures.is_empty(),
        "{name}: {} of {}: {}\n{format:?}",
        tally.failures.len(),
        tally.sets,
        tally.failures[0]
    );
}

const THINK: &str = "{%- if m.reasoning_content -%}<think>{{- '\\n' -}}THOUGHT{{- '\\n' -}}</think>{{- '\\n\\n' -}}{%- endif -%}";

fn thinking(turn: &str) -> String {
    template(&format!("{THINK}TEXT{{%- if m.tool_calls -%}}{turn}{{%- endif -%}}"))
}

#[test]
fn kimi_k2() {
    let turn = "<|tool_calls_section_begin|>EACH<|tool_call_begin|>{{- c.id -}}<|tool_call_argument_begin|>JSON<|tool_call_end|>DONE<|tool_calls_section_end|>";
    check("kimi-k2", &thinking(turn), true);
}

#[test]
fn kimi_k3() {
    let turn = "{%- if m.reasoning_content -%}<|open|>think<|sep|>THOUGHT<|close|>think<|sep|>{%- endif -%}\
        {%- if m.content -%}<|open|>response<|sep|>TEXT<|close|>response<|sep|>{%- endif -%}\
        {%- if m.tool_calls -%}<|open|>tools<|sep|>EACH<|open|>call tool=\"{{- f.name -}}\" index=\"{{- loop.index -}}\"<|sep|>\
        PAIRS<|open|>argument key=\"{{- k -}}\" type=\"{%- if v is string -%}string\
        {%- elif v is boolean -%}boolean{%- elif v is none -%}null{%- elif v is number -%}number{%- elif v is mapping -%}object\
        {%- else -%}array{%- endif -%}\"<|sep|>RAW<|close|>argument<|sep|>DONE<|close|>call<|sep|>DONE<|close|>tools<|sep|>{%- endif -%}";
    check(
        "kimi-k3",
        &framed("<|open|>message role=\"assistant\"<|sep|>", turn, "<|close|>message<|sep|>"),
        true,
    );
}

#[test]
fn cohere_action() {
    let turn = "{%- if m.reasoning_content -%}<|START_THINKING|>THOUGHT<|END_THINKING|>{%- endif -%}\
        {%- if m.tool_calls -%}<|START_ACTION|>[{{- '\\n' -}}EACH{{- '    {\"tool_call_id\": \"' ~ loop.index0 ~ '\", \"tool_name\": \"' ~ f.name -}}\
        {{- '\", \"parameters\": ' ~ f.arguments|tojson ~ '}' ~ ('' if loop.last else ',') ~ '\\n' -}}DONE]<|END_ACTION|>\
        {%- else -%}<|START_RESPONSE|>TEXT<|END_RESPONSE|>{%- endif -%}";
    let open = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>";
    let template = framed(open, turn, "<|END_OF_TURN_TOKEN|>");
    check("cohere-action", &template, true);
    // Every render ends with a generation prompt, which begins as an answer does.
    let (before, _) = template.split_once("{%- if add_generation_prompt").unwrap();
    let always = format!("{before}{open}<|START_THINKING|><|END_THINKING|>");
    check("cohere-action, always prompted", &always, true);
    let format = profile(&always).format().unwrap().family.clone();
    assert_eq!(&*format, "cohere-action");
}

#[test]
fn mistral() {
    let nine = "EACH{%- if c.id | length != 9 -%}{{- raise_exception('ids have nine characters') -}}{%- endif -%}";
    let turn = format!(
        "TEXT{{%- if m.tool_calls -%}}{nine}[TOOL_CALLS]{{{{- f.name -}}}}[CALL_ID]{{{{- c.id -}}}}[ARGS]JSONDONE{{%- endif -%}}"
    );
    check("mistral-id", &framed("[/INST]", &turn, "</s>"), true);
    let turn = format!(
        "TEXT{{%- if m.tool_calls -%}}[TOOL_CALLS][{nine}{{{{- '{{\"name\": \"' ~ f.name ~ '\", \"arguments\": ' -}}}}JSON\
         {{{{- ', \"id\": \"' ~ c.id ~ '\"}}' ~ ('' if loop.last else ', ') -}}}}DONE]{{%- endif -%}}"
    );
    check("mistral-array", &framed(" [ASST] ", &turn, "</s>"), true);
    let turn = "{%- if m.reasoning_content -%}[THINK]THOUGHT[/THINK]{%- endif -%}TEXT{%- if m.tool_calls -%}EACH[TOOL_CALLS]{{- f.name -}}[ARGS]JSONDONE{%- endif -%}";
    check("mistral-args", &framed("[/INST]", turn, "</s>"), true);
}

#[test]
fn functionary() {
    let turn = "{%- if m.content -%}all{{- '\\n' -}}TEXT{%- if m.tool_calls -%}{{- '>>>' -}}{%- endif -%}{%- endif -%}\
        EACH{{- f.name ~ '\\n' -}}JSON{%- if not loop.last -%}{{- '>>>' -}}{%- endif -%}DONE";
    check(
        "functionary-3.2",
        &framed("<|start_header_id|>assistant<|end_header_id|>\n\n>>>", turn, "<|eot_id|>"),
        true,
    );
    check(
        "functionary-3.1",
        &template("TEXTEACH<function={{- f.name -}}>JSON</function>DONE"),
        true,
    );
}

#[test]
fn granite() {
    let one = "{{- '{\"name\": \"' ~ f.name ~ '\", \"arguments\": ' -}}JSON{{- '}' ~ ('' if loop.last else ', ') -}}";
    check("granite", &thinking(&format!("<|tool_call|>[EACH{one}DONE]")), true);
}

#[test]
fn minicpm5() {
    let turn = "EACH{{- '' if loop.first else '\\n' -}}<function name=\"{{- f.name -}}\">PAIRS<param name=\"{{- k -}}\">RAW</param>DONE</function>DONE";
    check("minicpm5", &thinking(turn), true);
}

#[test]
fn lfm2() {
    let value =
        "{%- if v is boolean or v is none -%}{{- v -}}{%- else -%}{{- v | tojson -}}{%- endif -%}";
    let one = format!(
        "{{{{- f.name -}}}}(PAIRS{{{{- '' if loop.first else ', ' -}}}}{{{{- k -}}}}={value}DONE)"
    );
    check(
        "lfm2",
        &thinking(&format!(
            "<|tool_call_start|>[EACH{{{{- '' if loop.first else ', ' -}}}}{one}DONE]<|tool_call_end|>"
        )),
        true,
    );
}

#[test]
fn command_r() {
    let turn = "TEXT{%- if m.tool_calls -%}{{- 'Action:\\n```json\\n[\\n' -}}EACH{{- '    {\\n        \"tool_name\": \"' ~ f.name ~ '\",\\n        \"parameters\": ' -}}JSON\
        {{- '\\n    }' ~ ('\\n' if loop.last else ',\\n') -}}DONE{{- ']```' -}}{%- endif -%}";
    let template =
        framed("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", turn, "<|END_OF_TURN_TOKEN|>");
    check("command-r-plus", &template, true);
    // Every render ends with instructions in a turn of their own.
    let (before, prompt) = template.split_once("{%- if add_generation_prompt").unwrap();
    let instructed = format!(
        "{before}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Write 'Action:'.<|END_OF_TURN_TOKEN|>\
         {{%- if add_generation_prompt{prompt}"
    );
    check("command-r-plus, instructed", &instructed, true);
}

#[test]
fn harmony_spaced() {
    let turn = "{%- if m.reasoning_content -%}<|channel|> analysis<|message|> THOUGHT<|end|><|start|> assistant{%- endif -%}\
        {%- if m.content -%}<|channel|> final<|message|> TEXT{%- if m.tool_calls -%}<|end|><|start|> assistant{%- endif -%}{%- endif -%}\
        EACH to=functions.{{- f.name -}}<|channel|> commentary <|constrain|>  json<|message|> JSON{%- if not loop.last -%}<|call|><|start|> assistant{%- endif -%}DONE";
    check("harmony-spaced", &framed("<|start|> assistant", turn, "<|call|>"), true);
}

#[test]
fn invented_formats() {
    check(
        "brackets",
        &thinking("EACH{{- '<<call ' ~ f.name ~ '>>' -}}JSON{{- '<<end>>' -}}DONE"),
        true,
    );
    check(
        "assignments",
        &thinking("EACH<|run|>{{- f.name -}}PAIRS<|set|>{{- k -}}=RAW<|/set|>DONE<|/run|>DONE"),
        true,
    );
    check(
        "lines",
        &thinking(
            "{{- '\\n' -}}EACH<use tool=\"{{- f.name -}}\">{{- '\\n' -}}PAIRS{{- '  <arg ' ~ k ~ '>' -}}RAW</arg>{{- '\\n' -}}DONE</use>{{- '\\n' -}}DONE",
        ),
        true,
    );
    let one = "{{- '{\"' ~ f.name ~ '\": ' -}}JSON{{- '}' ~ ('' if loop.last else ', ') -}}";
    check("keyed by name", &thinking(&format!("<|actions|>[EACH{one}DONE]<|/actions|>")), true);
    let ponder = "{%- if m.reasoning_content -%}<ponder>THOUGHT</ponder>{%- endif -%}TEXT";
    check(
        "json with ids",
        &template(&format!(
            "{ponder}EACH{{{{- '<act>{{\"id\": \"' ~ c.id ~ '\", \"tool\": \"' ~ f.name ~ '\", \"input\": ' -}}}}JSON{{{{- '}}</act>' -}}}}DONE"
        )),
        true,
    );
    check(
        "last only",
        &template(&format!(
            "{ponder}{{%- set c = m.tool_calls[0] if m.tool_calls else none -%}}{{%- if c -%}}{{%- set f = c.function -%}}<|do|>{{{{- f.name -}}}}<|with|>JSON<|/do|>{{%- endif -%}}"
        )),
        false,
    );
}

#[test]
fn ends_of_several_tokens() {
    let turn = "TEXTEACH[TC]{{- f.name -}}[AR]JSONDONE<|im_end|>{%- if m.tool_calls -%}<|stop|>{%- endif -%}";
    check("two ends", &framed("<|im_start|>assistant\n", turn, "\n"), true);
    let list = "TEXT{%- if m.tool_calls -%}{{- ' -> function_call\\n[' -}}EACH{{- '{\"name\": \"' ~ f.name ~ '\", \"arguments\": ' -}}JSON\
        {{- '}' ~ ('' if loop.last else ', ') -}}DONE]<|im_end|><|stop|>{%- else -%}<|im_end|>{%- endif -%}";
    check("a list with two ends", &framed("<|im_start|>assistant", list, "\n"), true);
}

#[test]
fn fences_in_tags() {
    for (separator, value) in [
        (",", "{{- v | tojson -}}"),
        (
            ", ",
            "{%- if v is boolean or v is none -%}{{- v -}}{%- else -%}{{- v | tojson -}}{%- endif -%}",
        ),
    ] {
        let one = format!(
            "{{{{- f.name -}}}}(PAIRS{{{{- '' if loop.first else '{separator}' -}}}}{{{{- k -}}}}={value}DONE)"
        );
        let turn = format!(
            "{{{{- '<|calls|>\\n```python\\n' -}}}}EACH{one}{{{{- '\\n' -}}}}DONE{{{{- '```\\n<|/calls|>' -}}}}"
        );
        check("python in a fence", &thinking(&turn), true);
    }
    let fenced = "{{- '\\n```json\\n' -}}JSON{{- '\\n```\\n' -}}";
    check(
        "a name and a fence in tags",
        &thinking(&format!("EACH<tool_call>{{{{- f.name -}}}}{fenced}</tool_call>DONE")),
        true,
    );
}

#[test]
fn types_as_attributes() {
    for (name, attribute) in [
        ("two words", " type=\"{{- 'raw' if v is string else 'json' -}}\""),
        ("a flag", "{{- '' if v is string else ' json=\"true\"' -}}"),
        (
            "words of Python",
            " type=\"{%- if v is string -%}str{%- elif v is boolean -%}bool{%- elif v is none -%}NoneType\
             {%- elif v is integer -%}int{%- elif v is number -%}float{%- elif v is mapping -%}dict{%- else -%}list{%- endif -%}\"",
        ),
    ] {
        let turn = format!(
            "<calls>EACH<call name=\"{{{{- f.name -}}}}\">PAIRS<value name=\"{{{{- k -}}}}\"{attribute}>RAW</value>DONE</call>DONE</calls>"
        );
        check(name, &thinking(&turn), true);
    }
}

#[test]
fn types_before_keys() {
    for (name, attribute) in [
        ("two words", " type=\"{{- 'raw' if v is string else 'json' -}}\""),
        (
            "words that share letters",
            " kind=\"{%- if v is string -%}ring{%- elif v is boolean -%}bing{%- elif v is none -%}nothing\
             {%- elif v is number -%}counting{%- elif v is mapping -%}mapping{%- else -%}listing{%- endif -%}\"",
        ),
    ] {
        let turn = format!(
            "<calls>EACH<call name=\"{{{{- f.name -}}}}\">PAIRS<value{attribute} name=\"{{{{- k -}}}}\">RAW</value>DONE</call>DONE</calls>"
        );
        check(name, &thinking(&turn), true);
    }
}

#[test]
fn nested_elements_with_types_first() {
    let macros = "{%- macro write(key, v) -%}<v as=\"\
        {%- if v is string -%}text{%- elif v is mapping -%}dict{%- elif v is iterable -%}list\
        {%- else -%}json{%- endif -%}\"{%- if key is not none %} name=\"{{ key }}\"{% endif %}>\
        {%- if v is string -%}{{- v | replace('&', '&amp;') | replace('<', '&lt;') | replace('>', '&gt;') -}}\
        {%- elif v is mapping -%}{%- for k, x in v.items() -%}{{- write(k, x) -}}{%- endfor -%}\
        {%- elif v is iterable -%}{%- for x in v -%}{{- write(none, x) -}}{%- endfor -%}\
        {%- else -%}{{- v | tojson -}}{%- endif -%}</v>{%- endmacro -%}";
    let turn =
        "<calls>EACH<call name=\"{{- f.name -}}\">PAIRS{{- write(k, v) -}}DONE</call>DONE</calls>";
    check("nested elements with types first", &format!("{macros}{}", thinking(turn)), true);
}

/// An array repeats the element of its key. Arrays in arrays are JSON.
#[test]
fn arrays_as_repeated_elements() {
    for prefix in ["", "~|~"] {
        let macros = format!(
            "{{%- macro one(key, v) -%}}{prefix}<{{{{ key }}}}>\
             {{%- if v is mapping -%}}{{%- for k, x in v.items() -%}}{{{{- many(k, x) -}}}}{{%- endfor -%}}\
             {{%- else -%}}{{{{- v if v is string else v | tojson -}}}}{{%- endif -%}}{prefix}</{{{{ key }}}}>{{%- endmacro -%}}\
             {{%- macro many(key, v) -%}}{{%- if v is iterable and v is not string and v is not mapping -%}}\
             {{%- for x in v -%}}{{{{- one(key, x) -}}}}{{%- endfor -%}}\
             {{%- else -%}}{{{{- one(key, v) -}}}}{{%- endif -%}}{{%- endmacro -%}}"
        );
        let turn = format!(
            "{prefix}<calls>EACH{prefix}<call name=\"{{{{- f.name -}}}}\">PAIRS{{{{- many(k, v) -}}}}DONE{prefix}</call>DONE{prefix}</calls>"
        );
        let template = format!("{macros}{}", thinking(&turn));
        // An empty array is written as nothing, and `[]` may be a text, so not all calls come back.
        let profile = profile(&template);
        let format = profile.format().unwrap();
        let calls = format.calls.as_ref().unwrap();
        assert!(format.verified && calls.parallel, "{format:?}");
        let repeats = Encoding::Elements { prefix: prefix.into(), item: "".into() };
        assert!(calls.call.contains(&CallPart::Arguments(repeats)), "{calls:?}");
    }
}

/// Arrays and objects as nested elements that name their types.
#[test]
fn nested_elements_with_types() {
    let macros = "{%- macro write(key, v) -%}\
        <v{%- if key is not none %} name=\"{{ key }}\"{% endif %} type=\"\
        {%- if v is string -%}raw\">{{- v -}}\
        {%- elif v is mapping -%}dict\">{%- for k, x in v.items() -%}{{- write(k, x) -}}{%- endfor -%}\
        {%- elif v is iterable -%}list\">{%- for x in v -%}{{- write(none, x) -}}{%- endfor -%}\
        {%- else -%}json\">{{- v | tojson -}}{%- endif -%}</v>{%- endmacro -%}";
    let turn =
        "<calls>EACH<call name=\"{{- f.name -}}\">PAIRS{{- write(k, v) -}}DONE</call>DONE</calls>";
    check("nested elements", &format!("{macros}{}", thinking(turn)), true);
}

#[test]
fn entities() {
    let angle = "{{- (v if v is string else v | tojson) | replace('&', '&amp;') | replace('<', '&lt;') | replace('>', '&gt;') -}}";
    for (name, value) in [
        ("angle brackets", angle),
        ("the filter escape", "{{- (v if v is string else v | tojson) | e -}}"),
    ] {
        let turn = format!(
            "<calls>EACH<call name=\"{{{{- f.name -}}}}\">PAIRS<value name=\"{{{{- k | e -}}}}\" \
             type=\"{{{{- 'raw' if v is string else 'json' -}}}}\">{value}</value>DONE</call>DONE</calls>"
        );
        check(name, &thinking(&turn), true);
    }
}

/// Strings have entities, JSON has none.
#[test]
fn entities_in_strings() {
    for (name, kind) in
        [("named types", " type=\"{{- 'raw' if v is string else 'json' -}}\""), ("no types", "")]
    {
        let turn = format!(
            "<calls>EACH<call name=\"{{{{- f.name -}}}}\">PAIRS<value name=\"{{{{- k | e -}}}}\"{kind}>\
             {{{{- v | e if v is string else v | tojson -}}}}</value>DONE</call>DONE</calls>"
        );
        check(name, &thinking(&turn), true);
    }
}

#[test]
fn several_calls_in_one_block() {
    let value =
        "{%- if v is string -%}<|q|>{{- v -}}<|q|>{%- else -%}{{- v | tojson -}}{%- endif -%}";
    let one = format!(
        "call:{{{{- f.name -}}}}{{{{- '{{' -}}}}PAIRS{{{{- '' if loop.first else ',' -}}}}{{{{- k -}}}}:{value}DONE{{{{- '}}' -}}}}"
    );
    let template = thinking(&format!("<|tool_call>EACH{one}DONE<tool_call|>"));
    let profile = profile(&template);
    let format = profile.format().unwrap();
    assert!(format.verified && format.calls.as_ref().unwrap().parallel, "{format:?}");
}

/// A template that writes nothing for an empty object.
#[test]
fn omitted_arguments() {
    let turn = "EACH[TOOL_CALLS]{{- f.name -}}[ARGS]{%- if f.arguments -%}JSON{%- endif -%}DONE";
    check("omitted arguments", &template(&format!("TEXT{turn}")), true);
}
