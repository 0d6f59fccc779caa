//! Reads the members of a JSON object. Errors name the JSON path of the member.
//!
//! A member that is `null` counts as absent, because OpenAI clients send it so. Members that are
//! never read are listed in `ignored_keys`.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::near_name::near_name;
use super::reply_shape::ReplyShape;
use crate::error::{Error, Result};

/// The expected number of members that are read from one object.
const USUAL: usize = 12;

/// The path of an object in the caller's JSON.
pub(crate) enum JsonPath {
    /// The path as text. The empty path is a whole request.
    Path(String),
    /// A whole argument of a function, by its name.
    Argument(&'static str),
    /// An element of a list in the argument. A conversation has many elements, so the path is
    /// formatted only for an error.
    Element(&'static str, usize),
}

impl JsonPath {
    /// The options of a create.
    pub(super) const OPTIONS: JsonPath = JsonPath::Argument("options_json");

    /// The JSON path of a member of the object.
    fn member(&self, key: &str) -> String {
        match self {
            JsonPath::Path(path) if path.is_empty() => key.to_owned(),
            JsonPath::Argument(_) => key.to_owned(),
            JsonPath::Path(path) => format!("{path}.{key}"),
            JsonPath::Element(list, index) => format!("{list}[{index}].{key}"),
        }
    }
}

impl From<String> for JsonPath {
    fn from(path: String) -> JsonPath {
        JsonPath::Path(path)
    }
}

impl From<&str> for JsonPath {
    fn from(path: &str) -> JsonPath {
        JsonPath::Path(path.to_owned())
    }
}

impl Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonPath::Path(path) if path.is_empty() => f.write_str("request"),
            JsonPath::Path(path) => f.write_str(path),
            JsonPath::Argument(name) => f.write_str(name),
            JsonPath::Element(list, index) => write!(f, "{list}[{index}]"),
        }
    }
}

/// Finds a member of an object. The objects of a request are small, so a linear search is faster
/// than hashing the name.
pub(crate) fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// A JSON object that is being read.
pub(crate) struct Fields<'a> {
    path: JsonPath,
    object: &'a Map<String, Value>,
    /// The members that were read. None if the chat template reads the others.
    read_keys: Option<Vec<&'static str>>,
    /// The unread members of inner objects, by path.
    inner_ignored: Vec<String>,
    /// Whether errors have the details `{"reason", "path"}`.
    has_details: bool,
    /// Decides which invalid values are corrected instead of refused.
    pub(super) reply_shape: ReplyShape,
}

impl<'a> Fields<'a> {
    /// Starts reading the object at a path. Members that are never read are listed by
    /// [`Fields::ignored`].
    pub(crate) fn new(path: impl Into<JsonPath>, value: &'a Value) -> Result<Self> {
        Fields::of(path.into(), value, Some(Vec::with_capacity(USUAL)))
    }

    /// Like [`Fields::new`], for an object whose other members the chat template may read. No
    /// member counts as ignored.
    pub(crate) fn open(path: impl Into<JsonPath>, value: &'a Value) -> Result<Self> {
        Fields::of(path.into(), value, None)
    }

    /// Like [`Fields::new`]. Errors have the details `{"reason": "bad_value", "path"}`.
    pub(crate) fn with_details(path: &str, value: &'a Value) -> Result<Self> {
        let fields = Fields::new(path, value).map_err(|error| with_details(error, path.into()))?;
        Ok(Fields { has_details: true, ..fields })
    }

    fn of(path: JsonPath, value: &'a Value, read_keys: Option<Vec<&'static str>>) -> Result<Self> {
        let Value::Object(object) = value else {
            return Err(Error::invalid(path, expected("an object", value)));
        };
        Ok(Fields {
            path,
            object,
            read_keys,
            inner_ignored: Vec::new(),
            has_details: false,
            reply_shape: ReplyShape::Current,
        })
    }

    /// The JSON path of a member.
    pub(crate) fn path(&self, key: &str) -> String {
        self.path.member(key)
    }

    /// An `INVALID_REQUEST` error for a member.
    pub(crate) fn invalid(&self, key: &str, problem: impl Display) -> Error {
        let path = self.path(key);
        let error = Error::invalid(&path, problem);
        if self.has_details { with_details(error, path) } else { error }
    }

    /// Reads a member as JSON; `null` counts as absent.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        if let Some(read_keys) = &mut self.read_keys {
            read_keys.push(key);
        }
        member(self.object, key).filter(|value| !value.is_null())
    }

    pub(crate) fn string(&mut self, key: &'static str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// Reads a required member.
    pub(crate) fn required(&mut self, key: &'static str) -> Result<&'a Value> {
        self.get(key).ok_or_else(|| self.invalid(key, "missing"))
    }

    pub(crate) fn required_string(&mut self, key: &'static str) -> Result<&'a str> {
        self.string(key)?.ok_or_else(|| self.invalid(key, "missing"))
    }

    /// Starts reading a required member, which is an object.
    pub(crate) fn inner(&mut self, key: &'static str) -> Result<Fields<'a>> {
        let value = self.required(key)?;
        Fields::new(self.path(key), value)
    }

    pub(crate) fn boolean(&mut self, key: &'static str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn array(&mut self, key: &'static str) -> Result<Option<&'a Vec<Value>>> {
        self.typed(key, "an array", Value::as_array)
    }

    /// An array of objects.
    pub(crate) fn objects(&mut self, key: &'static str) -> Result<Option<&'a Vec<Value>>> {
        let items = self.array(key)?;
        match items.into_iter().flatten().enumerate().find(|(_, item)| !item.is_object()) {
            Some((index, item)) => {
                Err(self.invalid(&format!("{key}[{index}]"), expected("an object", item)))
            }
            None => Ok(items),
        }
    }

    pub(crate) fn object(&mut self, key: &'static str) -> Result<Option<&'a Map<String, Value>>> {
        self.typed(key, "an object", Value::as_object)
    }

    /// Reads a whole number. `7.0` counts as one.
    pub(crate) fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>> {
        let number = self.typed(key, "a whole number", whole)?;
        self.in_range(key, number, range)
    }

    /// Like [`Fields::integer`], for a type that has all numbers of the range.
    pub(super) fn whole<T: TryFrom<i64>>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<T>> {
        Ok(self.integer(key, range)?.and_then(|number| T::try_from(number).ok()))
    }

    /// Like [`Fields::integer`]. "auto" is `Some(None)`.
    pub(super) fn integer_or_auto(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<Option<u32>>> {
        let read =
            |value: &Value| if value == "auto" { Some(None) } else { whole(value).map(Some) };
        let read = self.typed(key, "\"auto\" or a whole number", read)?;
        let number = self.in_range(key, read.flatten(), range)?;
        Ok(read.map(|_| number.and_then(|number| u32::try_from(number).ok())))
    }

    /// Like [`Fields::boolean`]. "auto" is `Some(None)`.
    pub(super) fn boolean_or_auto(&mut self, key: &'static str) -> Result<Option<Option<bool>>> {
        let read = |value: &Value| {
            if value == "auto" { Some(None) } else { value.as_bool().map(Some) }
        };
        self.typed(key, "\"auto\", true or false", read)
    }

    pub(super) fn float(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f32>> {
        Ok(self.number(key, range)?.map(|number| number as f32))
    }

    /// A string whose absence is None.
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<Option<String>>> {
        Ok(self.string(key)?.map(|text| Some(text.to_owned())))
    }

    /// A value that the function reads.
    pub(super) fn custom<T>(
        &mut self,
        _key: &'static str,
        read: impl FnOnce(&mut Fields<'a>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        read(self)
    }

    /// A value that the function reads, whose absence is None.
    pub(super) fn optional<T>(
        &mut self,
        _key: &'static str,
        read: impl FnOnce(&mut Fields<'a>) -> Result<Option<T>>,
    ) -> Result<Option<Option<T>>> {
        Ok(read(self)?.map(Some))
    }

    pub(crate) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>> {
        let number = self.typed(key, "a number", Value::as_f64)?;
        self.in_range(key, number, range)
    }

    /// Reads a string that must be one of these.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => {
                let names: Vec<String> =
                    choices.iter().map(|(name, _)| format!("{name:?}")).collect();
                Err(self.invalid(
                    key,
                    format!("unknown value {text:?}; expected one of {}", names.join(", ")),
                ))
            }
        }
    }

    /// The elements of an array of strings.
    pub(super) fn strings(&self, key: &str, items: &[Value]) -> Result<Vec<String>> {
        let text = |(index, item): (usize, &Value)| {
            let text = item.as_str().map(str::to_owned);
            text.ok_or_else(|| self.invalid(&format!("{key}[{index}]"), expected("a string", item)))
        };
        items.iter().enumerate().map(text).collect()
    }

    /// Whether every member that was read is known.
    pub(crate) fn read_only(&self, is_known: fn(&str) -> bool) -> bool {
        self.read_keys.iter().flatten().all(|key| is_known(key))
    }

    /// Whether a member was read.
    fn was_read(&self, key: &str) -> bool {
        self.read_keys.as_ref().is_none_or(|read_keys| read_keys.contains(&key))
    }

    /// Adds unread members of an inner object, by path.
    pub(crate) fn ignore(&mut self, paths: Vec<String>) {
        self.inner_ignored.extend(paths);
    }

    /// The members that were not read, by path.
    pub(crate) fn ignored(&self) -> Vec<String> {
        let own = self.object.keys().filter(|key| !self.was_read(key)).map(|key| self.path(key));
        own.chain(self.inner_ignored.iter().cloned()).collect()
    }

    /// An `INVALID_REQUEST` error for the first member that was not read.
    pub(crate) fn refuse_ignored(&self, problem: &str) -> Result<()> {
        let Some(path) = self.ignored().into_iter().next() else { return Ok(()) };
        let name = path.rsplit('.').next().unwrap_or(&path);
        match near_name(name, self.read_keys.iter().flatten().copied()) {
            Some(near) => Err(Error::invalid(path, format!("{problem}; did you mean `{near}`?"))),
            None => Err(Error::invalid(path, problem)),
        }
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        what: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.invalid(key, expected(what, value)))
    }

    fn in_range<T: PartialOrd + Display>(
        &self,
        key: &str,
        number: Option<T>,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>> {
        match number {
            Some(n) if !range.contains(&n) => Err(self.invalid(
                key,
                format!("must be from {} to {}, got {n}", range.start(), range.end()),
            )),
            other => Ok(other),
        }
    }
}

fn with_details(error: Error, path: String) -> Error {
    error.with("reason", "bad_value").with("path", path)
}

/// The value of a number without a fraction. `7.0` and `7e0` count as well.
fn whole(value: &Value) -> Option<i64> {
    value
        .as_i64()
        .or_else(|| value.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15).map(|n| n as i64))
}

/// A message such as `expected a string, got 42`. Long values are shortened.
pub(crate) fn expected(what: &str, got: &Value) -> String {
    let text = got.to_string();
    let shown: String = text.chars().take(40).collect();
    let dots = if shown.len() < text.len() { "..." } else { "" };
    format!("expected {what}, got {shown}{dots}")
}

/// A number with the fewest digits that identify it: 0.7, not 0.699999988079071.
pub fn shortest(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(value: Value, read: impl Fn(&mut Fields) -> Result<()>, message: &str) {
        let mut fields = Fields::new("", &value).expect("an object");
        let error = read(&mut fields).expect_err("refused");
        assert_eq!(error.message(), message);
    }

    #[test]
    fn errors_name_path_and_value() {
        check(
            json!({"n": "ten"}),
            |f| f.integer("n", 1..=9).map(drop),
            r#"n: expected a whole number, got "ten""#,
        );
        check(
            json!({"n": 10}),
            |f| f.integer("n", 1..=9).map(drop),
            "n: must be from 1 to 9, got 10",
        );
        check(
            json!({"n": 1.5}),
            |f| f.integer("n", 1..=9).map(drop),
            "n: expected a whole number, got 1.5",
        );
        check(
            json!({"n": -1}),
            |f| f.number("n", 0.0..=2.0).map(drop),
            "n: must be from 0 to 2, got -1",
        );
        check(json!({"s": 1}), |f| f.string("s").map(drop), "s: expected a string, got 1");
        check(
            json!({"s": "x"}),
            |f| f.one_of("s", &[("a", 1), ("b", 2)]).map(drop),
            r#"s: unknown value "x"; expected one of "a", "b""#,
        );
    }

    #[test]
    fn null_is_absent_and_unknown_keys_are_listed() {
        let value = json!({"n": null, "strange": 1});
        let mut fields = Fields::new("options", &value).expect("an object");
        assert_eq!(fields.integer("n", 0..=1).expect("absent"), None);
        assert_eq!(fields.ignored(), ["options.strange"]);
    }
}
