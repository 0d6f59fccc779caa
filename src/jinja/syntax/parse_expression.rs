//! Parses expressions. Precedence, lowest first: conditions, `or`, `and`, `not`, comparisons, `+
//! -`, `~`, `* /
//!
//! %`, `**`, signs.

use num_traits::ToPrimitive;

use super::ast::{Arithmetic, Comparison, Expr, ExprKind};
use super::lexer::TokenKind;
use super::parser::{TemplateParser, deepest};
use crate::jinja::error::{Result, TemplateError};

impl TemplateParser {
    pub(crate) fn parse_expression(&mut self) -> Result<Expr> {
        self.nested(Self::parse_condition)
    }

    /// An expression, or comma-separated expressions that form a tuple.
    pub(crate) fn parse_tuple(&mut self, conditions: bool) -> Result<Expr> {
        self.nested(|parser| parser.parse_tuple_items(conditions, false))
    }

    fn parse_tuple_items(&mut self, conditions: bool, parenthesised: bool) -> Result<Expr> {
        let line = self.line();
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if matches!(
                self.peek(),
                TokenKind::VariableEnd | TokenKind::BlockEnd | TokenKind::Op(")")
            ) {
                break;
            }
            items.push(if conditions { self.parse_condition()? } else { self.parse_or()? });
            if self.is_op(",") {
                is_tuple = true;
            } else {
                break;
            }
        }
        if !is_tuple {
            if let Some(only) = items.pop() {
                return Ok(only);
            }
            if !parenthesised {
                return self
                    .fail(format!("Expected an expression, got '{}'", self.peek().describe()));
            }
        }
        let depth = deepest(&items);
        self.node(line, depth, ExprKind::Tuple(items))
    }

    /// `a if b else c`
    pub(crate) fn parse_condition(&mut self) -> Result<Expr> {
        let line = self.line();
        let outer = self.unknown.take();
        let mut then = self.parse_or()?;
        while self.skip_word("if") {
            // The whole condition is lenient, including the part before `if`.
            self.unknown = None;
            let test = self.lenient(Self::parse_or)?;
            let otherwise = if self.skip_word("else") {
                Some(Box::new(self.lenient(|parser| parser.nested(Self::parse_condition))?))
            } else {
                None
            };
            let depth =
                then.depth.max(test.depth).max(otherwise.as_ref().map_or(0, |expr| expr.depth));
            then = self.node(
                line,
                depth,
                ExprKind::Condition { test: Box::new(test), then: Box::new(then), otherwise },
            )?;
        }
        self.unknown = outer.or(self.unknown.take());
        Ok(then)
    }

    fn parse_or(&mut self) -> Result<Expr> {
        let line = self.line();
        let mut left = self.parse_and()?;
        while self.skip_word("or") {
            let right = self.parse_and()?;
            left = self.node(
                line,
                left.depth.max(right.depth),
                ExprKind::Or(Box::new((left, right))),
            )?;
        }
        Ok(left)
    }

    fn parse_and(&mut self) -> Result<Expr> {
        let line = self.line();
        let mut left = self.parse_not()?;
        while self.skip_word("and") {
            let right = self.parse_not()?;
            left = self.node(
                line,
                left.depth.max(right.depth),
                ExprKind::And(Box::new((left, right))),
            )?;
        }
        Ok(left)
    }

    fn parse_not(&mut self) -> Result<Expr> {
        let line = self.line();
        if self.skip_word("not") {
            let operand = self.nested(Self::parse_not)?;
            return self.node(line, operand.depth, ExprKind::Not(Box::new(operand)));
        }
        self.parse_comparison()
    }

    fn parse_comparison(&mut self) -> Result<Expr> {
        let line = self.line();
        let first = self.parse_sum()?;
        let mut rest = Vec::new();
        loop {
            let op = match self.peek() {
                TokenKind::Op("==") => Comparison::Equal,
                TokenKind::Op("!=") => Comparison::NotEqual,
                TokenKind::Op("<") => Comparison::Less,
                TokenKind::Op("<=") => Comparison::LessEqual,
                TokenKind::Op(">") => Comparison::Greater,
                TokenKind::Op(">=") => Comparison::GreaterEqual,
                TokenKind::Name(word) if word == "in" => Comparison::In,
                TokenKind::Name(word) if word == "not" => match self.peek_after() {
                    TokenKind::Name(word) if word == "in" => {
                        self.next();
                        Comparison::NotIn
                    }
                    _ => break,
                },
                _ => break,
            };
            self.next();
            rest.push((op, self.parse_sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let depth = first.depth.max(deepest(rest.iter().map(|(_, operand)| operand)));
        self.node(line, depth, ExprKind::Compare(Box::new(first), rest))
    }

    fn parse_sum(&mut self) -> Result<Expr> {
        self.parse_binary(Self::parse_concat, &[("+", Arithmetic::Add), ("-", Arithmetic::Sub)])
    }

    fn parse_concat(&mut self) -> Result<Expr> {
        let line = self.line();
        let mut parts = vec![self.parse_product()?];
        while self.skip_op("~") {
            parts.push(self.parse_product()?);
        }
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return Ok(only);
        }
        let depth = deepest(&parts);
        self.node(line, depth, ExprKind::Concat(parts))
    }

    fn parse_product(&mut self) -> Result<Expr> {
        let operators = [
            ("*", Arithmetic::Mul),
            ("/", Arithmetic::Div),
            ("//", Arithmetic::FloorDiv),
            ("%", Arithmetic::Mod),
        ];
        self.parse_binary(Self::parse_power, &operators)
    }

    fn parse_power(&mut self) -> Result<Expr> {
        self.parse_binary(|parser| parser.parse_unary(true), &[("**", Arithmetic::Pow)])
    }

    fn parse_binary(
        &mut self,
        operand: fn(&mut Self) -> Result<Expr>,
        operators: &[(&str, Arithmetic)],
    ) -> Result<Expr> {
        let line = self.line();
        let mut left = operand(self)?;
        while let Some((_, op)) = operators.iter().find(|(symbol, _)| self.is_op(symbol)) {
            self.next();
            let right = operand(self)?;
            left = match op {
                Arithmetic::Add => self.added(line, left, right)?,
                op => self.node(
                    line,
                    left.depth.max(right.depth),
                    ExprKind::Arithmetic(*op, Box::new((left, right))),
                )?,
            };
        }
        Ok(left)
    }

    /// Appends an operand to a sum.
    fn added(&self, line: u32, left: Expr, right: Expr) -> Result<Expr> {
        let Expr { kind, depth, .. } = left;
        match kind {
            ExprKind::Sum(mut operands) => {
                let deepest = depth.saturating_sub(1).max(right.depth);
                operands.push(right);
                self.node(line, deepest, ExprKind::Sum(operands))
            }
            kind => self.node(
                line,
                depth.max(right.depth),
                ExprKind::Sum(vec![Expr { kind, ..left }, right]),
            ),
        }
    }

    fn parse_unary(&mut self, filters: bool) -> Result<Expr> {
        let line = self.line();
        let operand = if self.skip_op("-") {
            let operand = self.nested(|parser| parser.parse_unary(false))?;
            self.node(line, operand.depth, ExprKind::Negative(Box::new(operand)))?
        } else if self.skip_op("+") {
            let operand = self.nested(|parser| parser.parse_unary(false))?;
            self.node(line, operand.depth, ExprKind::Positive(Box::new(operand)))?
        } else {
            self.parse_primary()?
        };
        let operand = self.parse_postfix(operand)?;
        if filters { self.parse_filters_and_tests(operand) } else { Ok(operand) }
    }

    pub(crate) fn parse_primary(&mut self) -> Result<Expr> {
        let line = self.line();
        let kind = match self.next() {
            TokenKind::Name(word) => match word.as_str() {
                "true" | "True" => ExprKind::Bool(true),
                "false" | "False" => ExprKind::Bool(false),
                "none" | "None" => ExprKind::None,
                name => {
                    match name {
                        "loop" => self.uses.loop_ = true,
                        "caller" => self.uses.caller = true,
                        "varargs" => self.uses.varargs = true,
                        "kwargs" => self.uses.kwargs = true,
                        _ => {}
                    }
                    ExprKind::Name(self.name(name))
                }
            },
            TokenKind::Str(mut text) => {
                while let TokenKind::Str(more) = self.peek() {
                    text.push_str(more);
                    self.next();
                }
                ExprKind::Str(self.name(&text))
            }
            TokenKind::Int(number) => match number.to_i64() {
                Some(small) => ExprKind::Int(small),
                None => ExprKind::Big(number),
            },
            TokenKind::Float(number) => ExprKind::Float(number),
            TokenKind::Op("(") => {
                let inner = self.nested(|parser| parser.parse_tuple_items(true, true))?;
                self.expect_op(")")?;
                return Ok(inner);
            }
            TokenKind::Op("[") => {
                let mut items = Vec::new();
                while !self.is_op("]") {
                    if !items.is_empty() {
                        self.expect_op(",")?;
                    }
                    if self.is_op("]") {
                        break;
                    }
                    items.push(self.parse_expression()?);
                }
                self.expect_op("]")?;
                let depth = deepest(&items);
                return self.node(line, depth, ExprKind::List(items));
            }
            TokenKind::Op("{") => {
                let mut entries = Vec::new();
                while !self.is_op("}") {
                    if !entries.is_empty() {
                        self.expect_op(",")?;
                    }
                    if self.is_op("}") {
                        break;
                    }
                    let key = self.parse_expression()?;
                    self.expect_op(":")?;
                    entries.push((key, self.parse_expression()?));
                }
                self.expect_op("}")?;
                let depth = deepest(entries.iter().flat_map(|(key, value)| [key, value]));
                return self.node(line, depth, ExprKind::Dict(entries));
            }
            TokenKind::End => return self.fail("unexpected 'end of template'"),
            other => {
                return Err(TemplateError::syntax(
                    format!("unexpected '{}'", other.describe()),
                    line,
                ));
            }
        };
        self.node(line, 0, kind)
    }
}
