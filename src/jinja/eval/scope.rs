//! Variables and their scopes.
//!
//! Scopes form a stack. The scopes around a macro definition are kept until the render ends.

use crate::jinja::syntax::ast::Name;
use crate::jinja::value::Value;
use crate::jinja::value::runtime::ScopeId;

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
    pub(crate) fn new() -> Scopes {
        Scopes {
            all: vec![Scope { kept: true, ..Scope::default() }],
            current: ScopeId(0),
            spare: Vec::new(),
        }
    }

    pub(crate) fn current(&self) -> ScopeId {
        self.current
    }

    pub(crate) fn outermost(&self) -> ScopeId {
        ScopeId(0)
    }

    /// The number of scopes.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Opens a scope in `parent`. Returns the previous scope.
    pub(crate) fn enter(&mut self, parent: ScopeId) -> ScopeId {
        let back = self.current;
        self.current = ScopeId(self.all.len());
        let variables = self.spare.pop().unwrap_or_default();
        self.all.push(Scope { parent: Some(parent), variables, kept: false });
        back
    }

    /// Closes the current scope.
    pub(crate) fn leave(&mut self, back: ScopeId) {
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
    pub(crate) fn keep(&mut self) -> ScopeId {
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
    pub(crate) fn set(&mut self, name: Name, value: Value) -> Option<Value> {
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
    pub(crate) fn get(&self, name: Name) -> Option<&Value> {
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
