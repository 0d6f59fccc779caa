//! Runtime objects of Jinja2 and Python: functions, macros, loops, views and generators.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::Value;
use super::text::Text;
use crate::jinja::budget::{Budget, Charge};
use crate::jinja::error::{Result, TemplateError};
use crate::jinja::syntax::ast::{Block, BuiltinId, For, Macro};

/// A scope, by its index in the interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopeId(pub(crate) usize);

pub(crate) enum Object {
    /// A global function: its name, and its index in the table of `builtins`.
    Function(&'static str, BuiltinId),
    /// A bound method.
    Method {
        receiver: Value,
        name: Text,
    },
    Macro(MacroObject),
    Loop(LoopObject),
    /// A view that `keys()`, `values()` or `items()` of a dict returns.
    View {
        kind: ViewKind,
        items: Vec<Value>,
        _charge: Charge,
    },
    /// `self`: the template with its blocks.
    Template,
    /// `self.name`: a block that can be called.
    Block(Arc<Block>),
    /// The result of filters such as `map`, which can be iterated once.
    Generator(Generator),
    Cycler {
        items: Vec<Value>,
        at: Cell<usize>,
        _charge: Charge,
    },
    Joiner {
        separator: Value,
        used: Cell<bool>,
    },
}

/// A macro and the scope of its definition.
pub(crate) struct MacroObject {
    pub(crate) code: Arc<Macro>,
    pub(crate) name: Option<Text>,
    pub(crate) scope: ScopeId,
    /// Whether the body escapes what it prints.
    pub(crate) autoescape: bool,
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

/// `loop`: the state of a loop. Items are pulled one by one, as late as in Jinja2.
pub(crate) struct LoopObject {
    pub(crate) code: Arc<For>,
    /// The scope that contains the loop.
    pub(crate) scope: ScopeId,
    pub(crate) source: RefCell<LoopSource>,
    /// Items that were pulled before their turn.
    pub(crate) lookahead: RefCell<VecDeque<Value>>,
    pub(crate) previous: RefCell<Option<Value>>,
    pub(crate) current: RefCell<Option<Value>>,
    /// The number of items so far, including the current one.
    pub(crate) count: Cell<usize>,
    /// The number of enclosing calls of a recursive loop.
    pub(crate) depth: usize,
    /// The last arguments of `loop.changed`.
    pub(crate) last_changed: RefCell<Option<Value>>,
}

/// Where the items of a loop come from.
pub(crate) enum LoopSource {
    Items {
        rest: std::vec::IntoIter<Value>,
        _charge: Charge,
    },
    /// A generator or another loop.
    Shared(Rc<Object>),
    Ended,
}

impl LoopObject {
    /// The index of the current item.
    pub(crate) fn index(&self) -> usize {
        self.count.get().saturating_sub(1)
    }

    /// The number of items, if it is known without running the template.
    pub(crate) fn known_length(&self) -> Option<usize> {
        let rest = match &*self.source.borrow() {
            _ if self.code.test.is_some() => return None,
            LoopSource::Items { rest, .. } => rest.len(),
            LoopSource::Shared(object) => match &**object {
                Object::Generator(generator) => generator.len(),
                _ => return None,
            },
            LoopSource::Ended => 0,
        };
        Some(self.count.get() + self.lookahead.borrow().len() + rest)
    }
}

/// Items that are yielded once, optionally followed by an error.
pub(crate) struct Generator {
    /// In reverse order.
    rest: RefCell<Vec<Value>>,
    failure: RefCell<Option<TemplateError>>,
    type_name: &'static str,
    _charge: Charge,
}

impl Generator {
    /// Creates a generator object.
    pub(crate) fn object(
        budget: &Rc<Budget>,
        mut items: Vec<Value>,
        failure: Option<TemplateError>,
        type_name: &'static str,
    ) -> Result<Object> {
        let failed = failure.as_ref().map_or(0, TemplateError::bytes);
        let charge = budget
            .charge(items.capacity() * size_of::<Value>() + size_of::<Generator>() + failed)?;
        items.reverse();
        let (rest, failure) = (RefCell::new(items), RefCell::new(failure));
        Ok(Object::Generator(Generator { rest, failure, type_name, _charge: charge }))
    }

    /// Removes and returns the remaining items.
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

    /// The remaining items, without consuming them.
    pub(crate) fn remaining(&self) -> Vec<Value> {
        self.rest.borrow().iter().rev().cloned().collect()
    }
}

impl Object {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Object::Function("range" | "dict" | "namespace", _) => "type",
            Object::Function(..) => "function",
            Object::Method { .. } => "builtin_function_or_method",
            Object::Macro(_) => "Macro",
            Object::Loop(_) => "LoopContext",
            Object::View { kind, .. } => kind.type_name(),
            Object::Generator(generator) => generator.type_name,
            Object::Cycler { .. } => "Cycler",
            Object::Joiner { .. } => "Joiner",
            Object::Template => "TemplateReference",
            Object::Block(_) => "BlockReference",
        }
    }

    pub(crate) fn owner_name(&self) -> &'static str {
        match self {
            Object::Function(..) => "function object",
            Object::Method { .. } => "builtin_function_or_method object",
            Object::Macro(_) => "jinja2.runtime.Macro object",
            Object::Loop(_) => "jinja2.runtime.LoopContext object",
            Object::View { kind: ViewKind::Keys, .. } => "dict_keys object",
            Object::View { kind: ViewKind::Values, .. } => "dict_values object",
            Object::View { kind: ViewKind::Items, .. } => "dict_items object",
            Object::Generator(_) => "generator object",
            Object::Cycler { .. } => "jinja2.utils.Cycler object",
            Object::Joiner { .. } => "jinja2.utils.Joiner object",
            Object::Template => "jinja2.runtime.TemplateReference object",
            Object::Block(_) => "jinja2.runtime.BlockReference object",
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        match self {
            Object::View { items, .. } => !items.is_empty(),
            _ => true,
        }
    }

    pub(crate) fn is_callable(&self) -> bool {
        !matches!(self, Object::View { .. } | Object::Generator(_) | Object::Template)
    }

    /// `repr` without addresses.
    pub(crate) fn describe(&self) -> String {
        match self {
            Object::Function(name, _) => format!("<function {name}>"),
            Object::Method { receiver, name } => {
                format!("<built-in method {} of {} object>", name.as_str(), receiver.type_name())
            }
            Object::Macro(MacroObject { name: Some(name), .. }) => {
                // A name has no character that Python would escape.
                format!("<Macro '{}'>", name.as_str())
            }
            Object::Macro(_) => "<Macro anonymous>".to_owned(),
            Object::Loop(of) => match of.known_length() {
                Some(length) => format!("<LoopContext {}/{length}>", of.count.get()),
                None => "<LoopContext>".to_owned(),
            },
            Object::Template => "<TemplateReference None>".to_owned(),
            Object::Block(_) => "<BlockReference>".to_owned(),
            Object::Cycler { .. } => "<jinja2.utils.Cycler object>".to_owned(),
            Object::Joiner { .. } => "<jinja2.utils.Joiner object>".to_owned(),
            Object::View { kind, .. } => kind.type_name().to_owned(),
            Object::Generator(generator) => format!("<{} object>", generator.type_name),
        }
    }

    /// Whether two distinct objects are equal.
    pub(crate) fn is_same(&self, other: &Object) -> bool {
        match (self, other) {
            (Object::Function(_, a), Object::Function(_, b)) => a == b,
            _ => false,
        }
    }

    /// Moves the contained values to a list of values to drop.
    pub(crate) fn take_values(&mut self, values: &mut Vec<Value>) {
        match self {
            Object::Method { receiver, .. } => {
                values.push(std::mem::replace(receiver, Value::None))
            }
            Object::Loop(of) => {
                if let LoopSource::Items { rest, .. } = of.source.get_mut() {
                    values.extend(rest);
                }
                values.extend(of.lookahead.get_mut().drain(..));
                values.extend(
                    of.previous
                        .take()
                        .into_iter()
                        .chain(of.current.take())
                        .chain(of.last_changed.take()),
                );
            }
            Object::View { items, .. } | Object::Cycler { items, .. } => values.append(items),
            Object::Generator(generator) => values.append(&mut generator.rest.borrow_mut()),
            Object::Joiner { separator, .. } => {
                values.push(std::mem::replace(separator, Value::None))
            }
            Object::Function(..) | Object::Macro(_) | Object::Template | Object::Block(_) => {}
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let mut values = Vec::new();
        self.take_values(&mut values);
        super::drop_iteratively(values);
    }
}
