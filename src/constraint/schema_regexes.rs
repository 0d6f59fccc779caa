//! Bounds the work of llguidance's compiler on the regular expressions of JSON schemas.
//!
//! In: a grammar in Lark. Out: the reason why one of its schemas is refused, or nothing. llguidance
//! intersects the patterns of all schemas that apply to a text, and searches the intersection while
//! it compiles the schema. The patterns are intersected here too, and [`regex_work`] bounds what a
//! search would do.

use std::collections::{BTreeSet, HashSet};

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

use super::regex_work;
use crate::json::{self, PlainValue};
use crate::json_schema::{entries, list, resolve};

/// The maximum number of sets of schemas that apply to the same value.
const MAX_SETS: usize = 20_000;
/// The maximum number of `patternProperties` of an object. llguidance compares every two of them.
const MAX_PATTERN_PROPERTIES: usize = 100;
/// The maximum number of such comparisons for all objects of a grammar. They take some 0.1 ms each.
const MAX_PATTERN_PAIRS: usize = 20_000;
/// The keyword that starts a schema in Lark.
const SCHEMA: &str = "%json";

/// Refuses schemas whose patterns could take long to compile.
pub(super) fn check(lark: &str) -> Result<(), &'static str> {
    let (mut at, mut pairs) = (0, 0);
    while let Some(found) = lark[at..].find(SCHEMA) {
        at += found + SCHEMA.len();
        // What is not JSON is a part of a text, or llguidance refuses it.
        let Some((PlainValue(schema), length)) = json::leading(&lark[at..]) else { continue };
        at += length;
        let patterns =
            Patterns { document: &schema, sets: Vec::new(), seen: HashSet::new(), pairs };
        pairs = patterns.check()?;
    }
    Ok(())
}

/// A schema, and whether its `anyOf` and its `oneOf` are already represented by an alternative.
type Applied<'a> = (&'a Map<String, Value>, [bool; 2]);

const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];

/// The patterns of a document.
struct Patterns<'a> {
    document: &'a Value,
    /// Sets of schemas that apply to the same value, and are not checked yet.
    sets: Vec<Vec<Applied<'a>>>,
    seen: HashSet<Vec<(usize, [bool; 2])>>,
    /// The pairs of `patternProperties` so far.
    pairs: usize,
}

impl<'a> Patterns<'a> {
    /// Returns the pairs of `patternProperties` so far.
    fn check(mut self) -> Result<usize, &'static str> {
        let mut builder = RegexBuilder::new();
        self.push(vec![self.document]);
        while let Some(set) = self.sets.pop() {
            let mut identity: Vec<_> = set
                .iter()
                .map(|(schema, chosen)| (std::ptr::from_ref(*schema).addr(), *chosen))
                .collect();
            identity.sort_unstable();
            if !self.seen.insert(identity) {
                continue;
            }
            if self.seen.len() > MAX_SETS {
                return Err("its schemas combine in too many ways");
            }
            let set = self.with_parts(set);
            if let Some((index, which)) = alternatives(&set) {
                self.push_alternatives(&set, index, which);
                continue;
            }
            intersect(&mut builder, &set);
            self.push_children(&set)?;
        }
        regex_work::check(&builder)?;
        Ok(self.pairs)
    }

    fn push(&mut self, schemas: Vec<&'a Value>) {
        let schemas = schemas.into_iter().filter_map(Value::as_object);
        self.sets.push(schemas.map(|schema| (schema, [false; 2])).collect());
    }

    /// The set with all schemas of `allOf` and `$ref`.
    fn with_parts(&self, mut set: Vec<Applied<'a>>) -> Vec<Applied<'a>> {
        let mut at = 0;
        while let Some((schema, _)) = set.get(at).copied() {
            at += 1;
            let referenced =
                schema.get("$ref").and_then(|value| resolve(self.document, value).ok());
            let parts =
                list(schema.get("allOf")).iter().chain(referenced.map(|(_, schema)| schema));
            for part in parts.filter_map(Value::as_object) {
                if !set.iter().any(|(known, _)| std::ptr::eq(*known, part)) {
                    set.push((part, [false; 2]));
                }
            }
        }
        set
    }

    /// The sets with one of the alternatives of a schema each.
    fn push_alternatives(&mut self, set: &[Applied<'a>], index: usize, which: usize) {
        for alternative in list(set[index].0.get(ALTERNATIVES[which])) {
            let mut set = set.to_vec();
            set[index].1[which] = true;
            set.extend(alternative.as_object().map(|schema| (schema, [false; 2])));
            self.sets.push(set);
        }
    }

    /// The sets of the members and of the items.
    fn push_children(&mut self, set: &[Applied<'a>]) -> Result<(), &'static str> {
        let all = |keyword: &str| -> Vec<&'a Value> {
            set.iter().filter_map(|(schema, _)| schema.get(keyword)).collect()
        };
        let members = |keyword: &'static str| {
            set.iter().flat_map(move |(schema, _)| entries(schema.get(keyword)))
        };
        let patterns: Vec<&'a Value> =
            members("patternProperties").map(|(_, schema)| schema).collect();
        if patterns.len() > MAX_PATTERN_PROPERTIES {
            return Err("it has more than 100 patternProperties");
        }
        self.pairs += patterns.len() * patterns.len().saturating_sub(1) / 2;
        if self.pairs > MAX_PATTERN_PAIRS {
            return Err("its objects have too many patternProperties together");
        }
        let others = [all("additionalProperties"), patterns].concat();
        for name in members("properties").map(|(name, _)| name).collect::<BTreeSet<_>>() {
            let mut of_member: Vec<&'a Value> = Vec::new();
            for (schema, _) in set {
                match schema.get("properties").and_then(|properties| properties.get(name)) {
                    Some(member) => of_member.push(member),
                    None => of_member.extend(schema.get("additionalProperties")),
                }
                of_member
                    .extend(entries(schema.get("patternProperties")).map(|(_, schema)| schema));
            }
            self.push(of_member);
        }
        self.push(others);
        let items = [all("items"), all("additionalItems")].concat();
        let (lists, items): (Vec<&'a Value>, Vec<&'a Value>) =
            items.into_iter().partition(|items| items.is_array());
        let lists = [lists, all("prefixItems")].concat();
        let longest = lists.iter().map(|items| list(Some(items)).len()).max().unwrap_or_default();
        for index in 0..longest {
            let prefix = lists.iter().filter_map(|items| items.get(index));
            self.push(prefix.chain(items.iter().copied()).collect());
        }
        self.push(items);
        Ok(())
    }
}

/// A schema of the set whose `anyOf` or `oneOf` is not represented yet, and which of the two.
fn alternatives(set: &[Applied]) -> Option<(usize, usize)> {
    set.iter().enumerate().find_map(|(index, (schema, chosen))| {
        let is_open =
            |which: &usize| !chosen[*which] && !list(schema.get(ALTERNATIVES[*which])).is_empty();
        Some((index, (0..2).find(is_open)?))
    })
}

/// Builds the intersection of all patterns of a set. What llguidance cannot build, it refuses.
fn intersect(builder: &mut RegexBuilder, set: &[Applied]) {
    let patterns = set.iter().filter_map(|(schema, _)| schema.get("pattern")?.as_str());
    let names = set.iter().flat_map(|(schema, _)| entries(schema.get("patternProperties")));
    let patterns: BTreeSet<&str> = patterns.collect();
    let mut build = |pattern: &str| {
        builder.mk(&RegexAst::SearchRegex(regex_to_lark(pattern, "dw"))).ok().map(RegexAst::ExprRef)
    };
    names.for_each(|(name, _)| drop(build(name)));
    let built: Vec<RegexAst> = patterns.into_iter().filter_map(build).collect();
    if built.len() > 1 {
        let _ = builder.mk(&RegexAst::And(built));
    }
}
