//! Tests of all readers: whole texts, texts cut at every position, and round trips. The readers
//! share the checks, so the tests are in one file.

use serde_json::{Value, json};

use super::super::format::{Keywords, Tagged, TypeWords, ValueKind};
use super::elements::ElementsReader;
use super::json::JsonReader;
use super::pairs::PairsReader;
use super::python::PythonReader;
use super::tagged::TaggedReader;
use super::{ArgumentsReader, Followers, ReadStep};
use crate::json_schema::ArgumentsSchema;
use crate::test_support::conformance::thread_time;
use crate::test_support::random::Random;

/// The result of reading a text.
#[derive(Debug, Clone, PartialEq)]
struct ReadResult {
    text: String,
    /// How it ended: `done`, `ended` with the rejected text, `broken`, or `open`.
    end: String,
    notes: Vec<&'static str>,
    certain: bool,
}

fn feed(reader: &mut dyn ArgumentsReader, input: &str) -> (ReadResult, Vec<String>) {
    let mut out = String::new();
    let mut end = "open".to_owned();
    let mut cuts = Vec::new();
    let mut chars = input.chars();
    for c in chars.by_ref() {
        match reader.step(c, &mut out) {
            ReadStep::More => cuts.push(out.clone()),
            ReadStep::Closed => end = "done".to_owned(),
            ReadStep::Ended(rest) => end = format!("ended {rest}"),
            ReadStep::Broken(_) => end = "broken".to_owned(),
        }
        if end != "open" {
            break;
        }
    }
    let rest: String = chars.collect();
    let notes = reader.take_notes().into_iter().map(|(code, _)| code).collect();
    (ReadResult { text: out, end: end + &rest, notes, certain: reader.is_certain() }, cuts)
}

/// Reads `input` and every prefix of it.
#[track_caller]
fn read(new: &dyn Fn() -> Box<dyn ArgumentsReader>, input: &str) -> ReadResult {
    let (whole, cuts) = feed(new().as_mut(), input);
    let mut before = "";
    for cut in &cuts {
        assert!(cut.starts_with(before), "{before} -> {cut} in {input}");
        before = cut;
        if cut.len() < 2000 {
            let trailing = cut.len() - cut.trim_end_matches('\\').len();
            assert_eq!(trailing % 2, 0, "a fragment ends inside an escape: {cut}");
        }
    }
    assert!(whole.text.starts_with(before), "{before} -> {} in {input}", whole.text);
    for (at, _) in input.char_indices().take(3000) {
        let mut reader = new();
        let (mut begun, _) = feed(reader.as_mut(), &input[..at]);
        if begun.end != "open" {
            break;
        }
        reader.finish(&mut begun.text);
        let once = begun.text.clone();
        reader.finish(&mut begun.text);
        assert_eq!(once, begun.text, "finished twice");
        if !once.is_empty() {
            let value: Value = serde_json::from_str(&once)
                .unwrap_or_else(|error| panic!("{error}: {once} of {:?}", &input[..at]));
            assert!(value.is_object());
        }
    }
    whole
}

#[track_caller]
fn check(
    new: &dyn Fn() -> Box<dyn ArgumentsReader>,
    input: &str,
    want: Value,
    end: &str,
    notes: &[&str],
) {
    let got = read(new, input);
    let value: Value =
        serde_json::from_str(&got.text).unwrap_or_else(|error| panic!("{error}: {}", got.text));
    assert_eq!((value, got.end.as_str(), got.notes.as_slice()), (want, end, notes), "{input}");
}

/// Checks a text that ends before the arguments do.
#[track_caller]
fn check_cut(new: &dyn Fn() -> Box<dyn ArgumentsReader>, input: &str, want: &str, complete: bool) {
    read(new, input);
    let mut reader = new();
    let (mut got, _) = feed(reader.as_mut(), input);
    assert_eq!(got.end, "open");
    let finished = reader.finish(&mut got.text);
    assert_eq!((got.text.as_str(), finished), (want, complete), "{input}");
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "s": {"type": "string"}, "b": {"type": "boolean"}, "l": {"type": "array"},
        "u": {"type": ["string", "null"]}, "o": {"type": "object"}}, "required": ["n"]})
}

fn tagged(
    open: &'static str,
    after_key: &'static str,
    close: &'static str,
    kind: Option<(TypeWords, &'static str)>,
) -> Tagged {
    Tagged {
        open: open.into(),
        after_key: after_key.into(),
        kind: kind.map(|(words, after)| {
            ValueKind { words, before_key: false, after: after.into(), item: None }.into()
        }),
        close: close.into(),
        separator: "".into(),
        entities: &[],
        raw_json: false,
    }
}

fn tagged_reader(
    format: Tagged,
    followers: &'static [&'static str],
    schema: Option<Value>,
) -> impl Fn() -> Box<dyn ArgumentsReader> {
    move || {
        Box::new(TaggedReader::new(
            &format,
            &tags(followers),
            ArgumentsSchema::new(schema.as_ref()),
        ))
    }
}

/// The tags that close, and those that open.
fn tags(followers: &[&str]) -> Followers {
    let closes = |tag: &&str| tag.contains("</") || tag.contains("<|close|>");
    let (closing, opening) = followers.iter().map(|tag| tag.trim()).partition(closes);
    let owned = |tags: Vec<&str>| tags.into_iter().map(str::to_owned).collect();
    Followers { closing: owned(closing), opening: owned(opening) }
}

fn qwen(schema: Option<Value>) -> impl Fn() -> Box<dyn ArgumentsReader> {
    let followers = &["</function>\n", "</tool_call>", "<tool_call>", "<function="];
    tagged_reader(tagged("<parameter=", ">\n", "\n</parameter>\n", None), followers, schema)
}

fn glm(lines: bool, schema: Option<Value>) -> impl Fn() -> Box<dyn ArgumentsReader> {
    let format = match lines {
        true => tagged("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", None),
        false => tagged("<arg_key>", "</arg_key><arg_value>", "</arg_value>", None),
    };
    tagged_reader(format, &["</tool_call>", "<tool_call>"], schema)
}

fn dsml(schema: Option<Value>) -> impl Fn() -> Box<dyn ArgumentsReader> {
    let kind = Some((TypeWords::of_strings("true", "false"), "\">"));
    let format =
        tagged("<｜DSML｜parameter name=\"", "\" string=\"", "</｜DSML｜parameter>\n", kind);
    tagged_reader(format, &["</｜DSML｜invoke>", "</｜DSML｜function_calls>"], schema)
}

#[test]
fn tagged_arguments_as_templates_write_them() {
    let qwen = qwen(Some(schema()));
    let end = "ended \n</function>\n</tool_call>";
    check(
        &qwen,
        "<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
        json!({"n": 1}),
        end,
        &[],
    );
    check(
        &qwen,
        "<parameter=s>\ndef f():\n    print(\"</parameter>\")\n\n</parameter>\n<parameter=l>\n[1, \"x\"]\n</parameter>\n</function>",
        json!({"s": "def f():\n    print(\"</parameter>\")\n", "l": [1, "x"]}),
        "ended \n</function>",
        &[],
    );
    check(&qwen, "</function>", json!({}), "ended </function>", &[]);
    check(&qwen, "\n prose", json!({}), "ended \n prose", &[]);
    check(
        &qwen,
        "<parameter=u>\nnull\n</parameter>\n</tool_call>",
        json!({"u": null}),
        "ended \n</tool_call>",
        &[],
    );
    let end = "ended \n</tool_call>";
    for lines in [true, false] {
        let glm = glm(lines, Some(schema()));
        let text = "\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key>\n<arg_value>a\nb</arg_value>\n</tool_call>";
        check(&glm, text, json!({"n": 1, "s": "a\nb"}), end, &[]);
        let text = "<arg_key>n</arg_key><arg_value>1</arg_value><arg_key>s</arg_key><arg_value>a\nb</arg_value></tool_call>";
        check(&glm, text, json!({"n": 1, "s": "a\nb"}), "ended </tool_call>", &[]);
    }
    let text = "<｜DSML｜parameter name=\"s\" string=\"true\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"l\" string=\"false\">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>";
    check(&dsml(None), text, json!({"s": "1", "l": [1]}), "ended \n</｜DSML｜invoke>", &[]);
    let kimi = tagged(
        "<|open|>argument key=\"",
        "\" type=\"",
        "<|close|>argument<|sep|>",
        Some((TypeWords::type_names(), "\"<|sep|>")),
    );
    let kimi = tagged_reader(kimi, &["<|close|>call<|sep|>"], None);
    let text = "<|open|>argument key=\"a\" type=\"string\"<|sep|>1<|close|>argument<|sep|><|open|>argument key=\"b\" type=\"number\"<|sep|>1.50<|close|>argument<|sep|><|close|>call<|sep|>";
    assert_eq!(read(&kimi, text).text, "{\"a\": \"1\", \"b\": 1.50}");
}

#[test]
fn tagged_arguments_as_models_write_them() {
    let q = qwen(Some(schema()));
    let end = "ended </function>";
    check(
        &q,
        "<parameter=n>1</parameter><parameter=s>x</parameter></function>",
        json!({"n": 1, "s": "x"}),
        end,
        &[],
    );
    check(&q, "<parameter=\"n\"> 1 </parameter></function>", json!({"n": 1}), end, &[]);
    check(
        &q,
        "<parameter=n>\r\n1\r\n</parameter>\r\n<parameter=s>\r\nx\r\n</parameter></function>",
        json!({"n": 1, "s": "x"}),
        end,
        &[],
    );
    check(
        &q,
        "<parameter=n>\nabc\n</parameter></function>",
        json!({"n": "abc"}),
        end,
        &["arg_type_mismatch"],
    );
    check(&q, "<parameter=x>\n1\n</parameter></function>", json!({"x": 1}), end, &["arg_unknown"]);
    let text = "<parameter=n>1</parameter><parameter=n>2</parameter><parameter=s>a</parameter><parameter=s>b</parameter></function>";
    check(&q, text, json!({"n": 1, "s": "a"}), end, &["arg_duplicate", "arg_duplicate"]);
}

#[test]
fn tagged_arguments_without_end_tags() {
    let q = qwen(Some(schema()));
    let end = "ended </function>";
    check(&q, "<parameter=n>\n1\n</function>", json!({"n": 1}), "ended </function>", &[]);
    check(
        &q,
        "<parameter=s>\nx\n<parameter=n>\n1\n</function>\n</tool_call>",
        json!({"n": 1, "s": "x"}),
        "ended </function>\n</tool_call>",
        &[],
    );
    check(
        &q,
        "<parameter=s>\n</function>\n</tool_call>",
        json!({"s": ""}),
        "ended </function>\n</tool_call>",
        &[],
    );
    check_cut(&q, "<parameter=s>\nx\n<parameter=n>\n1\n</function>", r#"{"s": "x", "n": 1}"#, true);
    check(
        &q,
        "<parameter=s>x</function></tool_call>",
        json!({"s": "x"}),
        "ended </function></tool_call>",
        &[],
    );
    check(
        &q,
        "<parameter=s>x<parameter=n>1</parameter></function>",
        json!({"n": 1, "s": "x"}),
        end,
        &[],
    );
    check(
        &q,
        "<parameter=s>a </function> b</parameter></function>",
        json!({"s": "a </function> b"}),
        end,
        &[],
    );
    let g = glm(false, Some(schema()));
    let text = "<arg_key>s</arg_key><arg_value>print('</tool_call>')</arg_value></tool_call>";
    check(&g, text, json!({"s": "print('</tool_call>')"}), "ended </tool_call>", &[]);
    let text =
        "<arg_key>s</arg_key><arg_value>x<arg_key>n</arg_key><arg_value>1</arg_value></tool_call>";
    check(&g, text, json!({"s": "x", "n": 1}), "ended </tool_call>", &[]);
    check_cut(&g, "<arg_key>s</arg_key><arg_value>x</tool_call>", "{\"s\": \"x\"}", true);
}

/// Tags in a text are part of it, even if they begin lines, as long as they do not end a call.
#[test]
fn tags_in_texts() {
    let q = qwen(Some(schema()));
    let end = "ended \n</function>\n</tool_call>";
    for text in [
        "return \"</parameter>\"",
        "a\n</function>\nb",
        "</function>",
        "a\n<parameter=s>\nb",
        "a\n<parameter=n>\nb",
        "<parameter=n>",
        "<tool_call>\n<function=f>",
        "a</parameter>\n",
        "a\r",
        "</tool_call></parameter>",
    ] {
        let number = "<parameter=n>\n1\n</parameter>\n";
        let text_parameter = format!("<parameter=s>\n{text}\n</parameter>\n");
        let want = json!({"s": text, "n": 1});
        let call = "</function>\n</tool_call>";
        for parameters in [[number, &text_parameter], [&text_parameter, number]] {
            check(&q, &format!("{}{call}", parameters.concat()), want.clone(), end, &[]);
        }
    }
    // In a string of a list, nothing ends the value.
    let list = "<parameter=l>\n[\"</parameter></function></tool_call>\"]\n</parameter>\n";
    let want = json!({"l": ["</parameter></function></tool_call>"]});
    check(&q, &format!("{list}</function>\n</tool_call>"), want, end, &[]);
}

#[test]
fn attributes_and_cdata() {
    let d = dsml(Some(schema()));
    let end = "ended </｜DSML｜invoke>";
    let text =
        "<｜DSML｜parameter name=\"n\" string=\"true\">1</｜DSML｜parameter></｜DSML｜invoke>";
    check(&d, text, json!({"n": 1}), end, &["arg_coerced"]);
    let text = "<｜DSML｜parameter name=\"n\">1</｜DSML｜parameter></｜DSML｜invoke>";
    check(&d, text, json!({"n": 1}), end, &[]);
    let q = qwen(Some(schema()));
    let cdata = "<![CDATA[</parameter>\n</function>]]></parameter></function>";
    let want = json!({"s": "</parameter>\n</function>"});
    check(&q, &format!("<parameter=s>{cdata}"), want.clone(), "ended </function>", &[]);
    check(&q, &format!("<parameter=s>\n{cdata}"), want, "ended </function>", &[]);
    check(
        &q,
        "<parameter=n><![CDATA[1]]></parameter></function>",
        json!({"n": 1}),
        "ended </function>",
        &[],
    );
    let m = tagged_reader(
        tagged("<parameter name=\"", "\">", "</parameter>\n", None),
        &["</invoke>"],
        Some(schema()),
    );
    let text = "<parameter name=\"s\" type=\"string\">x\n</parameter>\n</invoke>";
    check(&m, text, json!({"s": "x\n"}), "ended \n</invoke>", &[]);
    let deep =
        format!("<parameter=l>{}</parameter></function>", "[".repeat(200) + &"]".repeat(200));
    assert_eq!(read(&q, &deep).notes, ["arguments_too_deep"]);
}

#[test]
fn truncated_tagged_arguments() {
    let q = qwen(Some(schema()));
    check_cut(&q, "", "{}", true);
    check_cut(&q, "<parameter=n", "{}", false);
    check_cut(&q, "<parameter=n>\n", "{}", false);
    check_cut(&q, "<parameter=n>\n1", "{\"n\": 1}", false);
    check_cut(&q, "<parameter=s>\nx\n</para", "{\"s\": \"x\"}", false);
    check_cut(&q, "<parameter=s>\nx <", "{\"s\": \"x <\"}", false);
    check_cut(&q, "<parameter=s>\nx\n</parameter>", "{\"s\": \"x\"}", true);
    check_cut(&q, "<parameter=s>\nx\n</parameter>\n</func", "{\"s\": \"x\"}", true);
}

#[test]
fn strings_are_emitted_as_they_come() {
    let (got, cuts) = feed(qwen(Some(schema()))().as_mut(), "<parameter=s>\nhello wor");
    assert_eq!(got.text, "{\"s\": \"hello wor");
    assert_eq!(cuts[18], "{\"s\": \"hello");
    let mut reader = qwen(Some(schema()))();
    feed(reader.as_mut(), "<parameter=s");
    assert!(!reader.is_certain());
    feed(reader.as_mut(), ">");
    assert!(reader.is_certain());
}

fn pairs() -> Box<dyn ArgumentsReader> {
    pairs_of(None)()
}

fn pairs_of(schema: Option<Value>) -> impl Fn() -> Box<dyn ArgumentsReader> {
    move || Box::new(PairsReader::new("<|\"|>", ArgumentsSchema::new(schema.as_ref())))
}

fn python(schema: Option<Value>) -> impl Fn() -> Box<dyn ArgumentsReader> {
    move || Box::new(PythonReader::new(&Keywords::default(), ArgumentsSchema::new(schema.as_ref())))
}

#[test]
fn pairs_as_templates_and_models_write_them() {
    for (text, want) in [
        ("{}", "{}"),
        (" {city:<|\"|>San Francisco<|\"|>}", r#"{"city": "San Francisco"}"#),
        (
            "{a:1.5e10,b:-7,c:true,d:null,e:None,f:False}",
            r#"{"a": 1.5e10, "b": -7, "c": true, "d": null, "e": null, "f": false}"#,
        ),
        (
            "{todos:[<|\"|>buy milk<|\"|>,<|\"|>a, \"b\" \\ {c}\n<|\"|>],x:[]}",
            r#"{"todos": ["buy milk", "a, \"b\" \\ {c}\n"], "x": []}"#,
        ),
        (
            "{config:{<|\"|>theme<|\"|>:<|\"|>dark<|\"|>,count:3},e:{}}",
            r#"{"config": {"theme": "dark", "count": 3}, "e": {}}"#,
        ),
        (
            "{\"a\": \"x\\n\\u00e9\\ud83d\\ude00\", 'b': [1, {\"c\": null}]}",
            "{\"a\": \"x\\né😀\", \"b\": [1, {\"c\": null}]}",
        ),
        ("{city: New York, zip: 010}", r#"{"city": "New York", "zip": "010"}"#),
        ("{a:[1,2,],b:{c:1,},}", r#"{"a": [1, 2], "b": {"c": 1}}"#),
        ("{a:[1,2}", r#"{"a": [1, 2]}"#),
        ("{a:1,a:2,b:<|\"|><|<|\"|>}", r#"{"a": 1, "b": "<|"}"#),
        ("{a,b:,c:1}", r#"{"a": null, "b": null, "c": 1}"#),
        ("{a:<b>}", r#"{"a": "<b>"}"#),
    ] {
        let got = read(&pairs, text);
        assert_eq!((got.text.as_str(), got.end.as_str()), (want, "done"), "{text}");
    }
    assert_eq!(read(&pairs, "x{").end, "broken{");
    check_cut(&pairs, "{a:<|\"|>hel", r#"{"a": "hel"}"#, false);
    check_cut(&pairs, "{a:<|\"|>hel<|\"", r#"{"a": "hel"}"#, false);
    check_cut(&pairs, "{a:[1,{b:<|\"|>x<|\"|>", r#"{"a": [1, {"b": "x"}]}"#, false);
    check_cut(&pairs, "{a", r#"{"a": null}"#, false);
    check_cut(&pairs, "", "", false);
}

#[test]
fn marked_pairs_get_the_types_of_their_keys() {
    let typed = pairs_of(Some(schema()));
    let (coerced, mismatch) = (&["arg_coerced"] as &[_], &["arg_type_mismatch"] as &[_]);
    for (text, want, codes) in [
        ("{n:'5'}", json!({"n": 5}), coerced),
        ("{n:' 007\n'}", json!({"n": 7}), coerced),
        ("{n:'5 apples'}", json!({"n": "5 apples"}), mismatch),
        ("{n:'[5]'}", json!({"n": "[5]"}), mismatch),
        ("{n:'',s:''}", json!({"n": "", "s": ""}), mismatch),
        ("{b:'True',n:5}", json!({"b": true, "n": 5}), coerced),
        ("{l:'[1, \"two\"]',s:'[1]'}", json!({"l": [1, "two"], "s": "[1]"}), coerced),
        ("{o:'{\"a\": \"5\"}'}", json!({"o": {"a": "5"}}), coerced),
        ("{s:'5',u:'null'}", json!({"s": "5", "u": "null"}), &[]),
        ("{o:{n:'5'},l:['True']}", json!({"o": {"n": "5"}, "l": ["True"]}), &[]),
    ] {
        check(&typed, &text.replace('\'', "<|\"|>"), want, "done", codes);
    }
    check_cut(&typed, "{n:<|\"|>5", r#"{"n": 5}"#, false);
    check_cut(&typed, "{n:<|\"|>5<|", r#"{"n": 5}"#, false);
    check_cut(&typed, "{n:5,b:<|\"|>", r#"{"n": 5, "b": ""}"#, false);
}

#[test]
fn python_arguments_as_models_write_them() {
    let one = || {
        Some(
            json!({"type": "object", "properties": {"city": {"type": "string"}, "n": {}}, "required": ["city"]}),
        )
    };
    for (text, want) in [
        (")", "{}"),
        ("a=1, b='x')", r#"{"a": 1, "b": "x"}"#),
        ("a = 1 , b = True,c=None, d=false,)", r#"{"a": 1, "b": true, "c": null, "d": false}"#),
        ("s=\"it's\", t='say \"hi\"')", r#"{"s": "it's", "t": "say \"hi\""}"#),
        ("s='It's fine', n=1)", r#"{"s": "It's fine", "n": 1}"#),
        (
            "s='it\\'s', t='''a\n'b' \"c\"''', u=\"\")",
            r#"{"s": "it's", "t": "a\n'b' \"c\"", "u": ""}"#,
        ),
        ("s='\\x41\\u00e9\\U0001F600\\101\\q\\n')", "{\"s\": \"Aé😀A\\\\q\\n\"}"),
        ("s=r'\\d+\\'', t='a' 'b'\n \"c\")", r#"{"s": "\\d+\\'", "t": "abc"}"#),
        ("s='\\ud83d\\ude00\\ud83dx')", "{\"s\": \"😀\u{fffd}x\"}"),
        (
            "l=[1, 'x', (2, 3), [], {}], d={'a': {'b': None}, 1: 2.50})",
            r#"{"l": [1, "x", [2, 3], [], {}], "d": {"a": {"b": null}, "1": 2.50}}"#,
        ),
        (
            "a=1_000, b=+1, c=.5, d=1., e=-0x10)",
            r#"{"a": 1000, "b": 1, "c": 0.5, "d": 1.0, "e": -16}"#,
        ),
        (
            "a=New York, b=date(2020, 1, 2), c=x)",
            r#"{"a": "New York", "b": "date(2020, 1, 2)", "c": "x"}"#,
        ),
        ("a=1, a=2, b=3)", r#"{"a": 1, "b": 3}"#),
        ("a='x)y', b=[')'])", r#"{"a": "x)y", "b": [")"]}"#),
        ("a=[1 2] b=3)", r#"{"a": ["1 2"], "b": 3}"#),
        ("a=, b=2)", r#"{"a": null, "b": 2}"#),
        (
            "a={'x', \"y\"}, b={1, x}, c={ }, d={'z'})",
            r#"{"a": ["x", "y"], "b": [1, "x"], "c": {}, "d": ["z"]}"#,
        ),
        (
            "a={'x': {1}, 'y': 2, z}, b=[{1}, {2: 3}])",
            r#"{"a": {"x": [1], "y": 2, "z": null}, "b": [[1], {"2": 3}]}"#,
        ),
    ] {
        let got = read(&python(None), text);
        assert_eq!((got.text.as_str(), got.end.as_str()), (want, "ended )"), "{text}");
    }
    check(&python(one()), "'Paris')", json!({"city": "Paris"}), "ended )", &["arg_positional"]);
    check(&python(one()), "5)", json!({"city": 5}), "ended )", &["arg_positional"]);
    check(
        &python(one()),
        "r'\\d', 2)",
        json!({"city": "\\d", "arg1": 2}),
        "ended )",
        &["arg_positional", "arg_positional", "arg_unknown"],
    );
    check(
        &python(one()),
        "city='x', z=1)",
        json!({"city": "x", "z": 1}),
        "ended )",
        &["arg_unknown"],
    );
    assert_eq!(read(&python(None), "'Paris')").end, "brokenParis')");
    check_cut(&python(None), "a=1, b='x", r#"{"a": 1, "b": "x"}"#, false);
    check_cut(&python(None), "a=[1, {'k': ", r#"{"a": [1, {"k": null}]}"#, false);
    check_cut(&python(None), "a={'k', 'l", r#"{"a": ["k", "l"]}"#, false);
    check_cut(&python(None), "a=", r#"{"a": null}"#, false);
    check_cut(&python(None), "a='x\\u00", r#"{"a": "x"}"#, false);
}

/// Quotes that are not escaped.
#[test]
fn python_strings_without_escapes() {
    for (text, want) in [
        ("a=\"say \"hi\", it's late\", b=1)", json!({"a": "say \"hi\", it's late", "b": 1})),
        ("a=\"x, y\", b='z')", json!({"a": "x, y", "b": "z"})),
        ("a=\"x\", \"y\")", json!({"a": "x", "arg1": "y"})),
        ("a=\"x\", y)", json!({"a": "x", "arg1": "y"})),
    ] {
        let got = read(&python(None), text);
        assert_eq!(serde_json::from_str::<Value>(&got.text).unwrap(), want, "{text}");
        assert_eq!(got.end, "ended )", "{text}");
    }
    let raw = || -> Box<dyn ArgumentsReader> {
        let form = Keywords { separator: ", ".into(), raw_quote: Some('\'') };
        Box::new(PythonReader::new(&form, ArgumentsSchema::default()))
    };
    for (text, want, end) in [
        ("a='x', b=1)]", json!({"a": "x", "b": 1}), "ended )]"),
        (
            "a='it's 'so', he said', b='C:\\new')]",
            json!({"a": "it's 'so', he said", "b": "C:\\new"}),
            "ended )]",
        ),
        ("a='call('x') now', b=true)]", json!({"a": "call('x') now", "b": true}), "ended )]"),
        ("a='(it's)', b='')]", json!({"a": "(it's)", "b": ""}), "ended )]"),
        ("a='x'), g(b=1)", json!({"a": "x"}), "ended ), g(b=1)"),
        (
            "a='f('x'), so', l=['y', \"z\"])\n",
            json!({"a": "f('x'), so", "l": ["y", "z"]}),
            "ended )\n",
        ),
        ("a=\"say \\\"x\\\"\")<", json!({"a": "say \"x\""}), "ended )<"),
        ("a='f(g('x'))')]", json!({"a": "f(g('x'))"}), "ended )]"),
    ] {
        let got = read(&raw, text);
        assert_eq!(serde_json::from_str::<Value>(&got.text).unwrap(), want, "{text}");
        assert_eq!(got.end, end, "{text}");
    }
    check_cut(&raw, "a='x')", r#"{"a": "x"}"#, true);
    check_cut(&raw, "a='x', b", r#"{"a": "x"}"#, false);
}

#[test]
fn leading_zeros() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "s": {"type": "string"}, "u": {"type": ["string", "integer"]}, "x": {}}});
    let tagged = qwen(Some(schema.clone()));
    let element = |key: &str| format!("<parameter={key}>\n007\n</parameter>\n");
    let text = ["n", "s", "u", "x"].map(element).concat() + "</function>";
    let want = json!({"n": 7, "s": "007", "u": "007", "x": "007"});
    check(&tagged, &text, want, "ended \n</function>", &["arg_coerced"]);
    let mut json_reader = JsonReader::new(ArgumentsSchema::new(Some(&schema)));
    let mut out = String::new();
    let text = "{\"n\": 007, \"s\": 007, \"x\": [-00.5, 0, -0, 0.5]}";
    let is_broken = |step| matches!(step, ReadStep::Broken(_));
    text.chars().for_each(|c| assert!(!is_broken(json_reader.step(c, &mut out))));
    assert_eq!(out, "{\"n\": 7, \"s\": \"007\", \"x\": [-0.5, 0, -0, 0.5]}");
    assert_eq!(json_reader.take_notes().len(), 1);
    let got = read(&python(Some(schema)), "n=007, s=007, u=007, x=007)");
    assert_eq!(got.text, r#"{"n": 7, "s": "007", "u": "007", "x": "007"}"#);
}

#[test]
fn repeated_elements_are_arrays() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "s": {"type": "string"},
        "l": {"type": "array", "items": {"type": "string"}},
        "i": {"type": "array", "items": {"type": "integer"}},
        "e": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
        "o": {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}},
        "any": {}}});
    for item in ["item", ""] {
        check_repeated(&elements_with(item, Some(schema.clone())));
    }
    // Without a tag for items, every element of an array is an item.
    let e = elements_with("", Some(schema));
    for (text, want) in [
        ("P<l>[\"a\"]P</l>", json!({"l": ["[\"a\"]"]})),
        ("P<l>P</l>P<l>P</l>", json!({"l": ["", ""]})),
        ("P<e>P</e>P<e>P<id>1P</id>P</e>", json!({"e": [{}, {"id": 1}]})),
        ("P<i>[]P</i>", json!({"i": []})),
        ("P<i>1P</i>P<i>[2, 3]P</i>", json!({"i": [1, 2, 3]})),
    ] {
        let text = minimax(&format!("{text}P</invoke>"));
        check(&e, &text, want, &minimax("ended P</invoke>"), &[]);
    }
}

#[track_caller]
fn check_repeated(e: &impl Fn() -> Box<dyn ArgumentsReader>) {
    for (text, want) in [
        ("P<l>aP</l>P<l>12P</l>", json!({"l": ["a", "12"]})),
        ("P<l>aP</l>", json!({"l": ["a"]})),
        ("P<l>aP</l>P<i>1P</i>P<i>2P</i>P<n>3P</n>", json!({"l": ["a"], "i": [1, 2], "n": 3})),
        (
            "P<e>P<id>1P</id>P</e>\nP<e>P<id>2P</id>P</e>P<s>xP</s>",
            json!({"e": [{"id": 1}, {"id": 2}], "s": "x"}),
        ),
        ("P<o>P<l>aP</l>P<l>bP</l>P</o>P<n>1P</n>", json!({"o": {"l": ["a", "b"]}, "n": 1})),
        ("P<any>1P</any>P<any>bP</any>P<any>P<k>2P</k>P</any>", json!({"any": [1, "b", {"k": 2}]})),
        ("P<any>P<k>1P</k>P<k>2P</k>P<j>3P</j>P</any>", json!({"any": {"k": [1, 2], "j": 3}})),
        ("P<i>[1, 2]P</i>", json!({"i": [1, 2]})),
    ] {
        let text = minimax(&format!("{text}P</invoke>"));
        check(e, &text, want, &minimax("ended P</invoke>"), &[]);
    }
    check_cut(e, &minimax("P<any>1P</any>P<any>2"), "{\"any\": [1, 2]}", false);
    check_cut(e, &minimax("P<any>1P</any>P<l>aP</l>"), "{\"any\": 1, \"l\": [\"a\"]}", true);
}

/// Replaces `P` by the prefix.
fn minimax(text: &str) -> String {
    text.replace("P<", "]<]minimax[>[<")
}

fn elements(schema: Option<Value>) -> impl Fn() -> Box<dyn ArgumentsReader> {
    elements_with("item", schema)
}

/// `item` is the name of the elements inside an array.
fn elements_with(
    item: &'static str,
    schema: Option<Value>,
) -> impl Fn() -> Box<dyn ArgumentsReader> {
    let followers = ["</invoke>", "</tool_call>", "<invoke name=\"", "<tool_call>"]
        .map(|tag| format!("]<]minimax[>[{tag}"));
    let followers = tags(&followers.each_ref().map(String::as_str));
    move || {
        Box::new(ElementsReader::new(
            "]<]minimax[>[",
            item,
            &followers,
            ArgumentsSchema::new(schema.as_ref()),
        ))
    }
}

#[test]
fn elements_as_templates_and_models_write_them() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "string"}}},
        "e": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}, "label": {"type": "string"}}}},
        "label": {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"text": {"type": "string"}}}]},
        "any": {}}});
    let e = elements(Some(schema));
    for (text, want, notes) in [
        ("", json!({}), &[][..]),
        ("P<n>1P</n>", json!({"n": 1}), &[]),
        ("P<n>1P</n>\nP<s> 1\nP</s>", json!({"n": 1, "s": " 1\n"}), &[]),
        ("P<l>P<item>aP</item>P<item>1P</item>P</l>", json!({"l": ["a", "1"]}), &[]),
        ("P<l>P</l>P<o>P</o>P<s>P</s>", json!({"l": [], "o": {}, "s": ""}), &[]),
        (
            "P<o>\n  P<x>1.5P</x>\n  P<y>-2.5P</y>\nP</o>",
            json!({"o": {"x": 1.5, "y": "-2.5"}}),
            &[],
        ),
        (
            "P<e>P<item>P<id>1P</id>P<label>oneP</label>P</item>P</e>",
            json!({"e": [{"id": 1, "label": "one"}]}),
            &[],
        ),
        ("P<label>hiP</label>", json!({"label": "hi"}), &[]),
        (
            "P<label>P<text>hiP</text>P</label>",
            json!({"label": "]<]minimax[>[<text>hi]<]minimax[>[</text>"}),
            &[],
        ),
        ("P<any>P<item>1P</item>P<item>aP</item>P</any>", json!({"any": [1, "a"]}), &[]),
        ("P<any>P<k>1P</k>P</any>", json!({"any": {"k": 1}}), &[]),
        ("P<any>[1, {}]P</any>", json!({"any": [1, {}]}), &[]),
        ("P<l>[\"a\"]P</l>", json!({"l": ["a"]}), &[]),
        (
            "P<n>oneP</n>P<zz>1P</zz>",
            json!({"n": "one", "zz": 1}),
            &["arg_type_mismatch", "arg_unknown"],
        ),
        ("P<n>1P</n>P<n>2P</n>", json!({"n": 1}), &["arg_duplicate"]),
        ("P<s>a P<b>x P</b> P</s> bP</s>", json!({"s": minimax("a P<b>x P</b> P</s> b")}), &[]),
        // Missing end tags.
        ("P<s>xP<n>1P</n>", json!({"s": "x", "n": 1}), &[]),
        ("P<l>P<item>aP<item>bP</item>P</l>", json!({"l": ["a", "b"]}), &[]),
        ("P<o>P<y>aP</o>P<n>1P</n>", json!({"o": {"y": "a"}, "n": 1}), &[]),
        (
            "P<l>xP<item>aP</item>P</l>",
            json!({"l": minimax("xP<item>aP</item>")}),
            &["arg_type_mismatch"],
        ),
    ] {
        for end in ["P</invoke>", "\nP</invoke>\n", "P<invoke name=\"g\">"] {
            check(
                &e,
                &minimax(&format!("{text}{end}")),
                want.clone(),
                &minimax(&format!("ended {end}")),
                notes,
            );
        }
    }
    check(&e, "prose", json!({}), "ended prose", &[]);
    for (text, want, end) in [
        // Inside text, an end tag of another name is text.
        ("P<s>aP</b>cP</s>P</invoke>", json!({"s": minimax("aP</b>c")}), "P</invoke>"),
        ("P<any>P</b>P</any>P</invoke>", json!({"any": minimax("P</b>")}), "P</invoke>"),
        (
            "P<o>P<y>aP</b>P</y>P</o>P</invoke>",
            json!({"o": {"y": minimax("aP</b>")}}),
            "P</invoke>",
        ),
        // The end tag of a call is text too, unless the call ends there.
        ("P<s>aP</invoke>bP</s>P</invoke>", json!({"s": minimax("aP</invoke>b")}), "P</invoke>"),
        (
            "P<s>aP</tool_call>P</s>P</invoke>",
            json!({"s": minimax("aP</tool_call>")}),
            "P</invoke>",
        ),
        ("P<s>aP</invoke>\nP</tool_call>", json!({"s": "a"}), "P</invoke>\nP</tool_call>"),
        ("P<s>aP</invoke>\nP<invoke name=\"", json!({"s": "a"}), "P</invoke>\nP<invoke name=\""),
        ("P<n>1P</invoke>P</tool_call>", json!({"n": 1}), "P</invoke>P</tool_call>"),
        ("P<o>P<y>aP</invoke>P</tool_call>", json!({"o": {"y": "a"}}), "P</invoke>P</tool_call>"),
        // Outside of text, it ends the arguments.
        ("P<o>P</b>", json!({"o": {}}), "P</b>"),
        ("P<l>P</invoke>x", json!({"l": []}), "P</invoke>x"),
    ] {
        check(&e, &minimax(text), want, &minimax(&format!("ended {end}")), &[]);
    }
    check_cut(&e, &minimax("P<s>heP"), "{\"s\": \"heP\"}", false);
    check_cut(&e, &minimax("P<s>he]<]mini"), "{\"s\": \"he\"}", false);
    check_cut(&e, &minimax("P<s>heP</s>"), "{\"s\": \"he\"}", true);
    check_cut(&e, &minimax("P<s>heP</invoke>\n"), "{\"s\": \"he\"}", true);
    check_cut(&e, &minimax("P<o>P<y>heP</invoke>"), "{\"o\": {\"y\": \"he\"}}", true);
    check_cut(&e, &minimax("P<o>P<y>heP</y>"), "{\"o\": {\"y\": \"he\"}}", false);
}

/// Without a prefix, a text may have tags, those of siblings too.
#[test]
fn elements_without_a_prefix() {
    let schema = json!({"type": "object", "properties": {
        "s": {"type": "string"}, "t": {"type": "string"}, "n": {"type": "integer"},
        "o": {"type": "object", "properties": {"s": {"type": "string"}, "k": {"type": "integer"}}},
        "d": {"type": "object"}}});
    let followers = tags(&["</call>", "<call name=\""]);
    let e = || -> Box<dyn ArgumentsReader> {
        Box::new(ElementsReader::new("", "item", &followers, ArgumentsSchema::new(Some(&schema))))
    };
    for (text, want) in [
        ("<s>a<t>b</t></s><t>c</t>", json!({"s": "a<t>b</t>", "t": "c"})),
        ("<s>a<t>b</s><t><n></t>", json!({"s": "a<t>b", "t": "<n>"})),
        ("<s><s>a</s>b</s>", json!({"s": "<s>a</s>b"})),
        (
            "<o><s>x<k>1</k></s><k>2</k></o><s>y</s>",
            json!({"o": {"s": "x<k>1</k>", "k": 2}, "s": "y"}),
        ),
        ("<o><k>1</k></o><n>3</n>", json!({"o": {"k": 1}, "n": 3})),
        ("<n>3<s>x</s>", json!({"n": 3, "s": "x"})),
        ("<d>{\"a\": \"<s></d>\"}</d><n>1</n>", json!({"d": {"a": "<s></d>"}, "n": 1})),
    ] {
        check(&e, &format!("{text}</call>"), want, "ended </call>", &[]);
    }
}

fn random_text(random: &mut Random) -> String {
    (0..random.below(7)).map(|_| random.pick(WORDS)).collect()
}

fn random_value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 5 } else { 7 }) {
        0 => json!(random.below(2) == 0),
        1 => json!(random.below(100_000) as i64 - 50_000),
        2 => json!(random.below(1000) as f64 / 8.0),
        3 | 4 => json!(random_text(random)),
        5 => (0..random.below(4)).map(|_| random_value(random, depth - 1)).collect(),
        _ => random_object(random, depth - 1),
    }
}

fn random_object(random: &mut Random, depth: usize) -> Value {
    let names = ["a", "b_1", "city", "ключ", "x-y"];
    let members = names.into_iter().take(random.below(5));
    Value::Object(members.map(|name| (name.to_owned(), random_value(random, depth))).collect())
}

/// The exact schema of a value.
fn schema_of(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let properties: serde_json::Map<String, Value> =
                map.iter().map(|(key, value)| (key.clone(), schema_of(value))).collect();
            json!({"type": "object", "properties": properties})
        }
        Value::Array(list) => match list.first() {
            Some(first) => json!({"type": "array", "items": schema_of(first)}),
            None => json!({"type": "array"}),
        },
        Value::String(_) => json!({"type": "string"}),
        Value::Number(_) => json!({"type": "number"}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Null => json!({}),
    }
}

const WORDS: &[&str] = &[
    "x",
    " ",
    "\n",
    "\"",
    "'",
    "\\",
    "<",
    ">",
    "é",
    "😀",
    "</",
    "{",
    "]",
    ",",
    ":",
    "=",
    ")",
    "1",
    "true",
    "</parameter>",
    "<parameter=b>",
    "</arg_value>",
    "</tool_call>",
    "\n\n",
    "\r\n",
    "\t",
    "]<]minimax[>[",
    "```",
    "\u{1}",
];

fn raw(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[track_caller]
fn check_round(new: &dyn Fn() -> Box<dyn ArgumentsReader>, text: &str, want: &Value) {
    let got = read(new, text);
    let value: Value = serde_json::from_str(&got.text)
        .unwrap_or_else(|error| panic!("{error}: {} of {text}", got.text));
    assert_eq!(&value, want, "{text}");
    assert!(!got.end.starts_with("open") && !got.end.starts_with("broken"), "{text}: {}", got.end);
}

#[test]
fn random_objects_survive_tags() {
    let mut random = Random::new(7);
    let mut rounds = 0;
    for _ in 0..250 {
        let want = random_object(&mut random, 2);
        let members = want.as_object().unwrap();
        // Values that look like the end of a value in this layout are skipped.
        let carries = |marks: &[&str]| {
            members
                .values()
                .all(|value| !marks.iter().any(|mark| format!("\n{}", raw(value)).contains(mark)))
        };
        let ends = |mark: &str| members.values().any(|value| raw(value).ends_with(mark));
        let cdata = |(key, value): (&String, &Value)| {
            format!("<parameter={key}>\n<![CDATA[{}]]>\n</parameter>\n", raw(value))
        };
        let text: String = members.iter().map(cdata).collect();
        check_round(&qwen(Some(schema_of(&want))), &format!("{text}</function>"), &want);
        if carries(&["<parameter=b>", "\n</tool_call>", "</tool_call></tool_call>"])
            && !ends("</tool_call>")
            && !ends("\r")
        {
            let member = |(key, value): (&String, &Value)| {
                format!("<parameter={key}>\n{}\n</parameter>\n", raw(value))
            };
            if carries(&[
                "</parameter></tool_call>",
                "</parameter>\n</tool_call>",
                "</parameter> </tool_call>",
                "</parameter>\t",
            ]) {
                rounds += 1;
                let text: String = members.iter().map(member).collect();
                check_round(&qwen(Some(schema_of(&want))), &format!("{text}</function>"), &want);
            }
        }
        if carries(&["</arg_value>", "</tool_call></tool_call>"]) && !ends("</tool_call>") {
            let member = |(key, value): (&String, &Value)| {
                format!("<arg_key>{key}</arg_key><arg_value>{}</arg_value>", raw(value))
            };
            let text: String = members.iter().map(member).collect();
            check_round(&glm(false, Some(schema_of(&want))), &format!("{text}</tool_call>"), &want);
        }
    }
    assert!(rounds > 30, "{rounds}");
}

/// Writes a value like the template of Gemma 4.
fn write_pairs(value: &Value, top: bool) -> String {
    match value {
        Value::String(text) => format!("<|\"|>{text}<|\"|>"),
        Value::Array(list) => format!(
            "[{}]",
            list.iter().map(|value| write_pairs(value, false)).collect::<Vec<_>>().join(",")
        ),
        Value::Object(map) => {
            let member = |(key, value): (&String, &Value)| match top {
                true => format!("{key}:{}", write_pairs(value, false)),
                false => format!("<|\"|>{key}<|\"|>:{}", write_pairs(value, false)),
            };
            format!("{{{}}}", map.iter().map(member).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// Writes the members of an object as text between quotes, if they have a type.
fn write_marked_pairs(object: &Value) -> String {
    let members = object.as_object().unwrap().iter().map(|(key, value)| match value {
        Value::Null => format!("{key}:null"),
        value => format!("{key}:<|\"|>{}<|\"|>", raw(value)),
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn write_python(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let mut written = String::from("'");
            for c in text.chars() {
                match c {
                    '\'' | '\\' => written.extend(['\\', c]),
                    '\n' => written.push_str("\\n"),
                    c if c < ' ' => written.push_str(&format!("\\x{:02x}", u32::from(c))),
                    c => written.push(c),
                }
            }
            written + "'"
        }
        Value::Array(list) => {
            format!("[{}]", list.iter().map(write_python).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| {
                format!("{}: {}", write_python(&json!(key)), write_python(value))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Writes a value like the template of MiniMax-M3.
fn write_elements(value: &Value) -> String {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| {
                minimax(&format!("P<{key}>{}", write_elements(value)))
                    + &minimax(&format!("P</{key}>"))
            })
            .collect(),
        Value::Array(list) => list
            .iter()
            .map(|value| minimax("P<item>") + &write_elements(value) + &minimax("P</item>"))
            .collect(),
        other => raw(other),
    }
}

/// Whether the values of every array have the same schema.
fn is_uniform(value: &Value) -> bool {
    match value {
        Value::Array(list) => {
            list.iter().all(|value| is_uniform(value) && schema_of(value) == schema_of(&list[0]))
        }
        Value::Object(map) => map.values().all(is_uniform),
        _ => true,
    }
}

#[test]
fn random_objects_survive_pairs_python_and_elements() {
    let mut random = Random::new(11);
    let (mut rounds, mut with_tags) = (0, 0);
    for _ in 0..400 {
        let want = random_object(&mut random, 3);
        check_round(&pairs, &write_pairs(&want, true), &want);
        let typed = pairs_of(Some(schema_of(&want)));
        check_round(&typed, &write_pairs(&want, true), &want);
        check_round(&typed, &write_marked_pairs(&want), &want);
        let members = want
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| format!("{key}={}", write_python(value)));
        check_round(&python(None), &(members.collect::<Vec<_>>().join(", ") + ")"), &want);
        if is_uniform(&want) {
            rounds += 1;
            with_tags += u32::from(want.to_string().contains(&minimax("P</")));
            let text = write_elements(&want) + &minimax("P</invoke>");
            check_round(&elements(Some(schema_of(&want))), &text, &want);
        }
    }
    assert!(rounds > 30 && with_tags > 0, "{rounds} {with_tags}");
}

#[test]
fn random_input_yields_json() {
    let marks = [
        "<parameter=",
        "n>",
        "\n",
        "</parameter>",
        "</function>",
        "<![CDATA[",
        "]]>",
        "s",
        "1",
        "\"",
        "'",
        "\\",
        "u12",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ":",
        ",",
        "=",
        "<|\"|>",
        " ",
        "]<]minimax[>[",
        "<n>",
        "</n>",
        "<item>",
        "</item>",
        "<s>",
        "</s>",
        "é",
        "name=\"",
        "'''",
        "x",
    ];
    let starts =
        ["<parameter=s>\n", "<arg_key>s</arg_key><arg_value>", "", "]<]minimax[>[<s>", "{", "s="];
    let readers: [&dyn Fn() -> Box<dyn ArgumentsReader>; 6] = [
        &qwen(Some(schema())),
        &glm(true, None),
        &dsml(None),
        &elements(Some(schema())),
        &pairs,
        &python(Some(schema())),
    ];
    let mut random = Random::new(3);
    for turn in 0..6000 {
        let text: String = (0..random.below(30)).map(|_| random.pick(&marks)).collect();
        read(readers[turn % 6], &(starts[turn % 6].to_owned() + &text));
    }
}

#[test]
fn hostile_texts_take_linear_time() {
    let long = 1 << 20;
    let key = format!("<parameter={} ", "a".repeat(50));
    let qwen_text =
        ["</parameter>", "</parameter>\n", "<", "\n", "\n</func", "<parameter=", &key, "\r"];
    type New<'a> = &'a dyn Fn() -> Box<dyn ArgumentsReader>;
    let cases: [(New, &str, &[&str]); 7] = [
        (&qwen(Some(schema())), "<parameter=s>\n", &qwen_text),
        (&qwen(Some(schema())), "<parameter=l>\n", &[" ", "\t\t", "[ ", "\"", "['a', "]),
        (&qwen(None), "<parameter=l>\n", &["[", "{\"a\":", "1,"]),
        (
            &elements(Some(schema())),
            "]<]minimax[>[<s>",
            &["]<]minimax[>[<s>", "]<]minimax[>[</s> ", "]", "]<]minimax[>[</"],
        ),
        (
            &elements(None),
            "]<]minimax[>[<a>",
            &["]<]minimax[>[<a>", "]<]minimax[>[</b", "]<]minimax[>[<a>x"],
        ),
        (&pairs, "{a:", &["[", "{a:", "<|\"", "<|\"|>", "a'", "[{", "'", "a:1,"]),
        (&python(None), "a=", &["(", "[", "'", "'' ", "{", "a=", "\\", "'\\u", "1", "x ", "' "]),
    ];
    for (new, start, parts) in cases {
        for part in parts {
            let text = start.to_owned() + &part.repeat(long / part.len());
            let started = thread_time();
            let mut reader = new();
            let mut out = String::new();
            for c in text.chars() {
                if reader.step(c, &mut out) != ReadStep::More {
                    break;
                }
            }
            reader.finish(&mut out);
            serde_json::from_str::<Value>(&out).unwrap();
            let took = thread_time().saturating_sub(started);
            assert!(took.as_secs() < 10, "{start} {part}: {took:?}");
        }
    }
    for new in [
        &qwen(None) as &dyn Fn() -> Box<dyn ArgumentsReader>,
        &elements(None),
        &pairs,
        &python(None),
    ] {
        let mut reader = new();
        let mut out = String::new();
        " ".repeat(long).chars().for_each(|c| assert_eq!(reader.step(c, &mut out), ReadStep::More));
    }
}
