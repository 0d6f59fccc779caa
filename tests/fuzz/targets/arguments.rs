//! Fuzzes arguments in every encoding, with any schema.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::output::format::{
    CallPart, CallSyntax, Encoding, Format, FormatSource, Tagged, TypeWords, ValueKind,
};
use llb_fuzz::replies::{self, Options};
use llb_fuzz::schemas;
use serde_json::Value;

fn encodings() -> [Encoding; 10] {
    let tagged = |open: &'static str,
                  after_key: &'static str,
                  kind: Option<TypeWords>,
                  close: &'static str| {
        let kind = kind.map(|words| {
            ValueKind { words, before_key: false, after: "\">".into(), item: None }.into()
        });
        let after_key = if kind.is_some() { "\" kind=\"" } else { after_key };
        Encoding::Tagged(Tagged {
            open: open.into(),
            after_key: after_key.into(),
            kind,
            close: close.into(),
            separator: "".into(),
            entities: &[],
            raw_json: false,
        })
    };
    [
        Encoding::Json,
        Encoding::JsonText,
        tagged("<parameter=", ">\n", None, "\n</parameter>\n"),
        tagged("<k>", "</k><v>", None, "</v>"),
        tagged("<p name=\"", "", Some(TypeWords::of_strings("true", "false")), "</p>"),
        tagged("<p name=\"", "", Some(TypeWords::type_names()), "</p>"),
        Encoding::Elements { prefix: "]<]m[>[".into(), item: "item".into() },
        Encoding::Elements { prefix: "]<]m[>[".into(), item: "".into() },
        Encoding::Pairs { quote: "<|\"|>".into() },
        Encoding::python(),
    ]
}

fn format(encoding: &Encoding) -> Format {
    let (before, after) = match encoding {
        Encoding::Python(_) => ("(", ")"),
        _ => ("\n", "\n"),
    };
    let call = vec![
        CallPart::Text("<f=".into()),
        CallPart::Name,
        CallPart::Text(format!(">{before}").into()),
        CallPart::Arguments(encoding.clone()),
        CallPart::Text(format!("{after}</f>").into()),
    ];
    let calls = CallSyntax {
        open: "<c>".into(),
        close: "</c>".into(),
        separator: "\n".into(),
        call,
        parallel: true,
    };
    Format {
        family: "fuzzed".into(),
        source: FormatSource::Inferred,
        verified: true,
        reasoning: None,
        wrappers: Vec::new(),
        repeated_header: "".into(),
        channels: None,
        calls: Some(calls),
        ends: Vec::new(),
        envelope: false,
        untagged: false,
    }
}

#[derive(Debug)]
struct Input {
    encoding: usize,
    schema: Value,
    text: String,
    cuts: Vec<u8>,
    times: usize,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let encoding = u.choose_index(encodings().len())?;
        let schema = schemas::schema(u, 0)?;
        let times = *u.choose(&[1, 1, 1, 1, 1, 1, 16, 256])?;
        let cuts = Vec::arbitrary(u)?;
        let format = format(&encodings()[encoding]);
        let mut text = String::new();
        while !u.is_empty() && text.len() < 4096 {
            replies::piece(u, &format, &mut text)?;
        }
        Ok(Input { encoding, schema, text, cuts, times })
    }
}

fuzz_target!(|input: Input| {
    let encoding = &encodings()[input.encoding];
    let format = format(encoding);
    let open = if matches!(encoding, Encoding::Python(_)) { "<c><f=f>(" } else { "<c><f=f>\n" };
    let text = format!("{open}{}", input.text.repeat(input.times));
    let options = Options { parameters: Some(input.schema), ..Options::default() };
    replies::check(Some(&format), &options, &text, &input.cuts);
});
