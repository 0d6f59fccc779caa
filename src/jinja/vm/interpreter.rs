//! Runs the statements of a template.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::arguments::Args;
use super::borrowed::Borrowed;
use super::scope::Scopes;
use super::{attribute, operators};
use crate::jinja::budget::Budget;
use crate::jinja::builtins::globals;
use crate::jinja::error::{Result, TemplateError};
use crate::jinja::quote::quoted_string;
use crate::jinja::syntax::ast::{
    Arithmetic, Block, Expr, ExprKind, Macro, Name, Stmt, StmtKind, Target,
};
use crate::jinja::syntax::parser::{CALLER, KWARGS, ParsedTemplate, VARARGS};
use crate::jinja::value;
use crate::jinja::value::access::AccessLog;
use crate::jinja::value::runtime::{GlobalFunction, MacroObject, Object, ScopeId};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Undefined, Value};
use crate::jinja::value::{iterate, print};

/// The time in a format of strftime.
type Strftime = dyn Fn(&str) -> String;

/// What a template sees beside its own variables.
pub(crate) struct Context {
    /// Variables by name.
    pub(crate) variables: Vec<(Cow<'static, str>, Value)>,
    /// `strftime_now(format)`; None where a template may not know the time.
    pub(crate) strftime_now: Option<Box<Strftime>>,
    /// Where look-ups of variables are noted.
    pub(crate) log: Option<Rc<AccessLog>>,
}

/// How a statement ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Break,
    Continue,
}

/// A render in progress.
pub(crate) struct Interpreter<'t> {
    parsed: &'t ParsedTemplate,
    /// The texts of names and strings, made when first used.
    texts: Vec<Option<Text>>,
    pub(crate) budget: Rc<Budget>,
    context: Context,
    pub(crate) scopes: Scopes,
    /// The texts under construction: the result, and what blocks capture.
    out: Vec<TextBuilder>,
    /// What the innermost block statement captured.
    pub(crate) captured: Vec<Value>,
    pub(crate) autoescape: bool,
    /// Where bodies of `{% generation %}` are in the result.
    generation: Vec<Range<usize>>,
    /// Lists and namespaces that may hold themselves.
    mutable: Vec<Value>,
}

impl<'t> Interpreter<'t> {
    pub(crate) fn new(
        parsed: &'t ParsedTemplate,
        context: Context,
        budget: &Rc<Budget>,
    ) -> Interpreter<'t> {
        Interpreter {
            parsed,
            texts: vec![None; parsed.names.len()],
            budget: Rc::clone(budget),
            context,
            scopes: Scopes::new(),
            out: vec![TextBuilder::limited(budget, budget.output_bytes())],
            captured: Vec::new(),
            autoescape: false,
            generation: Vec::new(),
            mutable: Vec::new(),
        }
    }

    /// Runs the whole template; returns its text and where the bodies of generation blocks are.
    pub(crate) fn run(mut self) -> Result<(TextBuilder, Vec<Range<usize>>)> {
        let ended = self.statements(&self.parsed.body);
        for value in std::mem::take(&mut self.mutable) {
            match value {
                Value::List(list) => list.clear(),
                Value::Namespace(namespace) => namespace.clear(),
                _ => {}
            }
        }
        ended?;
        let text = self.out.pop().ok_or_else(|| TemplateError::value("the result is missing"))?;
        Ok((text, self.generation))
    }

    /// The text of a name or string of the source.
    pub(crate) fn text(&mut self, name: Name) -> Text {
        let place = name.0 as usize;
        match &self.texts[place] {
            Some(text) => text.clone(),
            None => {
                let text = Text::uncharged(&self.parsed.names[place], Vec::new());
                self.texts[place] = Some(text.clone());
                text
            }
        }
    }

    pub(crate) fn name(&self, name: Name) -> &'t str {
        let parsed: &'t ParsedTemplate = self.parsed;
        &parsed.names[name.0 as usize]
    }

    /// The block of this name.
    pub(crate) fn block(&self, name: &str) -> Option<Arc<Block>> {
        self.parsed
            .blocks
            .iter()
            .find(|(known, _)| self.name(*known) == name)
            .map(|(_, block)| Arc::clone(block))
    }

    /// Whether a dict's attribute of this name can be nothing but a member of it.
    pub(crate) fn is_member(&self, name: Name) -> bool {
        self.parsed.members[name.0 as usize]
    }

    /// A variable of a scope or of the context.
    pub(crate) fn lookup(&self, name: Name) -> Option<&Value> {
        if let Some(value) = self.scopes.get(name) {
            return Some(value);
        }
        let text = self.name(name);
        let (_, value) = self.context.variables.iter().find(|(known, _)| known == text)?;
        if let Some(log) = &self.context.log {
            log.record(text);
        }
        Some(value)
    }

    /// The value of a variable: of a scope, of the context, of the environment.
    pub(crate) fn variable(&mut self, name: Name) -> Value {
        if let Some(value) = self.lookup(name) {
            return value.clone();
        }
        let text = self.name(name);
        if let Some(function) = globals::find(text)
            && (function != GlobalFunction::StrftimeNow || self.context.strftime_now.is_some())
        {
            return Value::object(Object::Function(function));
        }
        if text == "self" {
            return Value::object(Object::Template);
        }
        if let Some(log) = &self.context.log {
            log.record_missing(text);
        }
        let text = self.text(name);
        Value::undefined(Undefined::Variable(text))
    }

    /// `strftime_now(format)`.
    pub(crate) fn strftime_now(&self, format: &str) -> Result<String> {
        match &self.context.strftime_now {
            Some(strftime) => Ok(strftime(format)),
            None => Err(TemplateError::undefined("'strftime_now' is undefined")),
        }
    }

    /// Remembers a list or namespace that gets a value: it may come to hold itself.
    pub(crate) fn track_cycle(&mut self, holder: &Value, held: &Value) -> Result<()> {
        let known = match holder {
            _ if !value::may_nest(held) => true,
            Value::List(list) => list.mark_tracked(),
            Value::Namespace(namespace) => namespace.mark_tracked(),
            _ => true,
        };
        if !known {
            self.budget.can_allocate(self.mutable.len() * 2 * size_of::<Value>())?;
            self.mutable.push(holder.clone());
        }
        Ok(())
    }

    pub(crate) fn set(&mut self, name: Name, value: Value) {
        drop(self.scopes.set(name, value));
    }

    pub(crate) fn write(&mut self, value: &Value) -> Result<()> {
        let budget = Rc::clone(&self.budget);
        let Some(out) = self.out.last_mut() else { return Ok(()) };
        if self.autoescape {
            let text = crate::jinja::value::markup::escape(&budget, value)?;
            return out.push_text(&text);
        }
        print::write(out, &budget, value)
    }

    /// What statements print.
    pub(crate) fn capture(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<Flow>,
    ) -> Result<(Text, Flow)> {
        self.out.push(TextBuilder::new(&self.budget));
        let flow = run(self)?;
        let text = self
            .out
            .pop()
            .ok_or_else(|| TemplateError::value("the captured text is missing"))?
            .finish()?;
        Ok((text.with_safe(self.autoescape), flow))
    }

    /// Runs something in a scope of its own.
    pub(crate) fn in_scope<T>(
        &mut self,
        around: ScopeId,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if self.scopes.len() > 100_000 {
            return Err(TemplateError::limit("macros keep more than 100000 scopes"));
        }
        let back = self.scopes.enter(around);
        let result = run(self);
        self.scopes.leave(back);
        result
    }

    fn in_new_scope<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let around = self.scopes.current();
        self.in_scope(around, run)
    }

    pub(crate) fn statements(&mut self, body: &[Stmt]) -> Result<Flow> {
        for statement in body {
            self.budget.step(1)?;
            let budget = Rc::clone(&self.budget);
            let ended = budget.nested(|| self.statement(&statement.kind));
            match ended {
                Ok(Flow::Next) => {}
                Ok(flow) => return Ok(flow),
                Err(error) => return Err(error.at(statement.line)),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &StmtKind) -> Result<Flow> {
        match statement {
            StmtKind::Text(text) => {
                if let Some(out) = self.out.last_mut() {
                    out.push(text)?;
                }
            }
            StmtKind::Print(expr) => self.print(expr)?,
            StmtKind::If { branches, otherwise } => {
                for (test, body) in branches {
                    if self.truth(test)? {
                        return self.statements(body);
                    }
                }
                return self.statements(otherwise);
            }
            StmtKind::For(code) => {
                let iterable = self.eval(&code.iterable)?;
                let around = self.scopes.current();
                return self.run_loop(code, &iterable, around, 0);
            }
            StmtKind::Set { target, value } => {
                let value = self.eval(value)?;
                self.assign(target, value)?;
            }
            StmtKind::SetBlock { target, filter, body } => {
                let (text, flow) = self.capture_inner(body)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
                let value = match filter {
                    Some(filter) => self.filtered(filter, text)?,
                    None => Value::Text(text),
                };
                self.assign(target, value)?;
            }
            StmtKind::Macro(code) => self.define(code),
            StmtKind::Call { caller, call } => self.call_block(caller, call)?,
            StmtKind::Filter { filter, body } => {
                let (text, flow) = self.capture_inner(body)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
                let value = self.filtered(filter, text)?;
                if value.as_text().is_none() {
                    let found = value.type_name();
                    return Err(TemplateError::value(format!(
                        "sequence item 0: expected str instance, {found} found"
                    )));
                }
                self.write(&value)?;
            }
            StmtKind::With { bindings, body } => {
                let mut values = Vec::with_capacity(bindings.len());
                for (_, value) in bindings {
                    values.push(self.eval(value)?);
                }
                return self.in_new_scope(|inner| {
                    for ((target, _), value) in bindings.iter().zip(values) {
                        inner.assign(target, value)?;
                    }
                    inner.statements(body)
                });
            }
            StmtKind::Autoescape { enabled, body } => {
                let enabled = self.eval(enabled)?.is_true();
                let before = std::mem::replace(&mut self.autoescape, enabled);
                let ended = self.in_new_scope(|inner| inner.statements(body));
                self.autoescape = before;
                return ended;
            }
            StmtKind::Generation(body) => return self.generation(body),
            StmtKind::Block(block) => return self.run_block(block),
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
            StmtKind::Loader(of) => self.load(of.as_ref())?,
        }
        Ok(Flow::Next)
    }

    /// A block sees the outermost variables alone, unless it is scoped.
    fn run_block(&mut self, block: &Block) -> Result<Flow> {
        if let Some(name) = block.required {
            return Err(TemplateError::value(format!(
                "Required block '{}' not found",
                self.name(name)
            )));
        }
        let around = if block.scoped { self.scopes.current() } else { self.scopes.outermost() };
        self.in_scope(around, |inner| inner.statements(&block.body))
    }

    /// `self.name()`
    pub(crate) fn call_block_of_self(&mut self, block: &Block) -> Result<Value> {
        let budget = Rc::clone(&self.budget);
        let (text, _) =
            budget.in_call(|| self.capture(|interpreter| interpreter.run_block(block)))?;
        Ok(Value::Text(text))
    }

    /// A tag that needs a loader; of nothing at all with `ignore missing` it is nothing.
    fn load(&mut self, ignoring: Option<&Expr>) -> Result<()> {
        if let Some(of) = ignoring {
            let of = self.eval(of)?;
            if !of.defined()?.is_true() && of.as_text().is_none() {
                return Ok(());
            }
        }
        Err(TemplateError::unsupported("no loader for this environment specified"))
    }

    /// Prints a value. A sum of strings goes into the text piece by piece, without being joined
    /// first.
    fn print(&mut self, expr: &Expr) -> Result<()> {
        let operands = match &expr.kind {
            ExprKind::Sum(operands) if !self.autoescape => operands,
            ExprKind::Str(_) if !self.autoescape => std::slice::from_ref(expr),
            _ => {
                let value = self.eval(expr)?;
                return self.write(&value);
            }
        };
        let start = self.out.last().map_or(0, TextBuilder::len);
        let mut rest = operands.iter().enumerate();
        while let Some((place, operand)) = rest.next() {
            let Some(value) = self.print_text(operand)? else { continue };
            let total = if place == 0 {
                value
            } else {
                // What was printed so far is an operand after all.
                let printed = self.out.last_mut().map(|out| out.split_off(start));
                let printed = printed
                    .ok_or_else(|| TemplateError::value("the printed text is missing"))??;
                operators::arithmetic(self, Arithmetic::Add, &Value::Text(printed), &value)?
            };
            let total = self.add(total, rest.map(|(_, operand)| operand))?;
            return self.write(&total);
        }
        Ok(())
    }

    /// Prints a value that is plain text; what is not is returned.
    fn print_text(&mut self, expr: &Expr) -> Result<Option<Value>> {
        if let Some(text) = self.constant(expr)? {
            return self.out.last_mut().map_or(Ok(()), |out| out.push(text)).map(|()| None);
        }
        if let Some(Borrowed::Value(Value::Text(text))) = self.eval_borrowed(expr)?
            && !text.is_safe()
        {
            let text = text.clone();
            return self.out.last_mut().map_or(Ok(()), |out| out.push_text(&text)).map(|()| None);
        }
        match self.eval(expr)? {
            Value::Text(text) if !text.is_safe() => {
                self.out.last_mut().map_or(Ok(()), |out| out.push_text(&text)).map(|()| None)
            }
            other => Ok(Some(other)),
        }
    }

    fn generation(&mut self, body: &[Stmt]) -> Result<Flow> {
        let length = |interpreter: &Self| interpreter.out.last().map_or(0, TextBuilder::len);
        let start = length(self);
        let flow = self.in_new_scope(|inner| inner.statements(body))?;
        if self.out.len() == 1 {
            let end = length(self);
            self.generation.push(start..end);
        }
        Ok(flow)
    }

    fn capture_inner(&mut self, body: &[Stmt]) -> Result<(Text, Flow)> {
        self.capture(|interpreter| interpreter.in_new_scope(|inner| inner.statements(body)))
    }

    /// The value of a filter whose innermost operand is a captured text.
    fn filtered(&mut self, filter: &Expr, text: Text) -> Result<Value> {
        self.captured.push(Value::Text(text));
        let value = self.eval(filter);
        self.captured.pop();
        value
    }

    pub(crate) fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Name(name) => self.set(*name, value),
            Target::Attribute(name, attribute) => {
                let holder = self.variable(*name);
                let Value::Namespace(namespace) = &holder else {
                    return Err(TemplateError::value(
                        "cannot assign attribute on non-namespace object",
                    ));
                };
                let attribute = self.text(*attribute);
                attribute::refuse_underscore(&attribute)?;
                self.budget.step(namespace.len() as u64 / 16)?;
                self.track_cycle(&holder, &value)?;
                namespace.set(&attribute, value);
            }
            Target::Tuple(targets) => {
                let items = match &value {
                    Value::Undefined(_) => Vec::new(),
                    Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                        return Err(TemplateError::value(format!(
                            "cannot unpack non-iterable {} object",
                            value.type_name()
                        )));
                    }
                    value => iterate::items(&self.budget, value)?,
                };
                if items.len() > targets.len() {
                    return Err(TemplateError::value(format!(
                        "too many values to unpack (expected {})",
                        targets.len()
                    )));
                }
                if items.len() < targets.len() {
                    let message = format!(
                        "not enough values to unpack (expected {}, got {})",
                        targets.len(),
                        items.len()
                    );
                    return Err(TemplateError::value(message));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item)?;
                }
            }
        }
        Ok(())
    }

    fn define(&mut self, code: &Arc<Macro>) {
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

    fn call_block(&mut self, caller: &Arc<Macro>, call: &Expr) -> Result<()> {
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

    /// Calls a macro.
    pub(crate) fn call_macro(&mut self, called: &MacroObject, args: Args) -> Result<Value> {
        let budget = Rc::clone(&self.budget);
        // The body escapes where the macro was defined, its text is markup where it is called.
        let around = std::mem::replace(&mut self.autoescape, called.autoescape);
        let captured = budget.in_call(|| {
            self.capture(|interpreter| {
                interpreter.in_scope(called.scope, |inner| {
                    inner.bind(called, args)?;
                    inner.statements(&called.code.body)
                })
            })
        });
        self.autoescape = around;
        let (text, _) = captured?;
        Ok(Value::Text(text.with_safe(around)))
    }

    /// Sets the parameters of a macro in the current scope.
    fn bind(&mut self, called: &MacroObject, args: Args) -> Result<()> {
        let code = &called.code;
        let title =
            called.name.as_ref().map_or_else(|| "None".to_owned(), |name| quoted_string(name));
        let Args { positional, mut named } = args;
        let count = code.parameters.len();
        let mut rest = positional.into_iter();
        for (parameter, default) in &code.parameters {
            self.budget.step(1 + named.len() as u64 / 16)?;
            let name = self.text(*parameter);
            let given = named.iter().position(|(known, _)| known.as_str() == name.as_str());
            let value = match (rest.next(), given) {
                (Some(_), Some(_)) => {
                    return Err(TemplateError::value(format!(
                        "macro {title} got multiple values for argument '{}'",
                        name.as_str()
                    )));
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
                    "macro {title} was invoked with two values for the special caller argument. This is most likely a bug."
                ),
                name => format!("macro {title} takes no keyword argument {}", quoted_string(name)),
            };
            return Err(TemplateError::value(message));
        }
        if code.uses_varargs {
            let varargs = Value::tuple(&self.budget, rest)?;
            self.set(VARARGS, varargs);
        } else if !rest.is_empty() {
            return Err(TemplateError::value(format!(
                "macro {title} takes not more than {count} argument(s)"
            )));
        }
        Ok(())
    }
}
