//! Parses what follows an operand: subscripts, calls, filters and tests.

use std::collections::HashSet;

use num_traits::ToPrimitive;

use super::ast::{Arguments, Expr, ExprKind};
use super::lexer::TokenKind;
use super::parser::{TemplateParser, deepest, deepest_argument};
use crate::jinja::error::{Result, TemplateError};

impl TemplateParser {
    pub(crate) fn parse_postfix(&mut self, mut operand: Expr) -> Result<Expr> {
        loop {
            operand = match self.peek() {
                TokenKind::Op("." | "[") => self.parse_subscript(operand)?,
                TokenKind::Op("(") => self.parse_call(operand)?,
                _ => return Ok(operand),
            };
        }
    }

    pub(crate) fn parse_filters_and_tests(&mut self, mut operand: Expr) -> Result<Expr> {
        loop {
            operand = match self.peek() {
                TokenKind::Op("|") => self.parse_filter_chain(operand, false)?,
                TokenKind::Name(word) if word == "is" => self.parse_test(operand)?,
                TokenKind::Op("(") => self.parse_call(operand)?,
                _ => return Ok(operand),
            };
        }
    }

    fn parse_subscript(&mut self, operand: Expr) -> Result<Expr> {
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
            match self.nested(Self::parse_subscript_part)? {
                SubscriptPart::Index(index) => parts.push(index),
                SubscriptPart::Slice(bounds) if parts.is_empty() && slice.is_none() => {
                    slice = Some(bounds)
                }
                SubscriptPart::Slice(_) => {
                    return self.fail("a slice among other indices is not supported");
                }
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

    fn parse_subscript_part(&mut self) -> Result<SubscriptPart> {
        let start = if self.is_op(":") {
            None
        } else {
            let index = self.parse_condition()?;
            if !self.is_op(":") {
                return Ok(SubscriptPart::Index(index));
            }
            Some(index)
        };
        self.expect_op(":")?;
        let ended = |parser: &Self| parser.is_op(":") || parser.is_op("]") || parser.is_op(",");
        let stop = if ended(self) { None } else { Some(self.parse_condition()?) };
        let step =
            if self.skip_op(":") && !ended(self) { Some(self.parse_condition()?) } else { None };
        Ok(SubscriptPart::Slice(Box::new([start, stop, step])))
    }

    fn parse_call(&mut self, operand: Expr) -> Result<Expr> {
        let line = self.line();
        let arguments = self.parse_arguments()?;
        let depth = operand.depth.max(deepest_argument(&arguments));
        self.node(line, depth, ExprKind::Call(Box::new(operand), arguments))
    }

    fn parse_arguments(&mut self) -> Result<Arguments> {
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
                arguments.spread = Some(Box::new(self.parse_expression()?));
                !spread && !spread_named
            } else if self.skip_op("**") {
                arguments.spread_named = Some(Box::new(self.parse_expression()?));
                !spread_named
            } else if named {
                let name = self.expect_name()?;
                self.expect_op("=")?;
                if !known.insert(name) {
                    return self.fail(format!("keyword argument repeated: {}", self.text(name)));
                }
                arguments.named.push((name, self.parse_expression()?));
                !spread_named
            } else {
                arguments.positional.push(self.parse_expression()?);
                !spread && !spread_named && arguments.named.is_empty()
            };
            if !valid {
                return self.fail("invalid syntax for function call expression");
            }
        }
        self.expect_op(")")?;
        Ok(arguments)
    }

    /// `|filter|filter…`. With `inline`, as in a filter tag, the first filter has no bar.
    pub(crate) fn parse_filter_chain(
        &mut self,
        mut operand: Expr,
        mut inline: bool,
    ) -> Result<Expr> {
        while inline || self.is_op("|") {
            if !inline {
                self.next();
            }
            inline = false;
            let line = self.line();
            let name = self.parse_dotted_name()?;
            let arguments =
                if self.is_op("(") { self.parse_arguments()? } else { Arguments::default() };
            let filter = (self.builtins.filter)(&name);
            if filter.is_none() {
                self.unknown.get_or_insert(
                    TemplateError::unsupported(format!("No filter named '{name}'.")).at(line),
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

    fn parse_dotted_name(&mut self) -> Result<String> {
        let name = self.expect_name()?;
        let mut name = self.text(name).to_owned();
        while self.skip_op(".") {
            let part = self.expect_name()?;
            name.push('.');
            name.push_str(self.text(part));
        }
        Ok(name)
    }

    fn parse_test(&mut self, operand: Expr) -> Result<Expr> {
        let line = self.line();
        self.next();
        let negated = self.skip_word("not");
        let name = self.parse_dotted_name()?;
        let arguments = match self.peek() {
            TokenKind::Op("(") => self.parse_arguments()?,
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
                let argument = self.nested(|parser| {
                    let argument = parser.parse_primary()?;
                    parser.parse_postfix(argument)
                })?;
                Arguments { positional: vec![argument], ..Arguments::default() }
            }
            _ => Arguments::default(),
        };
        let test = (self.builtins.test)(&name);
        if test.is_none() {
            self.unknown.get_or_insert(
                TemplateError::unsupported(format!("No test named '{name}'.")).at(line),
            );
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

/// One index or slice of a subscript.
enum SubscriptPart {
    Index(Expr),
    Slice(Box<[Option<Expr>; 3]>),
}
