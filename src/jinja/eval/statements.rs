//! Runs statements: what they print, capture and assign, and `for` loops.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::attribute;
use super::evaluate::Borrowed;
use super::interpreter::Interpreter;
use crate::jinja::error::{Result, TemplateError, type_error, unsupported};
use crate::jinja::syntax::ast::{Arithmetic, Block, Expr, ExprKind, For, Stmt, StmtKind, Target};
use crate::jinja::syntax::parser::LOOP;
use crate::jinja::value::arguments::Args;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{
    LoopObject, LoopSource, Object, ScopeId, Value, markup, operators, print, sequence,
};

/// How a statement ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Break,
    Continue,
}

impl Interpreter<'_> {
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
                    value => sequence::items(&self.budget, value)?,
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

    pub(super) fn write(&mut self, value: &Value) -> Result<()> {
        let budget = Rc::clone(&self.budget);
        let Some(out) = self.out.last_mut() else { return Ok(()) };
        if self.autoescape {
            let text = markup::escape(&budget, value)?;
            return out.push_text(&text);
        }
        print::write(out, &budget, value)
    }

    /// Runs a closure and returns the text that it prints.
    pub(super) fn capture(
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

    /// Prints a value. The operands of a sum of strings are printed one by one instead of joined.
    pub(super) fn print(&mut self, expr: &Expr) -> Result<()> {
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
        while let Some((position, operand)) = rest.next() {
            let Some(value) = self.print_text(operand)? else { continue };
            let total = if position == 0 {
                value
            } else {
                // The text printed so far becomes the left operand.
                let printed = self.out.last_mut().map(|out| out.split_off(start));
                let printed = printed
                    .ok_or_else(|| TemplateError::value("the printed text is missing"))??;
                operators::arithmetic(&self.budget, Arithmetic::Add, &Value::Text(printed), &value)?
            };
            let total = self.add(total, rest.map(|(_, operand)| operand))?;
            return self.write(&total);
        }
        Ok(())
    }

    /// Prints a plain string. Returns any other value.
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

    pub(super) fn generation(&mut self, body: &[Stmt]) -> Result<Flow> {
        let length = |interpreter: &Self| interpreter.out.last().map_or(0, TextBuilder::len);
        let start = length(self);
        let flow = self.in_new_scope(|inner| inner.statements(body))?;
        if self.out.len() == 1 {
            let end = length(self);
            self.generation.push(start..end);
        }
        Ok(flow)
    }

    pub(super) fn capture_inner(&mut self, body: &[Stmt]) -> Result<(Text, Flow)> {
        self.capture(|interpreter| interpreter.in_new_scope(|inner| inner.statements(body)))
    }

    /// Evaluates a filter whose innermost operand is a captured text.
    pub(super) fn filtered(&mut self, filter: &Expr, text: Text) -> Result<Value> {
        self.captured.push(Value::Text(text));
        let value = self.eval(filter);
        self.captured.pop();
        value
    }

    /// Runs a loop in the scope `parent`. `depth` counts the calls of a recursive loop.
    pub(crate) fn run_loop(
        &mut self,
        code: &Arc<For>,
        iterable: &Value,
        parent: ScopeId,
        depth: usize,
    ) -> Result<Flow> {
        // A fast path for empty lists: most messages have no tool calls.
        if matches!(iterable, Value::List(list) if list.items().is_empty()) {
            return self.in_scope(parent, |inner| inner.statements(&code.otherwise));
        }
        let state = Rc::new(Object::Loop(LoopObject {
            code: Arc::clone(code),
            scope: parent,
            source: RefCell::new(sequence::source(&self.budget, iterable)?),
            lookahead: RefCell::new(VecDeque::new()),
            previous: RefCell::new(None),
            current: RefCell::new(None),
            count: Cell::new(0),
            depth,
            last_changed: RefCell::new(None),
        }));
        let Object::Loop(of) = &*state else { return Ok(Flow::Next) };
        let completed = self.run_iterations(code, &state, of);
        // The scope of the loop ends. A generator keeps the items that are left.
        of.source.replace(LoopSource::Ended);
        if completed? {
            Ok(Flow::Next)
        } else {
            self.in_scope(parent, |inner| inner.statements(&code.otherwise))
        }
    }

    /// Runs the body for each item. Returns whether an iteration completed without `break` or
    /// `continue`.
    fn run_iterations(
        &mut self,
        code: &Arc<For>,
        state: &Rc<Object>,
        of: &LoopObject,
    ) -> Result<bool> {
        let mut completed = false;
        while let Some(item) = self.advance(of)? {
            let flow = self.in_scope(of.scope, |inner| {
                if code.uses_loop {
                    inner.set(LOOP, Value::Object(Rc::clone(state)));
                }
                inner.assign(&code.target, item)?;
                inner.statements(&code.body)
            })?;
            match flow {
                Flow::Next => completed = true,
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        Ok(completed)
    }

    /// Calls a recursive loop with other items.
    pub(crate) fn call_loop(&mut self, of: &LoopObject, args: Args) -> Result<Value> {
        let [iterable] = args.required("loop", ["iterable"])?;
        if !of.code.recursive {
            return type_error(
                "The loop must have the 'recursive' marker to be called recursively.",
            );
        }
        if matches!(*of.source.borrow(), LoopSource::Ended) {
            return unsupported("a loop is called after its end");
        }
        let budget = Rc::clone(&self.budget);
        let (text, _) = budget.in_call(|| {
            self.capture(|interpreter| {
                interpreter.run_loop(&of.code, &iterable, of.scope, of.depth + 1)
            })
        })?;
        Ok(Value::Text(text))
    }

    /// Makes the next item the current one.
    fn advance(&mut self, of: &LoopObject) -> Result<Option<Value>> {
        let lookahead = of.lookahead.borrow_mut().pop_front();
        let next = match lookahead {
            Some(item) => Some(item),
            None => self.pull(of)?,
        };
        if let Some(item) = &next {
            of.count.set(of.count.get() + 1);
            of.previous.replace(of.current.replace(Some(item.clone())));
        }
        Ok(next)
    }

    /// The next item that passes the condition of the loop.
    fn pull(&mut self, of: &LoopObject) -> Result<Option<Value>> {
        loop {
            self.budget.step(1)?;
            let Some(item) = self.pull_any(of)? else { return Ok(None) };
            let Some(test) = &of.code.test else { return Ok(Some(item)) };
            let kept = self.in_scope(of.scope, |inner| {
                inner.assign(&of.code.target, item.clone())?;
                inner.truth(test)
            })?;
            if kept {
                return Ok(Some(item));
            }
        }
    }

    fn pull_any(&mut self, of: &LoopObject) -> Result<Option<Value>> {
        let shared = match &mut *of.source.borrow_mut() {
            LoopSource::Items { rest, .. } => return Ok(rest.next()),
            LoopSource::Shared(object) => Rc::clone(object),
            LoopSource::Ended => return Ok(None),
        };
        match &*shared {
            Object::Generator(generator) => generator.next(),
            // A loop over a `loop` object yields its items, each with the object.
            Object::Loop(outer) => match self.advance(outer)? {
                Some(item) => {
                    Value::tuple(&self.budget, vec![item, Value::Object(Rc::clone(&shared))])
                        .map(Some)
                }
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The item after the current one.
    pub(crate) fn peek(&mut self, of: &LoopObject) -> Result<Option<Value>> {
        if of.lookahead.borrow().is_empty() {
            let next = self.pull(of)?;
            of.lookahead.borrow_mut().extend(next);
        }
        Ok(of.lookahead.borrow().front().cloned())
    }

    /// The number of items. Pulls all of them if it is unknown.
    pub(crate) fn loop_length(&mut self, of: &LoopObject) -> Result<usize> {
        if let Some(length) = of.known_length() {
            return Ok(length);
        }
        while let Some(item) = self.pull(of)? {
            self.budget.can_allocate(of.lookahead.borrow().len() * 2 * size_of::<Value>())?;
            of.lookahead.borrow_mut().push_back(item);
        }
        Ok(of.count.get() + of.lookahead.borrow().len())
    }
}
