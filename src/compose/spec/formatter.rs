//! How declared tools become text.

use serde_json::{Map, Value, json};

use super::reader::SpecReader;
use crate::compose::fault::Reason;
use crate::compose::jinja::xml::XmlStyle;
use crate::error::Result;

/// The tools as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Formatter {
    /// JSON, as Python's `json.dumps` writes it.
    Json {
        /// The name of its defaults.
        kind: &'static str,
        /// What it does.
        style: JsonStyle,
    },
    /// One YAML document for all tools. Jinja has no YAML: the host renders it.
    Yaml,
    /// Elements of XML.
    Xml(XmlStyle),
}

/// Options of JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonStyle {
    /// Spaces per level, on lines of their own.
    pub(crate) indent: Option<u8>,
    /// Between items, and between key and value; None leaves Python's.
    pub(crate) separators: Option<[String; 2]>,
    /// Between tools, unless they are a list.
    pub(crate) joiner: String,
    /// One JSON list of all tools.
    pub(crate) format_as_list: bool,
    /// Keys in alphabetical order, not in the caller's.
    pub(crate) sort_keys: bool,
    /// `\uXXXX` for all that is not ASCII.
    pub(crate) ascii: bool,
}

const YAML: &str = "YamlFormatter";
const XML: &str = "XmlFormatter";
const DEFAULT: &str = "JsonQwenFormatter";
const MINIFIED: [&str; 2] = [",", ":"];
const KINDS: [&str; 6] = [
    "JsonFormatter",
    DEFAULT,
    "JsonFormatterNoBreakLine",
    "JsonMinifiedFormatter",
    "JsonIndentedFormatter",
    "JsonCompactFormatter",
];

impl JsonStyle {
    fn of(kind: &str) -> JsonStyle {
        let plain = JsonStyle {
            indent: None,
            separators: None,
            joiner: "\n".to_owned(),
            format_as_list: false,
            sort_keys: false,
            ascii: false,
        };
        let minified = Some(MINIFIED.map(str::to_owned));
        match kind {
            "JsonFormatterNoBreakLine" => JsonStyle { joiner: String::new(), ..plain },
            "JsonMinifiedFormatter" => JsonStyle { separators: minified, ..plain },
            "JsonIndentedFormatter" => {
                JsonStyle { indent: Some(4), joiner: "\n\n".to_owned(), ..plain }
            }
            "JsonCompactFormatter" => {
                JsonStyle { separators: minified, format_as_list: true, ..plain }
            }
            _ => plain,
        }
    }
}

impl Default for Formatter {
    fn default() -> Formatter {
        Formatter::Json { kind: DEFAULT, style: JsonStyle::of(DEFAULT) }
    }
}

impl Formatter {
    /// Reads `{"kind": …}` with the options that differ from the kind's.
    pub(crate) fn read(
        value: &Value,
        path: String,
        ignored: &mut Vec<String>,
    ) -> Result<Formatter> {
        let mut reader = SpecReader::new(path, value)?;
        let name = reader
            .string("kind")?
            .ok_or_else(|| reader.fault(Reason::MissingField, "kind", "missing"))?;
        let formatter = if name == YAML {
            Formatter::Yaml
        } else if name == XML {
            Formatter::Xml(XmlStyle::read(&mut reader)?)
        } else {
            let Some(kind) = KINDS.into_iter().find(|kind| *kind == name) else {
                let known = KINDS.join(", ");
                return Err(reader
                    .fault(
                        Reason::BadValue,
                        "kind",
                        format!("unknown value {name:?}; it is one of {known}, {YAML}, {XML}"),
                    )
                    .into());
            };
            let style = JsonStyle::of(kind);
            let indent =
                reader.integer("indent", 0..=32)?.and_then(|indent| u8::try_from(indent).ok());
            let separators = match reader.array("separators")?.map(Vec::as_slice) {
                None => style.separators,
                Some([Value::String(item), Value::String(key)]) => {
                    Some([item.clone(), key.clone()])
                }
                Some(_) => {
                    let problem = "expected two strings: between items, and between key and value";
                    return Err(reader.fault(Reason::BadValue, "separators", problem).into());
                }
            };
            let style = JsonStyle {
                indent: indent.or(style.indent),
                separators,
                joiner: reader.string("joiner")?.map_or(style.joiner, str::to_owned),
                format_as_list: reader.boolean("format_as_list")?.unwrap_or(style.format_as_list),
                sort_keys: reader.boolean("sort_keys")?.unwrap_or(style.sort_keys),
                ascii: reader.boolean("ascii")?.unwrap_or(style.ascii),
            };
            Formatter::Json { kind, style }
        };
        reader.finish(ignored);
        Ok(formatter)
    }

    /// `{"kind": …}` with the options that differ from the kind's.
    pub(crate) fn to_json(&self) -> Value {
        let (kind, style) = match self {
            Formatter::Json { kind, style } => (kind, style),
            Formatter::Yaml => return json!({ "kind": YAML }),
            Formatter::Xml(style) => return style.to_json(XML),
        };
        let usual = JsonStyle::of(kind);
        let mut members = Map::new();
        members.insert("kind".to_owned(), json!(kind));
        let mut differs = |name: &str, differs: bool, value: Value| {
            if differs {
                members.insert(name.to_owned(), value);
            }
        };
        differs("indent", style.indent != usual.indent, json!(style.indent));
        differs("separators", style.separators != usual.separators, json!(style.separators));
        differs("joiner", style.joiner != usual.joiner, json!(style.joiner));
        differs(
            "format_as_list",
            style.format_as_list != usual.format_as_list,
            json!(style.format_as_list),
        );
        differs("sort_keys", style.sort_keys != usual.sort_keys, json!(style.sort_keys));
        differs("ascii", style.ascii != usual.ascii, json!(style.ascii));
        Value::Object(members)
    }
}
