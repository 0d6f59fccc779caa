//! Evaluates variables and members by reference. Comparing, testing and printing them needs no
//! clone.

use super::evaluate::SHALLOW;
use super::interpreter::Interpreter;
use crate::jinja::error::Result;
use crate::jinja::syntax::ast::{Comparison, Expr, ExprKind};
use crate::jinja::value::Value;

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

impl Interpreter<'_> {
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
