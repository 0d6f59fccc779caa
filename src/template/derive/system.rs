//! The system turn: what stands round a system message, and what stands there when there is none.

use serde_json::json;

use super::chat::{Chat, USER};
use super::conversation::Conversation;
use super::renderer::{Renderer, date};
use super::text::{escape, pieces};

/// The system text of the probes, and in a shape.
pub(super) const SYSTEM: &str = "Qsystemone";
const SYSTEM_2: &str = "Qsystemtwo";

/// A turn's text, which may hold [`SYSTEM`] where the system text goes, and the slots to be put into it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shape {
    pub(super) text: String,
    /// Byte of `text`, and name; those at the same byte in their order.
    pub(super) slots: Vec<(usize, &'static str)>,
}

impl Shape {
    pub(super) fn of(text: &str) -> Shape {
        Shape { text: text.to_owned(), slots: Vec::new() }
    }

    /// As a template with slots.
    pub(super) fn template(&self) -> String {
        let mut places: Vec<(usize, usize, &str)> = self.slots.iter().map(|(at, name)| (*at, *at, *name)).collect();
        if let Some(at) = self.text.find(SYSTEM) {
            // Slots that stand where the system text begins come before it.
            let place = places.iter().take_while(|(start, ..)| *start <= at).count();
            places.insert(place, (at, at + SYSTEM.len(), "system_message"));
        }
        let mut template = String::new();
        let mut done = 0;
        for (start, end, name) in places {
            template.push_str(&escape(&self.text[done..start]));
            template.push_str(&format!("{{{name}}}"));
            done = end;
        }
        template.push_str(&escape(&self.text[done..]));
        template
    }

    /// What it renders to with this system text and with nothing in the slots.
    pub(super) fn filled(&self, message: &str) -> String {
        self.text.replace(SYSTEM, message)
    }

    /// The byte of the filled text as a byte of the shape; None inside the system text.
    pub(super) fn at(&self, at: usize, message: &str) -> Option<usize> {
        match self.text.find(SYSTEM) {
            Some(start) if at >= start + message.len() && at > start => Some(at - message.len() + SYSTEM.len()),
            Some(start) if at > start => None,
            _ => Some(at),
        }
    }

    /// Puts a slot at this byte, behind the ones that are there.
    pub(super) fn insert(&mut self, at: usize, name: &'static str) {
        let place = self.slots.iter().take_while(|(other, _)| *other <= at).count();
        self.slots.insert(place, (at, name));
    }
}

/// What a template does with system messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct System {
    /// Before any turn.
    pub(super) prefix: String,
    /// The turn of a system message; None when the template leaves system messages out.
    pub(super) turn: Option<Shape>,
    /// The turn without a system message, when it differs from `turn` with `message`.
    pub(super) default: Option<Shape>,
    /// The system text when the conversation has none.
    pub(super) message: String,
    /// A conversation without a system message has the default turn.
    pub(super) always: bool,
    /// So does one with tools.
    pub(super) with_tools: bool,
    /// Day that the model's knowledge ends, when the system text has a date header.
    pub(super) cutoff: Option<String>,
    pub(super) strips: bool,
    pub(super) all_parts: bool,
    /// Put behind the system text when there are tools.
    pub(super) before_tools: String,
    pub(super) residual: Vec<String>,
}

impl System {
    /// The turn of a conversation without a system message, as far as it is known.
    pub(super) fn default_turn(&self) -> Option<&Shape> {
        self.default.as_ref().or(self.turn.as_ref())
    }
}

/// A header with today's date and what stands before it, if the text ends in one.
fn dated(text: &str, later: i64) -> Option<(&str, &str)> {
    let body = text.strip_suffix("\n\n")?.strip_suffix(&*date(later))?.strip_suffix("\nToday Date: ")?;
    let (before, cutoff) = body.rsplit_once("Cutting Knowledge Date: ")?;
    (!cutoff.contains('\n')).then_some((before, cutoff))
}

/// The header as the composed template writes it.
pub(super) fn header(cutoff: &str) -> String {
    format!("Cutting Knowledge Date: {cutoff}\nToday Date: {}\n\n", date(0))
}

/// Finds them.
pub(super) fn derive(foreign: &dyn Renderer, chat: &Chat, bos_token: &str) -> System {
    let base = System { always: true, with_tools: true, ..System::default() };
    let without = |residual: Vec<String>| System { prefix: chat.opening.clone(), residual, ..base.clone() };
    let Some(given) = foreign.render(&Conversation::instructed(SYSTEM).user(USER)) else {
        return without(vec!["the template refuses system messages".to_owned()]);
    };
    let Some([head, between, _]) = pieces(&given, [SYSTEM, USER]).as_deref().map(|pieces| [pieces[0], pieces[1], pieces[2]])
    else {
        let lost = !given.contains(SYSTEM);
        let words =
            if lost { "system messages are left out" } else { "the system text does not stand before the first user's" };
        return without(vec![words.to_owned()]);
    };
    let mut residual = Vec::new();
    let end = between.strip_suffix(&*chat.user.before).unwrap_or_else(|| {
        residual.push("the system text is put inside the first user turn, which building blocks cannot say".to_owned());
        between
    });
    let (head, cutoff) = match dated(head, 0) {
        // Some print the same day always.
        Some((head, cutoff))
            if foreign.render(&Conversation::instructed(SYSTEM).user(USER).later(40)).as_ref() != Some(&given) =>
        {
            (head, Some(cutoff.to_owned()))
        }
        _ => (head, None),
    };
    let header = cutoff.as_deref().map(header).unwrap_or_default();
    let mut system = System { cutoff, residual, ..base };
    default_turn(&mut system, &chat.opening, (head, end), &header, bos_token);
    let spaced = foreign.render(&Conversation::instructed(&format!(" \n{SYSTEM} \n")).user(USER));
    system.strips = spaced.is_some_and(|spaced| spaced == given);
    let typed = json!([{ "type": "text", "text": SYSTEM }, { "type": "text", "text": SYSTEM_2 }]);
    let typed = Conversation::default().message(json!({ "role": "system", "content": typed })).user(USER);
    system.all_parts = foreign.render(&typed).is_some_and(|text| text.contains(&format!("{SYSTEM}{SYSTEM_2}")));
    system
}

/// Divides what stands before the first user's turn into what always stands there and the turn without a system message.
fn default_turn(system: &mut System, opening: &str, (head, end): (&str, &str), header: &str, bos_token: &str) {
    if let Some(rest) = head.strip_prefix(opening).filter(|_| header.is_empty()) {
        opening.clone_into(&mut system.prefix);
        system.always = false;
        system.turn = Some(Shape::of(&format!("{rest}{SYSTEM}{end}")));
        return;
    }
    let mut opening = opening;
    let mut head = head;
    if let (Some(short), Some(shorter)) = (opening.strip_prefix(bos_token), head.strip_prefix(bos_token)) {
        bos_token.clone_into(&mut system.prefix);
        (opening, head) = (short, shorter);
    }
    system.turn = Some(Shape::of(&format!("{head}{SYSTEM}{end}")));
    let usual = opening.strip_prefix(head).and_then(|rest| rest.strip_prefix(header)).and_then(|rest| rest.strip_suffix(end));
    if let Some(message) = usual {
        message.clone_into(&mut system.message);
    } else if let Some((before, behind)) = opening.split_once(header).filter(|_| !header.is_empty()) {
        let message = behind.strip_suffix(end).unwrap_or_default();
        message.clone_into(&mut system.message);
        system.default = Some(Shape::of(&format!("{before}{SYSTEM}{}", &behind[message.len()..])));
    } else {
        system.default = Some(Shape::of(opening));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_their_order() {
        let mut shape = Shape::of(&format!("<{{{SYSTEM}>"));
        shape.insert(2 + SYSTEM.len(), "tools");
        shape.insert(2 + SYSTEM.len(), "skills");
        assert_eq!(shape.template(), "<{{{system_message}{tools}{skills}>");
        assert_eq!(shape.at(4, "ab"), Some(2 + SYSTEM.len()));
        assert_eq!(shape.at(3, "ab"), None);
    }

    #[test]
    fn date_headers() {
        let text = format!("a\n{}", header("December 2023"));
        assert_eq!(dated(&text, 0), Some(("a\n", "December 2023")));
        assert_eq!(dated("a\n\n", 0), None);
    }
}
