//! Plain chat: what stands round a user's text and an answer, before the first turn, and at the end
//! of a prompt.

use serde_json::json;

use super::calls;
use super::needles::{ANSWER, USER, USER_2, USER_3};
use crate::probing::diff::{common_prefix, common_suffix, split_at_needles};
use crate::probing::{Probe, ProbeRenderer};

/// Said of a first user's turn.
pub(super) const FIRST_DIFFERS: &str = "the first user turn begins differently from later ones";

/// The text before and after another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TurnWrapper {
    pub(super) before: String,
    pub(super) after: String,
}

/// What plain chat is made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ChatForm {
    /// What stands before the first user turn when there is no system message.
    pub(super) opening: String,
    pub(super) user: TurnWrapper,
    pub(super) assistant: TurnWrapper,
    /// Of an answer that is the last message, when it has another form.
    pub(super) last: Option<TurnWrapper>,
    /// Only where no generation prompt follows.
    pub(super) last_unasked: bool,
    /// The begin of turns that the first one lacks.
    pub(super) first_without: String,
    /// What ends a prompt without a generation prompt.
    pub(super) ending: String,
    /// Roles of the message before behind which an answer begins as `assistant` does; all, when
    /// empty.
    pub(super) opener_after: Vec<&'static str>,
    /// The generation prompt behind an answer, when it is another one.
    pub(super) prompt_after_answer: Option<String>,
    /// Roles of a last message behind which there is no generation prompt.
    pub(super) no_prompt_after: Vec<&'static str>,
    pub(super) generation_prompt: String,
    /// The end of `assistant.before` that an empty answer lacks.
    pub(super) if_nonempty: String,
    /// Answers lose white space at both ends.
    pub(super) strips: bool,
    /// What does not fit, in words.
    pub(super) residual: Vec<String>,
}

/// Finds them, or says why not.
pub(super) fn derive(foreign: &ProbeRenderer<'_>) -> Result<ChatForm, String> {
    let render = |conversation: Probe| foreign.prompt(&conversation);
    let mut residual = Vec::new();
    let one = render(Probe::from_user(USER))
        .ok_or("the template refuses a conversation of one user message")?;
    let [first, tail] =
        *split_at_needles(&one, [USER]).ok_or("the text of a user message is not printed once")?
    else {
        return Err("the text of a user message is not printed once".to_owned());
    };
    let asked = render(Probe::from_user(USER).generation_prompt())
        .ok_or("the template refuses a generation prompt")?;
    let users = render(Probe::from_user(USER).user(USER_2));
    let users = users
        .as_deref()
        .and_then(|users| split_at_needles(users, [USER, USER_2]))
        .map(|pieces| pieces[1].to_owned());
    let exchange = Probe::from_user(USER).assistant(ANSWER);
    let last = render(exchange.clone());
    let ends = UserTurnEnd {
        first,
        tail,
        asked: asked.split_once(USER).map_or("", |(_, asked)| asked),
        last: last.as_deref(),
    };
    let mut after_user = tail.to_owned();
    let mut generation_prompt = String::new();
    let mut ending = String::new();
    if let Some(cut) = ends.cut(users.as_deref()) {
        after_user.truncate(cut);
        ends.asked[cut..].clone_into(&mut generation_prompt);
        tail[cut..].clone_into(&mut ending);
    } else if let Some(added) = asked.strip_prefix(&one) {
        added.clone_into(&mut generation_prompt);
    } else {
        residual.push("the generation prompt is not an addition at the end".to_owned());
        let shared = common_prefix(tail, ends.asked);
        after_user.truncate(shared);
        ends.asked[shared..].clone_into(&mut generation_prompt);
    }
    let two = render(exchange.clone().user(USER_2))
        .ok_or("the template refuses an answer between two user messages")?;
    let [_, to_answer, to_user, _] = *split_at_needles(&two, [USER, ANSWER, USER_2])
        .ok_or("an earlier answer is not printed as it is")?
    else {
        return Err("an earlier answer is not printed as it is".to_owned());
    };
    if !to_answer.starts_with(&after_user) {
        residual.push("the last user turn differs from earlier ones".to_owned());
        after_user = match to_answer.strip_suffix(&generation_prompt) {
            Some(end) if !generation_prompt.is_empty() => end.to_owned(),
            _ => to_answer[..common_prefix(to_answer, &after_user)].to_owned(),
        };
    }
    let before_answer = to_answer[after_user.len()..].to_owned();
    // What ends a prompt is no part of its last turn.
    let last = last.and_then(|last| last.strip_suffix(&*ending).map(str::to_owned));
    let turns = AnswerToUser {
        first,
        between: to_user,
        users: users.as_deref().and_then(|between| between.strip_prefix(&*after_user)),
        generation_prompt: &generation_prompt,
    };
    let (after_answer, before_user) = turns.split(last.as_deref(), &mut residual);
    let mut first_without = String::new();
    let opening = match first.strip_suffix(&before_user) {
        Some(opening) => opening.to_owned(),
        None => {
            let shared = common_suffix(first, &before_user);
            let lacking = &before_user[..before_user.len() - shared];
            if before_answer.starts_with(lacking) {
                lacking.clone_into(&mut first_without);
            } else {
                residual.push(FIRST_DIFFERS.to_owned());
            }
            first[..first.len() - shared].to_owned()
        }
    };
    let assistant = TurnWrapper { before: before_answer, after: after_answer };
    let own = last.as_deref().and_then(|last| split_at_needles(last, [USER, ANSWER])).and_then(
        |pieces| {
            Some(TurnWrapper {
                before: pieces[1].strip_prefix(&*after_user)?.to_owned(),
                after: pieces[2].to_owned(),
            })
        },
    );
    if own.is_none() && last.is_some() {
        residual.push("the last answer is printed differently from earlier ones".to_owned());
    }
    let mut chat = ChatForm {
        opening,
        user: TurnWrapper { before: before_user, after: after_user },
        last_unasked: false,
        last: own.filter(|own| *own != assistant),
        assistant,
        ending,
        first_without,
        prompt_after_answer: None,
        no_prompt_after: Vec::new(),
        opener_after: Vec::new(),
        generation_prompt,
        if_nonempty: String::new(),
        strips: false,
        residual,
    };
    chat.if_nonempty = if_nonempty(foreign, &chat).unwrap_or_default();
    prompts(foreign, &mut chat);
    openers(foreign, &mut chat);
    let spaced = render(Probe::from_user(USER).assistant(&format!(" \n{ANSWER} \n")).user(USER_2));
    chat.strips = spaced.is_some_and(|spaced| spaced == two);
    Ok(chat)
}

/// What is known of the text between an answer and the next user's.
struct AnswerToUser<'a> {
    /// What stands before the first user's text.
    first: &'a str,
    between: &'a str,
    /// What begins a user turn behind another.
    users: Option<&'a str>,
    generation_prompt: &'a str,
}

impl AnswerToUser<'_> {
    /// Splits it into the end of the one turn and the begin of the other; `last` is the prompt that
    /// ends in an answer.
    fn split(&self, last: Option<&str>, residual: &mut Vec<String>) -> (String, String) {
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
                residual.push("a generation prompt follows the last answer unasked".to_owned());
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
        residual.push("the last answer ends differently from earlier ones".to_owned());
        let (end, begin) = between.split_at(between.len() - common_suffix(first, between));
        owned(end, begin)
    }
}

/// The end of the text before an answer that is missing when the answer is empty.
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

/// Behind which messages an answer begins as it does behind a user's, when it does not behind all.
fn openers(foreign: &ProbeRenderer<'_>, chat: &mut ChatForm) {
    let begin = &chat.assistant.before;
    let begins = |start: Probe, until: &str| {
        // The first turn of all has less of its begin.
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
    let result = json!({ "role": "tool", "name": "qtoolone", "tool_call_id": "qcallonex", "content": "Qresultone" });
    let called = calls::probes(false);
    let starts = [
        ("system", Probe::from_system("Qsystemone"), "Qsystemone"),
        ("assistant", Probe::from_user(USER_3).assistant(ANSWER), ANSWER),
        ("tool", Probe::from_user(USER_3).calls("", &called[..1]).message(result), "Qresultone"),
    ];
    let opened =
        starts.into_iter().filter(|(_, start, until)| begins(start.clone(), until) == Some(true));
    chat.opener_after = std::iter::once("user").chain(opened.map(|(role, ..)| role)).collect();
}

/// Which last messages have no generation prompt behind them, and the prompt where only some have
/// one.
fn prompts(foreign: &ProbeRenderer<'_>, chat: &mut ChatForm) {
    let added = |conversation: Probe| {
        let asked = foreign.prompt(&conversation.clone().generation_prompt())?;
        let said = foreign.prompt(&conversation)?;
        asked.strip_prefix(said.strip_suffix(&*chat.ending)?).map(str::to_owned)
    };
    let answer = Probe::from_user(USER).assistant(ANSWER);
    let answered = added(answer.clone());
    let usual = format!("{ANSWER}{}{}", chat.assistant.after, chat.generation_prompt);
    let asked = foreign.prompt(&answer.generation_prompt());
    chat.last_unasked = answered.is_none() && asked.is_some_and(|asked| asked.ends_with(&usual));
    if chat.generation_prompt.is_empty() {
        // Users' turns end in what others are asked with.
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
    let result = json!({ "role": "tool", "name": "qtoolone", "tool_call_id": "qcallonex", "content": "Qresultone" });
    let without = [
        ("system", added(Probe::from_system("Qsystemone"))),
        ("assistant", answered),
        ("tool", added(called.message(result))),
    ];
    let without = without.into_iter().filter(|(_, prompt)| prompt.as_deref() == Some(""));
    chat.no_prompt_after = without.map(|(role, _)| role).collect();
}

/// Prompts that end in a user's turn, and one that ends in an answer.
struct UserTurnEnd<'a> {
    /// Before the user's text.
    first: &'a str,
    /// Behind it.
    tail: &'a str,
    /// Behind it with a generation prompt.
    asked: &'a str,
    last: Option<&'a str>,
}

impl UserTurnEnd<'_> {
    /// Where in `tail` the user's turn ends, when something follows it that no turn has. `between`
    /// stands between two users' texts. None when all of it is the turn's.
    fn cut(&self, between: Option<&str>) -> Option<usize> {
        let UserTurnEnd { first, tail, asked, last } = *self;
        let between = between?;
        let is_turn = between.strip_prefix(tail).is_some_and(|begin| first.ends_with(begin));
        if is_turn && asked.starts_with(tail) || asked != tail && asked.starts_with(tail) {
            return None;
        }
        let shared = common_prefix(tail, between).min(common_prefix(tail, asked));
        let cuts = (0..=shared)
            .filter(|at| between.is_char_boundary(*at) && first.ends_with(&between[*at..]));
        // Of cuts that render the same, the last one at which a mark of its own begins.
        let cut = cuts.max_by_key(|at| {
            let begin = between[*at..].chars().next().filter(|begin| "<[({#|".contains(*begin));
            let begins = begin.is_some_and(|begin| !between[..*at].ends_with(begin));
            (begins, if begins { *at } else { between.len() - *at })
        })?;
        // The same follows an answer.
        last?.ends_with(&tail[cut..]).then_some(cut)
    }
}
