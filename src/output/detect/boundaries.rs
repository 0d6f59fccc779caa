//! Cuts the assistant's reply out of a rendered history, and sets up a parser for it.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::infer::markers::{find_wrapper, leading_marker, snap_left, snap_right};
use super::opener::{TurnOpener, before_reply};
use crate::output::format::{Format, Wrapper, tags};
use crate::output::{ReplyParser, ReplyParserInput, TurnMarkup};
use crate::probing::diff::{after_last, common_prefix, common_suffix, text_between};
use crate::probing::{Probe, ProbeRenderer};

/// The user message that every history of the round trip starts with.
const USER: &str = "Gimble the wabe.";
/// The user message after the answer.
const NEXT_USER: &str = "Outgrabe the raths.";
pub(super) const CONTENT: &str = "Zarvox quillem.";
pub(super) const REASONING: &str = "Brindle first, then quorv.";

/// The tail of a render, from the generation prompt on, with and without reasoning and tools.
pub(crate) struct TurnBoundaries {
    user: String,
    with_prompt: Result<String, String>,
    plain: String,
    /// `plain` with reasoning.
    reasoned: String,
    /// `plain` without tools.
    without_tools: String,
    /// The answer followed by another user message.
    continued: String,
    /// The texts before two user messages, without tools.
    before_users: Option<[String; 2]>,
}

impl TurnBoundaries {
    /// Renders a user turn, the same with a generation prompt, and the same with an answer.
    pub(crate) fn new(renderer: &ProbeRenderer<'_>, tools: &[Value]) -> TurnBoundaries {
        let user = TurnBoundaries::history(tools);
        let plain = user.clone().assistant(CONTENT);
        let next = json!({ "role": "user", "content": NEXT_USER });
        let reasoned = json!({
            "role": "assistant", "content": CONTENT, "reasoning_content": REASONING,
        });
        let before = |probe: Probe, message| {
            let text = renderer.prompt(&probe)?;
            text.rsplit_once(message).map(|(before, _)| before.to_owned())
        };
        let first = Probe::from_user(USER);
        // Without a full stop, which may also end the system message.
        let answer = CONTENT.trim_end_matches('.');
        let second = first.clone().assistant(answer).user(NEXT_USER);
        let before_users = before(first, USER).zip(before(second, NEXT_USER));
        TurnBoundaries {
            before_users: before_users.map(|(first, second)| [first, second]),
            user: renderer.render(&user).unwrap_or_default(),
            with_prompt: renderer.render(&user.clone().generation_prompt()),
            plain: renderer.render(&plain).unwrap_or_default(),
            continued: renderer.render(&plain.clone().message(next)).unwrap_or_default(),
            reasoned: renderer.render(&user.clone().message(reasoned)).unwrap_or_default(),
            without_tools: renderer
                .render(&Probe::from_user(USER).assistant(CONTENT))
                .unwrap_or_default(),
        }
    }

    /// A conversation with these tools that starts with the user message.
    pub(crate) fn history(tools: &[Value]) -> Probe {
        Probe::from_user(USER).tools(tools)
    }

    /// What opens an assistant turn, for a parser of this format.
    pub(super) fn opener(&self, format: Option<&Format>) -> TurnOpener {
        match &self.with_prompt {
            Ok(with_prompt) => TurnOpener::find(&self.user, with_prompt, &self.plain, format),
            Err(_) => TurnOpener::default(),
        }
    }

    /// The text that the template appends to ask for a reply.
    pub(super) fn generation_prompt(&self) -> &str {
        let with_prompt = self.with_prompt.as_deref().unwrap_or_default();
        &with_prompt[common_prefix(&self.user, with_prompt)..]
    }

    /// The markup around every answer.
    pub(super) fn turn_markup(&self, format: Option<&Format>) -> TurnMarkup {
        let with_prompt = self.with_prompt.as_deref().unwrap_or_default();
        let start = common_prefix(&self.user, with_prompt);
        // The user turn alone may end with the start of the same tag.
        let tag = &with_prompt[snap_left(with_prompt, start)..start];
        let opener = format!("{tag}{}", self.opener(format).text());
        let prompt = format!("{tag}{}", self.generation_prompt());
        // If the prompt already contains tags of the answer, the reply parser reads them itself.
        let format_tags = format.filter(|format| format.channels.is_none());
        let prompt = before_reply(&prompt, format_tags);
        let after = self.plain.rsplit_once(CONTENT).map_or("", |(_, after)| after);
        let next = text_between(&self.continued, CONTENT, NEXT_USER);
        let openers = [&opener, prompt, self.header_without_prompt(format)];
        TurnMarkup::new(&openers, after, next, format)
    }

    /// The text that opens an assistant turn in a template that always writes the generation
    /// prompt.
    fn unconditional_prompt(&self) -> &str {
        if self.with_prompt.as_ref() != Ok(&self.user) {
            return "";
        }
        let prompt = after_last(&self.user, USER).trim_start();
        let shared = common_prefix(prompt, after_last(&self.plain, USER).trim_start());
        prompt[..snap_left(prompt, shared)].trim()
    }

    /// A render without the text that the template also writes after a user message, such as the
    /// end of the turn, or a generation prompt that it always writes.
    fn without_appended<'a>(&self, whole: &'a str) -> &'a str {
        let shared = common_suffix(after_last(&self.user, USER), whole);
        let at = snap_right(whole, whole.len() - shared);
        if leading_marker(&whole[at..]).is_some() { &whole[..at] } else { whole }
    }

    /// The text before every answer of a template without a generation prompt. Empty if it has no
    /// word besides its tags, because it then ends the user's turn.
    fn header_without_prompt(&self, format: Option<&Format>) -> &str {
        let written = || {
            let shared = common_prefix(&self.user, &self.plain);
            let before = self.plain.split_at_checked(shared)?.1.split_once(CONTENT)?.0;
            Some(before_reply(before, format).trim())
        };
        let names_role = |header: &&str| {
            let tags = tags(header).into_iter();
            tags.fold((*header).to_owned(), |it, tag| it.replace(tag, ""))
                .contains(char::is_alphabetic)
        };
        let always = Some(self.unconditional_prompt()).filter(names_role);
        let has_prompt = self.with_prompt.as_ref() != Ok(&self.user);
        let written = || written().filter(|header| !has_prompt && names_role(header));
        always.or_else(written).unwrap_or_default()
    }

    /// The assistant's part of a history that ends with it. If the template writes a message as
    /// several turns, they are joined.
    pub(crate) fn reply<'a>(&self, format: &Format, whole: &'a str) -> Cow<'a, str> {
        let opener = self.opener(Some(format));
        let end_of_turn = self.plain.rsplit_once(CONTENT).map_or("", |(_, end)| end);
        let reply = &whole[opener.start(&self.user, whole, USER, format)..];
        let reply = Some(self.unconditional_prompt())
            .filter(|prompt| !prompt.is_empty())
            .and_then(|prompt| reply.trim_start().strip_prefix(prompt))
            .unwrap_or(reply);
        let next_prompt = match opener.text() {
            "" => self.unconditional_prompt(),
            text => text,
        };
        let reply = without_turn_ends(self.without_appended(reply), end_of_turn, next_prompt);
        let own = opener.text().trim();
        let is_format_text =
            || format.channels.is_some() || format.texts().iter().any(|text| text.contains(own));
        if own.len() < 2 || !reply.contains(own) || is_format_text() {
            return reply.into();
        }
        let next = format!("{}{}", end_of_turn.trim_start(), opener.text());
        reply.replace(&next, "").replace(opener.text(), "").into()
    }

    /// The tags that the template writes around the content of an answer, with or without reasoning
    /// before it. `None` for a reply of several messages, because their headers are not tags.
    pub(super) fn content_wrapper(&self, format: &Format) -> Option<Wrapper> {
        let opener = self.opener(Some(format));
        let prompted =
            !opener.text().trim().is_empty() || self.with_prompt.as_ref() == Ok(&self.user);
        if !prompted || format.channels.is_some() {
            return None;
        }
        [&self.plain, &self.reasoned].into_iter().find_map(|history| {
            let (before, after) = history.rsplit_once(CONTENT)?;
            let before = before.get(opener.start(&self.user, history, USER, format)..)?;
            let own = before.trim_start().strip_prefix(self.unconditional_prompt());
            let before = own.unwrap_or(before);
            find_wrapper(before, after, format.reasoning.as_ref())
        })
    }

    /// The header of the turn, if the template writes it again between the reasoning and the
    /// content of one answer. `None` for formats with channels, whose parsers know their headers.
    pub(super) fn repeated_header(&self, format: &Format) -> Option<String> {
        let opener = self.opener(Some(format));
        let header = opener.text().trim();
        let between = text_between(&self.reasoned, REASONING, CONTENT)?;
        let repeats = leading_marker(header).is_some() && between.contains(header);
        (repeats && format.channels.is_none()).then(|| header.to_owned())
    }

    /// The text that opens the turn of an answer that a prompt continues.
    pub(super) fn continued_opener(
        &self,
        format: Option<&Format>,
        after_result: Option<&str>,
    ) -> TurnOpener {
        let mut opener = self.opener(format);
        let before_answer = |history| text_between(after_last(history, USER), "", CONTENT);
        let after_user = [&self.plain, &self.without_tools].map(|history| before_answer(history));
        let in_turn = before_answer(&self.reasoned).unwrap_or_default();
        let is_safe = |text: &str| in_turn.matches(text).count() < 2;
        let texts = after_user.into_iter().chain([after_result]).flatten();
        opener.add_before_answers(texts, format, is_safe);
        if let Some(before) = &self.before_users {
            let end_of_turn = self.plain.rsplit_once(CONTENT).map_or("", |(_, end)| end.trim());
            opener.set_user_header(before.each_ref().map(|before| &**before), end_of_turn);
        }
        opener
    }

    /// The text after the user message.
    pub(super) fn after_user(text: &str) -> Option<&str> {
        text.rsplit_once(USER).map(|(_, after)| after)
    }
}

/// Removes the end of the turn, and empty turns that some templates write after a call.
fn without_turn_ends<'a>(reply: &'a str, end_of_turn: &str, opener: &str) -> &'a str {
    let mut reply = reply;
    loop {
        let shorter = reply.strip_suffix(end_of_turn).unwrap_or(reply);
        let shorter = if opener.is_empty() {
            shorter
        } else {
            shorter.strip_suffix(opener).unwrap_or(shorter)
        };
        if shorter.len() == reply.len() {
            return reply;
        }
        reply = shorter;
    }
}

/// A parser at the start of a reply in a history.
pub(crate) fn parser_for(format: &Format, tools: &[Value], reply: &str) -> ReplyParser {
    let mut parser = ReplyParser::new(ReplyParserInput {
        format: Some(format),
        tools: tools.to_vec().into(),
        calls_allowed: true,
        reasoning: true,
        parallel: true,
        json: false,
        new_id: Box::new(String::new),
    });
    parser.read_own_calls_only();
    // Without an opening tag, a reply without the closing tag contains no reasoning.
    if format
        .reasoning
        .as_ref()
        .is_some_and(|tags| tags.open.is_empty() && reply.contains(&*tags.close))
    {
        parser.prime("", false);
    }
    parser
}
