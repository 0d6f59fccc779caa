//! Defines and calls macros.

use std::rc::Rc;
use std::sync::Arc;

use super::arguments::Args;
use super::interpreter::Interpreter;
use crate::jinja::error::{Result, shown, type_error};
use crate::jinja::quote::quoted_string;
use crate::jinja::syntax::ast::{Expr, Macro};
use crate::jinja::syntax::parser::{CALLER, KWARGS, VARARGS};
use crate::jinja::value::runtime::{MacroObject, Object};
use crate::jinja::value::text::Text;
use crate::jinja::value::{Undefined, Value};

impl Interpreter<'_> {
    pub(super) fn define(&mut self, code: &Arc<Macro>) {
        let scope = self.scopes.keep();
        let name = code.name.map(|name| self.text(name));
        let value = Value::object(Object::Macro(MacroObject {
            code: Arc::clone(code),
            name,
            scope,
            autoescape: self.autoescape,
        }));
        if let Some(name) = code.name {
            self.set(name, value);
        }
    }

    pub(super) fn call_block(&mut self, caller: &Arc<Macro>, call: &Expr) -> Result<()> {
        let scope = self.scopes.keep();
        let autoescape = self.autoescape;
        let caller = Value::object(Object::Macro(MacroObject {
            code: Arc::clone(caller),
            name: None,
            scope,
            autoescape,
        }));
        let caller_name = Text::uncharged("caller", Vec::new());
        let value = self.eval_call(call, Some((caller_name, caller)))?;
        self.write(&value)
    }

    pub(super) fn call_macro(&mut self, called: &MacroObject, args: Args) -> Result<Value> {
        let budget = Rc::clone(&self.budget);
        // The body is escaped as at the place of its definition. The result is markup if the caller
        // escapes.
        let autoescape = std::mem::replace(&mut self.autoescape, called.autoescape);
        let captured = budget.in_call(|| {
            self.capture(|interpreter| {
                interpreter.in_scope(called.scope, |inner| {
                    inner.bind(called, args)?;
                    inner.statements(&called.code.body)
                })
            })
        });
        self.autoescape = autoescape;
        let (text, _) = captured?;
        Ok(Value::Text(text.with_safe(autoescape)))
    }

    /// Binds the parameters of a macro in the current scope.
    fn bind(&mut self, called: &MacroObject, args: Args) -> Result<()> {
        let code = &called.code;
        let title =
            || called.name.as_ref().map_or_else(|| "None".to_owned(), |name| quoted_string(name));
        let Args { positional, mut named } = args;
        let count = code.parameters.len();
        let mut rest = positional.into_iter();
        for (parameter, default) in &code.parameters {
            self.budget.step(1 + named.len() as u64 / 16)?;
            let name = self.text(*parameter);
            let keyword = named.iter().position(|(known, _)| known.as_str() == name.as_str());
            let value = match (rest.next(), keyword) {
                (Some(_), Some(_)) => {
                    return type_error(format!(
                        "macro {} got multiple values for argument '{}'",
                        title(),
                        shown(&name)
                    ));
                }
                (Some(value), None) => value,
                (None, Some(at)) => named.remove(at).1,
                (None, None) => match default {
                    Some(default) => self.eval(default)?,
                    None => Value::undefined(Undefined::Parameter(name)),
                },
            };
            self.set(*parameter, value);
        }
        let caller = named.iter().position(|(name, _)| name.as_str() == "caller");
        if code.uses_caller {
            let value = match caller {
                Some(at) => named.remove(at).1,
                None => Value::undefined(Undefined::Other("No caller defined")),
            };
            self.set(CALLER, value);
        }
        let rest: Vec<Value> = rest.collect();
        if code.uses_kwargs {
            let entries = named.drain(..).map(|(name, value)| (Value::Text(name), value)).collect();
            let kwargs = Value::dict(&self.budget, entries)?;
            self.set(KWARGS, kwargs);
        } else if let Some((name, _)) = named.first() {
            let message = match name.as_str() {
                "caller" => format!(
                    "macro {} was invoked with two values for the special caller argument. This is most likely a bug.",
                    title()
                ),
                name => {
                    format!("macro {} takes no keyword argument {}", title(), quoted_string(name))
                }
            };
            return type_error(message);
        }
        if code.uses_varargs {
            let varargs = Value::tuple(&self.budget, rest)?;
            self.set(VARARGS, varargs);
        } else if !rest.is_empty() {
            return type_error(format!(
                "macro {} takes not more than {count} argument(s)",
                title()
            ));
        }
        Ok(())
    }
}
