//! Bounds the work of one step of llguidance's lexer.
//!
//! In: the regular expressions of a grammar, as llguidance has built them. Out: the reason why they
//! are refused, or nothing.
//!
//! A step derives an expression by one byte. llguidance's limits are checked between two steps, and
//! nothing can stop a step. Two kinds of expressions make one step long: a chain of parts that may
//! all be empty, whose derivative has an alternative for each part, and an intersection, whose
//! derivative by sets of bytes multiplies the alternatives of its parts. Both are bounded here,
//! before the first step, for all steps that follow.

use llguidance::derivre::raw::ExprSet;
use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};

/// The maximum number of alternatives that one derivative of all expressions writes. A million take
/// a tenth of a second.
const MAX_ALTERNATIVES: u64 = 1_000_000;
/// The maximum product of the alternatives in an intersection. A hundred thousand take a tenth of a
/// second.
const MAX_PRODUCT: u64 = 100_000;
/// The number of bytes in a part that llguidance stores as one expression.
const MAX_BYTES: usize = 31;

/// The bound of an expression. All numbers are upper bounds.
#[derive(Clone, Copy, Default)]
struct RegexWork {
    /// The alternatives of its first derivative.
    first: u64,
    /// The alternatives of any later derivative.
    later: u64,
    /// The alternatives of any derivative if matches may begin at every byte.
    anywhere: u64,
    /// The bytes of its shortest and its longest match.
    shortest: u64,
    longest: u64,
    /// Whether no match is the beginning of another one. Then at most one match of a sequence of
    /// them is open at a time.
    is_prefix_free: bool,
    /// The bytes that a match may begin with.
    begins: ByteSet,
}

/// Refuses expressions of which one step could take long.
pub(super) fn check(builder: &RegexBuilder) -> Result<(), &'static str> {
    let exprs = builder.exprset();
    // Tells repetitions apart without changing the expressions.
    let mut copy = builder.clone();
    let mut works = vec![RegexWork::default()];
    let mut alternatives = 0u64;
    for index in 1..exprs.len() {
        let expr = ExprRef::new(u32::try_from(index).map_err(|_| TOO_MANY)?);
        // An expression is built after its parts.
        let args = exprs.get_args(expr).iter();
        let args: Vec<RegexWork> =
            args.filter_map(|arg| works.get(arg.as_usize()).copied()).collect();
        let mut work = work(exprs, &mut copy, expr, &args)?;
        // Only matches that began within the longest one are open.
        work.anywhere = work.anywhere.min(work.later.saturating_mul(work.longest));
        alternatives = alternatives.saturating_add(work.first);
        works.push(work);
    }
    if alternatives > MAX_ALTERNATIVES { Err(TOO_MANY) } else { Ok(()) }
}

const TOO_MANY: &str = "its regular expressions have too many alternatives";

/// The bound of an expression from those of its parts.
fn work(
    exprs: &ExprSet,
    copy: &mut RegexBuilder,
    expr: ExprRef,
    args: &[RegexWork],
) -> Result<RegexWork, &'static str> {
    let sum = |part: fn(&RegexWork) -> u64| args.iter().map(part).fold(0, u64::saturating_add);
    let product = |part: fn(&RegexWork) -> u64| {
        args.iter().map(part).map(|number| number.max(1)).fold(1, u64::saturating_mul)
    };
    // llguidance exports neither the type of an expression nor its kinds.
    let kind = format!("{:?}", exprs.get_tag(expr));
    Ok(match (kind.as_str(), args) {
        ("EmptyString", _) => RegexWork { is_prefix_free: true, ..RegexWork::default() },
        ("NoMatch", _) => RegexWork::default(),
        ("Byte" | "ByteSet", _) => RegexWork {
            first: 1,
            later: 1,
            anywhere: 1,
            shortest: 1,
            longest: 1,
            is_prefix_free: true,
            begins: ByteSet::having(|byte| !exprs.get(expr).surely_no_match(byte)),
        },
        ("ByteConcat", [tail]) => {
            let bytes = bytes_before_tail(exprs, expr);
            RegexWork {
                first: 1,
                later: tail.later.max(1),
                anywhere: tail.anywhere.saturating_add(bytes),
                shortest: tail.shortest.saturating_add(bytes),
                longest: tail.longest.saturating_add(bytes),
                is_prefix_free: tail.is_prefix_free,
                begins: ByteSet::having(|byte| !exprs.get(expr).surely_no_match(byte)),
            }
        }
        // A multiple of a number: one alternative for each digit and the point.
        ("RemainderIs", _) => RegexWork {
            first: 11,
            later: 1,
            anywhere: 11,
            shortest: 0,
            longest: u64::MAX,
            is_prefix_free: false,
            begins: ByteSet::ALL,
        },
        ("Lookahead", [inner]) => *inner,
        // Its alternatives are disjoint. Disjoint alternatives do not multiply.
        ("Not", [inner]) => RegexWork {
            first: 1,
            later: 1,
            anywhere: inner.anywhere,
            shortest: 0,
            longest: u64::MAX,
            is_prefix_free: false,
            begins: ByteSet::ALL,
        },
        ("Repeat", [part]) => {
            let (least, most) = counts(exprs, copy, expr);
            let counted = u64::from(if most == u32::MAX { least.max(1) } else { most });
            let anywhere = part.anywhere.saturating_mul(counted);
            let longest = if most == u32::MAX { u64::MAX } else { u64::from(most) };
            RegexWork {
                later: if part.is_prefix_free { part.later } else { anywhere },
                anywhere,
                shortest: part.shortest.saturating_mul(u64::from(least)),
                longest: part.longest.saturating_mul(longest),
                is_prefix_free: false,
                ..*part
            }
        }
        ("Concat", [head, tail]) => {
            let is_optional = exprs.is_nullable(exprs.get_args(expr)[0]);
            RegexWork {
                first: head.first.saturating_add(if is_optional { tail.first } else { 0 }),
                later: match head.is_prefix_free {
                    true => head.later.max(tail.later),
                    false => head.later.saturating_add(tail.anywhere),
                },
                anywhere: head.anywhere.saturating_add(tail.anywhere),
                shortest: head.shortest.saturating_add(tail.shortest),
                longest: head.longest.saturating_add(tail.longest),
                is_prefix_free: head.is_prefix_free && tail.is_prefix_free,
                begins: if is_optional { head.begins.or(tail.begins) } else { head.begins },
            }
        }
        ("Or", args) => {
            let shortest = args.iter().map(|work| work.shortest).min().unwrap_or_default();
            let longest = args.iter().map(|work| work.longest).max().unwrap_or_default();
            RegexWork {
                first: sum(|work| work.first),
                later: most_by_first_byte(args),
                anywhere: sum(|work| work.anywhere),
                shortest,
                longest,
                is_prefix_free: !exprs.is_nullable(expr) && is_prefix_free(args),
                begins: args.iter().fold(ByteSet::default(), |all, arg| all.or(arg.begins)),
            }
        }
        ("And", args) => {
            let later = product(|work| work.later);
            if later > MAX_PRODUCT {
                return Err("its regular expressions intersect in too many ways");
            }
            RegexWork {
                first: 1,
                later,
                anywhere: product(|work| work.anywhere),
                shortest: args.iter().map(|work| work.shortest).max().unwrap_or_default(),
                longest: args.iter().map(|work| work.longest).min().unwrap_or_default(),
                is_prefix_free: args.iter().any(|work| work.is_prefix_free),
                begins: args.iter().fold(ByteSet::ALL, |all, arg| all.and(arg.begins)),
            }
        }
        _ => return Err("a regular expression is of an unknown kind"),
    })
}

/// The maximum number of later alternatives of expressions that begin with the same byte.
fn most_by_first_byte(args: &[RegexWork]) -> u64 {
    let mut sums = [0u64; 256];
    for (byte, arg) in args.iter().flat_map(|arg| arg.begins.iter().map(move |byte| (byte, arg))) {
        sums[usize::from(byte)] = sums[usize::from(byte)].saturating_add(arg.later);
    }
    sums.into_iter().max().unwrap_or_default()
}

/// Whether no match of one of these expressions is the beginning of a match of any of them. True
/// only if that is certain: matches that begin with the same byte have the same length.
fn is_prefix_free(args: &[RegexWork]) -> bool {
    let mut lengths: [Option<(u64, u64)>; 256] = [None; 256];
    args.iter().all(|arg| {
        let length = (arg.shortest, arg.longest);
        let is_new = |byte: u8| match lengths[usize::from(byte)].replace(length) {
            Some(other) => other == length && length.0 == length.1,
            None => true,
        };
        arg.is_prefix_free && arg.begins.iter().all(is_new)
    })
}

/// The number of bytes before the tail of an expression that begins with bytes.
fn bytes_before_tail(exprs: &ExprSet, expr: ExprRef) -> u64 {
    const MAX_PARTS: usize = 2 * MAX_BYTES;
    let parts = |expr: ExprRef| match expr {
        ExprRef::EMPTY_STRING => 0,
        expr => exprs.iter_concat_bytes(expr).take(MAX_PARTS).count(),
    };
    let bytes = parts(expr).saturating_sub(parts(exprs.get_args(expr)[0]));
    // The iterator was stopped in the tail.
    let is_certain = parts(expr) < MAX_PARTS;
    if is_certain { bytes as u64 } else { MAX_BYTES as u64 }
}

/// The least and the greatest number of matches of its part in a repetition.
fn counts(exprs: &ExprSet, copy: &mut RegexBuilder, repeat: ExprRef) -> (u32, u32) {
    const MAX_TEXT: usize = 1_000;
    let part = exprs.get_args(repeat)[0];
    let common = [(0, 1), (0, u32::MAX), (1, u32::MAX)];
    let mut is = |(least, most): &(u32, u32)| {
        let ast = RegexAst::Repeat(Box::new(RegexAst::ExprRef(part)), *least, *most);
        copy.mk(&ast).is_ok_and(|expr| expr == repeat)
    };
    if let Some(counts) = common.into_iter().find(&mut is) {
        return counts;
    }
    // Its text ends with the counts, for example `{2, 5}`, unless it is cut.
    let text = exprs.expr_to_string_max_len(repeat, MAX_TEXT);
    let counts = text.strip_suffix('}').and_then(|text| Some(text.rsplit_once('{')?.1));
    let counts = counts.and_then(|counts| counts.split_once(", "));
    match counts.map(|(least, most)| (least.parse(), most.parse())) {
        Some((Ok(least), Ok(most))) => (least, most),
        _ => (0, u32::MAX - 1),
    }
}

/// A set of bytes.
#[derive(Clone, Copy, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    const ALL: ByteSet = ByteSet([u64::MAX; 4]);

    fn having(contains: impl Fn(u8) -> bool) -> ByteSet {
        let mut words = [0; 4];
        for byte in (0..=u8::MAX).filter(|byte| contains(*byte)) {
            words[usize::from(byte / 64)] |= 1 << (byte % 64);
        }
        ByteSet(words)
    }

    fn iter(self) -> impl Iterator<Item = u8> {
        let contains = move |byte: &u8| self.0[usize::from(byte / 64)] & (1 << (byte % 64)) != 0;
        (0..=u8::MAX).filter(contains)
    }

    fn or(self, other: ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|index| self.0[index] | other.0[index]))
    }

    fn and(self, other: ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|index| self.0[index] & other.0[index]))
    }
}
