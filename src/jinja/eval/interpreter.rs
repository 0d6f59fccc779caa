//! The interpreter: runs statements and resolves variables.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::attribute;
use super::scope::Scopes;
use crate::jinja::budget::Budget;
use crate::jinja::builtins::globals;
use crate::jinja::error::{Result, TemplateError, limit_error, type_error, unsupported};
use crate::jinja::syntax::ast::{Block, Expr, Name, Stmt, StmtKind, Target};
use crate::jinja::syntax::parser::ParsedTemplate;
use crate::jinja::value;
use crate::jinja::value::access::AccessLog;
use crate::jinja::value::runtime::{Object, ScopeId};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Undefined, Value, iterate};

/// Formats the time for a strftime format.
type Strftime = dyn Fn(&str) -> String;

/// What a template sees in addition to its own variables.
pub(crate) struct Context {
    /// Variables by name.
    pub(crate) variables: Vec<(Cow<'static, str>, Value)>,
    /// `strftime_now(format)`. None if the template must not know the time.
    pub(crate) strftime_now: Option<Box<Strftime>>,
    /// Records lookups of variables.
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
    /// The values of names and string literals, created on first use.
    texts: Vec<Option<Text>>,
    pub(crate) budget: Rc<Budget>,
    context: Context,
    pub(crate) scopes: Scopes,
    /// The texts under construction: the result and the captures of blocks.
    pub(super) out: Vec<TextBuilder>,
    /// The captures of the enclosing block statements.
    pub(crate) captured: Vec<Value>,
    pub(crate) autoescape: bool,
    /// The byte ranges of `{% generation %}` bodies in the result.
    pub(super) generation: Vec<Range<usize>>,
    /// Lists and namespaces that may contain themselves.
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

    /// Renders the template. Returns the text and the byte ranges of generation blocks.
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

    /// The value of a name or string literal.
    pub(crate) fn text(&mut self, name: Name) -> Text {
        let index = name.0 as usize;
        match &self.texts[index] {
            Some(text) => text.clone(),
            None => {
                let text = Text::uncharged(&self.parsed.names[index], Vec::new());
                self.texts[index] = Some(text.clone());
                text
            }
        }
    }

    pub(crate) fn name(&self, name: Name) -> &'t str {
        let parsed: &'t ParsedTemplate = self.parsed;
        &parsed.names[name.0 as usize]
    }

    /// The block of this name.
    pub(crate) fn block(&self, name: &str) -> Result<Option<Arc<Block>>> {
        let blocks = &self.parsed.blocks;
        self.budget.step(blocks.len() as u64 / 16)?;
        let found = blocks.iter().find(|(known, _)| self.name(*known) == name);
        Ok(found.map(|(_, block)| Arc::clone(block)))
    }

    /// Whether an attribute of this name on a dict can only be a member. False for a long name,
    /// because reading it costs more than a step.
    pub(crate) fn is_member(&self, name: Name) -> bool {
        self.parsed.members[name.0 as usize] && self.is_short(name)
    }

    /// Whether a name costs no more than one step to read.
    pub(crate) fn is_short(&self, name: Name) -> bool {
        self.name(name).len() <= 256
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

    /// The value of a variable: of a scope, of the context, or a global.
    pub(crate) fn variable(&mut self, name: Name) -> Value {
        if let Some(value) = self.lookup(name) {
            return value.clone();
        }
        let text = self.name(name);
        if let Some((name, id)) = globals::find(text)
            && (name != "strftime_now" || self.context.strftime_now.is_some())
        {
            return Value::object(Object::Function(name, id));
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

    /// Registers a list or namespace before it receives a value. It may then contain itself.
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

    /// Runs a closure in a new scope.
    pub(crate) fn in_scope<T>(
        &mut self,
        parent: ScopeId,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if self.scopes.len() > 100_000 {
            return limit_error("macros keep more than 100000 scopes");
        }
        let back = self.scopes.enter(parent);
        let result = run(self);
        self.scopes.leave(back);
        result
    }

    pub(super) fn in_new_scope<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let parent = self.scopes.current();
        self.in_scope(parent, run)
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
                let parent = self.scopes.current();
                return self.run_loop(code, &iterable, parent, 0);
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
                    return type_error(format!(
                        "sequence item 0: expected str instance, {found} found"
                    ));
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

    /// A block sees only the outermost variables unless it is scoped.
    fn run_block(&mut self, block: &Block) -> Result<Flow> {
        if let Some(name) = block.required {
            return type_error(format!("Required block '{}' not found", self.name(name)));
        }
        let parent = if block.scoped { self.scopes.current() } else { self.scopes.outermost() };
        self.in_scope(parent, |inner| inner.statements(&block.body))
    }

    /// `self.name()`
    pub(crate) fn call_block_of_self(&mut self, block: &Block) -> Result<Value> {
        let budget = Rc::clone(&self.budget);
        let (text, _) =
            budget.in_call(|| self.capture(|interpreter| interpreter.run_block(block)))?;
        Ok(Value::Text(text))
    }

    /// A tag that needs a loader. An empty name with `ignore missing` does nothing.
    fn load(&mut self, ignoring: Option<&Expr>) -> Result<()> {
        if let Some(of) = ignoring {
            let of = self.eval(of)?;
            if !of.defined()?.is_true() && of.as_text().is_none() {
                return Ok(());
            }
        }
        unsupported("no loader for this environment specified")
    }

    pub(crate) fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Name(name) => self.set(*name, value),
            Target::Attribute(name, attribute) => {
                let holder = self.variable(*name);
                let Value::Namespace(namespace) = &holder else {
                    return type_error("cannot assign attribute on non-namespace object");
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
                    Value::None | Value::Bool(_) | Value::Int(..) | Value::Float(..) => {
                        return type_error(format!(
                            "cannot unpack non-iterable {} object",
                            value.type_name()
                        ));
                    }
                    value => iterate::items(&self.budget, value)?,
                };
                if items.len() > targets.len() {
                    return type_error(format!(
                        "too many values to unpack (expected {})",
                        targets.len()
                    ));
                }
                if items.len() < targets.len() {
                    let message = format!(
                        "not enough values to unpack (expected {}, got {})",
                        targets.len(),
                        items.len()
                    );
                    return type_error(message);
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item)?;
                }
            }
        }
        Ok(())
    }
}
