//! Evaluates calls, and defines macros.

use std::rc::Rc;
use std::sync::Arc;

use super::interpreter::Interpreter;
use super::{attribute, methods};
use crate::jinja::error::{Result, shown, type_error};
use crate::jinja::literals::quoted_string;
use crate::jinja::syntax::ast::{Arguments, Expr, ExprKind, Macro};
use crate::jinja::syntax::parser::{CALLER, KWARGS, VARARGS};
use crate::jinja::value::arguments::Args;
use crate::jinja::value::text::Text;
use crate::jinja::value::{MacroObject, Object, Undefined, Value, sequence};

impl Interpreter<'_> {
    pub(super) fn arguments(&mut self, arguments: &Arguments) -> Result<Args> {
        let mut positional = self.values(&arguments.positional)?;
        let mut named: Vec<(Text, Value)> = Vec::with_capacity(arguments.named.len());
        for (name, value) in &arguments.named {
            named.push((self.text(*name), self.eval(value)?));
        }
        if let Some(spread) = &arguments.spread {
            let spread = self.eval(spread)?;
            positional.extend(sequence::items(&self.budget, &spread)?);
        }
        if let Some(spread) = &arguments.spread_named {
            let Value::Dict(dict) = self.eval(spread)? else {
                return type_error("argument after ** must be a mapping");
            };
            if let Some((name, _)) = named.iter().find(|(name, _)| dict.get_name(name).is_some()) {
                return type_error(format!(
                    "got multiple values for keyword argument '{}'",
                    shown(name)
                ));
            }
            self.budget.step(dict.len() as u64)?;
            self.budget.can_allocate(dict.len() * 2 * size_of::<(Text, Value)>())?;
            for (key, value) in dict.entries() {
                let Value::Text(key) = key else {
                    return type_error("keywords must be strings");
                };
                named.push((key.clone(), value.clone()));
            }
        }
        Ok(Args { positional, named })
    }

    /// Evaluates a call. A call block passes one more keyword argument.
    pub(crate) fn eval_call(&mut self, call: &Expr, extra: Option<(Text, Value)>) -> Result<Value> {
        let ExprKind::Call(called, arguments) = &call.kind else {
            return type_error("expected a call");
        };
        // A method call creates no method object.
        if let ExprKind::Attr(of, name) = &called.kind {
            let of = self.eval(of)?;
            if extra.is_none() && attribute::has(&of, self.name(*name)) {
                let name = self.text(*name);
                let args = self.arguments(arguments)?;
                return methods::call(self, &of, &name, args).map_err(|error| error.at(call.line));
            }
            let called = attribute::attribute(self, &of, self.name(*name), |interpreter| {
                interpreter.text(*name)
            })?;
            let mut args = self.arguments(arguments)?;
            args.named.extend(extra);
            return self.call(&called, args).map_err(|error| error.at(call.line));
        }
        let called = self.eval(called)?;
        let mut args = self.arguments(arguments)?;
        args.named.extend(extra);
        self.call(&called, args).map_err(|error| error.at(call.line))
    }

    pub(crate) fn call(&mut self, called: &Value, args: Args) -> Result<Value> {
        let Value::Object(object) = called.defined()? else {
            return type_error(format!("'{}' object is not callable", called.type_name()));
        };
        match &**object {
            Object::Function(_, id) => self.builtins.globals[usize::from(id.0)].1(self, args),
            Object::Method { receiver, name } => methods::call(self, receiver, name, args),
            Object::Macro(called) => self.call_macro(called, args),
            Object::Loop(of) => self.call_loop(of, args),
            Object::Block(block) => {
                args.expect_none("block")?;
                self.call_block_of_self(block)
            }
            Object::Joiner { separator, used } => {
                args.expect_none("joiner")?;
                if used.replace(true) {
                    Ok(separator.clone())
                } else {
                    Value::text(&self.budget, "")
                }
            }
            Object::View { .. }
            | Object::Generator(_)
            | Object::Cycler { .. }
            | Object::Template => {
                type_error(format!("'{}' object is not callable", object.type_name()))
            }
        }
    }

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
                    "macro {} was invoked with two values for the special caller argument. This \
                     is most likely a bug.",
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
