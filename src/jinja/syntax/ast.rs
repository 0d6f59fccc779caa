//! The syntax tree.

use std::sync::Arc;

use num_bigint::BigInt;

/// A name or string literal: its index in [`ParsedTemplate::names`](super::parser::ParsedTemplate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(pub(crate) u32);

/// A filter, test or global function: its index in the table of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BuiltinId(pub(crate) u8);

/// How the parser recognizes builtins, whose functions it does not know.
#[derive(Debug)]
pub(crate) struct BuiltinNames {
    pub(crate) filter: fn(&str) -> Option<BuiltinId>,
    pub(crate) test: fn(&str) -> Option<BuiltinId>,
    pub(crate) is_global: fn(&str) -> bool,
    /// Whether `dict.name` certainly reads the member of this name: dicts have no such method, and
    /// the sandbox hides no such attribute.
    pub(crate) is_member: fn(&str) -> bool,
}

#[derive(Debug)]
pub(crate) struct Stmt {
    /// 1-based.
    pub(crate) line: u32,
    pub(crate) kind: StmtKind,
}

#[derive(Debug)]
pub(crate) enum StmtKind {
    /// Text outside tags.
    Text(Box<str>),
    Print(Expr),
    If {
        branches: Vec<(Expr, Vec<Stmt>)>,
        otherwise: Vec<Stmt>,
    },
    For(Arc<For>),
    Set {
        target: Target,
        value: Expr,
    },
    /// `{% set x %}…{% endset %}`; the filter applies to [`ExprKind::Captured`].
    SetBlock {
        target: Target,
        filter: Option<Expr>,
        body: Vec<Stmt>,
    },
    Macro(Arc<Macro>),
    /// `{% call(…) m(…) %}…{% endcall %}`
    Call {
        caller: Arc<Macro>,
        call: Expr,
    },
    /// `{% filter f %}…{% endfilter %}`; the filter applies to [`ExprKind::Captured`].
    Filter {
        filter: Expr,
        body: Vec<Stmt>,
    },
    With {
        bindings: Vec<(Target, Expr)>,
        body: Vec<Stmt>,
    },
    Autoescape {
        enabled: Expr,
        body: Vec<Stmt>,
    },
    /// `{% generation %}…{% endgeneration %}`
    Generation(Vec<Stmt>),
    Block(Arc<Block>),
    Break,
    Continue,
    /// A tag that needs a template loader. There is no loader, so only `{% include x ignore missing
    /// %}` with an empty `x` succeeds.
    Loader(Option<Expr>),
}

#[derive(Debug)]
pub(crate) struct For {
    pub(crate) target: Target,
    pub(crate) iterable: Expr,
    pub(crate) test: Option<Expr>,
    pub(crate) body: Vec<Stmt>,
    pub(crate) otherwise: Vec<Stmt>,
    pub(crate) recursive: bool,
    /// Whether the body mentions `loop`.
    pub(crate) uses_loop: bool,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) body: Vec<Stmt>,
    /// Whether the block sees the variables of its scope.
    pub(crate) scoped: bool,
    /// The name, if another template must define the block.
    pub(crate) required: Option<Name>,
}

#[derive(Debug)]
pub(crate) struct Macro {
    /// None for a call block.
    pub(crate) name: Option<Name>,
    pub(crate) parameters: Vec<(Name, Option<Expr>)>,
    pub(crate) body: Vec<Stmt>,
    pub(crate) uses_caller: bool,
    pub(crate) uses_varargs: bool,
    pub(crate) uses_kwargs: bool,
}

/// The target of an assignment.
#[derive(Debug)]
pub(crate) enum Target {
    Name(Name),
    Tuple(Vec<Target>),
    /// An attribute of a namespace.
    Attribute(Name, Name),
}

#[derive(Debug)]
pub(crate) struct Expr {
    /// 1-based.
    pub(crate) line: u32,
    /// The depth of the expression tree below this node.
    pub(crate) depth: u16,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    None,
    Bool(bool),
    Int(i64),
    Big(BigInt),
    Float(f64),
    Str(Name),
    Name(Name),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Attr(Box<Expr>, Name),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Arguments),
    /// The id is `None` for an unknown filter. Such a filter fails only when it is applied.
    Filter(Box<Expr>, Name, Option<BuiltinId>, Arguments),
    Test(Box<Expr>, Name, Option<BuiltinId>, Arguments),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    /// Any operator except `+`.
    Arithmetic(Arithmetic, Box<(Expr, Expr)>),
    /// `a + b + c`, with at least two operands.
    Sum(Vec<Expr>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    And(Box<(Expr, Expr)>),
    Or(Box<(Expr, Expr)>),
    Condition {
        test: Box<Expr>,
        then: Box<Expr>,
        otherwise: Option<Box<Expr>>,
    },
    /// The text that the enclosing block statement captured.
    Captured,
}

/// An arithmetic operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

impl Arithmetic {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Arithmetic::Add => "+",
            Arithmetic::Sub => "-",
            Arithmetic::Mul => "*",
            Arithmetic::Div => "/",
            Arithmetic::FloorDiv => "//",
            Arithmetic::Mod => "%",
            Arithmetic::Pow => "** or pow()",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
}

#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(Name, Expr)>,
    /// `*expression`
    pub(crate) spread: Option<Box<Expr>>,
    /// `**expression`
    pub(crate) spread_named: Option<Box<Expr>>,
}
