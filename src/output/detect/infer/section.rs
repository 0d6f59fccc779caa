//! Renders of one, two and three calls -> what stands around them, between them and inside of each.

use super::arguments;
use super::markers::{common_prefix, common_suffix, first, snap_left, snap_right, trim_start};
use super::mask::{Mark, Masked, Needle, mask};
use super::probe::{CONTENT, Prober};
use crate::output::call_writer::{ValueStyle, WrittenCall};
use crate::output::format::{CallPart, CallSyntax, Encoding, IdForm, Wrapper};

/// What the renders of calls showed.
pub(super) struct Section {
    pub(super) calls: CallSyntax,
    /// What the template writes between the user's words and the calls.
    pub(super) head: String,
    /// What stands behind the calls and is none of them: it ends the turn.
    pub(super) tail: String,
    /// What stands around content, if only beside calls.
    pub(super) wrapper: Option<Wrapper>,
}

/// Renders of an answer without calls, as a control.
pub(super) struct Controls {
    /// The generation prompt.
    pub(super) prompt: Option<String>,
    /// Before and behind the content of an answer.
    pub(super) content: Option<(String, String)>,
    /// What ends the turn when another one follows: the first marker of it.
    pub(super) turn_end: Option<String>,
}

impl Controls {
    pub(super) fn new(prober: &Prober<'_>) -> Controls {
        let content = prober.content().ok();
        let content = content
            .and_then(|text| text.split_once(CONTENT).map(|(a, b)| (a.to_owned(), b.to_owned())));
        let turn_end = prober.turn_end().and_then(|text| first(text.trim()).map(str::to_owned));
        Controls { prompt: prober.prompt().ok(), content, turn_end }
    }
}

/// Reads the section off renders: of several calls too, if they are to be `parallel`.
pub(super) fn section(
    prober: &Prober<'_>,
    controls: &Controls,
    rendered: &str,
    encoding: Encoding,
    style: ValueStyle,
    parallel: bool,
) -> Result<Section, String> {
    // Names in the list of tools, if it stands behind the user's words, are not the call's.
    let skip = controls
        .prompt
        .as_deref()
        .map_or(0, |prompt| snap_left(rendered, common_prefix(prompt, rendered)));
    let masked =
        |text: &str, list: &[WrittenCall]| mask(text, skip, &needles(list, &encoding, style));

    let mut one = masked(rendered, &prober.strings(1));
    let named = one.has(Mark::Name) || one.has(Mark::Id) && prober.form.named_ids;
    if !named {
        return Err("the name of the function is not written".to_owned());
    }
    if one.marks.iter().filter(|(mark, _)| *mark == Mark::Arguments).count() != 1 {
        return Err("the arguments are written more than once".to_owned());
    }
    let several = |count| {
        let list = prober.strings(count);
        if !parallel {
            return None;
        }
        prober
            .calls(&list, "")
            .ok()
            .map(|text| masked(&text, &list))
            .filter(|text| text.repeats(&one, count))
    };
    let (mut two, mut three) = (several(2), several(3));
    let first_text = one.texts[0].clone();
    let mut id = id_form(prober, &one);
    if let (None, Some(two), Some(three)) = (&id, &mut two, &mut three) {
        id = index(&mut one, two, three).map(IdForm::Index);
    }

    let before = one.texts[0].clone();
    let after = one.texts[one.texts.len() - 1].clone();
    let beside = beside_content(prober, controls, &first_text, &encoding, style);
    let start = start(&first_text, controls, beside.before.as_deref()).min(before.len());
    let open = trim_start(&before[start..]);
    let head = before[..before.len() - open.len()].to_owned();
    let (stripped, mut tail) = split_end(&after, controls, beside.after.as_deref());

    let mut calls = CallSyntax {
        open: "".into(),
        close: "".into(),
        separator: "".into(),
        call: Vec::new(),
        parallel: two.is_some(),
    };
    let (lead, mut trail);
    if let Some(two) = &two {
        let apart = apart(&before, open, &stripped, &two.texts[one.marks.len()]);
        let mut close = apart.rest;
        if apart.open.trim().is_empty() && tail.is_empty() && !close.trim().is_empty() {
            tail = std::mem::take(&mut close);
        }
        calls.open = apart.open.into();
        calls.separator = apart.separator.into();
        calls.close = close.trim_end().to_owned().into();
        (lead, trail) = (apart.lead, apart.trail);
    } else {
        let alone = tail.is_empty() && first(stripped.trim()) == Some(stripped.trim());
        let trimmed = stripped.trim_end();
        (lead, trail) = (open.to_owned(), if alone { String::new() } else { trimmed.to_owned() });
        if alone {
            tail = stripped.clone();
        }
    }

    let mut texts: Vec<String> = one.texts[1..one.texts.len() - 1].to_vec();
    let mut texts_before = lead;
    let mut settled = encoding.clone();
    if let Encoding::Tagged(tags) = &encoding {
        let place =
            one.marks.iter().position(|(mark, _)| *mark == Mark::Arguments).unwrap_or_default();
        let last = place + 1 == one.marks.len();
        let list = prober.list(0, [serde_json::json!({})]);
        let mut empty = prober.calls(&list, "").ok().map(|text| masked(&text, &list));
        if let (Some(IdForm::Index(number)), Some(empty)) = (&id, &mut empty) {
            take_number(empty, &one, *number);
        }
        let empty = empty.as_ref().filter(|empty| empty.marks.len() + 1 == one.marks.len());
        let around = arguments::Around {
            before: &one.texts[place],
            after: &one.texts[place + 1],
            limit: if last { trail.len() } else { one.texts[place + 1].len() },
            empty: empty.map(|empty| &*empty.texts[place]),
        };
        let (mut tags, begin, end) = arguments::settle(tags, &around)
            .ok_or("what stands around an argument differs from one to the next")?;
        arguments::kind(prober, &mut tags)?;
        settled = Encoding::Tagged(tags);
        match place.checked_sub(1) {
            Some(place) => texts[place].truncate(begin),
            None => {
                let kept = (texts_before.len() + begin).checked_sub(one.texts[0].len());
                texts_before.truncate(kept.ok_or("an argument begins before its call")?);
            }
        }
        if last {
            trail = trail[end..].to_owned();
        } else {
            texts[place] = texts[place][end..].to_owned();
        }
    }
    if let Encoding::Elements { prefix, item } = &mut settled
        && let Some(name) = arguments::item(prober, prefix)
    {
        *item = name.into();
    }

    texts.insert(0, texts_before);
    texts.push(trail);
    calls.call = parts(texts, &one, id.as_ref(), &settled)?;
    Ok(Section { calls, head, tail, wrapper: beside.wrapper })
}

/// The texts around calls, told apart by what stands between two.
struct Apart {
    open: String,
    lead: String,
    trail: String,
    separator: String,
    rest: String,
}

/// `before` ends in `open`, which ends where the first call has its first needle; `behind` begins
/// where the last call has its last one. Blanks next to a call separate.
fn apart(before: &str, open: &str, behind: &str, between: &str) -> Apart {
    let alike = (before.len() - common_suffix(before, between)).max(before.len() - open.len());
    let lead = trim_start(&before[snap_right(before, alike)..]);
    let lead = if between.ends_with(lead) { lead } else { "" };
    // A marker that both the end of a call and the beginning of the next one could have is the
    // end's.
    let ends = snap_left(between, common_prefix(behind, between));
    let shared = between.get(between.len() - lead.len()..ends).unwrap_or_default();
    let lead = &lead[if first(shared) == Some(shared) { shared.len() } else { 0 }..];
    let room = &between[..between.len() - lead.len()];
    let alike = common_prefix(behind, room);
    let whole = alike == room.len() && alike == behind.len();
    let trail = if whole { behind } else { &behind[..snap_left(behind, snap_left(room, alike))] }
        .trim_end();
    Apart {
        open: open[..open.len() - lead.len()].to_owned(),
        lead: lead.to_owned(),
        trail: trail.to_owned(),
        separator: room[trail.len()..].to_owned(),
        rest: behind[trail.len()..].to_owned(),
    }
}

/// Texts and marks in turn.
fn parts(
    texts: Vec<String>,
    one: &Masked,
    id: Option<&IdForm>,
    encoding: &Encoding,
) -> Result<Vec<CallPart>, String> {
    let mut parts = Vec::new();
    let mut marks = one.marks.iter();
    for text in texts {
        if !text.is_empty() {
            parts.push(CallPart::Text(text.into()));
        }
        parts.extend(match marks.next() {
            Some((Mark::Name, _)) => Some(CallPart::Name),
            Some((Mark::Id, _)) => {
                Some(CallPart::Id(id.cloned().ok_or("the id is not understood")?))
            }
            Some((Mark::Arguments, _)) => Some(CallPart::Arguments(encoding.clone())),
            None => None,
        });
    }
    Ok(parts)
}

fn needles(list: &[WrittenCall], encoding: &Encoding, style: ValueStyle) -> Vec<Needle> {
    let mut needles = Vec::new();
    for (i, call) in list.iter().enumerate() {
        if call.arguments.as_object().is_some_and(|members| !members.is_empty())
            || !matches!(encoding, Encoding::Tagged(_))
        {
            needles.push((arguments::region(encoding, call, style), Mark::Arguments, i));
        }
        needles.push((call.name.clone(), Mark::Name, i));
        needles.push((call.id.clone(), Mark::Id, i));
    }
    needles
}

/// What ids may look like, if they are written.
fn id_form(prober: &Prober<'_>, one: &Masked) -> Option<IdForm> {
    if !one.has(Mark::Id) {
        return None;
    }
    if !one.has(Mark::Name) {
        return Some(IdForm::Named { prefix: "functions.".into(), infix: ":".into() });
    }
    let mut list = prober.strings(1);
    list[0].id = "call_0Zq81-abXc77".to_owned();
    let free = prober.calls(&list, "").is_ok_and(|text| text.contains(&list[0].id));
    Some(if free { IdForm::Free } else { IdForm::Alphanumeric(9) })
}

/// A number that counts the calls, taken out of all three renders as if it were an id. Returns the
/// first number.
fn index(one: &mut Masked, two: &mut Masked, three: &mut Masked) -> Option<usize> {
    let marks = one.marks.len();
    for place in 0..marks {
        let (a, b, c) =
            (&one.texts[place], &three.texts[marks + place], &three.texts[2 * marks + place]);
        let suffix = b[b.len() - common_suffix(b, c)..].to_owned();
        let number = |text: &str| {
            let text = text.strip_suffix(&*suffix)?;
            let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
            text[text.len() - digits..].parse::<usize>().ok()
        };
        let (Some(first), Some(second), Some(third)) = (number(a), number(b), number(c)) else {
            continue;
        };
        if second != first + 1 || third != first + 2 {
            continue;
        }
        let take = |masked: &mut Masked, calls: usize| {
            for call in (0..calls).rev() {
                let at = call * marks + place;
                let text = masked.texts[at].clone();
                let before = text
                    .strip_suffix(&*suffix)
                    .unwrap_or(&text)
                    .trim_end_matches(|c: char| c.is_ascii_digit());
                masked.texts[at] = before.to_owned();
                masked.texts.insert(at + 1, suffix.clone());
                masked.marks.insert(at, (Mark::Id, call));
            }
        };
        take(two, 2);
        take(three, 3);
        take(one, 1);
        return Some(first);
    }
    None
}

/// Takes the number out of a call without arguments, where it stands in one with arguments.
fn take_number(empty: &mut Masked, one: &Masked, number: usize) {
    let Some(place) = one.marks.iter().position(|(mark, _)| *mark == Mark::Id) else { return };
    let expected = format!("{}{number}", one.texts[place]);
    if let Some(rest) =
        empty.texts.get(place).and_then(|text| text.strip_prefix(&expected)).map(str::to_owned)
    {
        empty.texts[place] = one.texts[place].clone();
        empty.texts.insert(place + 1, rest);
        empty.marks.insert(place, (Mark::Id, 0));
    }
}

/// A call beside content: the text from the content to the call, or from the call to the content.
#[derive(Default)]
struct Beside {
    before: Option<String>,
    after: Option<String>,
    wrapper: Option<Wrapper>,
}

fn beside_content(
    prober: &Prober<'_>,
    controls: &Controls,
    without: &str,
    encoding: &Encoding,
    style: ValueStyle,
) -> Beside {
    let list = prober.strings(1);
    let Ok(text) = prober.calls(&list, CONTENT) else { return Beside::default() };
    let Some(at) = text.find(CONTENT) else { return Beside::default() };
    let skip = controls
        .prompt
        .as_deref()
        .map_or(0, |prompt| snap_left(&text, common_prefix(prompt, &text)));
    let masked = mask(&text, skip, &needles(&list, encoding, style));
    // Some templates write either content or calls.
    let (true, Some(first), Some(last)) =
        (masked.has(Mark::Arguments), masked.texts.first(), masked.texts.last())
    else {
        return Beside::default();
    };
    if at < first.len() {
        let between = &first[at + CONTENT.len()..];
        let wrapper = wrapper(&first[..at], between, controls)
            .filter(|_| first.replacen(CONTENT, "", 1) == without);
        let close = wrapper
            .as_ref()
            .map_or(0, |wrapper| between.find(&*wrapper.close).unwrap_or(0) + wrapper.close.len());
        return Beside { before: Some(between[close..].to_owned()), after: None, wrapper };
    }
    let after = last.split_once(CONTENT).map(|(after, _)| after.to_owned());
    Beside { before: None, after, wrapper: None }
}

/// A marker before content that content alone does not have, and the marker behind it.
fn wrapper(before: &str, behind: &str, controls: &Controls) -> Option<Wrapper> {
    let open = before.strip_prefix(controls.prompt.as_deref()?)?.trim();
    let (alone, _) = controls.content.as_ref()?;
    let close = first(behind.trim_start())?;
    let is_marker = first(open) == Some(open) && !alone.contains(open);
    is_marker.then(|| Wrapper { open: open.to_owned().into(), close: close.to_owned().into() })
}

/// Where the calls begin in the text before the first name: behind the prompt, behind what stands
/// before content, and not before what stands between content and calls.
fn start(before: &str, controls: &Controls, beside: Option<&str>) -> usize {
    let prompt = controls.prompt.as_deref().map_or(0, |prompt| {
        let alike = snap_left(before, common_prefix(prompt, before));
        // A tag that both begin alike, and that a name cuts in `before`.
        before[..alike]
            .rfind(['<', '>'])
            .filter(|at| before[*at..].starts_with('<'))
            .unwrap_or(alike)
    });
    let content = controls
        .content
        .as_ref()
        .filter(|(head, _)| before.starts_with(head))
        .map_or(0, |(head, _)| head.len());
    let beside =
        beside.map_or(0, |beside| snap_right(before, before.len() - common_suffix(before, beside)));
    prompt.max(content).max(beside)
}

/// The text behind the last call, without what ends the turn; and that.
fn split_end(after: &str, controls: &Controls, beside: Option<&str>) -> (String, String) {
    let beside = beside
        .filter(|beside| after.starts_with(beside.trim_end()))
        .map(|beside| beside.trim_end().len());
    let content = controls
        .content
        .as_ref()
        .filter(|(_, end)| after.ends_with(&**end))
        .map(|(_, end)| after.len() - end.len());
    let at = beside.or(content).unwrap_or(after.len());
    // What ends a turn ends the calls, even if something follows.
    let ends = [controls.content.as_ref().map(|(_, end)| end.trim()), controls.turn_end.as_deref()];
    let ends = ends.into_iter().flatten().filter(|end| !end.is_empty());
    let at = ends.filter_map(|end| after[..at].find(end)).min().unwrap_or(at);
    (after[..at].to_owned(), after[at..].to_owned())
}
