//! Drops nested values without recursion.

use std::rc::Rc;

use super::{Namespace, Undefined, Value, ValueList};

/// Drops values iteratively. A nesting depth of a million must not need a million stack frames.
pub(in crate::jinja) fn drop_iteratively(mut values: Vec<Value>) {
    while let Some(value) = values.pop() {
        match value {
            Value::List(list) | Value::Tuple(list) => {
                if let Some(list) = Rc::into_inner(list) {
                    values.append(&mut list.items.borrow_mut());
                }
            }
            Value::Dict(dict) => {
                // A dict without nested containers drops directly.
                if let Some(mut dict) = Rc::into_inner(dict)
                    && dict.may_nest()
                {
                    values.extend(dict.take_values());
                }
            }
            Value::Namespace(namespace) => {
                if let Some(namespace) = Rc::into_inner(namespace) {
                    values.extend(
                        std::mem::take(&mut *namespace.attributes.borrow_mut())
                            .into_iter()
                            .map(|(_, value)| value),
                    );
                }
            }
            Value::Object(object) => {
                if let Some(mut object) = Rc::into_inner(object) {
                    object.take_values(&mut values);
                }
            }
            Value::Undefined(why) => {
                if let Some(mut why) = Rc::into_inner(why) {
                    values.extend(why.take_key());
                }
            }
            _ => {}
        }
    }
}

/// Whether dropping a value may drop other values.
pub(in crate::jinja) fn may_nest(value: &Value) -> bool {
    match value {
        Value::List(_)
        | Value::Tuple(_)
        | Value::Dict(_)
        | Value::Namespace(_)
        | Value::Object(_) => true,
        Value::Undefined(why) => matches!(**why, Undefined::Element(..)),
        _ => false,
    }
}

impl Undefined {
    /// The missing key, if it is a container.
    fn take_key(&mut self) -> Option<Value> {
        match self {
            Undefined::Element(_, key) if may_nest(key) => {
                Some(std::mem::replace(key, Value::None))
            }
            _ => None,
        }
    }
}

impl Drop for Undefined {
    fn drop(&mut self) {
        if let Some(key) = self.take_key() {
            drop_iteratively(vec![key]);
        }
    }
}

impl Drop for ValueList {
    fn drop(&mut self) {
        let items = self.items.get_mut();
        if items.iter().any(may_nest) {
            drop_iteratively(std::mem::take(items));
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.clear();
    }
}
