//! `namespace` whose lists can be appended to: some templates count on it, and the engine's own lists never change.

use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, State};

/// The longest list that a template may build this way.
const MAX_ITEMS: usize = 1_000_000;

/// `namespace(mapping, name=value, ...)`: the engine's own, given lists that can change.
pub(crate) fn namespace(initial: Option<ValueOrKwargs>) -> Result<Value, Error> {
    let Some(initial) = initial.map(ValueOrKwargs::into_value) else {
        return minijinja::functions::namespace(None);
    };
    if initial.kind() != ValueKind::Map {
        return minijinja::functions::namespace(Some(initial.into()));
    }
    let mut members = Vec::new();
    for name in initial.try_iter()? {
        let member = initial.get_item(&name)?;
        members.push((name, changeable(member)?));
    }
    minijinja::functions::namespace(Some(Value::from_pairs(members).into()))
}

/// Only lists the template wrote out are turned: an input list would stay the caller's, so it is left as it is.
fn changeable(value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Seq || value.is_tuple() || super::probe::unrecorded(&value).is_some() {
        return Ok(value);
    }
    let items = value.try_iter()?.collect();
    Ok(Value::from_object(List(Mutex::new(items))))
}

/// A list with Python's mutating methods.
#[derive(Debug)]
struct List(Mutex<Vec<Value>>);

impl List {
    fn items(&self) -> std::sync::MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, at: usize, value: &Value) -> Result<(), Error> {
        let mut items = self.items();
        if items.len() >= MAX_ITEMS {
            let problem = format!("a list has more than {MAX_ITEMS} items");
            let limit = super::limits::Exceeded(problem.clone());
            return Err(Error::new(ErrorKind::InvalidOperation, problem).with_source(limit));
        }
        let at = at.min(items.len());
        items.insert(at, value.clone());
        Ok(())
    }

    /// A Python index as a position; None when it is out of range.
    fn position(&self, index: i64) -> Option<usize> {
        let len = self.items().len();
        let index = usize::try_from(if index < 0 { index + i64::try_from(len).ok()? } else { index }).ok()?;
        (index < len).then_some(index)
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items().get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.items().clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items().len())
    }

    fn call_method(self: &Arc<Self>, _: &mut State<'_, '_>, method: &str, args: &[Value]) -> Result<Value, Error> {
        match method {
            "append" => {
                let (value,) = from_args::<(&Value,)>(args)?;
                self.insert(usize::MAX, value)?;
            }
            "insert" => {
                let (index, value) = from_args::<(i64, &Value)>(args)?;
                let len = i64::try_from(self.items().len()).unwrap_or(i64::MAX);
                let at = if index < 0 { (index + len).max(0) } else { index };
                self.insert(usize::try_from(at).unwrap_or(usize::MAX), value)?;
            }
            "extend" => {
                let (values,) = from_args::<(&Value,)>(args)?;
                let values: Vec<Value> = values.try_iter()?.collect();
                for value in &values {
                    self.insert(usize::MAX, value)?;
                }
            }
            "pop" => {
                let (index,) = from_args::<(Option<i64>,)>(args)?;
                let at = self
                    .position(index.unwrap_or(-1))
                    .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "pop index out of range"))?;
                return Ok(self.items().remove(at));
            }
            _ => return Err(Error::from(ErrorKind::UnknownMethod)),
        }
        Ok(Value::from(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use minijinja::Environment;

    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &str) {
        let mut env = Environment::new();
        env.add_function("namespace", namespace);
        assert_eq!(env.render_str(source, ()).unwrap(), expected);
    }

    #[test]
    fn lists_change_in_place() {
        check("{% set ns = namespace(l=[1]) %}{% set _ = ns.l.append(2) %}{{ ns.l }}{{ ns.l|length }}", "[1, 2]2");
        check("{% set ns = namespace(l=[1, 2, 3]) %}{{ ns.l.pop(0) }}{{ ns.l.pop() }}{{ ns.l }}", "13[2]");
        check(
            "{% set ns = namespace(l=[]) %}{% set _ = ns.l.extend('ab') %}{% set _ = ns.l.insert(0, 'c') %}{{ ns.l|join }}",
            "cab",
        );
        check("{% set ns = namespace(l=[]) %}{% set ns.l = ns.l + [1] %}{{ ns.l }}{{ 1 if ns.l }}", "[1]1");
        check("{% set ns = namespace() %}{% set ns.x = 3 %}{{ ns.x }}", "3");
    }
}
