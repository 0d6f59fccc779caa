//! Derives the system turn: the text around a system message, and the text without one.

use serde_json::json;

use super::chat::ChatForm;
use super::probes::{ANSWER, SYSTEM, SYSTEM_2, USER, USER_2};
use super::wrapping::escaped;
use crate::probing::diff::split_at_needles;
use crate::probing::{Probe, ProbeRenderer};
use crate::template::probe_time;

/// Date formats for `strftime`.
const DATES: [&str; 6] =
    ["%Y-%m-%d", "%d %b %Y", "%d %B %Y", "%B %d, %Y", "%A, %B %d, %Y", "%d/%m/%Y"];

/// The text of a turn, with [`SYSTEM`] in place of the system text, and slots that are inserted
/// into it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TurnShape {
    pub(super) text: String,
    /// The byte offset in `text` and the name of each slot. Slots at the same offset keep their
    /// order.
    pub(super) slots: Vec<(usize, &'static str)>,
}

impl TurnShape {
    pub(super) fn new(text: &str) -> TurnShape {
        TurnShape { text: text.to_owned(), slots: Vec::new() }
    }

    /// The turn as a template with slots.
    pub(super) fn template(&self) -> String {
        let mut places: Vec<(usize, usize, &str)> =
            self.slots.iter().map(|(at, name)| (*at, *at, *name)).collect();
        if let Some(at) = self.text.find(SYSTEM) {
            // Slots at the start of the system text come before it.
            let place = places.iter().take_while(|(start, ..)| *start <= at).count();
            places.insert(place, (at, at + SYSTEM.len(), "system_message"));
        }
        let mut template = String::new();
        let mut done = 0;
        for (start, end, name) in places {
            template.push_str(&escaped(&self.text[done..start]));
            template.push_str(&format!("{{{name}}}"));
            done = end;
        }
        template.push_str(&escaped(&self.text[done..]));
        template
    }

    /// The turn with this system text and empty slots.
    pub(super) fn filled(&self, message: &str) -> String {
        self.text.replace(SYSTEM, message)
    }

    /// The byte offset in `text` that corresponds to this offset in the filled turn. None inside
    /// the system text.
    pub(super) fn at(&self, at: usize, message: &str) -> Option<usize> {
        match self.text.find(SYSTEM) {
            Some(start) if at >= start + message.len() && at > start => {
                Some(at - message.len() + SYSTEM.len())
            }
            Some(start) if at > start => None,
            _ => Some(at),
        }
    }

    /// Inserts a slot at this byte offset, after the slots that are already there.
    pub(super) fn insert(&mut self, at: usize, name: &'static str) {
        let place = self.slots.iter().take_while(|(other, _)| *other <= at).count();
        self.slots.insert(place, (at, name));
    }
}

/// Texts that are inserted at the system text if there are tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ToolSeparators {
    /// The text after the system text.
    pub(super) before_tools: String,
    /// The text before the system text.
    pub(super) after_tools: String,
    /// Whether these texts are also inserted if the system message is empty.
    pub(super) also_empty: bool,
}

/// How a template writes system messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SystemForm {
    /// The text before any turn.
    pub(super) prefix: String,
    /// The turn of a system message; None if the template ignores system messages.
    pub(super) turn: Option<TurnShape>,
    /// The turn without a system message, unless it is `turn` with `message`.
    pub(super) default: Option<TurnShape>,
    /// The system text of a conversation without a system message.
    pub(super) message: String,
    /// Whether a conversation without a system message has the default turn.
    pub(super) always: bool,
    /// Whether a conversation with tools and without a system message has it.
    pub(super) with_tools: bool,
    /// The date in `Cutting Knowledge Date:`, if the turn has a date header.
    pub(super) cutoff: Option<String>,
    pub(super) strips: bool,
    pub(super) all_parts: bool,
    /// The texts between the system text and tools.
    pub(super) separators: ToolSeparators,
    /// The value of `system_policy.placement`, if the turn is part of a user turn.
    pub(super) inside: Option<&'static str>,
    /// Whether an empty system message counts as no system message.
    pub(super) empty_is_none: bool,
    /// The format of today's date in the turn.
    pub(super) date_format: Option<&'static str>,
    pub(super) residual: Vec<&'static str>,
}

impl SystemForm {
    /// The turn of a conversation without a system message, if it is known.
    pub(super) fn default_turn(&self) -> Option<&TurnShape> {
        self.default.as_ref().or(self.turn.as_ref())
    }

    /// A turn as a template, with a slot for today's date.
    pub(super) fn template(&self, shape: &TurnShape) -> String {
        let template = shape.template();
        self.date_format.map_or_else(
            || template.clone(),
            |format| template.replace(&date_as(format, 0), "{date}"),
        )
    }

    /// The system turn in the text before the first user message, without the prefix and without
    /// the start of the user turn.
    pub(super) fn strip<'a>(&self, head: &'a str, chat: &ChatForm) -> Option<&'a str> {
        let own = head.strip_prefix(&*self.prefix)?;
        match self.inside {
            Some(_) => own.strip_prefix(&*chat.user.before),
            None => own.strip_suffix(&*chat.user.before),
        }
    }
}

/// The date of a probe in this format.
fn date_as(format: &str, later: i64) -> String {
    probe_time(later * 86_400).strftime(format)
}

/// The date of a probe as a date header writes it.
fn date(later: i64) -> String {
    date_as("%d %b %Y", later)
}

/// Splits a text that ends with a date header into the text before the header and the cutoff date.
fn split_date_header(text: &str, later: i64) -> Option<(&str, &str)> {
    let body =
        text.strip_suffix("\n\n")?.strip_suffix(&*date(later))?.strip_suffix("\nToday Date: ")?;
    let (before, cutoff) = body.rsplit_once("Cutting Knowledge Date: ")?;
    (!cutoff.contains('\n')).then_some((before, cutoff))
}

/// The date header as a composed template writes it.
pub(super) fn date_header(cutoff: &str) -> String {
    format!("Cutting Knowledge Date: {cutoff}\nToday Date: {}\n\n", date(0))
}

/// Derives the form of system messages.
pub(super) fn derive(foreign: &ProbeRenderer<'_>, chat: &ChatForm, bos_token: &str) -> SystemForm {
    let base = SystemForm { always: true, with_tools: true, ..SystemForm::default() };
    let without = |residual: Vec<&'static str>| SystemForm {
        prefix: chat.opening.clone(),
        residual,
        ..base.clone()
    };
    let user_only = foreign.prompt(&Probe::from_user(USER)).unwrap_or_default();
    let Some(with_system) = foreign.prompt(&Probe::from_system(SYSTEM).user(USER)) else {
        return without(vec!["the template rejects system messages"]);
    };
    let Some([head, between, _]) = split_at_needles(&with_system, [SYSTEM, USER])
        .as_deref()
        .map(|pieces| [pieces[0], pieces[1], pieces[2]])
    else {
        let lost = !with_system.contains(SYSTEM);
        let words = if lost {
            "system messages are ignored"
        } else {
            "the system text is not before the first user message"
        };
        return without(vec![words]);
    };
    let mut residual = Vec::new();
    let place = match between.strip_suffix(&*chat.user.before) {
        Some(end) => SystemPlace { prefix: "", opening: &chat.opening, head, end, inside: None },
        None => find_inside(foreign, chat, &user_only, head, between).unwrap_or_else(|| {
            residual.push("the system text is inside the first user turn, but not before its text");
            SystemPlace { prefix: "", opening: &chat.opening, head, end: between, inside: None }
        }),
    };
    let SystemPlace { prefix, opening, head, end, inside } = place;
    let tomorrow = foreign.prompt(&Probe::from_system(SYSTEM).user(USER).days_later(40));
    let changes = tomorrow.as_ref().is_some_and(|tomorrow| *tomorrow != with_system);
    let (head, cutoff) = match split_date_header(head, 0).filter(|_| changes) {
        Some((head, cutoff)) => (head, Some(cutoff.to_owned())),
        None => (head, None),
    };
    let mut date_format = None;
    // The date may appear only in the text that is written without a system message.
    let (today, tomorrow) = match changes {
        true => (&with_system, tomorrow),
        false => (&user_only, foreign.prompt(&Probe::from_user(USER).days_later(40))),
    };
    if cutoff.is_none() && tomorrow.as_ref().is_some_and(|tomorrow| tomorrow != today) {
        let later = |format: &&str| {
            tomorrow.as_ref() == Some(&today.replace(&date_as(format, 0), &date_as(format, 40)))
        };
        date_format = DATES.into_iter().find(later);
        if date_format.is_none() {
            residual.push("the format of the date is unknown");
        }
    }
    let header = cutoff.as_deref().map(date_header).unwrap_or_default();
    let mut system = SystemForm { cutoff, residual, date_format, ..base };
    set_turns(&mut system, opening, (head, end), &header, bos_token);
    if let Some(placement) = inside {
        system.prefix = format!("{prefix}{}", system.prefix);
        system.inside = Some(placement);
    }
    let empty = foreign.prompt(&Probe::from_system("").user(USER));
    let lacks = |empty: &String| {
        let turn = system.turn.as_ref().map(|turn| turn.filled("")).unwrap_or_default();
        let begin = empty.split_once(USER).and_then(|(begin, _)| system.strip(begin, chat));
        *empty == user_only && begin.is_some_and(|begin| begin != turn)
    };
    system.empty_is_none = system.cutoff.is_none() && empty.as_ref().is_some_and(lacks);
    let spaced = foreign.prompt(&Probe::from_system(&format!(" \n{SYSTEM} \n")).user(USER));
    system.strips = spaced.is_some_and(|spaced| spaced == with_system);
    let typed = json!([{ "type": "text", "text": SYSTEM }, { "type": "text", "text": SYSTEM_2 }]);
    let typed = Probe::default().message(json!({ "role": "system", "content": typed })).user(USER);
    system.all_parts =
        foreign.prompt(&typed).is_some_and(|text| text.contains(&format!("{SYSTEM}{SYSTEM_2}")));
    system
}

/// The text around a system text, and whether it is part of a user turn.
struct SystemPlace<'a> {
    /// The text before the user turn that contains the system turn.
    prefix: &'a str,
    /// The turn without a system message.
    opening: &'a str,
    head: &'a str,
    end: &'a str,
    /// The value of `system_policy.placement`.
    inside: Option<&'static str>,
}

/// Handles a system text inside a user turn, before the user's text. `user_only` is the prompt
/// without a system text.
fn find_inside<'a>(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    user_only: &'a str,
    head: &'a str,
    end: &'a str,
) -> Option<SystemPlace<'a>> {
    let (first, _) = user_only.split_once(USER)?;
    let begin = &*chat.user.before;
    let places = head.match_indices(begin).map(|(at, _)| at);
    let start = places.into_iter().find(|at| first.starts_with(&head[..at + begin.len()]))?;
    let turn = start + begin.len();
    let users = Probe::from_system(SYSTEM).user(USER).assistant(ANSWER).user(USER_2);
    let users = foreign.prompt(&users)?;
    let placement = if split_at_needles(&users, [SYSTEM, USER, ANSWER, USER_2]).is_some() {
        "FIRST_USER"
    } else {
        split_at_needles(&users, [USER, ANSWER, SYSTEM, USER_2]).map(|_| "LAST_USER")?
    };
    Some(SystemPlace {
        prefix: &head[..start],
        opening: &first[turn..],
        head: &head[turn..],
        end,
        inside: Some(placement),
    })
}

/// Splits the text before the first user turn into the constant prefix and the turn without a
/// system message.
fn set_turns(
    system: &mut SystemForm,
    opening: &str,
    (head, end): (&str, &str),
    header: &str,
    bos_token: &str,
) {
    let date = system.date_format.map(|format| date_as(format, 0)).unwrap_or_default();
    let dated = !date.is_empty() && opening.contains(&date);
    if let Some(rest) = head.strip_prefix(opening).filter(|_| header.is_empty() && !dated) {
        opening.clone_into(&mut system.prefix);
        system.always = false;
        system.turn = Some(TurnShape::new(&format!("{rest}{SYSTEM}{end}")));
        return;
    }
    let mut opening = opening;
    let mut head = head;
    if let (Some(short), Some(shorter)) =
        (opening.strip_prefix(bos_token), head.strip_prefix(bos_token))
    {
        bos_token.clone_into(&mut system.prefix);
        (opening, head) = (short, shorter);
    }
    system.turn = Some(TurnShape::new(&format!("{head}{SYSTEM}{end}")));
    let usual = opening
        .strip_prefix(head)
        .and_then(|rest| rest.strip_prefix(header))
        .and_then(|rest| rest.strip_suffix(end));
    if let Some(message) = usual.filter(|message| date.is_empty() || !message.contains(&date)) {
        message.clone_into(&mut system.message);
    } else if let Some((before, after)) = opening.split_once(header).filter(|_| !header.is_empty())
    {
        let message = after.strip_suffix(end).unwrap_or_default();
        message.clone_into(&mut system.message);
        system.default =
            Some(TurnShape::new(&format!("{before}{SYSTEM}{}", &after[message.len()..])));
    } else {
        system.default = Some(TurnShape::new(opening));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_their_order() {
        let mut shape = TurnShape::new(&format!("<{{{SYSTEM}>"));
        shape.insert(2 + SYSTEM.len(), "tools");
        shape.insert(2 + SYSTEM.len(), "skills");
        assert_eq!(shape.template(), "<{{{system_message}{tools}{skills}>");
        assert_eq!(shape.at(4, "ab"), Some(2 + SYSTEM.len()));
        assert_eq!(shape.at(3, "ab"), None);
    }

    #[test]
    fn date_headers() {
        let text = format!("a\n{}", date_header("December 2023"));
        assert_eq!(split_date_header(&text, 0), Some(("a\n", "December 2023")));
        assert_eq!(split_date_header("a\n\n", 0), None);
    }
}
