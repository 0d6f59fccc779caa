//! The state of a render: variables in their scopes, names, and the texts under construction.
//!
//! Scopes form a stack. The scopes around a macro definition are kept until the render ends.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, limit_error};
use crate::jinja::syntax::ast::{Block, BuiltinId, Name};
use crate::jinja::syntax::parser::ParsedTemplate;
use crate::jinja::value::access::AccessLog;
use crate::jinja::value::arguments::Args;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Object, ScopeId, Undefined, Value, may_nest};

/// Formats the time for a strftime format.
type Strftime = dyn Fn(&str) -> String;

/// What a template sees in addition to its own variables.
pub(crate) struct Context {
    /// Variables by name, in any order.
    pub(crate) variables: Vec<(Cow<'static, str>, Value)>,
    /// `strftime_now(format)`. None if the template must not know the time.
    pub(crate) strftime_now: Option<Box<Strftime>>,
    /// Records lookups of variables.
    pub(crate) log: Option<Rc<AccessLog>>,
}

/// A filter: called with the value to its left and the arguments.
pub(crate) type Filter = fn(&mut Interpreter<'_>, Value, Args) -> Result<Value>;

/// A test: called with the value and the arguments.
pub(crate) type Test = fn(&mut Interpreter<'_>, &Value, Args) -> Result<bool>;

/// A global function: called with the arguments.
pub(crate) type Global = fn(&mut Interpreter<'_>, Args) -> Result<Value>;

/// The functions that a template can call by name. A [`BuiltinId`] is an index of one of the tables.
pub(crate) struct Builtins {
    pub(crate) filters: &'static [(&'static str, Filter)],
    pub(crate) tests: &'static [(&'static str, Test)],
    pub(crate) globals: &'static [(&'static str, Global)],
}

/// The id of the function of this name.
pub(crate) fn id<F>(table: &[(&str, F)], name: &str) -> Option<BuiltinId> {
    let index = table.iter().position(|(known, _)| *known == name)?;
    u8::try_from(index).ok().map(BuiltinId)
}

impl Builtins {
    /// The filter of this name.
    pub(crate) fn filter(&self, name: &str) -> Option<Filter> {
        id(self.filters, name).map(|id| self.filters[usize::from(id.0)].1)
    }

    /// The test of this name.
    pub(crate) fn test(&self, name: &str) -> Option<Test> {
        id(self.tests, name).map(|id| self.tests[usize::from(id.0)].1)
    }
}

#[derive(Default)]
struct Scope {
    parent: Option<ScopeId>,
    /// Sorted by name.
    variables: Vec<(Name, Value)>,
    kept: bool,
}

/// All scopes of a render.
pub(crate) struct Scopes {
    all: Vec<Scope>,
    current: ScopeId,
    /// Empty lists of variables for reuse, because a loop opens a scope for every item.
    spare: Vec<Vec<(Name, Value)>>,
}

impl Scopes {
    /// Creates the outermost scope.
    fn new() -> Scopes {
        Scopes {
            all: vec![Scope { kept: true, ..Scope::default() }],
            current: ScopeId(0),
            spare: Vec::new(),
        }
    }

    pub(super) fn current(&self) -> ScopeId {
        self.current
    }

    pub(super) fn outermost(&self) -> ScopeId {
        ScopeId(0)
    }

    /// The number of scopes.
    fn len(&self) -> usize {
        self.all.len()
    }

    /// Opens a scope in `parent`. Returns the previous scope.
    fn enter(&mut self, parent: ScopeId) -> ScopeId {
        let back = self.current;
        self.current = ScopeId(self.all.len());
        let variables = self.spare.pop().unwrap_or_default();
        self.all.push(Scope { parent: Some(parent), variables, kept: false });
        back
    }

    /// Closes the current scope.
    fn leave(&mut self, back: ScopeId) {
        let left = self.current.0;
        self.current = back;
        if !self.all[left].kept {
            self.all[left].variables.clear();
            // The scopes above it are already closed.
            while self.all.len() > left && self.all.last().is_some_and(|scope| !scope.kept) {
                self.spare.extend(self.all.pop().map(|scope| scope.variables));
            }
        }
    }

    /// Keeps the current scope and its parents until the render ends.
    pub(super) fn keep(&mut self) -> ScopeId {
        let mut scope = Some(self.current);
        while let Some(ScopeId(at)) = scope {
            if self.all[at].kept {
                break;
            }
            self.all[at].kept = true;
            scope = self.all[at].parent;
        }
        self.current
    }

    /// Sets a variable of the current scope. Returns its previous value.
    fn set(&mut self, name: Name, value: Value) -> Option<Value> {
        let variables = &mut self.all[self.current.0].variables;
        match variables.binary_search_by_key(&name, |(known, _)| *known) {
            Ok(index) => Some(std::mem::replace(&mut variables[index].1, value)),
            Err(index) => {
                variables.insert(index, (name, value));
                None
            }
        }
    }

    /// The innermost variable of this name.
    fn get(&self, name: Name) -> Option<&Value> {
        let mut scope = Some(self.current);
        while let Some(ScopeId(at)) = scope {
            let Scope { parent, variables, .. } = &self.all[at];
            if let Ok(index) = variables.binary_search_by_key(&name, |(known, _)| *known) {
                return Some(&variables[index].1);
            }
            scope = *parent;
        }
        None
    }
}

/// A render in progress.
pub(crate) struct Interpreter<'t> {
    parsed: &'t ParsedTemplate,
    pub(crate) builtins: &'static Builtins,
    /// The values of names and string literals, created on first use.
    texts: Vec<Option<Text>>,
    pub(crate) budget: Rc<Budget>,
    context: Context,
    pub(crate) scopes: Scopes,
    /// The texts under construction: the result and the captures of blocks.
    pub(super) out: Vec<TextBuilder>,
    /// The captures of the enclosing block statements.
    pub(crate) captured: Vec<Value>,
    pub(crate) autoescape: bool,
    /// The byte ranges of `{% generation %}` bodies in the result.
    pub(super) generation: Vec<Range<usize>>,
    /// Lists and namespaces that may contain themselves.
    mutable: Vec<Value>,
}

impl<'t> Interpreter<'t> {
    pub(crate) fn new(
        parsed: &'t ParsedTemplate,
        builtins: &'static Builtins,
        mut context: Context,
        budget: &Rc<Budget>,
    ) -> Interpreter<'t> {
        context.variables.sort_by(|(a, _), (b, _)| a.cmp(b));
        Interpreter {
            parsed,
            builtins,
            texts: vec![None; parsed.names.len()],
            budget: Rc::clone(budget),
            context,
            scopes: Scopes::new(),
            out: vec![TextBuilder::limited(budget, budget.output_bytes())],
            captured: Vec::new(),
            autoescape: false,
            generation: Vec::new(),
            mutable: Vec::new(),
        }
    }

    /// Renders the template. Returns the text and the byte ranges of generation blocks.
    pub(crate) fn run(mut self) -> Result<(TextBuilder, Vec<Range<usize>>)> {
        let ended = self.statements(&self.parsed.body);
        for value in std::mem::take(&mut self.mutable) {
            match value {
                Value::List(list) => list.clear(),
                Value::Namespace(namespace) => namespace.clear(),
                _ => {}
            }
        }
        ended?;
        let text = self.out.pop().ok_or_else(|| TemplateError::value("the result is missing"))?;
        Ok((text, self.generation))
    }

    /// The value of a name or string literal.
    pub(crate) fn text(&mut self, name: Name) -> Text {
        let index = name.0 as usize;
        match &self.texts[index] {
            Some(text) => text.clone(),
            None => {
                let text = Text::uncharged(&self.parsed.names[index], Vec::new());
                self.texts[index] = Some(text.clone());
                text
            }
        }
    }

    pub(crate) fn name(&self, name: Name) -> &'t str {
        let parsed: &'t ParsedTemplate = self.parsed;
        &parsed.names[name.0 as usize]
    }

    /// The block of this name.
    pub(crate) fn block(&self, name: &str) -> Result<Option<Arc<Block>>> {
        let blocks = &self.parsed.blocks;
        self.budget.step(blocks.len() as u64 / 16)?;
        let found = blocks.iter().find(|(known, _)| self.name(*known) == name);
        Ok(found.map(|(_, block)| Arc::clone(block)))
    }

    /// Whether an attribute of this name on a dict can only be a member. False for a long name,
    /// because reading it costs more than a step.
    pub(crate) fn is_member(&self, name: Name) -> bool {
        self.parsed.members[name.0 as usize] && self.is_short(name)
    }

    /// Whether a name costs no more than one step to read.
    pub(crate) fn is_short(&self, name: Name) -> bool {
        self.name(name).len() <= 256
    }

    /// A variable of a scope or of the context.
    pub(crate) fn lookup(&self, name: Name) -> Option<&Value> {
        if let Some(value) = self.scopes.get(name) {
            return Some(value);
        }
        let text = self.name(name);
        let variables = &self.context.variables;
        let at = variables.partition_point(|(known, _)| &**known < text);
        let (_, value) = variables.get(at).filter(|(known, _)| known == text)?;
        if let Some(log) = &self.context.log {
            log.record(text);
        }
        Some(value)
    }

    /// The value of a variable: of a scope, of the context, or a global.
    pub(crate) fn variable(&mut self, name: Name) -> Value {
        if let Some(value) = self.lookup(name) {
            return value.clone();
        }
        let text = self.name(name);
        if let Some(id) = id(self.builtins.globals, text)
            && (text != "strftime_now" || self.context.strftime_now.is_some())
        {
            let (name, _) = self.builtins.globals[usize::from(id.0)];
            return Value::object(Object::Function(name, id));
        }
        if text == "self" {
            return Value::object(Object::Template);
        }
        if let Some(log) = &self.context.log {
            log.record_missing(text);
        }
        let text = self.text(name);
        Value::undefined(Undefined::Variable(text))
    }

    /// `strftime_now(format)`.
    pub(crate) fn strftime_now(&self, format: &str) -> Result<String> {
        match &self.context.strftime_now {
            Some(strftime) => Ok(strftime(format)),
            None => Err(TemplateError::undefined("'strftime_now' is undefined")),
        }
    }

    /// Registers a list or namespace before it receives a value. It may then contain itself.
    pub(crate) fn track_cycle(&mut self, holder: &Value, held: &Value) -> Result<()> {
        let known = match holder {
            _ if !may_nest(held) => true,
            Value::List(list) => list.mark_tracked(),
            Value::Namespace(namespace) => namespace.mark_tracked(),
            _ => true,
        };
        if !known {
            self.budget.can_allocate(self.mutable.len() * 2 * size_of::<Value>())?;
            self.mutable.push(holder.clone());
        }
        Ok(())
    }

    pub(crate) fn set(&mut self, name: Name, value: Value) {
        drop(self.scopes.set(name, value));
    }

    /// Runs a closure in a new scope.
    pub(crate) fn in_scope<T>(
        &mut self,
        parent: ScopeId,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if self.scopes.len() > 100_000 {
            return limit_error("macros keep more than 100000 scopes");
        }
        let back = self.scopes.enter(parent);
        let result = run(self);
        self.scopes.leave(back);
        result
    }

    pub(super) fn in_new_scope<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let parent = self.scopes.current();
        self.in_scope(parent, run)
    }
}
