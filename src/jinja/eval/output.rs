//! Prints values and captures the output of blocks.

use std::rc::Rc;

use super::borrowed::Borrowed;
use super::interpreter::{Flow, Interpreter};
use super::operators;
use crate::jinja::error::{Result, TemplateError};
use crate::jinja::syntax::ast::{Arithmetic, Expr, ExprKind, Stmt};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Value, markup, print};

impl Interpreter<'_> {
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
                operators::arithmetic(self, Arithmetic::Add, &Value::Text(printed), &value)?
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
}
