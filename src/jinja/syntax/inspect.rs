//! Static inspection of a template: names, texts and tags, each with its first line.
//!
//! Reports the variables that a template expects, unknown filters and tests, tags that need a
//! loader, texts that it may print, and strings at which it may cut other strings. Evaluates
//! nothing.

use std::collections::HashSet;

use super::ast::{
    Arguments, BuiltinNames, Comparison, Expr, ExprKind, For, Macro, Name, Stmt, StmtKind, Target,
};
use super::parser::ParsedTemplate;

/// A name or text and where it occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    /// The name or text.
    pub(crate) text: String,
    /// 1-based.
    pub(crate) line: usize,
}

/// The result of an inspection, in source order. `texts`, `trims` and `loaders` may repeat an item,
/// the other lists may not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// Variables that are read but never set. Global functions are in [`Inspection::globals`].
    pub(crate) variables: Vec<Site>,
    /// Global functions that are used.
    pub(crate) globals: Vec<Site>,
    /// Names of unknown filters.
    pub(crate) unknown_filters: Vec<Site>,
    /// Names of unknown tests.
    pub(crate) unknown_tests: Vec<Site>,
    /// Tags that load another template.
    pub(crate) loaders: Vec<Site>,
    /// Text between tags, and string literals.
    pub(crate) texts: Vec<Site>,
    /// String literals that the template searches for, splits at or replaces.
    pub(crate) cuts: Vec<Site>,
    /// Places where a value called content is stripped of whitespace.
    pub(crate) trims: Vec<Site>,
}

/// String methods that search for their first argument.
const CUTTING: [&str; 8] = [
    "split",
    "rsplit",
    "partition",
    "rpartition",
    "replace",
    "removeprefix",
    "removesuffix",
    "find",
];
/// Names that loops, macros, call blocks and blocks define.
const SPECIAL: [&str; 6] = ["loop", "caller", "varargs", "kwargs", "self", "super"];

pub(crate) fn inspect(parsed: &ParsedTemplate, builtins: &BuiltinNames) -> Inspection {
    let ParsedTemplate { body, names, .. } = parsed;
    let mut inspector = Inspector {
        builtins,
        names,
        scopes: vec![HashSet::new()],
        at_top: HashSet::new(),
        macros: 0,
        seen: HashSet::new(),
        found: Inspection::default(),
    };
    collect_assigned(body, &mut inspector.at_top);
    inspector.statements(body);
    inspector.found
}

/// Collects the names that statements set in their own scope.
fn collect_assigned(body: &[Stmt], names: &mut HashSet<u32>) {
    for stmt in body {
        match &stmt.kind {
            StmtKind::Set { target, .. } | StmtKind::SetBlock { target, .. } => {
                target_names(target, names)
            }
            StmtKind::Macro(defined) => names.extend(defined.name.map(|name| name.0)),
            StmtKind::If { branches, otherwise } => {
                for (_, body) in branches {
                    collect_assigned(body, names);
                }
                collect_assigned(otherwise, names);
            }
            _ => {}
        }
    }
}

fn target_names(target: &Target, names: &mut HashSet<u32>) {
    match target {
        Target::Name(name) => {
            names.insert(name.0);
        }
        Target::Tuple(targets) => targets.iter().for_each(|target| target_names(target, names)),
        Target::Attribute(..) => {}
    }
}

struct Inspector<'a> {
    builtins: &'a BuiltinNames,
    names: &'a [Box<str>],
    scopes: Vec<HashSet<u32>>,
    /// Names that the outermost scope sets anywhere. A macro may be called after all of them are
    /// set.
    at_top: HashSet<u32>,
    /// The number of enclosing macros.
    macros: usize,
    /// The category and name of each reported site.
    seen: HashSet<(u8, u32)>,
    found: Inspection,
}

impl<'a> Inspector<'a> {
    fn text(&self, name: Name) -> &'a str {
        self.names.get(name.0 as usize).map_or("", |text| text)
    }

    /// The site of a name at its first occurrence.
    fn first(&mut self, kind: u8, name: Name, line: u32) -> Option<Site> {
        let site = Site { text: self.text(name).to_owned(), line: line as usize };
        self.seen.insert((kind, name.0)).then_some(site)
    }

    fn define(&mut self, target: &Target) {
        if let Some(scope) = self.scopes.last_mut() {
            target_names(target, scope);
        }
    }

    fn within(&mut self, names: HashSet<u32>, inspector: impl FnOnce(&mut Self)) {
        self.scopes.push(names);
        inspector(self);
        self.scopes.pop();
    }

    fn statements(&mut self, body: &[Stmt]) {
        for stmt in body {
            self.statement(stmt);
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        let line = stmt.line as usize;
        match &stmt.kind {
            StmtKind::Text(text) => self.found.texts.push(Site { text: text.to_string(), line }),
            StmtKind::Print(value) => self.expression(value),
            StmtKind::If { branches, otherwise } => {
                for (test, body) in branches {
                    self.expression(test);
                    self.statements(body);
                }
                self.statements(otherwise);
            }
            StmtKind::For(code) => self.walk_loop(code),
            StmtKind::Set { target, value } => {
                self.cut(value);
                self.expression(value);
                self.define(target);
            }
            StmtKind::SetBlock { target, filter, body } => {
                filter.iter().for_each(|filter| self.expression(filter));
                self.within(HashSet::new(), |inspector| inspector.statements(body));
                self.define(target);
            }
            StmtKind::Macro(code) => {
                if let (Some(name), Some(scope)) = (code.name, self.scopes.last_mut()) {
                    scope.insert(name.0);
                }
                self.walk_macro(code);
            }
            StmtKind::Call { caller, call } => {
                self.expression(call);
                self.walk_macro(caller);
            }
            StmtKind::Filter { filter, body } => {
                self.expression(filter);
                self.within(HashSet::new(), |inspector| inspector.statements(body));
            }
            StmtKind::With { bindings, body } => {
                let mut names = HashSet::new();
                for (target, value) in bindings {
                    self.expression(value);
                    target_names(target, &mut names);
                }
                self.within(names, |inspector| inspector.statements(body));
            }
            StmtKind::Autoescape { enabled, body } => {
                self.expression(enabled);
                self.within(HashSet::new(), |inspector| inspector.statements(body));
            }
            StmtKind::Generation(body) => {
                self.within(HashSet::new(), |inspector| inspector.statements(body))
            }
            StmtKind::Block(block) => {
                self.within(HashSet::new(), |inspector| inspector.statements(&block.body))
            }
            StmtKind::Loader(of) => {
                of.iter().for_each(|of| self.expression(of));
                self.found.loaders.push(Site { text: "no template loader".to_owned(), line });
            }
            StmtKind::Break | StmtKind::Continue => {}
        }
    }

    fn walk_loop(&mut self, code: &For) {
        self.expression(&code.iterable);
        let mut names = HashSet::new();
        target_names(&code.target, &mut names);
        self.within(names, |inspector| {
            code.test.iter().for_each(|test| inspector.expression(test));
            inspector.statements(&code.body);
        });
        self.within(HashSet::new(), |inspector| inspector.statements(&code.otherwise));
    }

    fn walk_macro(&mut self, code: &Macro) {
        code.parameters
            .iter()
            .filter_map(|(_, default)| default.as_ref())
            .for_each(|default| self.expression(default));
        let names = code.parameters.iter().map(|(name, _)| name.0).collect();
        let is_named = usize::from(code.name.is_some());
        self.macros += is_named;
        self.within(names, |inspector| inspector.statements(&code.body));
        self.macros -= is_named;
    }

    fn variable(&mut self, name: Name, line: u32) {
        let is_set = self.scopes.iter().any(|scope| scope.contains(&name.0))
            || self.macros > 0 && self.at_top.contains(&name.0)
            || SPECIAL.contains(&self.text(name));
        if is_set {
            return;
        }
        let is_global = (self.builtins.is_global)(self.text(name));
        let Some(site) = self.first(0, name, line) else { return };
        if is_global { self.found.globals.push(site) } else { self.found.variables.push(site) }
    }

    /// Reports a string literal at which text may be cut.
    fn cut(&mut self, value: &Expr) {
        if let ExprKind::Str(name) = value.kind {
            let site = self.first(1, name, value.line);
            self.found.cuts.extend(site);
        }
    }

    fn expression(&mut self, expression: &Expr) {
        match &expression.kind {
            ExprKind::None
            | ExprKind::Bool(_)
            | ExprKind::Int(_)
            | ExprKind::Big(_)
            | ExprKind::Float(_) => {}
            ExprKind::Captured => {}
            ExprKind::Str(name) => {
                let text = self.text(*name).to_owned();
                self.found.texts.push(Site { text, line: expression.line as usize });
            }
            ExprKind::Name(name) => self.variable(*name, expression.line),
            ExprKind::List(items)
            | ExprKind::Tuple(items)
            | ExprKind::Concat(items)
            | ExprKind::Sum(items) => {
                self.expressions(items);
            }
            ExprKind::Dict(entries) => {
                for (key, value) in entries {
                    self.expression(key);
                    self.expression(value);
                }
            }
            ExprKind::Attr(value, _)
            | ExprKind::Not(value)
            | ExprKind::Negative(value)
            | ExprKind::Positive(value) => {
                self.expression(value);
            }
            ExprKind::Item(value, key) => {
                self.expression(value);
                self.expression(key);
            }
            ExprKind::Slice(value, bounds) => {
                self.expression(value);
                bounds.iter().flatten().for_each(|bound| self.expression(bound));
            }
            ExprKind::Call(callee, arguments) => self.call(callee, arguments),
            ExprKind::Filter(value, name, filter, arguments) => {
                self.filter(value, *name, filter.is_some(), arguments, expression.line)
            }
            ExprKind::Test(value, name, test, arguments) => {
                if test.is_none() {
                    let site = self.first(3, *name, expression.line);
                    self.found.unknown_tests.extend(site);
                }
                self.expression(value);
                self.arguments(arguments);
            }
            ExprKind::Arithmetic(_, both) | ExprKind::And(both) | ExprKind::Or(both) => {
                self.expression(&both.0);
                self.expression(&both.1);
            }
            ExprKind::Compare(first, others) => {
                if matches!(others.first(), Some((Comparison::In | Comparison::NotIn, _))) {
                    self.cut(first);
                }
                self.expression(first);
                others.iter().for_each(|(_, other)| self.expression(other));
            }
            ExprKind::Condition { test, then, otherwise } => {
                self.expression(test);
                self.expression(then);
                otherwise.iter().for_each(|otherwise| self.expression(otherwise));
            }
        }
    }

    fn filter(
        &mut self,
        value: &Expr,
        name: Name,
        is_known: bool,
        arguments: &Arguments,
        line: u32,
    ) {
        if !is_known {
            let site = self.first(2, name, line);
            self.found.unknown_filters.extend(site);
        }
        match self.text(name) {
            "replace" => {
                arguments.positional.iter().take(1).for_each(|argument| self.cut(argument))
            }
            "trim" => self.trim(value, line),
            _ => {}
        }
        self.expression(value);
        self.arguments(arguments);
    }

    fn expressions(&mut self, expressions: &[Expr]) {
        expressions.iter().for_each(|expression| self.expression(expression));
    }

    fn call(&mut self, callee: &Expr, arguments: &Arguments) {
        if let ExprKind::Attr(value, method) = &callee.kind {
            match self.text(*method) {
                method if CUTTING.contains(&method) => {
                    arguments.positional.iter().take(1).for_each(|argument| self.cut(argument));
                }
                "strip" | "lstrip" | "rstrip" => self.trim(value, callee.line),
                _ => {}
            }
        }
        self.expression(callee);
        self.arguments(arguments);
    }

    fn arguments(&mut self, arguments: &Arguments) {
        self.expressions(&arguments.positional);
        arguments.named.iter().for_each(|(_, value)| self.expression(value));
        arguments
            .spread
            .iter()
            .chain(&arguments.spread_named)
            .for_each(|value| self.expression(value));
    }

    fn trim(&mut self, value: &Expr, line: u32) {
        let name = match &value.kind {
            ExprKind::Name(name) | ExprKind::Attr(_, name) => *name,
            ExprKind::Item(_, key) => match key.kind {
                ExprKind::Str(name) => name,
                _ => return,
            },
            _ => return,
        };
        if self.text(name).contains("content") {
            self.found.trims.push(Site { text: self.text(name).to_owned(), line: line as usize });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::jinja::Template;

    fn inspect(source: &str) -> Inspection {
        Template::compile(source).unwrap().inspect()
    }

    #[track_caller]
    fn check(sites: &[Site], expected: &[(&str, usize)]) {
        assert_eq!(
            sites.iter().map(|site| (site.text.as_str(), site.line)).collect::<Vec<_>>(),
            expected
        );
    }

    #[track_caller]
    fn variables(source: &str, expected: &[(&str, usize)]) {
        check(&inspect(source).variables, expected);
    }

    #[test]
    fn unset_variables() {
        variables("{{ a }}\n{{ b.c[d] }}{{ a }}", &[("a", 1), ("b", 2), ("d", 2)]);
        variables("{% set a = a or b %}{{ a }}", &[("a", 1), ("b", 1)]);
        variables("{% if x is defined %}{% set a = 1 %}{% endif %}{{ a }}", &[("x", 1)]);
        variables(
            "{% for a, b in c if a %}{{ loop.index }}{{ b }}{% endfor %}{{ a }}",
            &[("c", 1), ("a", 1)],
        );
        variables(
            "{% macro m(a, b=c) %}{{ a }}{{ b }}{{ later }}{{ n() }}{{ d }}{% endmacro %}{% set later = 1 %}{% macro n() %}{% endmacro %}{{ m() }}",
            &[("c", 1), ("d", 1)],
        );
        variables(
            "{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}{% with x = x %}{{ x }}{% endwith %}",
            &[("x", 1)],
        );
        variables(
            "{% set a %}{{ b }}{% endset %}{{ a }}{% call(p) m(q) %}{{ p }}{% endcall %}",
            &[("b", 1), ("m", 1), ("q", 1)],
        );
        // A variable set in a loop body is undefined in the next iteration.
        variables(
            "{% for m in n %}{{ last }}{% set last = m %}{% endfor %}",
            &[("n", 1), ("last", 1)],
        );
        check(
            &inspect("\n{{ strftime_now('%Y') }}{{ raise_exception('a') if 0 }}").globals,
            &[("strftime_now", 2), ("raise_exception", 2)],
        );
    }

    #[test]
    fn unknown_builtins_and_loaders() {
        let found = inspect(
            "{% if a %}{{ b|nothing }}{{ b is nowhere }}{% endif %}\n{% if c %}{% include 'x' %}{% endif %}",
        );
        check(&found.unknown_filters, &[("nothing", 1)]);
        check(&found.unknown_tests, &[("nowhere", 1)]);
        assert_eq!(found.loaders.iter().map(|site| site.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn texts_and_cuts() {
        let found = inspect(
            "a text\n{{ 'b' ~ x.split('</t>')[0] }}{% if '<t>' in x %}{{ x|replace('q', '') }}{% endif %}{% set e = '<e>' %}{{ x.split(e) }}",
        );
        assert_eq!(found.texts[0], Site { text: "a text\n".to_owned(), line: 1 });
        assert_eq!(found.texts[1], Site { text: "b".to_owned(), line: 2 });
        check(&found.cuts, &[("</t>", 2), ("<t>", 2), ("q", 2), ("<e>", 2)]);
        let found = inspect("{{ m.content|trim }}{{ m['content'].strip() }}{{ x|trim }}");
        assert_eq!(found.trims.len(), 2);
    }
}
