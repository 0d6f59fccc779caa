//! Derives plain chat: the text around user messages and answers, before the first turn, and at the
//! end of a prompt.

use serde_json::{Value, json};

use super::probes::{ANSWER, USER, USER_2, USER_3, probe_calls};
use crate::probing::diff::{common_prefix, common_suffix, split_at_needles};
use crate::probing::{Probe, ProbeRenderer};

/// The residual for a first user turn that starts differently.
pub(super) const FIRST_DIFFERS: &str = "the first user turn starts differently from later ones";

/// The texts before and after the message of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TurnWrapper {
    pub(super) before: String,
    pub(super) after: String,
}

/// How a template writes plain chat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ChatForm {
    /// The text before the first user turn, without a system message.
    pub(super) opening: String,
    pub(super) user: TurnWrapper,
    pub(super) assistant: TurnWrapper,
    /// The wrapper of an answer that is the last message, if it differs from other answers.
    pub(super) last: Option<TurnWrapper>,
    /// Whether `last` applies only without a generation prompt.
    pub(super) last_unasked: bool,
    /// The start of later turns that the first turn omits.
    pub(super) first_without: String,
    /// The end of a prompt without a generation prompt.
    pub(super) ending: String,
    /// The roles after which an answer starts with `assistant.before`. Empty if that is so after
    /// every role.
    pub(super) opener_after: Vec<&'static str>,
    /// The generation prompt after an answer, if it differs.
    pub(super) prompt_after_answer: Option<String>,
    /// The roles of a last message that are not followed by a generation prompt.
    pub(super) no_prompt_after: Vec<&'static str>,
    pub(super) generation_prompt: String,
    /// The end of `assistant.before` that an empty answer omits.
    pub(super) if_nonempty: String,
    /// Whether whitespace at both ends of answers is removed.
    pub(super) strips: bool,
    /// Descriptions of what the components cannot express.
    pub(super) residual: Vec<&'static str>,
}

const NOT_PRINTED_ONCE: &str = "the text of a user message is not printed once";
const NOT_PRINTED_AS_IS: &str = "an earlier answer is not printed as it is";

/// Derives the form of plain chat. The error is the reason why there is none.
pub(super) fn derive(foreign: &ProbeRenderer<'_>) -> Result<ChatForm, &'static str> {
    let mut residual = Vec::new();
    let user = Probe::from_user(USER);
    let exchange = user.clone().assistant(ANSWER);
    let one =
        foreign.prompt(&user).ok_or("the template rejects a conversation of one user message")?;
    let pieces = split_at_needles(&one, [USER]).ok_or(NOT_PRINTED_ONCE)?;
    let (first, tail) = (pieces[0], pieces[1]);
    let prompted = foreign
        .prompt(&user.clone().generation_prompt())
        .ok_or("the template rejects a generation prompt")?;
    let users = foreign.prompt(&user.user(USER_2));
    let users = users
        .as_deref()
        .and_then(|users| split_at_needles(users, [USER, USER_2]))
        .map(|pieces| pieces[1].to_owned());
    let last = foreign.prompt(&exchange);
    let end = UserTurnEnd {
        first,
        tail,
        prompted: prompted.split_once(USER).map_or("", |(_, prompted)| prompted),
        is_appended: prompted.starts_with(&one),
        last: last.as_deref(),
    };
    let EndParts { mut after_user, generation_prompt, ending } =
        end.split(users.as_deref(), &mut residual);
    let two = foreign
        .prompt(&exchange.user(USER_2))
        .ok_or("the template rejects an answer between two user messages")?;
    let pieces = split_at_needles(&two, [USER, ANSWER, USER_2]).ok_or(NOT_PRINTED_AS_IS)?;
    let (to_answer, to_user) = (pieces[1], pieces[2]);
    if !to_answer.starts_with(&after_user) {
        residual.push("the last user turn differs from earlier ones");
        after_user = match to_answer.strip_suffix(&generation_prompt) {
            Some(end) if !generation_prompt.is_empty() => end.to_owned(),
            _ => to_answer[..common_prefix(to_answer, &after_user)].to_owned(),
        };
    }
    let before_answer = to_answer[after_user.len()..].to_owned();
    // The ending of a prompt is not part of its last turn.
    let last = last.and_then(|last| last.strip_suffix(&*ending).map(str::to_owned));
    let answer_to_user = AnswerToUser {
        first,
        between: to_user,
        users: users.as_deref().and_then(|between| between.strip_prefix(&*after_user)),
        generation_prompt: &generation_prompt,
    };
    let (after_answer, before_user) = answer_to_user.split(last.as_deref(), &mut residual);
    let (opening, first_without) =
        split_opening(first, &before_user, &before_answer, &mut residual);
    let assistant = TurnWrapper { before: before_answer, after: after_answer };
    let own = last.as_deref().and_then(|last| answer_wrapper(last, &after_user));
    if own.is_none() && last.is_some() {
        residual.push("the last answer is printed differently from earlier ones");
    }
    let mut chat = ChatForm {
        opening,
        user: TurnWrapper { before: before_user, after: after_user },
        last: own.filter(|own| *own != assistant),
        assistant,
        ending,
        first_without,
        generation_prompt,
        residual,
        ..ChatForm::default()
    };
    chat.if_nonempty = if_nonempty(foreign, &chat).unwrap_or_default();
    find_prompts(foreign, &mut chat);
    find_openers(foreign, &mut chat);
    let spaced = Probe::from_user(USER).assistant(&format!(" \n{ANSWER} \n")).user(USER_2);
    chat.strips = foreign.prompt(&spaced).is_some_and(|spaced| spaced == two);
    Ok(chat)
}

/// Splits the text before the first user message into the opening and the start of the turn.
/// Returns the opening, and the start of later turns that the first turn omits.
fn split_opening(
    first: &str,
    before_user: &str,
    before_answer: &str,
    residual: &mut Vec<&'static str>,
) -> (String, String) {
    if let Some(opening) = first.strip_suffix(before_user) {
        return (opening.to_owned(), String::new());
    }
    let shared = common_suffix(first, before_user);
    let lacking = &before_user[..before_user.len() - shared];
    let opening = first[..first.len() - shared].to_owned();
    if before_answer.starts_with(lacking) {
        return (opening, lacking.to_owned());
    }
    residual.push(FIRST_DIFFERS);
    (opening, String::new())
}

/// The wrapper of an answer, from a prompt that ends with it.
fn answer_wrapper(last: &str, after_user: &str) -> Option<TurnWrapper> {
    let pieces = split_at_needles(last, [USER, ANSWER])?;
    let before = pieces[1].strip_prefix(after_user)?.to_owned();
    Some(TurnWrapper { before, after: pieces[2].to_owned() })
}

/// The text between an answer and the next user message.
struct AnswerToUser<'a> {
    /// The text before the first user message.
    first: &'a str,
    between: &'a str,
    /// The start of a user turn that follows a user turn.
    users: Option<&'a str>,
    generation_prompt: &'a str,
}

impl AnswerToUser<'_> {
    /// Splits the text into the end of the answer's turn and the start of the user's turn. `last`
    /// is a prompt that ends with an answer.
    fn split(&self, last: Option<&str>, residual: &mut Vec<&'static str>) -> (String, String) {
        let AnswerToUser { first, between, users, generation_prompt } = *self;
        let owned = |end: &str, begin: &str| (end.to_owned(), begin.to_owned());
        let ended = last.and_then(|last| last.split_once(ANSWER)).map(|(_, end)| end);
        if let Some(ended) = ended {
            if let Some(begin) = between.strip_prefix(ended).filter(|begin| first.ends_with(begin))
            {
                return owned(ended, begin);
            }
            let unasked =
                ended.strip_suffix(generation_prompt).filter(|_| !generation_prompt.is_empty());
            if let Some((end, begin)) =
                unasked.and_then(|end| Some((end, between.strip_prefix(end)?)))
                && first.ends_with(begin)
            {
                residual.push("a generation prompt follows the last answer even if not requested");
                return owned(end, begin);
            }
        }
        if let Some((end, begin)) =
            users.and_then(|begin| Some((between.strip_suffix(begin)?, begin)))
            && first.ends_with(begin)
        {
            return owned(end, begin);
        }
        if let Some((end, begin)) = ended.and_then(|end| Some((end, between.strip_prefix(end)?))) {
            return owned(end, begin);
        }
        residual.push("the last answer ends differently from earlier ones");
        let (end, begin) = between.split_at(between.len() - common_suffix(first, between));
        owned(end, begin)
    }
}

/// The end of `assistant.before` that an empty answer omits.
fn if_nonempty(foreign: &ProbeRenderer<'_>, chat: &ChatForm) -> Option<String> {
    let empty = foreign.prompt(&Probe::from_user(USER).assistant(""))?;
    let (_, rest) = empty.split_once(USER)?;
    let last = chat.last.as_ref().unwrap_or(&chat.assistant);
    let begin = rest
        .strip_prefix(&*chat.user.after)?
        .strip_suffix(&*format!("{}{}", last.after, chat.ending))?;
    last.before
        .strip_prefix(begin)
        .filter(|lacking| chat.assistant.before.ends_with(lacking))
        .map(str::to_owned)
}

/// Finds the roles after which an answer starts as it does after a user message, unless it does so
/// after every role.
fn find_openers(foreign: &ProbeRenderer<'_>, chat: &mut ChatForm) {
    let begin = &chat.assistant.before;
    let begins = |start: Probe, until: &str| {
        // The first turn omits a part of its start.
        let begin = if until.is_empty() {
            begin.strip_prefix(&*chat.first_without).unwrap_or(begin)
        } else {
            begin
        };
        let prompt = foreign.prompt(&start.assistant(USER_2).user(USER))?;
        let (before, _) = prompt.split_once(USER_2)?;
        Some(before[before.find(until)? + until.len()..].ends_with(begin))
    };
    if begin.is_empty() || begins(Probe::default(), "") != Some(false) {
        return;
    }
    let called = probe_calls(false);
    let starts = [
        ("system", Probe::from_system("Qsystemone"), "Qsystemone"),
        ("assistant", Probe::from_user(USER_3).assistant(ANSWER), ANSWER),
        (
            "tool",
            Probe::from_user(USER_3).calls("", &called[..1]).message(probe_result()),
            "Qresultone",
        ),
    ];
    let opened =
        starts.into_iter().filter(|(_, start, until)| begins(start.clone(), until) == Some(true));
    chat.opener_after = std::iter::once("user").chain(opened.map(|(role, ..)| role)).collect();
}

/// The result of the first call of [`probe_calls`].
fn probe_result() -> Value {
    json!({
        "role": "tool", "name": "qtoolone", "tool_call_id": "qcallonex", "content": "Qresultone",
    })
}

/// Finds the roles of a last message that are not followed by a generation prompt, and generation
/// prompts that differ.
fn find_prompts(foreign: &ProbeRenderer<'_>, chat: &mut ChatForm) {
    let added = |conversation: Probe| {
        let prompted = foreign.prompt(&conversation.clone().generation_prompt())?;
        let said = foreign.prompt(&conversation)?;
        prompted.strip_prefix(said.strip_suffix(&*chat.ending)?).map(str::to_owned)
    };
    let answer = Probe::from_user(USER).assistant(ANSWER);
    let answered = added(answer.clone());
    let usual = format!("{ANSWER}{}{}", chat.assistant.after, chat.generation_prompt);
    let prompted = foreign.prompt(&answer.generation_prompt());
    chat.last_unasked =
        answered.is_none() && prompted.is_some_and(|prompted| prompted.ends_with(&usual));
    if chat.generation_prompt.is_empty() {
        // What looks like the end of user turns is the generation prompt after other roles.
        if let Some(prompt) = answered.filter(|prompt| !prompt.is_empty() && chat.ending.is_empty())
        {
            chat.generation_prompt = prompt;
            chat.no_prompt_after.push("user");
        }
        return;
    }
    chat.prompt_after_answer =
        answered.clone().filter(|prompt| !prompt.is_empty() && *prompt != chat.generation_prompt);
    let called = Probe::from_user(USER).assistant(ANSWER);
    let without = [
        ("system", added(Probe::from_system("Qsystemone"))),
        ("assistant", answered),
        ("tool", added(called.message(probe_result()))),
    ];
    let without = without.into_iter().filter(|(_, prompt)| prompt.as_deref() == Some(""));
    chat.no_prompt_after = without.map(|(role, _)| role).collect();
}

/// The parts of prompts that end with a user turn, and of one that ends with an answer.
struct UserTurnEnd<'a> {
    /// The text before the user message.
    first: &'a str,
    /// The text after the user message, without a generation prompt.
    tail: &'a str,
    /// The text after the user message, with a generation prompt.
    prompted: &'a str,
    /// Whether the generation prompt is appended to the whole prompt.
    is_appended: bool,
    last: Option<&'a str>,
}

/// The parts of the text after the last user message.
struct EndParts {
    after_user: String,
    generation_prompt: String,
    /// The end of a prompt without a generation prompt.
    ending: String,
}

impl UserTurnEnd<'_> {
    /// Splits the text after the user message. `users` is the text between two user messages.
    fn split(&self, users: Option<&str>, residual: &mut Vec<&'static str>) -> EndParts {
        let parts = |at: usize, ending: &str| EndParts {
            after_user: self.tail[..at].to_owned(),
            generation_prompt: self.prompted[at..].to_owned(),
            ending: ending.to_owned(),
        };
        if let Some(at) = self.cut(users) {
            return parts(at, &self.tail[at..]);
        }
        if self.is_appended {
            return parts(self.tail.len(), "");
        }
        residual.push("the generation prompt is not appended at the end");
        parts(common_prefix(self.tail, self.prompted), "")
    }

    /// The position in `tail` where the user turn ends, if text follows that belongs to no turn.
    /// None if the turn includes all of `tail`.
    fn cut(&self, users: Option<&str>) -> Option<usize> {
        let UserTurnEnd { first, tail, prompted, last, .. } = *self;
        let between = users?;
        let is_turn = between.strip_prefix(tail).is_some_and(|begin| first.ends_with(begin));
        if is_turn && prompted.starts_with(tail) || prompted != tail && prompted.starts_with(tail) {
            return None;
        }
        let shared = common_prefix(tail, between).min(common_prefix(tail, prompted));
        let cuts = (0..=shared)
            .filter(|at| between.is_char_boundary(*at) && first.ends_with(&between[*at..]));
        // All cuts render the same. The last one at which a marker starts is preferred.
        let cut = cuts.max_by_key(|at| {
            let begin = between[*at..].chars().next().filter(|begin| "<[({#|".contains(*begin));
            let begins = begin.is_some_and(|begin| !between[..*at].ends_with(begin));
            (begins, if begins { *at } else { between.len() - *at })
        })?;
        // The text after the cut also follows an answer.
        last?.ends_with(&tail[cut..]).then_some(cut)
    }
}
