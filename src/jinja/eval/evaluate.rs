//! Evaluates expressions.
//!
//! Variables and members are evaluated by reference where that is possible: comparing, testing and
//! printing them needs no clone.

use std::rc::Rc;

use super::attribute;
use super::interpreter::Interpreter;
use crate::jinja::error::{Result, shown, unsupported};
use crate::jinja::syntax::ast::{
    Arguments, Arithmetic, BuiltinId, Comparison, Expr, ExprKind, Name,
};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Undefined, Value, markup, operators, print, sequence};

/// The depth below which an expression is evaluated without a stack check.
const SHALLOW: u16 = 16;

/// The message of a condition without an `else`.
const NO_ELSE: &str =
    "the inline if-expression evaluated to false and no else section was defined.";

/// The value of an expression, by reference.
pub(crate) enum Borrowed<'v> {
    Value(&'v Value),
    /// The dict has no such member.
    Missing,
}

impl Borrowed<'_> {
    fn is_true(&self) -> bool {
        match self {
            Borrowed::Value(value) => value.is_true(),
            Borrowed::Missing => false,
        }
    }
}

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
                operators::arithmetic(&self.budget, *op, &left, &right)
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
            Some(filter) => self.builtins.filters[usize::from(filter.0)].1(self, operand, args),
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
            Some(test) => {
                Ok(Value::Bool(self.builtins.tests[usize::from(test.0)].1(self, &operand, args)?))
            }
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
        sequence::slice(&self.budget, &of, &values)
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
            total = operators::arithmetic(&self.budget, Arithmetic::Add, &total, &right)?;
        }
        Ok(total)
    }

    pub(super) fn values(&mut self, expressions: &[Expr]) -> Result<Vec<Value>> {
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
                markup::escape(&self.budget, value)?
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
            if !operators::compare(&self.budget, *op, &left, &right)? {
                return Ok(false);
            }
            left = right;
        }
        Ok(true)
    }

    /// The variable or member that an expression names. None if the expression must be evaluated.
    pub(crate) fn eval_borrowed(&self, expr: &Expr) -> Result<Option<Borrowed<'_>>> {
        if expr.depth >= SHALLOW {
            return Ok(None);
        }
        let found = self.find_borrowed(expr);
        if found.is_some() {
            // One step for each level.
            self.budget.step(u64::from(expr.depth))?;
        }
        Ok(found)
    }

    fn find_borrowed(&self, expr: &Expr) -> Option<Borrowed<'_>> {
        match &expr.kind {
            ExprKind::Name(name) => self.lookup(*name).map(Borrowed::Value),
            ExprKind::Attr(of, name) if self.is_member(*name) => {
                let Borrowed::Value(Value::Dict(dict)) = self.find_borrowed(of)? else {
                    return None;
                };
                Some(dict.get_name(self.name(*name)).map_or(Borrowed::Missing, Borrowed::Value))
            }
            // A missing member may be an attribute.
            ExprKind::Item(of, index) => {
                let ExprKind::Str(name) = index.kind else { return None };
                if !self.is_short(name) {
                    return None;
                }
                let Borrowed::Value(Value::Dict(dict)) = self.find_borrowed(of)? else {
                    return None;
                };
                dict.get_name(self.name(name)).map(Borrowed::Value)
            }
            _ => None,
        }
    }

    /// Whether an expression is true.
    pub(crate) fn truth(&mut self, expr: &Expr) -> Result<bool> {
        match &expr.kind {
            _ if expr.depth >= SHALLOW => {}
            ExprKind::Not(operand) => return self.truth(operand).map(|is_true| !is_true),
            ExprKind::And(sides) => return Ok(self.truth(&sides.0)? && self.truth(&sides.1)?),
            ExprKind::Or(sides) => return Ok(self.truth(&sides.0)? || self.truth(&sides.1)?),
            ExprKind::Compare(first, rest) => {
                return self.comparison(first, rest).map_err(|error| error.at(expr.line));
            }
            _ => {
                if let Some(value) = self.eval_borrowed(expr)? {
                    return Ok(value.is_true());
                }
            }
        }
        Ok(self.eval(expr)?.is_true())
    }

    /// `first == "x"` and `first != "x"`, where `first` names a string.
    pub(crate) fn compare_text(
        &self,
        first: &Expr,
        rest: &[(Comparison, Expr)],
    ) -> Result<Option<bool>> {
        let [(op @ (Comparison::Equal | Comparison::NotEqual), right)] = rest else {
            return Ok(None);
        };
        let Some(right) = self.constant(right)? else { return Ok(None) };
        let Some(Borrowed::Value(Value::Text(left))) = self.eval_borrowed(first)? else {
            return Ok(None);
        };
        Ok(Some(left.eq_str(right) == (*op == Comparison::Equal)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::jinja::{Bounds, Budget, Context, Template};

    fn render(source: &str) -> Result<String, String> {
        let bounds = Bounds {
            fuel: 1 << 20,
            output_bytes: 1 << 20,
            recursion: 500,
            memory_bytes: 1 << 20,
            time: Duration::from_secs(60),
        };
        let variables = vec![("given".into(), crate::jinja::Value::Bool(true))];
        let context = Context { variables, strftime_now: None, log: None };
        let rendered = Template::compile(source)
            .and_then(|template| template.render(context, &Budget::new(bounds)));
        rendered.map(|rendered| rendered.text).map_err(|error| error.message().to_owned())
    }

    /// The expected output is that of the sandbox of Jinja2 3.1.
    #[test]
    fn borrowed_members_behave_like_values() {
        let member = "{% set m = {'role': 'user', 'content': '', 'items': 1, 'keys': 0, '_x': 2, 'n': 0, 't': 'user'} %}";
        for (source, expected) in [
            (
                "{{ m.role == 'user' }} {{ m.role != 'user' }} {{ m['role'] == 'user' }}",
                "True False True",
            ),
            (
                "{{ m.none == 'user' }} {{ m.none != 'user' }} {{ m.none == m.other }}",
                "False True True",
            ),
            ("{{ m['items'] == '1' }} {{ m.n == 0 }} {{ m.n == '0' }}", "False True False"),
            ("{{ 1 if m.role == 'user' == m.t else 2 }}", "1"),
            ("{% if m.items %}y{% else %}n{% endif %}", "y"),
            (
                "{% if m.keys %}y{% else %}n{% endif %}{% if m['keys'] %}y{% else %}n{% endif %}",
                "yn",
            ),
            (
                "{% if m._x %}y{% else %}n{% endif %}{% if m.__class__ %}y{% else %}n{% endif %}",
                "yn",
            ),
            ("{% if m.none %}y{% else %}n{% endif %}{% if nothing %}y{% else %}n{% endif %}", "nn"),
            (
                "{% if given and not m.content and (m.n or m.role == 'user') %}y{% else %}n{% endif %}",
                "y",
            ),
            (
                "{{ m.none or 'x' }}{{ m.content or 'y' }}{{ m.n or m.none }}{{ m.clear or 'z' }}",
                "xyz",
            ),
            ("{{ 'a' + m.role + m.content + 'b' }}", "auserb"),
            ("{% for x in m.none or [] %}{{ x }}{% else %}none{% endfor %}", "none"),
            ("{% for x in [] recursive %}x{% else %}{{ loop is defined }}{% endfor %}", "False"),
        ] {
            assert_eq!(render(&format!("{member}{source}")).as_deref(), Ok(expected), "{source}");
        }
        for source in
            ["{% if m.none.x %}y{% endif %}", "{{ m.none.x == 'y' }}", "{{ m.none['x'] or 'y' }}"]
        {
            let error = render(&format!("{member}{source}")).expect_err(source);
            assert_eq!(error, "'dict object' has no attribute 'none'", "{source}");
        }
    }
}
