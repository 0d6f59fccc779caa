//! Builds the grammar of a whole reply.
//!
//! In: the output format of the model, and the requirements of the request. Out: a grammar in Lark,
//! or None if any reply is allowed. Reasoning is free text. It is followed by text, calls, JSON, or
//! whatever the caller's grammar allows.

use serde_json::{Value, json};

use super::calls::{self, AllowedTool, RequestCalls};
use super::channels;
use super::lark::{Lark, SpecialTokenFinder, Symbol, common_prefix, literal, merged, sequence};
use super::request_grammar;
use super::schema::{self, Policy, Relaxed, SchemaReport};
use crate::api::{ResponseFormat, ToolChoice, function_name};
use crate::error::{Code, Error, Result};
use crate::output::expressible::ExpressibleCalls;
use crate::output::families;
use crate::output::format::{Format, ReasoningTags};

/// The path of the schema of `response_format`.
pub(super) const RESPONSE_SCHEMA: &str = "response_format.json_schema.schema";

/// The requirements of a request for its reply.
#[derive(Debug, Clone, Copy)]
pub struct ReplyRequirements<'a> {
    /// The checked tools.
    pub tools: &'a [Value],
    /// Whether tools may or must be called.
    pub choice: &'a ToolChoice,
    /// Whether more than one call is allowed.
    pub parallel: bool,
    /// Whether text without tags may be calls.
    pub untagged: bool,
    /// The `response_format` of the request.
    pub response_format: Option<&'a ResponseFormat>,
    /// Whether lists and strings of its schema that have no bound get one.
    pub bounded: bool,
    /// The caller's grammar for the content.
    pub grammar: Option<&'a str>,
    /// Whether the prompt ends inside reasoning.
    pub reasoning_open: bool,
    /// Whether the prompt ends inside the content of the reply. The grammar of the answer then also
    /// covers the content in the prompt, and [`Constraint::begin_with`] accepts it first.
    ///
    /// [`Constraint::begin_with`]: super::Constraint::begin_with
    pub content_open: bool,
    /// Whether the model is known to reason. Reasoning may then precede forced content. Any other
    /// model that starts to reason would not end its reasoning.
    pub reasons: bool,
}

impl ReplyRequirements<'_> {
    /// Whether the reply continues an answer whose form is fixed. A forced call replaces the
    /// answer.
    pub fn continues_answer(&self) -> bool {
        let has_form = self.response_format.is_some() || self.grammar.is_some();
        self.content_open && has_form && !self.choice.forces_call()
    }

    /// Whether the reply may be any text, with calls that are only offered.
    pub fn allows_free_text(&self) -> bool {
        let has_form = self.response_format.is_some() || self.grammar.is_some();
        !has_form && !self.choice.forces_call()
    }
}

/// A grammar, and the keywords that it does not enforce.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplyGrammar {
    /// The text in Lark; None if nothing is constrained.
    pub lark: Option<String>,
    /// The keywords that were dropped.
    pub relaxed: Vec<Relaxed>,
}

/// The grammar of a reply. `format` is None if the output format is unknown.
pub fn reply_grammar(
    format: Option<&Format>,
    requirements: &ReplyRequirements,
    specials: SpecialTokenFinder,
) -> Result<ReplyGrammar> {
    let mut lark = Lark::new(specials);
    let mut relaxed = Vec::new();
    if requirements.continues_answer() {
        let answer = answer(&mut lark, requirements, &mut relaxed)?.map(|answer| vec![answer]);
        let channels = format.and_then(|format| format.channels.as_ref());
        let ends = channels.map(|channels| channels::optional_end(&mut lark, channels));
        let start = sequence(&answer.into_iter().flatten().chain(ends).collect::<Vec<_>>());
        return Ok(ReplyGrammar { lark: Some(lark.finish(&start)), relaxed });
    }
    let calls = allowed_calls(&mut lark, format, requirements, &mut relaxed)?;
    let answer = answer(&mut lark, requirements, &mut relaxed)?;
    let forced = requirements.choice.forces_call();
    if !forced && answer.is_none() && calls.is_empty() {
        return Ok(ReplyGrammar { lark: None, relaxed });
    }
    if answer.is_some() && !forced && requirements.grammar.is_some() && !calls.is_empty() {
        return Err(Error::invalid(
            "grammar",
            "cannot be used together with tools that may be called",
        ));
    }
    let answer = if forced { None } else { answer };
    let has_channels = format.is_some_and(|format| format.channels.is_some());
    let untagged = if forced || answer.is_some() || calls.is_empty() || has_channels {
        Vec::new()
    } else {
        // Calls of formats without tags have their own beginnings.
        let needs_fence = !requirements.untagged || trigger(&calls).is_none();
        calls::untagged(&mut lark, &allowed_tools(requirements), needs_fence)?
    };
    let start = match format.and_then(|format| format.channels.as_ref()) {
        Some(channels) => {
            let open = requirements.reasoning_open || requirements.content_open;
            channels::start(&mut lark, channels, calls, answer, forced, open)
        }
        None => {
            let parallel = requirements.parallel;
            let mut body =
                Body { lark: &mut lark, format, calls, untagged, answer, forced, parallel };
            body.start(requirements)?
        }
    };
    Ok(ReplyGrammar { lark: Some(lark.finish(&start)), relaxed })
}

/// The tools that may be called.
pub(super) fn allowed_tools<'a>(requirements: &ReplyRequirements<'a>) -> Vec<AllowedTool<'a>> {
    let tools = requirements
        .tools
        .iter()
        .enumerate()
        .map(|(index, definition)| AllowedTool { index, definition });
    let allowed = |tool: &AllowedTool| match requirements.choice {
        ToolChoice::Function(name) => function_name(tool.definition) == name,
        ToolChoice::None => false,
        _ => true,
    };
    tools.filter(allowed).collect()
}

/// The alternatives for the allowed calls; empty if calls are not allowed.
fn allowed_calls(
    lark: &mut Lark,
    format: Option<&Format>,
    requirements: &ReplyRequirements,
    relaxed: &mut Vec<Relaxed>,
) -> Result<Vec<Vec<Symbol>>> {
    let tools = allowed_tools(requirements);
    let forced = requirements.choice.forces_call();
    if tools.is_empty() && !forced {
        return Ok(Vec::new());
    }
    let Some(calls) = format.and_then(|format| format.calls.as_ref()) else {
        if forced {
            let message = "tool_choice: a call cannot be forced, because the tool-call format of \
                           this model is unknown";
            return Err(Error::new(Code::SchemaUnsupported, message));
        }
        return Ok(Vec::new());
    };
    let Some(expressible) = format.and_then(ExpressibleCalls::new) else { return Ok(Vec::new()) };
    let request = RequestCalls::new(&expressible, requirements.tools, &tools, forced);
    let parallel = requirements.parallel && calls.parallel;
    calls::calls_of_turn(lark, calls, &request, parallel, relaxed)
}

/// The rule for required content; None for free text.
fn answer(
    lark: &mut Lark,
    requirements: &ReplyRequirements,
    relaxed: &mut Vec<Relaxed>,
) -> Result<Option<Symbol>> {
    // JSON that the caller has begun may have any layout.
    let json = if requirements.content_open { Lark::json_in_any_layout } else { Lark::json };
    Ok(match (requirements.response_format, requirements.grammar) {
        (Some(ResponseFormat::JsonObject), _) => Some(json(lark, &json!({"type": "object"}))),
        (Some(ResponseFormat::JsonSchema { schema, strict }), _) => {
            let place = RESPONSE_SCHEMA.to_owned();
            let mut report = SchemaReport::new(place, None, Policy::of(*strict), relaxed);
            let checked = schema::check(schema, &mut report)?;
            let checked = if requirements.bounded { checked.bounded() } else { checked };
            Some(json(lark, &checked.json()))
        }
        (None, Some(grammar)) => {
            request_grammar::check(grammar)?;
            Some(lark.rule(&format!("%lark {{\n{grammar}\n}}")))
        }
        (None, None) => None,
    })
}

/// Builds the grammar of a reply without channels.
struct Body<'l, 'a, 'f> {
    lark: &'l mut Lark<'a>,
    format: Option<&'f Format>,
    calls: Vec<Vec<Symbol>>,
    /// Calls without the format's tags, which the reply parser also accepts.
    untagged: Vec<Vec<Symbol>>,
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

    /// The alternatives for the content. If free text is allowed, it comes first.
    fn content(&mut self) -> Result<Vec<Vec<Symbol>>> {
        if let Some(answer) = &self.answer {
            if !self.calls.is_empty() && trigger(&self.calls).is_none() {
                let message = "response_format: cannot be enforced together with tools, because this model writes calls as bare JSON; \
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
        let mut ways = vec![vec![self.lark.free_text()]];
        ways.extend(self.with_foreign_tokens());
        ways.extend(self.triggered());
        if self.untagged.is_empty() {
            return Ok(ways);
        }
        // After such a call, more text or another call may follow.
        let rest = self.lark.reserve();
        ways.extend(
            self.untagged
                .iter()
                .map(|call| [call.as_slice(), &[Symbol::Rule(rest.clone())]].concat()),
        );
        let after = if self.parallel { ways.clone() } else { vec![vec![self.lark.free_text()]] };
        let after = self.lark.choice(after);
        self.lark.define(&rest, &after);
        Ok(ways)
    }

    /// Free text that may contain the control tokens of other families' calls. The reply parser
    /// reads such calls and checks them.
    fn with_foreign_tokens(&mut self) -> Option<Vec<Symbol>> {
        if self.calls.is_empty() {
            return None;
        }
        let own: Vec<&str> = self.format.map(Format::texts).unwrap_or_default();
        let own: Vec<Symbol> = own.into_iter().flat_map(|text| self.lark.symbols(text)).collect();
        let is_foreign =
            |symbol: &Symbol| matches!(symbol, Symbol::Token(_)) && !own.contains(symbol);
        let markers = families::control_markers();
        let tokens = markers.iter().flat_map(|marker| self.lark.symbols(marker));
        let tokens: Vec<Vec<Symbol>> = tokens.filter(is_foreign).map(|token| vec![token]).collect();
        if tokens.is_empty() {
            return None;
        }
        let token = self.lark.choice(tokens);
        let free = self.lark.free_text();
        let text = sequence(std::slice::from_ref(&free));
        let rest = self.lark.rule(&format!("(({token}) {text})+"));
        Some(vec![free, rest])
    }

    /// The alternatives of text up to the start of calls, followed by the calls.
    fn triggered(&mut self) -> Vec<Vec<Symbol>> {
        let Some((marker, calls)) = trigger(&self.calls) else {
            // Without a marker, text counts as a call if it begins like a call of an allowed tool,
            // up to the arguments.
            return self.calls.clone().into_iter().filter_map(|call| self.bare(call)).collect();
        };
        let calls = self.lark.choice_rule(calls);
        vec![self.lark.text_until(&marker, calls)]
    }

    fn bare(&mut self, call: Vec<Symbol>) -> Option<Vec<Symbol>> {
        let mut call = merged(call);
        let Some(Symbol::Text(head)) = call.first().cloned() else { return None };
        call.remove(0);
        let head = self.lark.lazy(&format!("/[ \\n]*/ {}", literal(head.trim_start())));
        Some([vec![head], call].concat())
    }

    /// A choice between the alternatives for the content, after optional whitespace.
    fn begin(&mut self, ways: Vec<Vec<Symbol>>) -> String {
        if self.is_free() {
            let ways = self.lark.choice(ways);
            return self.wrapped(&ways);
        }
        let choice = self.lark.choice(ways.clone());
        self.after_whitespace(&ways, &choice)
    }

    fn is_free(&self) -> bool {
        self.answer.is_none() && !self.forced
    }

    fn after_whitespace(&mut self, ways: &[Vec<Symbol>], choice: &str) -> String {
        let starts_with_whitespace = |way: &Vec<Symbol>| matches!(way.first(), Some(Symbol::Text(text)) if text.starts_with(char::is_whitespace));
        if ways.iter().any(starts_with_whitespace) {
            return choice.to_owned();
        }
        let whitespace = self.lark.terminal("/[ \\n]{1,3}/");
        format!("{}? ({choice})", sequence(&[whitespace]))
    }

    /// Free text, with wrappers of visible text and repeated headers that are special tokens.
    fn wrapped(&mut self, ways: &str) -> String {
        let wrappers = self.format.map(|format| format.wrappers.as_slice()).unwrap_or_default();
        let texts = wrappers.iter().flat_map(|wrapper| [&wrapper.open, &wrapper.close]);
        let texts = texts.chain(self.format.map(|format| &format.repeated_header));
        let tags = texts
            .map(|text| self.lark.symbols(text))
            .filter(|symbols| matches!(symbols.first(), Some(Symbol::Token(_))));
        let tags: Vec<_> = tags.collect();
        if tags.is_empty() {
            return ways.to_owned();
        }
        let tag = self.lark.choice(tags);
        let free = sequence(&[self.lark.free_text()]);
        format!("({free} ({tag}))* ({ways})")
    }

    /// The rest of a reply that begins inside its reasoning.
    fn inside(&mut self, reasoning: &ReasoningTags, after: Symbol) -> String {
        let close = self.lark.symbols(&reasoning.close);
        let mut ways = vec![self.lark.text_until(&close, after)];
        if self.is_free() {
            ways.push(vec![self.lark.free_text()]);
        }
        if reasoning.closed_by_call
            && let Some((marker, calls)) = trigger(&self.calls)
        {
            let calls = self.lark.choice_rule(calls);
            ways.push(self.lark.text_until(&marker, calls));
        }
        self.lark.choice(ways)
    }

    /// A reply with optional reasoning.
    fn optional(
        &mut self,
        reasoning: &ReasoningTags,
        mut ways: Vec<Vec<Symbol>>,
        inside: Symbol,
        after: Symbol,
    ) -> String {
        let open = self.lark.symbols(&reasoning.open);
        let close = self.lark.symbols(&reasoning.close);
        let close_alone = reasoning.close_only || open.is_empty();
        if !self.is_free() {
            if !open.is_empty() {
                ways.push([open, vec![inside]].concat());
            }
            if close_alone {
                ways.push([close, vec![after]].concat());
            }
            let choice = self.lark.choice(ways.clone());
            return self.after_whitespace(&ways, &choice);
        }
        let mut ways = vec![vec![after.clone()]];
        match open.split_first() {
            None => {}
            Some((Symbol::Text(text), rest)) => {
                let open = self.lark.lazy(&format!("/[ \\n]*/ {}", literal(text)));
                ways.push([vec![open], rest.to_vec(), vec![inside]].concat());
            }
            Some(_) => {
                let whitespace = self.lark.terminal("/[ \\n]*/");
                ways.push([vec![whitespace], open, vec![inside]].concat());
            }
        }
        // If the closing tag is plain text, the free text already includes it.
        if close_alone && matches!(close.first(), Some(Symbol::Token(_))) {
            ways.push(self.lark.text_until(&close, after));
        }
        self.lark.choice(ways)
    }
}

/// The marker at the start of all these calls, and the rest of each call. None if they have no
/// common start that is unlikely in ordinary text.
fn trigger(calls: &[Vec<Symbol>]) -> Option<(Vec<Symbol>, Vec<Vec<Symbol>>)> {
    let mut calls: Vec<Vec<Symbol>> = calls.iter().cloned().map(merged).collect();
    // The free text includes the whitespace before the marker.
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
            marker_of(texts.fold(text.as_str(), common_prefix))?.to_owned()
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

/// The marker at the start of a text: a tag, a word in brackets, or a word up to the first bracket.
fn marker_of(text: &str) -> Option<&str> {
    let end = match text.chars().next()? {
        '<' => text.find(['>', '=', ' ', '\n']).map(|end| end + 1),
        '[' if text[1..].starts_with(char::is_alphabetic) => text.find(']').map(|end| end + 1),
        '{' | '[' | '"' => None,
        _ => text.find(['[', '{', '\n']).map(|end| end + 1).or(Some(text.len())),
    }?;
    let tag = text[..end].trim_end();
    // One or two letters are likely in any text.
    (tag.chars().count() > 2).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers() {
        assert_eq!(marker_of("<tool_call>\n{\"name\": \""), Some("<tool_call>"));
        assert_eq!(marker_of("<function="), Some("<function="));
        assert_eq!(marker_of("<function name=\""), Some("<function"));
        assert_eq!(marker_of("[TOOL_CALLS][{"), Some("[TOOL_CALLS]"));
        assert_eq!(marker_of("functools[{"), Some("functools["));
        assert_eq!(marker_of("]<]minimax[>[<tool_call>\n"), Some("]<]minimax["));
        assert_eq!(marker_of("{\"name\": \""), None);
        assert_eq!(marker_of("[{\"name\": \""), None);
        assert_eq!(marker_of(""), None);
    }
}
