//! Runs `for` loops.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::arguments::Args;
use super::interpreter::{Flow, Interpreter};
use crate::jinja::error::{Result, type_error, unsupported};
use crate::jinja::syntax::ast::For;
use crate::jinja::syntax::parser::LOOP;
use crate::jinja::value::runtime::{LoopObject, LoopSource, Object, ScopeId};
use crate::jinja::value::{Value, iterate};

impl Interpreter<'_> {
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
            source: RefCell::new(iterate::source(&self.budget, iterable)?),
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
