//! Today's date in a prompt: its form, and the texts of a spec that have it.

use serde_json::{Map, Value};

use super::chat::USER;
use super::conversation::Conversation;
use super::renderer::{Renderer, day};
use super::text::escape;

/// The forms that are looked for.
const FORMATS: [&str; 10] = [
    "%d %b %Y",
    "%Y-%m-%d",
    "%d %B %Y",
    "%B %d, %Y",
    "%b %d, %Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%Y/%m/%d",
    "%A, %B %d, %Y",
    "%A, %d %B %Y",
];
const LATER: i64 = 100;

/// The form of the date in a prompt; None where there is none, an error where it has another form.
pub(super) fn derive(foreign: &dyn Renderer) -> Result<Option<&'static str>, String> {
    let render = |conversation: Conversation| foreign.render(&conversation);
    let asked = || Conversation::asking(USER);
    let (Some(today), Some(later)) = (render(asked()), render(asked().later(LATER))) else { return Ok(None) };
    if today == later {
        return Ok(None);
    }
    let same = |format: &&str| today.replace(&day(0, format), &day(LATER, format)) == later;
    let format = FORMATS.into_iter().find(same).ok_or("the date is printed in a form of its own")?;
    Ok(Some(format))
}

/// Puts the slot for the date into the texts of a spec that have it.
pub(super) fn put(spec: &mut Map<String, Value>, format: &'static str) {
    let today = day(0, format);
    let slotted = |text: &str| text.replace(&today, "{date}");
    let mut found = false;
    if let Some(message) =
        spec.get("system_message").and_then(Value::as_str).map(str::to_owned).filter(|text| text.contains(&today))
    {
        let usual = spec.get("default_system_template").or(spec.get("system_template")).and_then(Value::as_str);
        let own = usual.unwrap_or("{system_message}").replace("{system_message}", &escape(&message));
        spec.insert("default_system_template".to_owned(), own.into());
        spec.remove("system_message");
    }
    for name in ["system_template", "default_system_template"] {
        if let Some(text) = spec.get_mut(name)
            && text.as_str().is_some_and(|text| text.contains(&today))
        {
            *text = slotted(text.as_str().unwrap_or_default()).into();
            found = true;
        }
    }
    let mut policy = spec.get("global_policy").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(prefix) = policy.get("prefix").and_then(Value::as_str).filter(|prefix| prefix.contains(&today)) {
        let template = slotted(&escape(prefix));
        policy.insert("prefix_template".to_owned(), template.into());
        policy.remove("prefix");
        found = true;
    }
    if found {
        policy.insert("date_format".to_owned(), format.into());
        spec.insert("global_policy".to_owned(), policy.into());
    }
}
