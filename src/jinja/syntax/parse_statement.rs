//! Parses tags: those of Jinja2, loop controls, and `generation` of transformers.

use std::collections::HashSet;
use std::sync::Arc;

use super::ast::{Block, Expr, ExprKind, For, Macro, Name, Stmt, StmtKind, Target};
use super::lexer::TokenKind;
use super::parser::{CALLER, KWARGS, LOOP, TemplateParser, Uses, VARARGS, deepest};
use crate::jinja::error::{Result, TemplateError};

impl TemplateParser {
    /// Parses statements up to one of the tags `ends`, which it does not consume. Without `ends`,
    /// parses to the end of the source.
    pub(crate) fn parse_statements(&mut self, ends: &[&str]) -> Result<Vec<Stmt>> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let kind = match self.peek() {
                TokenKind::Data(_) => match self.next() {
                    TokenKind::Data(text) => StmtKind::Text(text.into()),
                    _ => continue,
                },
                TokenKind::VariableBegin => {
                    self.at += 1;
                    let printed = self.parse_tuple(true)?;
                    if *self.peek() != TokenKind::VariableEnd {
                        return self.unexpected("end of print statement");
                    }
                    self.at += 1;
                    StmtKind::Print(printed)
                }
                TokenKind::BlockBegin => {
                    self.at += 1;
                    if matches!(self.peek(), TokenKind::Name(name) if ends.contains(&name.as_str()))
                    {
                        return Ok(body);
                    }
                    let kind = self.nested(Self::parse_statement)?;
                    self.end_of_block()?;
                    kind
                }
                TokenKind::End if ends.is_empty() => return Ok(body),
                _ => return self.unexpected_end(ends),
            };
            body.push(Stmt { line, kind });
        }
    }

    fn unexpected_end<T>(&self, ends: &[&str]) -> Result<T> {
        let wanted: Vec<String> = ends.iter().map(|end| format!("'{end}'")).collect();
        let mut message = String::from("Unexpected end of template.");
        if !wanted.is_empty() {
            message.push_str(&format!(
                " Jinja was looking for the following tags: {}.",
                wanted.join(" or ")
            ));
        }
        if let Some(open) = self.open.last() {
            message.push_str(&format!(" The innermost block that needs to be closed is '{open}'."));
        }
        self.fail(message)
    }

    fn end_of_block(&mut self) -> Result<()> {
        if *self.peek() != TokenKind::BlockEnd {
            return self.unexpected("end of statement block");
        }
        self.at += 1;
        Ok(())
    }

    fn parse_statement(&mut self) -> Result<StmtKind> {
        let TokenKind::Name(tag) = self.peek().clone() else {
            return self.fail("tag name expected");
        };
        let line = self.line();
        self.at += 1;
        match tag.as_str() {
            "if" => self.parse_if(),
            "for" => self.parse_for(),
            "set" => self.parse_set(),
            "macro" => self.parse_macro(),
            "call" => self.parse_call_block(line),
            "filter" => {
                let start = self.node(line, 0, ExprKind::Captured)?;
                let filter = self.parse_filter_chain(start, true)?;
                let body = self.parse_block("filter", "endfilter")?;
                Ok(StmtKind::Filter { filter, body })
            }
            "with" => self.parse_with(),
            "autoescape" => {
                let enabled = self.parse_expression()?;
                let body = self.parse_block("autoescape", "endautoescape")?;
                Ok(StmtKind::Autoescape { enabled, body })
            }
            "generation" => {
                let body =
                    self.function_body(|parser| parser.parse_block("generation", "endgeneration"))?;
                Ok(StmtKind::Generation(body))
            }
            "block" => self.parse_block_tag(),
            "print" => {
                let mut printed = Vec::new();
                while *self.peek() != TokenKind::BlockEnd {
                    if !printed.is_empty() {
                        self.expect_op(",")?;
                    }
                    printed.push(self.parse_expression()?);
                }
                let deepest = deepest(&printed);
                Ok(StmtKind::Print(self.node(line, deepest, ExprKind::Concat(printed))?))
            }
            "break" | "continue" => {
                if self.loops == 0 {
                    return Err(TemplateError::syntax(format!("'{tag}' outside loop"), line));
                }
                Ok(if tag == "break" { StmtKind::Break } else { StmtKind::Continue })
            }
            "include" => self.parse_include(),
            "import" | "from" | "extends" => {
                while *self.peek() != TokenKind::BlockEnd {
                    if *self.peek() == TokenKind::End {
                        return self.unexpected("end of statement block");
                    }
                    self.at += 1;
                }
                Ok(StmtKind::Loader(None))
            }
            _ => {
                let mut message = format!("Encountered unknown tag '{tag}'.");
                if let Some(open) = self.open.last() {
                    message.push_str(&format!(
                        " The innermost block that needs to be closed is '{open}'."
                    ));
                }
                Err(TemplateError::syntax(message, line))
            }
        }
    }

    /// The closing of a tag with a body. A Python-style colon may precede it.
    fn start_of_body(&mut self) -> Result<()> {
        self.skip_op(":");
        self.end_of_block()
    }

    /// The body of a tag, including the end tag.
    fn parse_block(&mut self, tag: &'static str, end: &str) -> Result<Vec<Stmt>> {
        self.start_of_body()?;
        self.open.push(tag);
        let body = self.strict(|parser| parser.parse_statements(&[end]))?;
        self.open.pop();
        self.at += 1;
        Ok(body)
    }

    fn parse_if(&mut self) -> Result<StmtKind> {
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        self.open.push("if");
        loop {
            let test = self.lenient(|parser| parser.parse_tuple(false))?;
            self.start_of_body()?;
            let body =
                self.lenient(|parser| parser.parse_statements(&["elif", "else", "endif"]))?;
            branches.push((test, body));
            match self.next() {
                TokenKind::Name(tag) if tag == "elif" => {}
                TokenKind::Name(tag) if tag == "else" => {
                    self.start_of_body()?;
                    otherwise = self.lenient(|parser| parser.parse_statements(&["endif"]))?;
                    self.at += 1;
                    break;
                }
                _ => break,
            }
        }
        self.open.pop();
        Ok(StmtKind::If { branches, otherwise })
    }

    fn parse_for(&mut self) -> Result<StmtKind> {
        let stores = self.loop_stores;
        let target = self.parse_target()?;
        if !self.skip_word("in") {
            return self.unexpected("in");
        }
        let iterable = self.parse_tuple(false)?;
        let outer = std::mem::take(&mut self.uses);
        let test =
            if self.skip_word("if") { Some(self.strict(Self::parse_expression)?) } else { None };
        let recursive = self.skip_word("recursive");
        self.start_of_body()?;
        self.open.push("for");
        self.loops += 1;
        let body = self.strict(|parser| parser.parse_statements(&["endfor", "else"]))?;
        self.loops -= 1;
        let uses_loop = self.uses.loop_ || recursive;
        let mut otherwise = Vec::new();
        let ended = matches!(self.next(), TokenKind::Name(tag) if tag == "endfor");
        if !ended {
            self.start_of_body()?;
            otherwise = self.strict(|parser| parser.parse_statements(&["endfor"]))?;
            self.at += 1;
        }
        if self.loop_stores > stores {
            return self.fail("Can't assign to special loop variable in for-loop target");
        }
        self.open.pop();
        self.uses = self.uses.or(outer);
        Ok(StmtKind::For(Arc::new(For {
            target,
            iterable,
            test,
            body,
            otherwise,
            recursive,
            uses_loop,
        })))
    }

    fn parse_set(&mut self) -> Result<StmtKind> {
        let line = self.line();
        let target = self.parse_namespace_target()?;
        if self.skip_op("=") {
            return Ok(StmtKind::Set { target, value: self.parse_tuple(true)? });
        }
        let captured = self.node(line, 0, ExprKind::Captured)?;
        let filter =
            if self.is_op("|") { Some(self.parse_filter_chain(captured, false)?) } else { None };
        let body = self.parse_block("set", "endset")?;
        Ok(StmtKind::SetBlock { target, filter, body })
    }

    fn parse_macro(&mut self) -> Result<StmtKind> {
        let name = self.parse_target_name()?;
        let parameters = self.parse_signature()?;
        Ok(StmtKind::Macro(self.parse_macro_body("macro", "endmacro", Some(name), parameters)?))
    }

    /// The body of a macro. A mention of `loop` in it also counts for the enclosing loop.
    fn parse_macro_body(
        &mut self,
        tag: &'static str,
        end: &str,
        name: Option<Name>,
        parameters: Vec<(Name, Option<Expr>)>,
    ) -> Result<Arc<Macro>> {
        let outer = std::mem::take(&mut self.uses);
        let body = self.function_body(|parser| parser.parse_block(tag, end))?;
        let inside = self.uses;
        // A call block may pass on its own caller.
        let caller = name.is_none() && inside.caller;
        self.uses = outer.or(Uses { loop_: inside.loop_, caller, ..Uses::default() });
        let is_parameter = |name: Name| parameters.iter().any(|(known, _)| *known == name);
        Ok(Arc::new(Macro {
            uses_caller: inside.caller && !is_parameter(CALLER),
            uses_varargs: inside.varargs && !is_parameter(VARARGS),
            uses_kwargs: inside.kwargs && !is_parameter(KWARGS),
            name,
            parameters,
            body,
        }))
    }

    fn parse_call_block(&mut self, line: u32) -> Result<StmtKind> {
        let parameters = if self.is_op("(") { self.parse_signature()? } else { Vec::new() };
        let call = self.parse_expression()?;
        if !matches!(call.kind, ExprKind::Call(..)) {
            return Err(TemplateError::syntax("expected call", line));
        }
        let caller = self.parse_macro_body("call", "endcall", None, parameters)?;
        Ok(StmtKind::Call { caller, call })
    }

    fn parse_signature(&mut self) -> Result<Vec<(Name, Option<Expr>)>> {
        self.expect_op("(")?;
        let mut parameters: Vec<(Name, Option<Expr>)> = Vec::new();
        let mut known = HashSet::new();
        let mut defaults = false;
        while !self.is_op(")") {
            if !parameters.is_empty() {
                self.expect_op(",")?;
            }
            let name = self.parse_target_name()?;
            if !known.insert(name) {
                return self.fail(format!(
                    "duplicate argument '{}' in function definition",
                    self.text(name)
                ));
            }
            if self.skip_op("=") {
                let default = self.parse_expression()?;
                defaults = true;
                parameters.push((name, Some(default)));
            } else if name == CALLER {
                return self.fail(
                    "When defining macros or call blocks the special \"caller\" argument must be \
                     omitted or be given a default.",
                );
            } else if defaults {
                return self.fail("non-default argument follows default argument");
            } else {
                parameters.push((name, None));
            }
        }
        self.expect_op(")")?;
        Ok(parameters)
    }

    fn parse_with(&mut self) -> Result<StmtKind> {
        let mut bindings = Vec::new();
        while *self.peek() != TokenKind::BlockEnd {
            if !bindings.is_empty() {
                self.expect_op(",")?;
            }
            let stores = self.loop_stores;
            let target = self.parse_target()?;
            // Only `for` and `set` reject the name `loop`.
            self.loop_stores = stores;
            self.expect_op("=")?;
            bindings.push((target, self.parse_expression()?));
        }
        let body = self.parse_block("with", "endwith")?;
        Ok(StmtKind::With { bindings, body })
    }

    fn parse_block_tag(&mut self) -> Result<StmtKind> {
        let name = self.expect_name()?;
        if self.blocks.iter().any(|(known, _)| *known == name) {
            return self.fail(format!("block '{}' defined twice", self.text(name)));
        }
        let scoped = self.skip_word("scoped");
        let required = self.skip_word("required").then_some(name);
        let outer = std::mem::take(&mut self.uses);
        // Reserves the name while the body is parsed.
        let index = self.blocks.len();
        self.blocks.push((name, Arc::new(Block { body: Vec::new(), scoped, required })));
        let body = self.function_body(|parser| parser.parse_block("block", "endblock"))?;
        self.uses = self.uses.or(outer);
        let blank = |statement: &Stmt| matches!(&statement.kind, StmtKind::Text(text) if text.trim().is_empty());
        if required.is_some() && !body.iter().all(blank) {
            return self.fail("Required blocks can only contain comments or whitespace");
        }
        let word = self.text(name).to_owned();
        self.skip_word(&word);
        let block = Arc::new(Block { body, scoped, required });
        self.blocks[index].1 = Arc::clone(&block);
        Ok(StmtKind::Block(block))
    }

    fn parse_include(&mut self) -> Result<StmtKind> {
        let of = self.parse_expression()?;
        let ignoring = self.skip_word("ignore");
        if ignoring && !self.skip_word("missing") {
            return self.unexpected("missing");
        }
        if self.skip_word("with") || self.skip_word("without") {
            self.skip_word("context");
        }
        Ok(StmtKind::Loader(ignoring.then_some(of)))
    }

    fn parse_target_name(&mut self) -> Result<Name> {
        let name = self.expect_name()?;
        match self.text(name) {
            "true" | "false" | "none" | "True" | "False" | "None" => {
                let message = format!("can't assign to '{}'", self.text(name));
                self.fail(message)
            }
            _ => Ok(name),
        }
    }

    /// `x`, `x, y` or `(x, y)`.
    fn parse_target(&mut self) -> Result<Target> {
        self.nested(|parser| parser.parse_targets(false))
    }

    /// Like [`TemplateParser::parse_target`], and also `ns.x`.
    fn parse_namespace_target(&mut self) -> Result<Target> {
        self.nested(|parser| parser.parse_targets(true))
    }

    fn parse_targets(&mut self, namespace: bool) -> Result<Target> {
        let mut targets = Vec::new();
        let mut is_tuple = false;
        loop {
            if !targets.is_empty() {
                self.expect_op(",")?;
            }
            if matches!(
                self.peek(),
                TokenKind::BlockEnd | TokenKind::VariableEnd | TokenKind::Op(")")
            ) {
                break;
            }
            if self.skip_op("(") {
                let inner = self.nested(|parser| parser.parse_targets(namespace))?;
                self.expect_op(")")?;
                targets.push(inner);
            } else {
                let name = self.parse_target_name()?;
                if namespace && self.skip_op(".") {
                    targets.push(Target::Attribute(name, self.expect_name()?));
                } else {
                    self.loop_stores += usize::from(name == LOOP);
                    targets.push(Target::Name(name));
                }
            }
            if self.is_op(",") {
                is_tuple = true;
            } else {
                break;
            }
        }
        match targets.pop() {
            Some(only) if !is_tuple && targets.is_empty() => Ok(only),
            Some(last) => {
                targets.push(last);
                Ok(Target::Tuple(targets))
            }
            None => self.fail(format!("Expected an expression, got '{}'", self.peek().describe())),
        }
    }
}
