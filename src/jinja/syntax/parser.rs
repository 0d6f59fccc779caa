//! The parser's state: tokens, the table of names, and the rules of the enclosing scopes. The
//! grammar is in `parse_statement`, `parse_expression` and `parse_postfix`.

use std::collections::HashMap;
use std::sync::Arc;

use super::ast::{Arguments, Block, BuiltinNames, Expr, ExprKind, Name, Stmt};
use super::lexer::{LexerToken, TokenKind, tokens};
use crate::jinja::error::{Result, TemplateError};

/// Maximum nesting of statements and of expressions.
pub(crate) const MAX_DEPTH: u16 = 150;
/// Maximum number of operations in a chain of operators.
const MAX_CHAIN: u16 = 400;

/// Stack that must be free at each level of the source, and the size of a new stack segment.
const RED_ZONE: usize = 128 << 10;
const MORE_STACK: usize = 1 << 20;
/// Names that the interpreter knows. They are the first in the table of names.
pub(crate) const LOOP: Name = Name(0);
pub(crate) const CALLER: Name = Name(1);
pub(crate) const VARARGS: Name = Name(2);
pub(crate) const KWARGS: Name = Name(3);

/// The result of parsing.
#[derive(Debug)]
pub(crate) struct ParsedTemplate {
    pub(crate) body: Vec<Stmt>,
    pub(crate) blocks: Vec<(Name, Arc<Block>)>,
    /// The texts that [`Name`] indexes.
    pub(crate) names: Vec<Box<str>>,
    /// For each name: whether it certainly reads a member of a dict ([`BuiltinNames::is_member`]).
    pub(crate) members: Vec<bool>,
}

pub(crate) fn parse(source: &str, builtins: &'static BuiltinNames) -> Result<ParsedTemplate> {
    let mut parser = TemplateParser {
        builtins,
        tokens: tokens(source)?,
        at: 0,
        names: Vec::new(),
        indices: HashMap::new(),
        depth: 0,
        unknown: None,
        missing: None,
        loops: 0,
        loop_stores: 0,
        blocks: Vec::new(),
        uses: Uses::default(),
        open: Vec::new(),
    };
    for special in ["loop", "caller", "varargs", "kwargs"] {
        parser.name(special);
    }
    let body = parser.parse_statements(&[])?;
    match parser.missing.or(parser.unknown) {
        Some(error) => Err(error),
        None => {
            let members = parser.names.iter().map(|name| (builtins.is_member)(name)).collect();
            Ok(ParsedTemplate { body, blocks: parser.blocks, names: parser.names, members })
        }
    }
}

/// The special names that a scope mentions.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Uses {
    pub(crate) loop_: bool,
    pub(crate) caller: bool,
    pub(crate) varargs: bool,
    pub(crate) kwargs: bool,
}

impl Uses {
    pub(crate) fn or(self, other: Uses) -> Uses {
        Uses {
            loop_: self.loop_ || other.loop_,
            caller: self.caller || other.caller,
            varargs: self.varargs || other.varargs,
            kwargs: self.kwargs || other.kwargs,
        }
    }
}

pub(crate) struct TemplateParser {
    pub(crate) builtins: &'static BuiltinNames,
    tokens: Vec<LexerToken>,
    pub(crate) at: usize,
    names: Vec<Box<str>>,
    indices: HashMap<Box<str>, Name>,
    pub(crate) depth: u16,
    /// The first unknown filter or test outside conditions. Inside a condition it fails only when
    /// applied.
    pub(crate) unknown: Option<TemplateError>,
    /// The first unknown filter or test that no enclosing condition excuses. Jinja2 compiles scopes
    /// inside conditions strictly.
    missing: Option<TemplateError>,
    /// The number of enclosing loops that `break` can leave.
    pub(crate) loops: usize,
    /// The number of targets called `loop` so far.
    pub(crate) loop_stores: usize,
    pub(crate) blocks: Vec<(Name, Arc<Block>)>,
    pub(crate) uses: Uses,
    /// The open tags, for messages.
    pub(crate) open: Vec<&'static str>,
}

impl TemplateParser {
    pub(crate) fn peek(&self) -> &TokenKind {
        &self.tokens[self.at].kind
    }

    pub(crate) fn peek_after(&self) -> &TokenKind {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].kind
    }

    pub(crate) fn line(&self) -> u32 {
        self.tokens[self.at].line
    }

    pub(crate) fn next(&mut self) -> TokenKind {
        let token = self.tokens[self.at].kind.clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(crate) fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(TemplateError::syntax(message, self.line()))
    }

    pub(crate) fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), TokenKind::Op(known) if *known == op)
    }

    pub(crate) fn skip_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        if found {
            self.at += 1;
        }
        found
    }

    pub(crate) fn expect_op(&mut self, op: &str) -> Result<()> {
        if self.skip_op(op) { Ok(()) } else { self.unexpected(op) }
    }

    pub(crate) fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        match self.peek() {
            TokenKind::End => {
                self.fail(format!("unexpected end of template, expected '{wanted}'."))
            }
            other => self.fail(format!("expected token '{wanted}', got '{}'", other.describe())),
        }
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), TokenKind::Name(name) if name == word)
    }

    pub(crate) fn skip_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.at += 1;
        }
        found
    }

    pub(crate) fn expect_name(&mut self) -> Result<Name> {
        match self.peek() {
            TokenKind::Name(name) => {
                let name = name.clone();
                self.at += 1;
                Ok(self.name(&name))
            }
            _ => self.unexpected("name"),
        }
    }

    /// The index of a text in the table of names.
    pub(crate) fn name(&mut self, text: &str) -> Name {
        if let Some(known) = self.indices.get(text) {
            return *known;
        }
        let name = Name(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(text.into());
        self.indices.insert(text.into(), name);
        name
    }

    pub(crate) fn text(&self, name: Name) -> &str {
        &self.names[name.0 as usize]
    }

    /// Creates an expression node. Rejects long chains of operators and subscripts, which nest to
    /// the left.
    pub(crate) fn node(&self, line: u32, deepest: u16, kind: ExprKind) -> Result<Expr> {
        if deepest >= MAX_CHAIN {
            return Err(TemplateError::limit(format!(
                "an expression nests more than {MAX_CHAIN} operations"
            ))
            .at(line));
        }
        Ok(Expr { line, depth: deepest + 1, kind })
    }

    /// Parses one level deeper.
    pub(crate) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(TemplateError::limit(format!(
                "the source nests deeper than {MAX_DEPTH} levels"
            ))
            .at(self.line()));
        }
        self.depth += 1;
        let parsed = stacker::maybe_grow(RED_ZONE, MORE_STACK, || parse(self));
        self.depth -= 1;
        parsed
    }

    /// Parses a condition, where unknown filters and tests fail only when applied.
    pub(crate) fn lenient<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let unknown = self.unknown.take();
        let parsed = parse(self);
        self.unknown = unknown;
        parsed
    }

    /// Parses a scope, where unknown filters and tests fail even inside a condition.
    pub(crate) fn strict<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = self.unknown.take();
        let parsed = parse(self);
        let unknown = std::mem::replace(&mut self.unknown, outer);
        self.missing = self.missing.take().or(unknown);
        parsed
    }

    /// Parses a body that Jinja2 compiles to a function. `break` cannot leave an enclosing loop
    /// from there.
    pub(crate) fn function_body<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let loops = std::mem::replace(&mut self.loops, 0);
        let parsed = parse(self);
        self.loops = loops;
        parsed
    }
}

/// The depth of the deepest expression.
pub(crate) fn deepest<'a>(expressions: impl IntoIterator<Item = &'a Expr>) -> u16 {
    expressions.into_iter().map(|expression| expression.depth).max().unwrap_or(0)
}

/// The depth of the deepest argument.
pub(crate) fn deepest_argument(arguments: &Arguments) -> u16 {
    let named = arguments.named.iter().map(|(_, value)| value);
    let spread = arguments.spread.iter().chain(&arguments.spread_named).map(|value| &**value);
    deepest(arguments.positional.iter().chain(named).chain(spread))
}
