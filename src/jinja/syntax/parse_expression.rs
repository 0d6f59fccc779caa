//! Tokens to expressions, with the precedence of Jinja2: `or`, `and`, `not`, comparisons, `+ -`,
//! `~`, `* / // %`, `**`, signs, subscripts and calls, filters and tests.

use std::collections::HashSet;

use num_traits::ToPrimitive;

use super::ast::{Arguments, Comparison, Expr, ExprKind};
use super::lexer::TokenKind;
use super::parser::{Parser, deepest, deepest_argument};
use crate::jinja::builtins::{filters, is_tests};
use crate::jinja::error::{Error, Result};
use crate::jinja::value::number::Arithmetic;

impl Parser {
    pub(crate) fn expression(&mut self) -> Result<Expr> {
        self.deeper(Self::condition)
    }

    /// An expression, or several with commas between them, which make a tuple.
    pub(crate) fn tuple(&mut self, conditions: bool) -> Result<Expr> {
        self.deeper(|parser| parser.tuple_items(conditions, false))
    }

    fn tuple_items(&mut self, conditions: bool, parenthesised: bool) -> Result<Expr> {
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
            items.push(if conditions { self.condition()? } else { self.or()? });
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
    fn condition(&mut self) -> Result<Expr> {
        let line = self.line();
        let around = self.unknown.take();
        let mut then = self.or()?;
        while self.skip_word("if") {
            // All of a condition is soft, what came before the `if` as well.
            self.unknown = None;
            let test = self.soft(Self::or)?;
            let otherwise = if self.skip_word("else") {
                Some(Box::new(self.soft(|parser| parser.deeper(Self::condition))?))
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
        self.unknown = around.or(self.unknown.take());
        Ok(then)
    }

    fn or(&mut self) -> Result<Expr> {
        let line = self.line();
        let mut left = self.and()?;
        while self.skip_word("or") {
            let right = self.and()?;
            left = self.node(
                line,
                left.depth.max(right.depth),
                ExprKind::Or(Box::new((left, right))),
            )?;
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr> {
        let line = self.line();
        let mut left = self.not()?;
        while self.skip_word("and") {
            let right = self.not()?;
            left = self.node(
                line,
                left.depth.max(right.depth),
                ExprKind::And(Box::new((left, right))),
            )?;
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr> {
        let line = self.line();
        if self.skip_word("not") {
            let operand = self.deeper(Self::not)?;
            return self.node(line, operand.depth, ExprKind::Not(Box::new(operand)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expr> {
        let line = self.line();
        let first = self.sum()?;
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
            rest.push((op, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let depth = first.depth.max(deepest(rest.iter().map(|(_, operand)| operand)));
        self.node(line, depth, ExprKind::Compare(Box::new(first), rest))
    }

    fn sum(&mut self) -> Result<Expr> {
        self.binary(Self::concat, &[("+", Arithmetic::Add), ("-", Arithmetic::Sub)])
    }

    fn concat(&mut self) -> Result<Expr> {
        let line = self.line();
        let mut parts = vec![self.product()?];
        while self.skip_op("~") {
            parts.push(self.product()?);
        }
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return Ok(only);
        }
        let depth = deepest(&parts);
        self.node(line, depth, ExprKind::Concat(parts))
    }

    fn product(&mut self) -> Result<Expr> {
        let operators = [
            ("*", Arithmetic::Mul),
            ("/", Arithmetic::Div),
            ("//", Arithmetic::FloorDiv),
            ("%", Arithmetic::Mod),
        ];
        self.binary(Self::power, &operators)
    }

    fn power(&mut self) -> Result<Expr> {
        self.binary(|parser| parser.unary(true), &[("**", Arithmetic::Pow)])
    }

    fn binary(
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

    /// A sum with one more operand.
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

    fn unary(&mut self, filters: bool) -> Result<Expr> {
        let line = self.line();
        let operand = if self.skip_op("-") {
            let operand = self.deeper(|parser| parser.unary(false))?;
            self.node(line, operand.depth, ExprKind::Negative(Box::new(operand)))?
        } else if self.skip_op("+") {
            let operand = self.deeper(|parser| parser.unary(false))?;
            self.node(line, operand.depth, ExprKind::Positive(Box::new(operand)))?
        } else {
            self.primary()?
        };
        let operand = self.postfix(operand)?;
        if filters { self.filters_and_tests(operand) } else { Ok(operand) }
    }

    fn primary(&mut self) -> Result<Expr> {
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
                let inner = self.deeper(|parser| parser.tuple_items(true, true))?;
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
                    items.push(self.expression()?);
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
                    let key = self.expression()?;
                    self.expect_op(":")?;
                    entries.push((key, self.expression()?));
                }
                self.expect_op("}")?;
                let depth = deepest(entries.iter().flat_map(|(key, value)| [key, value]));
                return self.node(line, depth, ExprKind::Dict(entries));
            }
            TokenKind::End => return self.fail("unexpected 'end of template'"),
            other => {
                return Err(Error::syntax(format!("unexpected '{}'", other.describe()), line));
            }
        };
        self.node(line, 0, kind)
    }

    fn postfix(&mut self, mut operand: Expr) -> Result<Expr> {
        loop {
            operand = match self.peek() {
                TokenKind::Op("." | "[") => self.subscript(operand)?,
                TokenKind::Op("(") => self.call(operand)?,
                _ => return Ok(operand),
            };
        }
    }

    fn filters_and_tests(&mut self, mut operand: Expr) -> Result<Expr> {
        loop {
            operand = match self.peek() {
                TokenKind::Op("|") => self.filter_chain(operand, false)?,
                TokenKind::Name(word) if word == "is" => self.test(operand)?,
                TokenKind::Op("(") => self.call(operand)?,
                _ => return Ok(operand),
            };
        }
    }

    fn subscript(&mut self, operand: Expr) -> Result<Expr> {
        let line = self.line();
        if self.skip_op(".") {
            let depth = operand.depth;
            return match self.next() {
                TokenKind::Name(name) => {
                    let name = self.name(&name);
                    self.node(line, depth, ExprKind::Attr(Box::new(operand), name))
                }
                TokenKind::Int(number) => {
                    let index =
                        self.node(line, 0, ExprKind::Int(number.to_i64().unwrap_or(i64::MAX)))?;
                    self.node(line, depth, ExprKind::Item(Box::new(operand), Box::new(index)))
                }
                _ => self.fail("expected name or number"),
            };
        }
        self.expect_op("[")?;
        let mut parts = Vec::new();
        let mut slice = None;
        while !self.is_op("]") {
            if !parts.is_empty() || slice.is_some() {
                self.expect_op(",")?;
            }
            match self.deeper(Self::subscript_part)? {
                Part::Index(index) => parts.push(index),
                Part::Slice(bounds) if parts.is_empty() && slice.is_none() => slice = Some(bounds),
                Part::Slice(_) => return self.fail("a slice among other indices is not supported"),
            }
        }
        self.expect_op("]")?;
        if let Some(bounds) = slice {
            if !parts.is_empty() {
                return self.fail("a slice among other indices is not supported");
            }
            let depth = operand.depth.max(deepest(bounds.iter().flatten()));
            return self.node(line, depth, ExprKind::Slice(Box::new(operand), bounds));
        }
        let depth = operand.depth.max(deepest(&parts));
        let index = match parts.pop() {
            Some(only) if parts.is_empty() => only,
            Some(last) => {
                parts.push(last);
                self.node(line, depth, ExprKind::Tuple(parts))?
            }
            None => self.node(line, 0, ExprKind::Tuple(parts))?,
        };
        self.node(line, depth.max(index.depth), ExprKind::Item(Box::new(operand), Box::new(index)))
    }

    fn subscript_part(&mut self) -> Result<Part> {
        let start = if self.is_op(":") {
            None
        } else {
            let index = self.condition()?;
            if !self.is_op(":") {
                return Ok(Part::Index(index));
            }
            Some(index)
        };
        self.expect_op(":")?;
        let ended = |parser: &Self| parser.is_op(":") || parser.is_op("]") || parser.is_op(",");
        let stop = if ended(self) { None } else { Some(self.condition()?) };
        let step = if self.skip_op(":") && !ended(self) { Some(self.condition()?) } else { None };
        Ok(Part::Slice(Box::new([start, stop, step])))
    }

    fn call(&mut self, operand: Expr) -> Result<Expr> {
        let line = self.line();
        let arguments = self.arguments()?;
        let depth = operand.depth.max(deepest_argument(&arguments));
        self.node(line, depth, ExprKind::Call(Box::new(operand), arguments))
    }

    fn arguments(&mut self) -> Result<Arguments> {
        self.expect_op("(")?;
        let mut arguments = Arguments::default();
        let mut known = HashSet::new();
        let mut first = true;
        while !self.is_op(")") {
            if !first {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            first = false;
            let spread = arguments.spread.is_some();
            let spread_named = arguments.spread_named.is_some();
            let named = matches!(
                (self.peek(), self.peek_after()),
                (TokenKind::Name(_), TokenKind::Op("="))
            );
            let valid = if self.skip_op("*") {
                arguments.spread = Some(Box::new(self.expression()?));
                !spread && !spread_named
            } else if self.skip_op("**") {
                arguments.spread_named = Some(Box::new(self.expression()?));
                !spread_named
            } else if named {
                let name = self.expect_name()?;
                self.expect_op("=")?;
                if !known.insert(name) {
                    return self.fail(format!("keyword argument repeated: {}", self.text(name)));
                }
                arguments.named.push((name, self.expression()?));
                !spread_named
            } else {
                arguments.positional.push(self.expression()?);
                !spread && !spread_named && arguments.named.is_empty()
            };
            if !valid {
                return self.fail("invalid syntax for function call expression");
            }
        }
        self.expect_op(")")?;
        Ok(arguments)
    }

    /// `|filter` as often as it comes; at the start of a filter tag the first has no bar.
    pub(crate) fn filter_chain(&mut self, mut operand: Expr, mut inline: bool) -> Result<Expr> {
        while inline || self.is_op("|") {
            if !inline {
                self.next();
            }
            inline = false;
            let line = self.line();
            let name = self.dotted_name()?;
            let arguments = if self.is_op("(") { self.arguments()? } else { Arguments::default() };
            let filter = filters::find(&name);
            if filter.is_none() {
                self.unknown.get_or_insert(
                    Error::unsupported(format!("No filter named '{name}'.")).at(line),
                );
            }
            let depth = operand.depth.max(deepest_argument(&arguments));
            let name = self.name(&name);
            operand = self.node(
                line,
                depth,
                ExprKind::Filter(Box::new(operand), name, filter, arguments),
            )?;
        }
        Ok(operand)
    }

    fn dotted_name(&mut self) -> Result<String> {
        let name = self.expect_name()?;
        let mut name = self.text(name).to_owned();
        while self.skip_op(".") {
            let part = self.expect_name()?;
            name.push('.');
            name.push_str(self.text(part));
        }
        Ok(name)
    }

    fn test(&mut self, operand: Expr) -> Result<Expr> {
        let line = self.line();
        self.next();
        let negated = self.skip_word("not");
        let name = self.dotted_name()?;
        let arguments = match self.peek() {
            TokenKind::Op("(") => self.arguments()?,
            TokenKind::Name(word) if matches!(word.as_str(), "else" | "or" | "and") => {
                Arguments::default()
            }
            TokenKind::Name(word) if word == "is" => {
                return self.fail("You cannot chain multiple tests with is");
            }
            TokenKind::Name(_)
            | TokenKind::Str(_)
            | TokenKind::Int(_)
            | TokenKind::Float(_)
            | TokenKind::Op("[" | "{") => {
                let argument = self.deeper(|parser| {
                    let argument = parser.primary()?;
                    parser.postfix(argument)
                })?;
                Arguments { positional: vec![argument], ..Arguments::default() }
            }
            _ => Arguments::default(),
        };
        let test = is_tests::find(&name);
        if test.is_none() {
            self.unknown
                .get_or_insert(Error::unsupported(format!("No test named '{name}'.")).at(line));
        }
        let depth = operand.depth.max(deepest_argument(&arguments));
        let name = self.name(&name);
        let tested =
            self.node(line, depth, ExprKind::Test(Box::new(operand), name, test, arguments))?;
        if negated {
            self.node(line, tested.depth, ExprKind::Not(Box::new(tested)))
        } else {
            Ok(tested)
        }
    }
}

/// A part of a subscript.
enum Part {
    Index(Expr),
    Slice(Box<[Option<Expr>; 3]>),
}
