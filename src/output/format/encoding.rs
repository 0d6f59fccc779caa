//! How the arguments of a call are written.

use serde_json::Value;

use super::text::{Entities, FormatText};

/// How arguments are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// A JSON object.
    Json,
    /// A JSON string that holds a JSON object.
    JsonText,
    /// One element per parameter: `<parameter=a>\n1\n</parameter>`. Strings are raw text, other
    /// values are JSON.
    Tagged(Tagged),
    /// Nested elements. The members of an object are elements named by their keys. An array
    /// repeats one element.
    Elements {
        /// The prefix of every tag: `]<]minimax[>[`.
        prefix: FormatText,
        /// The name of the elements inside an array: `item`. If it is empty, the element of the
        /// array's own key is repeated: `<a>1</a><a>2</a>`. An array in an array is then JSON.
        item: FormatText,
    },
    /// An object with bare keys and its own quotes, braces included: `{a:1,b:<|"|>x<|"|>}`.
    Pairs {
        /// The quote on both sides of a string.
        quote: FormatText,
    },
    /// Python keyword arguments without the parentheses: `a=1, b='x'`.
    Python(Keywords),
}

impl Encoding {
    /// Python keyword arguments as Python itself writes them.
    pub fn python() -> Encoding {
        Encoding::Python(Keywords::default())
    }
}

/// Python keyword arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keywords {
    /// The text between two arguments: `, `.
    pub separator: FormatText,
    /// The quote around strings, if they have no escapes: `'`. Such a string ends at the last
    /// quote before the next argument or the end of the call.
    pub raw_quote: Option<char>,
}

impl Default for Keywords {
    fn default() -> Keywords {
        Keywords { separator: ", ".into(), raw_quote: None }
    }
}

/// Arguments with one element per parameter: `open` KEY `after_key` VALUE `close`. An element that
/// names the type of its value has it before the value or before the key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tagged {
    /// The text before the key: `<parameter=`.
    pub open: FormatText,
    /// The text from the key to the value, `>\n`, or to the type after the key, `" string="`.
    pub after_key: FormatText,
    /// The type of the value, if the element names it.
    pub kind: Option<Box<ValueKind>>,
    /// The text after the value: `\n</parameter>\n`.
    pub close: FormatText,
    /// The text between two parameters.
    pub separator: FormatText,
    /// The characters of values that are written as entities. Empty if values are written as they
    /// are.
    pub entities: Entities,
    /// Whether only keys and strings have entities. Other values are then JSON as it is.
    pub raw_json: bool,
}

impl Tagged {
    /// The entities of values that are not strings.
    pub(crate) fn entities_of_json(&self) -> Entities {
        if self.raw_json { &[] } else { self.entities }
    }
}

/// The type of a value, as an attribute of its element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueKind {
    /// The attribute's text for each type.
    pub words: TypeWords,
    /// Whether the type precedes the key: `<value type="raw" name="a">`. The text before the type is
    /// then that of the element, and the text from the key to the value is `after_key`.
    pub before_key: bool,
    /// The text between the type and the value, `">`, or the key, `" name="`.
    pub after: FormatText,
    /// The text of an item's element up to its type, if arrays and objects are nested elements:
    /// `<value type="`. None if they are JSON.
    pub item: Option<FormatText>,
}

impl ValueKind {
    /// The text between the type and the value of an item. `after_key` is that of its format.
    pub(crate) fn after_of_item<'a>(&'a self, after_key: &'a str) -> &'a str {
        if self.before_key { after_key } else { &self.after }
    }
}

/// The words for the types of JSON values. Types may share a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeWords {
    /// A string, which is written as raw text. Other values are JSON.
    pub string: FormatText,
    /// A whole number.
    pub integer: FormatText,
    /// A number with a fraction or an exponent.
    pub number: FormatText,
    /// `true` or `false`.
    pub boolean: FormatText,
    /// `null`.
    pub null: FormatText,
    /// An array.
    pub array: FormatText,
    /// An object.
    pub object: FormatText,
}

impl TypeWords {
    /// One word for strings, and one for all other values: `true` and `false` of an attribute
    /// `string`.
    pub fn of_strings(string: impl Into<FormatText>, other: impl Into<FormatText>) -> TypeWords {
        let other = other.into();
        TypeWords {
            string: string.into(),
            integer: other.clone(),
            number: other.clone(),
            boolean: other.clone(),
            null: other.clone(),
            array: other.clone(),
            object: other,
        }
    }

    /// The names of the JSON types. Whole numbers are numbers.
    pub fn type_names() -> TypeWords {
        TypeWords {
            string: "string".into(),
            integer: "number".into(),
            number: "number".into(),
            boolean: "boolean".into(),
            null: "null".into(),
            array: "array".into(),
            object: "object".into(),
        }
    }

    /// The word for the type of a value.
    pub fn of(&self, value: &Value) -> &str {
        match value {
            Value::String(_) => &self.string,
            Value::Number(number) if number.is_i64() || number.is_u64() => &self.integer,
            Value::Number(_) => &self.number,
            Value::Bool(_) => &self.boolean,
            Value::Null => &self.null,
            Value::Array(_) => &self.array,
            Value::Object(_) => &self.object,
        }
    }

    /// The words of all types but strings, each once.
    pub fn others(&self) -> Vec<&str> {
        let mut words: Vec<&str> = Vec::new();
        let all =
            [&self.integer, &self.number, &self.boolean, &self.object, &self.array, &self.null];
        for word in all {
            if !words.contains(&&**word) {
                words.push(word);
            }
        }
        words
    }
}
