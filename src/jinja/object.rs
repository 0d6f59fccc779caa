//! Values that are neither data nor namespaces: functions, macros, loops, views and generators.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::args::Args;
use super::ast::{For, Macro};
use super::error::{Error, Result};
use super::interpreter::Interpreter;
use super::scope::ScopeId;
use super::text::Text;
use super::value::Value;

/// A function that the environment defines.
pub(crate) type Builtin = fn(&mut Interpreter<'_>, Args) -> Result<Value>;

pub(crate) enum Object {
    /// A global function of this name.
    Builtin(&'static str, Builtin),
    /// A method and what it belongs to.
    Method {
        receiver: Value,
        name: Text,
    },
    Macro(MacroObject),
    Loop(LoopObject),
    /// What `keys()`, `values()` and `items()` of a dict return.
    View {
        kind: ViewKind,
        items: Vec<Value>,
    },
    /// What filters such as `map` return: goes once over its items.
    Generator(Generator),
    Cycler {
        items: Vec<Value>,
        at: Cell<usize>,
    },
    Joiner {
        separator: Value,
        used: Cell<bool>,
    },
}

/// A macro with the scope it was defined in.
pub(crate) struct MacroObject {
    pub(crate) code: Arc<Macro>,
    pub(crate) name: Option<Text>,
    pub(crate) scope: ScopeId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ViewKind {
    Keys,
    Values,
    Items,
}

impl ViewKind {
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            ViewKind::Keys => "dict_keys",
            ViewKind::Values => "dict_values",
            ViewKind::Items => "dict_items",
        }
    }
}

/// `loop`: where a loop is.
pub(crate) struct LoopObject {
    pub(crate) items: Vec<Value>,
    pub(crate) index: Cell<usize>,
    pub(crate) depth: usize,
    /// The loop itself, if it can be called, and the scope it runs in.
    pub(crate) code: Option<(Arc<For>, ScopeId)>,
    /// The last arguments of `loop.changed`.
    pub(crate) last_changed: RefCell<Option<Value>>,
}

impl LoopObject {
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The items after the current one.
    pub(crate) fn rest(&self) -> Vec<Value> {
        self.items.get(self.index.get() + 1..).unwrap_or_default().to_vec()
    }
}

/// Items that are handed out once, then perhaps an error.
pub(crate) struct Generator {
    /// Last first.
    rest: RefCell<Vec<Value>>,
    failure: RefCell<Option<Error>>,
    type_name: &'static str,
}

impl Generator {
    pub(crate) fn new(mut items: Vec<Value>, failure: Option<Error>, type_name: &'static str) -> Object {
        items.reverse();
        Object::Generator(Generator { rest: RefCell::new(items), failure: RefCell::new(failure), type_name })
    }

    /// All that is left.
    pub(crate) fn drain(&self) -> Result<Vec<Value>> {
        let mut items = std::mem::take(&mut *self.rest.borrow_mut());
        items.reverse();
        self.failure.borrow_mut().take().map_or(Ok(items), Err)
    }

    /// The next item.
    pub(crate) fn next(&self) -> Result<Option<Value>> {
        match self.rest.borrow_mut().pop() {
            Some(item) => Ok(Some(item)),
            None => self.failure.borrow_mut().take().map_or(Ok(None), Err),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.borrow().len()
    }

    /// What is left, without using it up.
    pub(crate) fn left(&self) -> Vec<Value> {
        self.rest.borrow().iter().rev().cloned().collect()
    }
}

impl Object {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Object::Builtin("range", _) | Object::Builtin("dict", _) | Object::Builtin("namespace", _) => "type",
            Object::Builtin(..) => "function",
            Object::Method { .. } => "builtin_function_or_method",
            Object::Macro(_) => "Macro",
            Object::Loop(_) => "LoopContext",
            Object::View { kind, .. } => kind.type_name(),
            Object::Generator(generator) => generator.type_name,
            Object::Cycler { .. } => "Cycler",
            Object::Joiner { .. } => "Joiner",
        }
    }

    pub(crate) fn owner_name(&self) -> &'static str {
        match self {
            Object::Builtin(..) => "function object",
            Object::Method { .. } => "builtin_function_or_method object",
            Object::Macro(_) => "jinja2.runtime.Macro object",
            Object::Loop(_) => "jinja2.runtime.LoopContext object",
            Object::View { kind: ViewKind::Keys, .. } => "dict_keys object",
            Object::View { kind: ViewKind::Values, .. } => "dict_values object",
            Object::View { kind: ViewKind::Items, .. } => "dict_items object",
            Object::Generator(_) => "generator object",
            Object::Cycler { .. } => "jinja2.utils.Cycler object",
            Object::Joiner { .. } => "jinja2.utils.Joiner object",
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        match self {
            Object::View { items, .. } => !items.is_empty(),
            Object::Loop(of) => of.len() != 0,
            _ => true,
        }
    }

    pub(crate) fn is_callable(&self) -> bool {
        !matches!(self, Object::View { .. } | Object::Generator(_))
    }

    /// `repr`, without the addresses that Python prints.
    pub(crate) fn describe(&self) -> String {
        match self {
            Object::Builtin(name, _) => format!("<function {name}>"),
            Object::Method { receiver, name } => {
                format!("<built-in method {} of {} object>", name.as_str(), receiver.type_name())
            }
            Object::Macro(MacroObject { name: Some(name), .. }) => {
                format!("<Macro {}>", super::print::quoted_string(name))
            }
            Object::Macro(_) => "<Macro anonymous>".to_owned(),
            Object::Loop(of) => format!("<LoopContext {}/{}>", of.index.get() + 1, of.len()),
            Object::Cycler { .. } => "<jinja2.utils.Cycler object>".to_owned(),
            Object::Joiner { .. } => "<jinja2.utils.Joiner object>".to_owned(),
            Object::View { kind, .. } => kind.type_name().to_owned(),
            Object::Generator(generator) => format!("<{} object>", generator.type_name),
        }
    }

    /// Whether two objects that are not one are equal all the same.
    pub(crate) fn is_same(&self, other: &Object) -> bool {
        match (self, other) {
            (Object::Builtin(a, _), Object::Builtin(b, _)) => a == b,
            _ => false,
        }
    }

    /// Moves the values it holds to those that are to be dropped.
    pub(crate) fn take_values(&mut self, values: &mut Vec<Value>) {
        match self {
            Object::Method { receiver, .. } => values.push(std::mem::replace(receiver, Value::None)),
            Object::Loop(of) => {
                values.append(&mut of.items);
                values.extend(of.last_changed.take());
            }
            Object::View { items, .. } | Object::Cycler { items, .. } => values.append(items),
            Object::Generator(generator) => values.append(&mut generator.rest.borrow_mut()),
            Object::Joiner { separator, .. } => values.push(std::mem::replace(separator, Value::None)),
            Object::Builtin(..) | Object::Macro(_) => {}
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let mut values = Vec::new();
        self.take_values(&mut values);
        super::value::release(values);
    }
}

/// An object as a value.
pub(crate) fn value(object: Object) -> Value {
    Value::Object(Rc::new(object))
}
