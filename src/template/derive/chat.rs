//! Plain chat: what stands round a user's text and an answer, before the first turn, and at the end of a prompt.

use super::conversation::Conversation;
use super::renderer::Renderer;
use super::text::{pieces, shared_end, shared_start};

/// Texts of the probes. Each stands in a prompt once, and nothing a template does to texts changes them.
pub(super) const USER: &str = "Quserone";
pub(super) const USER_2: &str = "Qusertwo";
pub(super) const ANSWER: &str = "Qanswerone";

/// Said of a first user's turn.
pub(super) const FIRST_DIFFERS: &str = "the first user turn begins differently from later ones";

/// The text before and after another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Frame {
    pub(super) before: String,
    pub(super) after: String,
}

/// What plain chat is made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Chat {
    /// What stands before the first user turn when there is no system message.
    pub(super) opening: String,
    pub(super) user: Frame,
    pub(super) assistant: Frame,
    pub(super) generation_prompt: String,
    /// The end of `assistant.before` that an empty answer lacks.
    pub(super) if_nonempty: String,
    /// Answers lose white space at both ends.
    pub(super) strips: bool,
    /// What does not fit, in words.
    pub(super) residual: Vec<String>,
}

/// Finds them, or says why not.
pub(super) fn derive(foreign: &dyn Renderer) -> Result<Chat, String> {
    let render = |conversation: Conversation| foreign.render(&conversation);
    let mut residual = Vec::new();
    let one = render(Conversation::asking(USER)).ok_or("the template refuses a conversation of one user message")?;
    let [first, tail] = *pieces(&one, [USER]).ok_or("the text of a user message is not printed once")? else {
        return Err("the text of a user message is not printed once".to_owned());
    };
    let asked = render(Conversation::asking(USER).prompt()).ok_or("the template refuses a generation prompt")?;
    let mut after_user = tail.to_owned();
    let mut generation_prompt = String::new();
    if let Some(added) = asked.strip_prefix(&one) {
        added.clone_into(&mut generation_prompt);
    } else {
        residual.push("the generation prompt is not an addition at the end".to_owned());
        if let Some([_, asked_tail]) = pieces(&asked, [USER]).as_deref() {
            let shared = shared_start(tail, asked_tail);
            after_user.truncate(shared);
            asked_tail[shared..].clone_into(&mut generation_prompt);
        }
    }
    let exchange = Conversation::asking(USER).assistant(ANSWER);
    let two = render(exchange.clone().user(USER_2)).ok_or("the template refuses an answer between two user messages")?;
    let [_, to_answer, to_user, _] =
        *pieces(&two, [USER, ANSWER, USER_2]).ok_or("an earlier answer is not printed as it is")?
    else {
        return Err("an earlier answer is not printed as it is".to_owned());
    };
    if !to_answer.starts_with(&after_user) {
        residual.push("the last user turn differs from earlier ones".to_owned());
        after_user = match to_answer.strip_suffix(&generation_prompt) {
            Some(end) if !generation_prompt.is_empty() => end.to_owned(),
            _ => to_answer[..shared_start(to_answer, &after_user)].to_owned(),
        };
    }
    let before_answer = to_answer[after_user.len()..].to_owned();
    let users = render(Conversation::asking(USER).user(USER_2));
    let users = users.as_deref().and_then(|users| pieces(users, [USER, USER_2])).map(|pieces| pieces[1].to_owned());
    let turns = Turns {
        first,
        between: to_user,
        users: users.as_deref().and_then(|between| between.strip_prefix(&*after_user)),
        generation_prompt: &generation_prompt,
    };
    let (after_answer, before_user) = turns.split(render(exchange.clone()).as_deref(), &mut residual);
    let opening = match first.strip_suffix(&before_user) {
        Some(opening) => opening.to_owned(),
        None => {
            residual.push(FIRST_DIFFERS.to_owned());
            first[..first.len() - shared_end(first, &before_user)].to_owned()
        }
    };
    if let Some([_, last_answer, _]) = render(exchange).as_deref().and_then(|last| pieces(last, [USER, ANSWER])).as_deref()
        && *last_answer != to_answer
    {
        residual.push("the last answer is printed differently from earlier ones".to_owned());
    }
    let mut chat = Chat {
        opening,
        user: Frame { before: before_user, after: after_user },
        assistant: Frame { before: before_answer, after: after_answer },
        generation_prompt,
        if_nonempty: String::new(),
        strips: false,
        residual,
    };
    chat.if_nonempty = if_nonempty(foreign, &chat).unwrap_or_default();
    let spaced = render(Conversation::asking(USER).assistant(&format!(" \n{ANSWER} \n")).user(USER_2));
    chat.strips = spaced.is_some_and(|spaced| spaced == two);
    Ok(chat)
}

/// What is known of the text between an answer and the next user's.
struct Turns<'a> {
    /// What stands before the first user's text.
    first: &'a str,
    between: &'a str,
    /// What begins a user turn behind another.
    users: Option<&'a str>,
    generation_prompt: &'a str,
}

impl Turns<'_> {
    /// Splits it into the end of the one turn and the begin of the other; `last` is the prompt that ends in an answer.
    fn split(&self, last: Option<&str>, residual: &mut Vec<String>) -> (String, String) {
        let Turns { first, between, users, generation_prompt } = *self;
        let owned = |end: &str, begin: &str| (end.to_owned(), begin.to_owned());
        let ended = last.and_then(|last| last.split_once(ANSWER)).map(|(_, end)| end);
        if let Some(ended) = ended {
            if let Some(begin) = between.strip_prefix(ended).filter(|begin| first.ends_with(begin)) {
                return owned(ended, begin);
            }
            let unasked = ended.strip_suffix(generation_prompt).filter(|_| !generation_prompt.is_empty());
            if let Some((end, begin)) = unasked.and_then(|end| Some((end, between.strip_prefix(end)?)))
                && first.ends_with(begin)
            {
                residual.push("a generation prompt follows the last answer unasked".to_owned());
                return owned(end, begin);
            }
        }
        if let Some((end, begin)) = users.and_then(|begin| Some((between.strip_suffix(begin)?, begin)))
            && first.ends_with(begin)
        {
            residual.push("the last answer ends differently from earlier ones".to_owned());
            return owned(end, begin);
        }
        if let Some((end, begin)) = ended.and_then(|end| Some((end, between.strip_prefix(end)?))) {
            return owned(end, begin);
        }
        residual.push("the last answer ends differently from earlier ones".to_owned());
        let (end, begin) = between.split_at(between.len() - shared_end(first, between));
        owned(end, begin)
    }
}

/// The end of the text before an answer that is missing when the answer is empty.
fn if_nonempty(foreign: &dyn Renderer, chat: &Chat) -> Option<String> {
    let empty = foreign.render(&Conversation::asking(USER).assistant(""))?;
    let (_, rest) = empty.split_once(USER)?;
    let begin = rest.strip_prefix(&*chat.user.after)?.strip_suffix(&*chat.assistant.after)?;
    chat.assistant.before.strip_prefix(begin).map(str::to_owned)
}
