//! Limits the size of a schema.
//!
//! Only enforced parts count: the schemas that are reachable from the root, including by reference,
//! and their plain values. Annotations and unused definitions do not count.

use std::collections::HashSet;

use serde_json::Value;

use super::keywords::{KeywordArgument, argument_of};
use crate::json_schema::{child, entries, list, resolve};

/// The maximum nesting between two references.
const MAX_DEPTH: usize = 64;
/// The maximum number of schemas and plain values, such as those of an `enum`. llguidance has a
/// limit of the same size.
const MAX_NODES: usize = 50_000;
/// The maximum number of properties in an object. llguidance's time grows with their square: one
/// second for 2,500.
const MAX_PROPERTIES: usize = 2_000;
/// The maximum length of a pointer in bytes. Reports contain it.
const MAX_POINTER: usize = 4_096;

/// A schema on the path to the node that is being measured.
struct Step<'d> {
    place: Place<'d>,
    value: &'d Value,
    depth: usize,
    pointer_length: usize,
}

/// The keyword or index that leads to a step.
enum Place<'d> {
    Pointer(&'d str),
    Keyword(usize, &'d str),
    Name(usize, &'d str, &'d str),
    Index(usize, &'d str, usize),
}

/// The limit that a schema exceeds, and the pointer to the place where it does.
pub(super) fn excess(document: &Value) -> Option<(String, String)> {
    let place = Place::Pointer("");
    let root = Step { place, value: document, depth: 0, pointer_length: 0 };
    let (mut steps, mut nodes) = (vec![root], 0);
    let mut followed = HashSet::from([""]);
    let mut next = 0;
    while next < steps.len() {
        let (index, step) = (next, &steps[next]);
        let (depth, pointer_length) = (step.depth, step.pointer_length);
        next += 1;
        nodes += 1;
        let found = |reason: String| Some((pointer(&steps, index), reason));
        if depth > MAX_DEPTH {
            return found(format!("is nested more than {MAX_DEPTH} levels deep"));
        }
        if pointer_length > MAX_POINTER {
            return Some((String::new(), format!("a path has more than {MAX_POINTER} bytes")));
        }
        let Value::Object(members) = step.value else { continue };
        if ["properties", "required"].iter().any(|name| length(members.get(*name)) > MAX_PROPERTIES)
        {
            return found(format!("has more than {MAX_PROPERTIES} properties"));
        }
        let mut found: Vec<Step> = Vec::new();
        for (keyword, value) in members {
            let mut push = |place, name: usize, value| {
                let pointer_length = pointer_length + keyword.len() + name + 2;
                found.push(Step { place, value, depth: depth + 1, pointer_length });
            };
            match argument_of(keyword, value) {
                KeywordArgument::Ignored => {}
                KeywordArgument::Plain => nodes += count(value),
                KeywordArgument::Schema => push(Place::Keyword(index, keyword), 0, value),
                KeywordArgument::List => {
                    for (item, value) in list(Some(value)).iter().enumerate() {
                        push(Place::Index(index, keyword, item), 8, value);
                    }
                }
                KeywordArgument::Map => {
                    for (name, value) in entries(Some(value)) {
                        push(Place::Name(index, keyword, name), name.len(), value);
                    }
                }
                KeywordArgument::Reference => {
                    if let Ok((pointer, value)) = resolve(document, value)
                        && followed.insert(pointer)
                    {
                        let place = Place::Pointer(pointer);
                        found.push(Step { place, value, depth: 0, pointer_length: pointer.len() });
                    }
                }
            }
        }
        steps.append(&mut found);
        if nodes.max(steps.len()) > MAX_NODES {
            return Some((String::new(), format!("has more than {MAX_NODES} schemas and values")));
        }
    }
    None
}

fn pointer(steps: &[Step], index: usize) -> String {
    let mut keys: Vec<String> = Vec::new();
    let mut at = index;
    let start = loop {
        at = match &steps[at].place {
            Place::Pointer(pointer) => break *pointer,
            Place::Keyword(parent, keyword) => {
                keys.push(child("", keyword));
                *parent
            }
            Place::Name(parent, keyword, name) => {
                keys.push(child(&child("", keyword), name));
                *parent
            }
            Place::Index(parent, keyword, item) => {
                keys.push(format!("{}/{item}", child("", keyword)));
                *parent
            }
        };
    };
    keys.into_iter().rev().fold(start.to_owned(), |pointer, key| pointer + &key)
}

fn length(value: Option<&Value>) -> usize {
    list(value).len().max(value.and_then(Value::as_object).map_or(0, serde_json::Map::len))
}

/// The number of values inside a plain value.
fn count(value: &Value) -> usize {
    let (mut count, mut open) = (0, vec![value]);
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::Object(members) => open.extend(members.values()),
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    count
}
