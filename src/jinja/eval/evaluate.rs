//! Evaluates expressions.

use std::cmp::Ordering;
use std::rc::Rc;

use super::arguments::Args;
use super::borrowed::Borrowed;
use super::interpreter::Interpreter;
use super::{attribute, operators};
use crate::jinja::builtins::{filters, globals, is_tests, methods};
use crate::jinja::error::{Result, shown, type_error, unsupported};
use crate::jinja::syntax::ast::{
    Arguments, Arithmetic, BuiltinId, Comparison, Expr, ExprKind, Name,
};
use crate::jinja::value::runtime::Object;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Undefined, Value, compare, iterate, print};

/// The depth below which an expression is evaluated without a stack check.
pub(crate) const SHALLOW: u16 = 16;

/// The message of a condition without an `else`.
const NO_ELSE: &str =
    "the inline if-expression evaluated to false and no else section was defined.";

impl<'t> Interpreter<'t> {
    pub(crate) fn eval(&mut self, expr: &Expr) -> Result<Value> {
        self.budget.step(1)?;
        match &expr.kind {
            ExprKind::None => Ok(Value::None),
            ExprKind::Bool(flag) => Ok(Value::Bool(*flag)),
            ExprKind::Int(number) => Ok(Value::int(*number)),
            ExprKind::Float(number) => Ok(Value::float(*number)),
            ExprKind::Big(number) => Ok(Value::charged_integer(&self.budget, number.clone())),
            ExprKind::Str(name) => Ok(Value::Text(self.text(*name))),
            ExprKind::Name(name) => Ok(self.variable(*name)),
            ExprKind::Captured => Ok(self.captured.last().cloned().unwrap_or(Value::None)),
            _ => {
                // A shallow expression cannot exhaust the stack. Calls check the stack themselves.
                let value = if expr.depth < SHALLOW {
                    self.compound(expr)
                } else {
                    let budget = Rc::clone(&self.budget);
                    budget.nested(|| self.compound(expr))
                };
                value.map_err(|error| error.at(expr.line))
            }
        }
    }

    fn compound(&mut self, expr: &Expr) -> Result<Value> {
        match &expr.kind {
            ExprKind::Attr(of, name) => {
                let of = self.eval(of)?;
                attribute::attribute(self, &of, self.name(*name), |interpreter| {
                    interpreter.text(*name)
                })
            }
            ExprKind::Item(of, index) => {
                let of = self.eval(of)?;
                if let (Value::Dict(dict), Some(name)) = (&of, self.constant(index)?)
                    && let Some(value) = dict.get_name(name)
                {
                    return Ok(value.clone());
                }
                let index = self.eval(index)?;
                attribute::item(self, &of, &index)
            }
            ExprKind::Call(..) => self.eval_call(expr, None),
            ExprKind::And(sides) => {
                let left = self.eval(&sides.0)?;
                if left.is_true() { self.eval(&sides.1) } else { Ok(left) }
            }
            ExprKind::Or(sides) => {
                let left = match self.eval_borrowed(&sides.0)? {
                    // `message.tool_calls or []`
                    Some(Borrowed::Missing) => return self.eval(&sides.1),
                    Some(Borrowed::Value(value)) => value.clone(),
                    None => self.eval(&sides.0)?,
                };
                if left.is_true() { Ok(left) } else { self.eval(&sides.1) }
            }
            ExprKind::Not(operand) => Ok(Value::Bool(!self.truth(operand)?)),
            ExprKind::Compare(first, rest) => self.comparison(first, rest).map(Value::Bool),
            ExprKind::Condition { test, then, otherwise } => {
                if self.truth(test)? {
                    self.eval(then)
                } else {
                    otherwise.as_ref().map_or_else(
                        || Ok(Value::undefined(Undefined::Other(NO_ELSE))),
                        |otherwise| self.eval(otherwise),
                    )
                }
            }
            ExprKind::Filter(operand, name, filter, arguments) => {
                self.apply_filter(operand, *name, *filter, arguments)
            }
            ExprKind::Test(operand, name, test, arguments) => {
                self.apply_test(operand, *name, *test, arguments)
            }
            ExprKind::Sum(operands) => self.sum(operands),
            ExprKind::Arithmetic(op, sides) => {
                let left = self.eval(&sides.0)?;
                let right = self.eval(&sides.1)?;
                operators::arithmetic(self, *op, &left, &right)
            }
            ExprKind::Concat(parts) => self.concat(parts),
            ExprKind::Slice(of, bounds) => self.slice(of, bounds),
            ExprKind::List(items) => {
                let items = self.values(items)?;
                Value::list(&self.budget, items)
            }
            ExprKind::Tuple(items) => {
                let items = self.values(items)?;
                Value::tuple(&self.budget, items)
            }
            ExprKind::Dict(entries) => self.dict(entries),
            ExprKind::Negative(operand) => {
                let value = self.eval(operand)?;
                operators::negative(&self.budget, &value)
            }
            ExprKind::Positive(operand) => {
                let value = self.eval(operand)?;
                operators::positive(&self.budget, &value)
            }
            _ => self.eval(expr),
        }
    }

    fn apply_filter(
        &mut self,
        operand: &Expr,
        name: Name,
        filter: Option<BuiltinId>,
        arguments: &Arguments,
    ) -> Result<Value> {
        let operand = self.eval(operand)?;
        let args = self.arguments(arguments)?;
        match filter {
            Some(filter) => filters::function(filter)(self, operand, args),
            None => unsupported(format!("No filter named '{}' found.", shown(self.name(name)))),
        }
    }

    fn apply_test(
        &mut self,
        operand: &Expr,
        name: Name,
        test: Option<BuiltinId>,
        arguments: &Arguments,
    ) -> Result<Value> {
        let operand = self.eval(operand)?;
        let args = self.arguments(arguments)?;
        match test {
            Some(test) => Ok(Value::Bool(is_tests::function(test)(self, &operand, args)?)),
            None => unsupported(format!("No test named '{}' found.", shown(self.name(name)))),
        }
    }

    fn slice(&mut self, of: &Expr, bounds: &[Option<Expr>; 3]) -> Result<Value> {
        let of = self.eval(of)?;
        let mut values = [Value::None, Value::None, Value::None];
        for (value, bound) in values.iter_mut().zip(bounds.iter()) {
            if let Some(bound) = bound {
                *value = self.eval(bound)?;
            }
        }
        operators::slice(&self.budget, &of, &values)
    }

    fn dict(&mut self, entries: &[(Expr, Expr)]) -> Result<Value> {
        let mut values = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            values.push((self.eval(key)?, self.eval(value)?));
        }
        Value::dict(&self.budget, values)
    }

    /// The text of a string literal, without creating a value.
    pub(crate) fn constant(&self, expr: &Expr) -> Result<Option<&'t str>> {
        let ExprKind::Str(name) = expr.kind else { return Ok(None) };
        let text = self.name(name);
        self.budget.step_bytes(text.len())?;
        Ok(Some(text))
    }

    /// `a + b + c`. Adjacent strings are joined in one pass, since prompts consist mostly of such
    /// sums.
    fn sum(&mut self, operands: &[Expr]) -> Result<Value> {
        let mut operands = operands.iter();
        let total = operands.next().map_or(Ok(Value::None), |first| self.eval(first))?;
        self.add(total, operands)
    }

    /// Adds further operands to a value.
    pub(crate) fn add<'e>(
        &mut self,
        mut total: Value,
        mut operands: impl Iterator<Item = &'e Expr>,
    ) -> Result<Value> {
        while let Some(operand) = operands.next() {
            let mut right = self.eval(operand)?;
            if let (Value::Text(left), Value::Text(first)) = (&total, &right)
                && !left.is_safe()
                && !first.is_safe()
            {
                let mut joined = TextBuilder::new(&self.budget);
                joined.reserve(left.len() + first.len())?;
                joined.push_text(left)?;
                while let Value::Text(text) = &right
                    && !text.is_safe()
                {
                    joined.push_text(text)?;
                    match operands.next() {
                        Some(operand) => right = self.eval(operand)?,
                        None => return Ok(Value::Text(joined.finish()?)),
                    }
                }
                total = Value::Text(joined.finish()?);
            }
            total = operators::arithmetic(self, Arithmetic::Add, &total, &right)?;
        }
        Ok(total)
    }

    fn values(&mut self, expressions: &[Expr]) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(expressions.len());
        for expression in expressions {
            values.push(self.eval(expression)?);
        }
        Ok(values)
    }

    fn concat(&mut self, parts: &[Expr]) -> Result<Value> {
        let values = self.values(parts)?;
        let mut texts = Vec::with_capacity(values.len());
        for value in &values {
            texts.push(if self.autoescape {
                crate::jinja::value::markup::escape(&self.budget, value)?
            } else {
                print::text(&self.budget, value)?
            });
        }
        // The result is escaped only if an operand is markup.
        let markup = self.autoescape
            && values.iter().any(|value| value.as_text().is_some_and(Text::is_safe));
        if self.autoescape && !markup {
            texts.clear();
            for value in &values {
                texts.push(print::text(&self.budget, value)?);
            }
        }
        let mut out = TextBuilder::new(&self.budget);
        out.reserve(texts.iter().map(|text| text.len()).sum())?;
        for text in &texts {
            out.push_text(text)?;
        }
        Ok(Value::Text(out.finish()?.with_safe(markup)))
    }

    pub(crate) fn comparison(&mut self, first: &Expr, rest: &[(Comparison, Expr)]) -> Result<bool> {
        if let Some(compared) = self.compare_text(first, rest)? {
            return Ok(compared);
        }
        let mut left = self.eval(first)?;
        for (op, right) in rest {
            let right = self.eval(right)?;
            if !self.compare(*op, &left, &right)? {
                return Ok(false);
            }
            left = right;
        }
        Ok(true)
    }

    pub(crate) fn compare(&mut self, op: Comparison, left: &Value, right: &Value) -> Result<bool> {
        let budget = &self.budget;
        let ordered = |symbol, accepts: fn(Ordering) -> bool| -> Result<bool> {
            Ok(compare::order(budget, left, right, symbol)?.is_some_and(accepts))
        };
        match op {
            Comparison::Equal => compare::equal(budget, left, right),
            Comparison::NotEqual => Ok(!compare::equal(budget, left, right)?),
            Comparison::Less => ordered("<", Ordering::is_lt),
            Comparison::LessEqual => ordered("<=", Ordering::is_le),
            Comparison::Greater => ordered(">", Ordering::is_gt),
            Comparison::GreaterEqual => ordered(">=", Ordering::is_ge),
            Comparison::In => compare::contains(budget, right, left),
            Comparison::NotIn => Ok(!compare::contains(budget, right, left)?),
        }
    }

    fn arguments(&mut self, arguments: &Arguments) -> Result<Args> {
        let mut positional = self.values(&arguments.positional)?;
        let mut named: Vec<(Text, Value)> = Vec::with_capacity(arguments.named.len());
        for (name, value) in &arguments.named {
            named.push((self.text(*name), self.eval(value)?));
        }
        if let Some(spread) = &arguments.spread {
            let spread = self.eval(spread)?;
            positional.extend(iterate::items(&self.budget, &spread)?);
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
            if extra.is_none() && methods::has(&of, self.name(*name)) {
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
            Object::Function(_, id) => globals::function(*id)(self, args),
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
}
