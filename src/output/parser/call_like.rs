//! Text that looks like a call but does not count as one: the diagnostic that says why.

use super::calls::call_object::{CallObject, MAX_NAME, ObjectProgress};
use super::calls::call_patterns::PatternItem;
use super::calls::request_tools::RequestTools;
use super::calls::{CALL_LIKE, CallForms};
use super::context::ParserContext;
use crate::diagnostic::Diagnostic;
use crate::output::format::FENCE;

/// The maximum number of tools that a message lists.
const MAX_LISTED: usize = 8;

impl ParserContext {
    /// Reports a reply that consists of objects like calls, bare or in one fence or element. They
    /// stayed text.
    pub(super) fn report_call_like_content(&mut self) {
        let is_known = self.out.parsed.diagnostics.iter().any(|known| known.code == CALL_LIKE);
        let calls_allowed = self.settings.calls_allowed && !self.settings.json;
        if !calls_allowed || is_known {
            return;
        }
        let Some(objects) = self.forms.objects_like_calls(&self.out.parsed.content) else { return };
        let (tools, mut names) =
            (&self.settings.tools, objects.iter().filter_map(CallObject::name));
        let other = || objects.iter().find_map(CallObject::other_member);
        let because = match names.find(|name| !tools.has(name)) {
            Some(name) => unknown_tool(name, tools),
            None if !self.settings.untagged_calls => {
                Diagnostic::new(CALL_LIKE, "`untagged_calls` is false, so a call needs its tags")
            }
            None => match other().filter(|key| key.len() <= MAX_NAME) {
                Some(key) => Diagnostic::new(CALL_LIKE, format!("calls have no member `{key}`")),
                None => Diagnostic::new(CALL_LIKE, "the reply is a call without tags"),
            },
        };
        self.note_no_call(CALL_LIKE, because);
    }

    /// Reports a call that stayed text. `because` says why, in its message and members.
    pub(super) fn note_no_call(&mut self, code: &'static str, because: Diagnostic) {
        let message = format!("{}; the call was kept as text", because.message);
        self.out.report(Diagnostic { code, message, ..because });
    }
}

/// The diagnostic about a name that no given tool has.
pub(super) fn unknown_tool(name: &str, tools: &RequestTools) -> Diagnostic {
    let listed: Vec<String> =
        tools.names().take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    let more = match tools.names().count() - listed.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("`{name}` is not among the tools {}{more}", listed.join(", "));
    Diagnostic::new(CALL_LIKE, message).with("name", name)
}

impl CallForms {
    /// The objects of a text that consists of objects with the members of calls.
    fn objects_like_calls(&self, text: &str) -> Option<Vec<CallObject>> {
        let items = self.object_items();
        let Some(PatternItem::Object(keys)) = items.first() else { return None };
        let mut rest = unwrapped(text).trim_start_matches(['[', ' ', '\n', '\t', '\r']);
        let mut objects = Vec::new();
        while rest.starts_with('{') {
            let mut call = CallObject::default();
            let mut chars = rest.chars();
            let closes = |c| call.step(c, keys, |_| false) != ObjectProgress::More;
            if !chars.by_ref().any(closes) || !call.is_whole() {
                return None;
            }
            objects.push(call);
            rest = chars.as_str().trim_start_matches([',', ';', ']', ' ', '\n', '\t', '\r']);
        }
        (!objects.is_empty() && rest.is_empty()).then_some(objects)
    }
}

/// A text without the fence or the element around it.
fn unwrapped(text: &str) -> &str {
    let text = text.trim();
    let inside = match text.strip_prefix(FENCE) {
        Some(fenced) => fenced.split_once('\n').map(|(_, inside)| inside),
        None if text.starts_with('<') && text.ends_with('>') => {
            text.split_once('>').map(|(_, inside)| inside)
        }
        None => None,
    };
    let Some(inside) = inside else { return text };
    match inside.strip_suffix(FENCE) {
        Some(inside) => inside,
        None => inside.rsplit_once("</").map_or(inside, |(inside, _)| inside),
    }
}
