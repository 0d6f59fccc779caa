//! Formatters: how declared tools are written as text.

use serde_json::{Map, Value, json};

use super::members::{Codec, Members, members};
use super::reader::SpecReader;
use crate::compose::fault::Reason;
use crate::error::Result;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Formatter {
    /// JSON, as written by Python's `json.dumps`.
    Json {
        /// The name that selects the defaults.
        kind: &'static str,
        style: JsonStyle,
    },
    /// One YAML document for all tools. The host writes it, because Jinja has no YAML.
    Yaml,
    /// XML elements.
    Xml(XmlStyle),
}

/// The options of JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonStyle {
    /// The number of spaces per level. With indentation, every value starts a line.
    pub(crate) indent: Option<u8>,
    /// The separators between items, and between key and value. None for Python's defaults.
    pub(crate) separators: Option<[String; 2]>,
    /// The text between tools, unless they are one list.
    pub(crate) joiner: String,
    /// Whether all tools are one JSON list.
    pub(crate) format_as_list: bool,
    /// Whether keys are in alphabetical order instead of the caller's order.
    pub(crate) sort_keys: bool,
    /// Whether non-ASCII characters are written as `\uXXXX`.
    pub(crate) ascii: bool,
}

members! {
    /// The order of members, where it differs from the caller's.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct XmlStyle {
        /// The members of a parameter that follow its name, type and description, before all
        /// others.
        "first" => first: Vec<String> = StringList,
        /// The members of the parameters' schema that come after all others.
        "last" => last: Vec<String> = StringList,
    }
}

/// The codec of a list of strings.
struct StringList;

impl Codec<Vec<String>> for StringList {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Vec<String>> {
        let list = reader.array(key)?.map(Vec::as_slice).unwrap_or_default();
        let strings: Option<Vec<String>> =
            list.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        Ok(strings
            .ok_or_else(|| reader.fault(Reason::BadValue, key, "expected a list of strings"))?)
    }

    fn to_json(&self, value: &Vec<String>) -> Value {
        json!(Some(value).filter(|list| !list.is_empty()))
    }
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

/// The codec of `{"kind": …}`. Without the member, the default formatter applies.
pub(super) struct FormatterCodec;

impl Codec<Formatter> for FormatterCodec {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Formatter> {
        Ok(reader.nested(key, Formatter::read)?.unwrap_or_default())
    }

    fn to_json(&self, value: &Formatter) -> Value {
        if *value == Formatter::default() { Value::Null } else { value.to_json() }
    }
}

impl Formatter {
    /// Reads `{"kind": …}`. All other members override the defaults of the kind.
    fn read(reader: &mut SpecReader<'_>) -> Result<Formatter> {
        let name = reader
            .string("kind")?
            .ok_or_else(|| reader.fault(Reason::MissingField, "kind", "missing"))?;
        let formatter = if name == YAML {
            Formatter::Yaml
        } else if name == XML {
            Formatter::Xml(XmlStyle::read(reader)?)
        } else {
            let Some(kind) = KINDS.into_iter().find(|kind| *kind == name) else {
                let known = KINDS.join(", ");
                return Err(reader
                    .fault(
                        Reason::BadValue,
                        "kind",
                        format!("unknown value {name:?}; expected one of {known}, {YAML}, {XML}"),
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
                    let problem = "expected two strings: the item separator and the key separator";
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
        Ok(formatter)
    }

    /// `{"kind": …}` with the options that differ from the defaults of the kind.
    fn to_json(&self) -> Value {
        let (kind, style) = match self {
            Formatter::Json { kind, style } => (kind, style),
            Formatter::Yaml => return json!({ "kind": YAML }),
            Formatter::Xml(style) => {
                let mut members = Map::from_iter([("kind".to_owned(), json!(XML))]);
                style.write(&mut members);
                return members.into();
            }
        };
        let usual = JsonStyle::of(kind);
        let options = [
            ("indent", json!(style.indent), json!(usual.indent)),
            ("separators", json!(style.separators), json!(usual.separators)),
            ("joiner", json!(style.joiner), json!(usual.joiner)),
            ("format_as_list", json!(style.format_as_list), json!(usual.format_as_list)),
            ("sort_keys", json!(style.sort_keys), json!(usual.sort_keys)),
            ("ascii", json!(style.ascii), json!(usual.ascii)),
        ];
        let differing = options.into_iter().filter(|(_, value, usual)| value != usual);
        let differing = differing.map(|(name, value, _)| (name.to_owned(), value));
        let mut members = Map::from_iter([("kind".to_owned(), json!(kind))]);
        members.extend(differing);
        Value::Object(members)
    }
}
