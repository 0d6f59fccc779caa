//! Checks the limits of a caller's grammar in Lark.
//!
//! llguidance limits most of the costs of a grammar, but not all. A grammar that is refused here
//! would take minutes to compile, or recurse too deeply while a reply is generated.

use crate::error::{Code, Error, Result};

/// The maximum number of rules, groups, alternatives and items. llguidance's memory grows with the
/// square of the number of terminals: 200 MB for 10,000.
const MAX_ELEMENTS: usize = 10_000;
/// The maximum length in bytes. The compiler's first step takes a tenth of a second for 100 KB, and
/// nothing can stop it.
const MAX_BYTES: usize = 256 << 10;
/// The maximum number of classes of characters in expressions that ignore case. llguidance computes
/// both cases of all characters of each.
const MAX_FOLDED_CLASSES: usize = 2_000;
/// The maximum nesting of a condition in a parametric rule.
const MAX_CONDITION_DEPTH: usize = 50;
/// The maximum product of the repetitions in a definition that intersects or negates expressions.
const MAX_REPETITIONS: u64 = 100_000;

/// Refuses a grammar that is too large.
pub(super) fn check(grammar: &str) -> Result<()> {
    let classes = classes(grammar);
    if classes > MAX_FOLDED_CLASSES && ignores_case(grammar) {
        return Err(refused(&format!(
            "it ignores case and has about {classes} classes of characters, more than {MAX_FOLDED_CLASSES}"
        )));
    }
    let elements = elements(grammar);
    if elements > MAX_ELEMENTS {
        return Err(refused(&format!(
            "it has about {elements} rules, groups, alternatives and items, more than {MAX_ELEMENTS}"
        )));
    }
    if grammar.len() > MAX_BYTES {
        return Err(refused(&format!("it has more than {MAX_BYTES} bytes")));
    }
    for (line, text) in (1..).zip(grammar.lines()) {
        if text.split("%if").skip(1).any(|condition| depth(condition) > MAX_CONDITION_DEPTH) {
            return Err(refused(&format!(
                "line {line}: a condition is nested more than {MAX_CONDITION_DEPTH} levels deep"
            )));
        }
        if intersects(text) && repetitions(text) > MAX_REPETITIONS {
            return Err(refused(&format!(
                "line {line}: the product of its repetitions is more than {MAX_REPETITIONS}, too \
                 many with `&` or `~`"
            )));
        }
    }
    Ok(())
}

fn refused(reason: &str) -> Error {
    Error::new(Code::SchemaUnsupported, format!("grammar: cannot be enforced: {reason}"))
}

/// An upper bound for the nesting of a grammar: each rule, group, alternative, schema and list item
/// needs one of these characters.
pub(super) fn elements(lark: &str) -> usize {
    lark.bytes().filter(|byte| matches!(byte, b':' | b'(' | b'[' | b'{' | b',' | b'|')).count()
}

/// An upper bound for the number of classes of characters.
fn classes(grammar: &str) -> usize {
    let escaped = ["\\p", "\\P", "\\w", "\\W", "\\d", "\\D", "\\s", "\\S"];
    let escaped = escaped.iter().map(|class| grammar.matches(class).count()).sum::<usize>();
    escaped + grammar.matches('[').count()
}

/// Whether expressions may ignore case: flags with `i` follow a text, an expression or `(?`.
fn ignores_case(grammar: &str) -> bool {
    let is_flag = |char: &char| char.is_ascii_alphabetic();
    let flags = |rest: &str| rest.chars().take_while(is_flag).any(|char| char == 'i');
    ["\"", "/", "(?"].iter().any(|before| grammar.split(before).skip(1).any(flags))
}

/// The nesting of the condition at the start of a text.
fn depth(text: &str) -> usize {
    let of_condition = |char: &char| char.is_ascii_alphanumeric() || "_-,:()[] \t".contains(*char);
    let (mut depth, mut deepest) = (0usize, 0);
    for char in text.chars().take_while(of_condition) {
        match char {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Whether a definition may intersect or negate expressions. `~3` is a repetition, not a negation.
fn intersects(line: &str) -> bool {
    let negates = |rest: &str| !rest.trim_start().starts_with(|char: char| char.is_ascii_digit());
    line.contains('&') || line.split('~').skip(1).any(negates)
}

/// The product of the largest counts of all repetitions: `{2,5}`, `{3}`, `~1..4`.
fn repetitions(line: &str) -> u64 {
    let mut product = 1u64;
    for (at, char) in line.char_indices().filter(|(_, char)| matches!(char, '{' | '~')) {
        let rest = &line[at + char.len_utf8()..];
        let counts = rest.find(|char: char| !char.is_ascii_digit() && !",. ".contains(char));
        let counts = rest[..counts.unwrap_or(rest.len())].split([',', '.', ' ']);
        let most = counts.filter_map(|count| count.parse::<u64>().ok()).max();
        product = product.saturating_mul(most.unwrap_or(1).max(1));
    }
    product
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(grammar: &str, expected: &str) {
        let found = super::check(grammar).err().map(|error| error.message().to_owned());
        let found = found.unwrap_or_default();
        assert_eq!(found.strip_prefix("grammar: cannot be enforced: ").unwrap_or(&found), expected);
    }

    #[test]
    fn large_grammars_are_refused() {
        check("start: \"a\" | /(b{1,3}){2}/\nID: /[a-z]{1,64}/ & ~/admin.{0,10}/", "");
        check(&format!("start: \"{}\"", "a".repeat(300_000)), "it has more than 262144 bytes");
        let classes = "\\p{L}x[a-z]".repeat(1_500);
        check(&format!("start: /{classes}/"), "");
        let folded = "it ignores case and has about 3000 classes of characters, more than 2000";
        check(&format!("start: /(?si){classes}/"), folded);
        check(&format!("start: /{classes}/i"), folded);
        check("start: a~1..1000000\na: /([a-z]{1,1000}-){1,1000}/", "");
        check(
            &format!("start: {}", "\"a\" | ".repeat(20_000)),
            "it has about 20001 rules, groups, alternatives and items, more than 10000",
        );
        let condition = |depth| {
            format!(
                "start: a::0\na::_: \"x\" %if {}true{}",
                "not(".repeat(depth),
                ")".repeat(depth)
            )
        };
        check(&condition(50), "");
        check(&condition(51), "line 2: a condition is nested more than 50 levels deep");
        let nested = format!("T: /{}a{}/ & U~1..3", "(".repeat(9), "){2,5}".repeat(9));
        check(
            &nested,
            "line 1: the product of its repetitions is more than 100000, too many with `&` or `~`",
        );
        check(&nested.replace('&', "|"), "");
    }
}
