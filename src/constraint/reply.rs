//! The grammar of a whole reply.
//!
//! In: how the model writes, and what the request wants. Out: Lark, or nothing where any reply will
//! do. Reasoning is free; what follows is text, calls, JSON, or what a grammar of the caller's
//! says.

use serde_json::{Value, json};

use super::calls::{self, Tool};
use super::channels;
use super::fenced;
use super::lark::{Lark, SpecialTokenFinder, Symbol, common_prefix, literal, merged, sequence};
use super::schema::{self, Policy, Relaxed, SchemaReport};
use crate::api::{ResponseFormat, ToolChoice, function_name};
use crate::error::{Code, Error, Result};
use crate::output::format::{Format, ReasoningTags};

/// What a request wants of the reply.
#[derive(Debug, Clone, Copy)]
pub struct ReplyRequirements<'a> {
    /// The checked tools.
    pub tools: &'a [Value],
    /// Whether they may or must be called.
    pub choice: &'a ToolChoice,
    /// Whether more than one call may be made.
    pub parallel: bool,
    /// `response_format`.
    pub response_format: Option<&'a ResponseFormat>,
    /// A grammar of the caller's, for the content.
    pub grammar: Option<&'a str>,
    /// Whether the prompt ends inside reasoning.
    pub reasoning_open: bool,
    /// Whether this model is known to reason: then it may also before what it is forced to write.
    /// Another one that begins to would find no end.
    pub reasons: bool,
}

/// A grammar, and what of the schemas it does not enforce.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplyGrammar {
    /// Lark; None where nothing is constrained.
    pub lark: Option<String>,
    /// Keywords that were dropped.
    pub relaxed: Vec<Relaxed>,
}

/// The grammar of a reply. `format` is None where it is not known how the model writes calls.
pub fn reply_grammar(
    format: Option<&Format>,
    requirements: &ReplyRequirements,
    specials: SpecialTokenFinder,
) -> Result<ReplyGrammar> {
    let mut lark = Lark::new(specials);
    let mut relaxed = Vec::new();
    let calls = turns(&mut lark, format, requirements, &mut relaxed)?;
    let answer = answer(&mut lark, requirements, &mut relaxed)?;
    let forced = requirements.choice.forces_call();
    if !forced && answer.is_none() && calls.is_empty() {
        return Ok(ReplyGrammar::default());
    }
    if answer.is_some() && !forced && requirements.grammar.is_some() && !calls.is_empty() {
        return Err(Error::invalid(
            "grammar",
            "cannot be used together with tools that may be called",
        ));
    }
    let answer = if forced { None } else { answer };
    let fenced = match format {
        Some(format) if format.fenced_calls && !forced && answer.is_none() && !calls.is_empty() => {
            fenced::ways(&mut lark, &allowed(requirements))?
        }
        _ => Vec::new(),
    };
    let start = match format.and_then(|format| format.channels.as_ref()) {
        Some(channels) => channels::start(&mut lark, channels, calls, answer, forced),
        None => {
            let parallel = requirements.parallel;
            let mut body =
                Body { lark: &mut lark, format, calls, fenced, answer, forced, parallel };
            body.start(requirements)?
        }
    };
    Ok(ReplyGrammar { lark: Some(lark.finish(&start)), relaxed })
}

/// The tools that may be called.
fn allowed<'a>(requirements: &ReplyRequirements<'a>) -> Vec<Tool<'a>> {
    let tools =
        requirements.tools.iter().enumerate().map(|(index, definition)| Tool { index, definition });
    let allowed = |tool: &Tool| match requirements.choice {
        ToolChoice::Function(name) => function_name(tool.definition) == name,
        ToolChoice::None => false,
        _ => true,
    };
    tools.filter(allowed).collect()
}

/// The ways to write the calls that are allowed; none where calls are not.
fn turns(
    lark: &mut Lark,
    format: Option<&Format>,
    requirements: &ReplyRequirements,
    relaxed: &mut Vec<Relaxed>,
) -> Result<Vec<Vec<Symbol>>> {
    let tools = allowed(requirements);
    let forced = requirements.choice.forces_call();
    if tools.is_empty() && !forced {
        return Ok(Vec::new());
    }
    let Some(calls) = format.and_then(|format| format.calls.as_ref()) else {
        if forced {
            let message = "tool_choice: a call cannot be forced, since how this model writes calls is not known";
            return Err(Error::new(Code::SchemaUnsupported, message));
        }
        return Ok(Vec::new());
    };
    let policy = if forced { Policy::Strict } else { Policy::Relax };
    calls::turn(lark, calls, &tools, policy, requirements.parallel && calls.parallel, relaxed)
}

/// What the content must be; None where it is free.
fn answer(
    lark: &mut Lark,
    requirements: &ReplyRequirements,
    relaxed: &mut Vec<Relaxed>,
) -> Result<Option<Symbol>> {
    Ok(match (requirements.response_format, requirements.grammar) {
        (Some(ResponseFormat::JsonObject), _) => Some(lark.json(&json!({"type": "object"}))),
        (Some(ResponseFormat::JsonSchema(schema)), _) => {
            let place = "response_format.json_schema.schema".to_owned();
            let mut report = SchemaReport::new(place, None, Policy::Strict, relaxed);
            let checked = schema::check(schema, &mut report)?;
            Some(lark.json(&checked.json()))
        }
        (None, Some(grammar)) => Some(lark.rule(&format!("%lark {{\n{grammar}\n}}"))),
        (None, None) => None,
    })
}

/// A reply without channels.
struct Body<'l, 'a, 'f> {
    lark: &'l mut Lark<'a>,
    format: Option<&'f Format>,
    calls: Vec<Vec<Symbol>>,
    /// Calls in fenced blocks, which count all the same.
    fenced: Vec<Vec<Symbol>>,
    answer: Option<Symbol>,
    forced: bool,
    parallel: bool,
}

impl Body<'_, '_, '_> {
    fn start(&mut self, requirements: &ReplyRequirements) -> Result<String> {
        let may_reason = requirements.reasons || requirements.reasoning_open || self.is_free();
        let reasoning =
            self.format.and_then(|format| format.reasoning.as_ref()).filter(|_| may_reason);
        let ways = self.content()?;
        let Some(reasoning) = reasoning else { return Ok(self.begin(ways)) };
        let after = self.begin(ways.clone());
        let after = self.lark.rule(&after);
        let inside = self.inside(reasoning, after.clone());
        if requirements.reasoning_open {
            return Ok(inside);
        }
        let inside = self.lark.rule(&inside);
        Ok(self.optional(reasoning, ways, inside, after))
    }

    /// The ways content can be. Where free text is one of them, it is the first.
    fn content(&mut self) -> Result<Vec<Vec<Symbol>>> {
        if let Some(answer) = &self.answer {
            if !self.calls.is_empty() && trigger(&self.calls).is_none() {
                let message = "response_format: cannot be enforced beside tools, since this model writes calls as bare JSON; \
                               use tool_choice \"none\" or \"required\"";
                return Err(Error::new(Code::SchemaUnsupported, message));
            }
            let mut ways = self.calls.clone();
            ways.push(vec![answer.clone()]);
            return Ok(ways);
        }
        if self.forced {
            return Ok(self.calls.clone());
        }
        let mut ways = vec![vec![free_text(self.lark)]];
        ways.extend(self.triggered());
        if self.fenced.is_empty() {
            return Ok(ways);
        }
        // What follows such a call is a reply once more.
        let rest = self.lark.reserve();
        ways.extend(
            self.fenced
                .iter()
                .map(|call| [call.as_slice(), &[Symbol::Rule(rest.clone())]].concat()),
        );
        let after = if self.parallel { ways.clone() } else { vec![vec![free_text(self.lark)]] };
        let after = self.lark.choice(after);
        self.lark.define(&rest, &after);
        Ok(ways)
    }

    /// Text up to where calls begin, and calls.
    fn triggered(&mut self) -> Vec<Vec<Symbol>> {
        let Some((marker, calls)) = trigger(&self.calls) else {
            // No marker: a call is what begins like one of a given tool, arguments and all, and
            // nothing else.
            return self.calls.clone().into_iter().filter_map(|call| self.bare(call)).collect();
        };
        let calls = self.lark.choice_rule(calls);
        vec![text_until(self.lark, &marker, calls)]
    }

    fn bare(&mut self, call: Vec<Symbol>) -> Option<Vec<Symbol>> {
        let mut call = merged(call);
        let Some(Symbol::Text(head)) = call.first().cloned() else { return None };
        call.remove(0);
        let head = self.lark.lazy(&format!("/[ \\n]*/ {}", literal(head.trim_start())));
        Some([vec![head], call].concat())
    }

    /// A choice among the ways of content, behind blanks.
    fn begin(&mut self, ways: Vec<Vec<Symbol>>) -> String {
        if self.is_free() {
            let ways = self.lark.choice(ways);
            return self.wrapped(&ways);
        }
        let choice = self.lark.choice(ways.clone());
        self.behind_blanks(&ways, &choice)
    }

    fn is_free(&self) -> bool {
        self.answer.is_none() && !self.forced
    }

    fn behind_blanks(&mut self, ways: &[Vec<Symbol>], choice: &str) -> String {
        let blank = |way: &Vec<Symbol>| matches!(way.first(), Some(Symbol::Text(text)) if text.starts_with(char::is_whitespace));
        if ways.iter().any(blank) {
            return choice.to_owned();
        }
        let blanks = self.lark.terminal("/[ \\n]{1,3}/");
        format!("{}? ({choice})", sequence(&[blanks]))
    }

    /// Free text in which the tags around visible text may stand, where those are special tokens.
    fn wrapped(&mut self, ways: &str) -> String {
        let wrappers = self.format.map(|format| format.wrappers.as_slice()).unwrap_or_default();
        let texts = wrappers.iter().flat_map(|wrapper| [&wrapper.open, &wrapper.close]);
        let tags = texts
            .map(|text| self.lark.symbols(text))
            .filter(|symbols| matches!(symbols.first(), Some(Symbol::Token(_))));
        let tags: Vec<_> = tags.collect();
        if tags.is_empty() {
            return ways.to_owned();
        }
        let tag = self.lark.choice(tags);
        let free = sequence(&[free_text(self.lark)]);
        format!("({free} ({tag}))* ({ways})")
    }

    /// The rest of a reply that stands in reasoning.
    fn inside(&mut self, reasoning: &ReasoningTags, after: Symbol) -> String {
        let close = self.lark.symbols(&reasoning.close);
        let mut ways = vec![text_until(self.lark, &close, after)];
        if self.is_free() {
            ways.push(vec![free_text(self.lark)]);
        }
        if reasoning.closed_by_call
            && let Some((marker, calls)) = trigger(&self.calls)
        {
            let calls = self.lark.choice_rule(calls);
            ways.push(text_until(self.lark, &marker, calls));
        }
        self.lark.choice(ways)
    }

    /// A reply that may begin with reasoning.
    fn optional(
        &mut self,
        reasoning: &ReasoningTags,
        mut ways: Vec<Vec<Symbol>>,
        inside: Symbol,
        after: Symbol,
    ) -> String {
        let open = self.lark.symbols(&reasoning.open);
        let close = self.lark.symbols(&reasoning.close);
        let alone = reasoning.close_only || open.is_empty();
        if !self.is_free() {
            if !open.is_empty() {
                ways.push([open, vec![inside]].concat());
            }
            if alone {
                ways.push([close, vec![after]].concat());
            }
            let choice = self.lark.choice(ways.clone());
            return self.behind_blanks(&ways, &choice);
        }
        let mut ways = vec![vec![after.clone()]];
        match open.split_first() {
            None => {}
            Some((Symbol::Text(text), rest)) => {
                let open = self.lark.lazy(&format!("/[ \\n]*/ {}", literal(text)));
                ways.push([vec![open], rest.to_vec(), vec![inside]].concat());
            }
            Some(_) => {
                let blanks = self.lark.terminal("/[ \\n]*/");
                ways.push([vec![blanks], open, vec![inside]].concat());
            }
        }
        // As text the end alone is free text already.
        if alone && matches!(close.first(), Some(Symbol::Token(_))) {
            ways.push(text_until(self.lark, &close, after));
        }
        self.lark.choice(ways)
    }
}

/// Any text.
pub(super) fn free_text(lark: &mut Lark) -> Symbol {
    lark.terminal("/(?s:.*)/")
}

/// Text up to a marker, the marker, and what follows.
pub(super) fn text_until(lark: &mut Lark, marker: &[Symbol], then: Symbol) -> Vec<Symbol> {
    let start = match marker {
        [Symbol::Text(text), Symbol::Token(_), ..] => {
            lark.terminal(&format!("/(?s:.*)/ {}", literal(text)))
        }
        [Symbol::Text(text), ..] => lark.lazy(&format!("/(?s:.*)/ {}", literal(text))),
        _ => return [vec![free_text(lark)], marker.to_vec(), vec![then]].concat(),
    };
    [vec![start], marker[1..].to_vec(), vec![then]].concat()
}

/// The marker with which all of these calls begin, and what follows it in each. None where they
/// begin with nothing that text would not begin with.
fn trigger(calls: &[Vec<Symbol>]) -> Option<(Vec<Symbol>, Vec<Vec<Symbol>>)> {
    let mut calls: Vec<Vec<Symbol>> = calls.iter().cloned().map(merged).collect();
    // Free text holds the blanks before it.
    for call in &mut calls {
        if let Some(Symbol::Text(text)) = call.first_mut() {
            *text = text.trim_start().to_owned();
        }
    }
    let mut calls: Vec<Vec<Symbol>> = calls.into_iter().map(merged).collect();
    let marker = match calls.first()?.first()? {
        token @ Symbol::Token(_) => {
            let token = token.clone();
            if calls.iter().any(|call| call.first() != Some(&token)) {
                return None;
            }
            calls.iter_mut().for_each(|call| drop(call.remove(0)));
            return Some((vec![token], calls));
        }
        Symbol::Text(text) => {
            let texts = calls.iter().map(|call| match call.first() {
                Some(Symbol::Text(text)) => text.as_str(),
                _ => "",
            });
            tag(texts.fold(text.as_str(), common_prefix))?.to_owned()
        }
        Symbol::Rule(_) => return None,
    };
    for call in &mut calls {
        if let Some(Symbol::Text(text)) = call.first_mut() {
            text.drain(..marker.len());
        }
    }
    Some((vec![Symbol::Text(marker)], calls.into_iter().map(merged).collect()))
}

/// What of a text is a marker: a tag, a word in brackets, or a word with what follows it up to the
/// first bracket.
fn tag(text: &str) -> Option<&str> {
    let end = match text.chars().next()? {
        '<' => text.find(['>', '=', ' ', '\n']).map(|end| end + 1),
        '[' if text[1..].starts_with(char::is_alphabetic) => text.find(']').map(|end| end + 1),
        '{' | '[' | '"' => None,
        _ => text.find(['[', '{', '\n']).map(|end| end + 1).or(Some(text.len())),
    }?;
    let tag = text[..end].trim_end();
    // A word of one or two letters would stand in any text.
    (tag.chars().count() > 2).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers() {
        assert_eq!(tag("<tool_call>\n{\"name\": \""), Some("<tool_call>"));
        assert_eq!(tag("<function="), Some("<function="));
        assert_eq!(tag("<function name=\""), Some("<function"));
        assert_eq!(tag("[TOOL_CALLS][{"), Some("[TOOL_CALLS]"));
        assert_eq!(tag("functools[{"), Some("functools["));
        assert_eq!(tag("]<]minimax[>[<tool_call>\n"), Some("]<]minimax["));
        assert_eq!(tag("{\"name\": \""), None);
        assert_eq!(tag("[{\"name\": \""), None);
        assert_eq!(tag(""), None);
    }
}
