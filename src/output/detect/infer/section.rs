//! Finds the section of calls from renders of one, two and three calls: the texts around the calls,
//! between them and inside each.

use super::arguments;
use super::history_prober::{CONTENT, ControlRenders, HistoryProber};
use super::markers::{leading_marker, snap_left, snap_right, trim_start};
use super::mask::{
    Masked, Needle, NeedleKind, find_id_form, mask, take_call_index, take_index_of_empty_call,
};
use crate::output::call_writer::{ValueStyle, WrittenCall};
use crate::output::format::{CallPart, CallSyntax, Encoding, IdForm, Tagged, Wrapper};
use crate::probing::diff::{common_prefix, common_suffix};

/// What the renders of calls reveal.
pub(super) struct CallSection {
    pub(super) calls: CallSyntax,
    /// The text between the user message and the calls.
    pub(super) head: String,
    /// The text after the calls that ends the turn.
    pub(super) tail: String,
    /// The wrapper of content, if only content next to calls has one.
    pub(super) wrapper: Option<Wrapper>,
}

/// Finds the section of calls. `rendered` shows one call.
pub(super) struct SectionFinder<'a> {
    pub(super) prober: &'a HistoryProber<'a>,
    pub(super) controls: &'a ControlRenders,
    pub(super) rendered: &'a str,
    pub(super) encoding: Encoding,
    pub(super) style: ValueStyle,
}

/// Renders of one call and of several, split at their needles.
struct MaskedRenders {
    /// The text before the first needle, which may end with the number of the call.
    first_text: String,
    one: Masked,
    two: Option<Masked>,
    id: Option<IdForm>,
}

impl SectionFinder<'_> {
    /// Finds the section of several calls if `parallel`, else of one call.
    pub(super) fn find(&self, parallel: bool) -> Result<CallSection, String> {
        let MaskedRenders { first_text, one, two, id } = self.masked_renders(parallel)?;
        let before = one.texts[0].clone();
        let after = &one.texts[one.texts.len() - 1];
        let adjacent = self.content_and_call(&first_text);
        let start = start(&first_text, self.controls, adjacent.before.as_deref()).min(before.len());
        let open = trim_start(&before[start..]);
        let head = before[..before.len() - open.len()].to_owned();
        let (after_call, mut tail) = split_end(after, self.controls, adjacent.after.as_deref());

        let mut calls = CallSyntax { parallel: two.is_some(), ..CallSyntax::default() };
        let (lead, trail);
        if let Some(two) = &two {
            let parts = split_calls(&before, open, &after_call, &two.texts[one.kinds.len()]);
            let mut close = parts.close;
            if parts.open.trim().is_empty() && tail.is_empty() && !close.trim().is_empty() {
                tail = std::mem::take(&mut close);
            }
            calls.open = parts.open.into();
            calls.separator = parts.separator.into();
            calls.close = close.trim_end().to_owned().into();
            (lead, trail) = (parts.lead, parts.trail);
        } else if tail.is_empty() && leading_marker(after_call.trim()) == Some(after_call.trim()) {
            // If the text is a single marker, it ends the turn.
            (lead, trail) = (open.to_owned(), String::new());
            tail = after_call;
        } else {
            (lead, trail) = (open.to_owned(), after_call.trim_end().to_owned());
        }

        let mut texts = one.texts.clone();
        texts[0] = lead;
        *texts.last_mut().ok_or("a call has no needle")? = trail;
        let encoding = match &self.encoding {
            Encoding::Tagged(tags) => {
                Encoding::Tagged(self.separate_parameters(tags, &one, id.as_ref(), &mut texts)?)
            }
            Encoding::Elements { prefix, item } => {
                let item = arguments::find_item(self.prober, prefix)
                    .map_or_else(|| item.clone(), Into::into);
                Encoding::Elements { prefix: prefix.clone(), item }
            }
            other => other.clone(),
        };
        calls.call = call_parts(texts, &one, id.as_ref(), &encoding)?;
        Ok(CallSection { calls, head, tail, wrapper: adjacent.wrapper })
    }

    /// Splits a render at the needles of these calls. Names in a tool list after the user message
    /// are not needles.
    fn mask(&self, text: &str, list: &[WrittenCall]) -> Masked {
        self.mask_after_prompt(text, list, self.rendered)
    }

    fn mask_after_prompt(&self, text: &str, list: &[WrittenCall], rendered: &str) -> Masked {
        let prompt = self.controls.prompt.as_deref();
        let skip = prompt.map_or(0, |prompt| snap_left(rendered, common_prefix(prompt, rendered)));
        mask(text, skip, &self.needles(list))
    }

    fn needles(&self, list: &[WrittenCall]) -> Vec<Needle> {
        let mut needles = Vec::new();
        for (i, call) in list.iter().enumerate() {
            if call.arguments.as_object().is_some_and(|members| !members.is_empty())
                || !matches!(self.encoding, Encoding::Tagged(_))
            {
                let written = arguments::written(&self.encoding, call, self.style);
                needles.push((written, NeedleKind::Arguments, i));
            }
            needles.push((call.name.clone(), NeedleKind::Name, i));
            needles.push((call.id.clone(), NeedleKind::Id, i));
        }
        needles
    }

    /// Renders several calls and finds the form of ids.
    fn masked_renders(&self, parallel: bool) -> Result<MaskedRenders, String> {
        let prober = self.prober;
        let mut one = self.mask(self.rendered, &prober.strings(1));
        let named = one.has(NeedleKind::Name) || one.has(NeedleKind::Id) && prober.form.named_ids;
        if !named {
            return Err("the name of the function is not written".to_owned());
        }
        if one.kinds.iter().filter(|(kind, _)| *kind == NeedleKind::Arguments).count() != 1 {
            return Err("the arguments are written more than once".to_owned());
        }
        let several = |count| {
            let list = prober.strings(count);
            let text = parallel.then(|| prober.calls(&list, "").ok()).flatten()?;
            Some(self.mask(&text, &list)).filter(|text| text.repeats(&one, count))
        };
        let (mut two, mut three) = (several(2), several(3));
        let first_text = one.texts[0].clone();
        let mut id = find_id_form(prober, &one);
        if let (None, Some(two), Some(three)) = (&id, &mut two, &mut three) {
            id = take_call_index(&mut one, two, three).map(IdForm::Index);
        }
        Ok(MaskedRenders { first_text, one, two, id })
    }

    /// Separates the texts of parameters from those of the surrounding call. `texts` are the call's
    /// texts, without the text that belongs to all calls.
    fn separate_parameters(
        &self,
        tags: &Tagged,
        one: &Masked,
        id: Option<&IdForm>,
        texts: &mut [String],
    ) -> Result<Tagged, String> {
        let is_arguments = |(kind, _): &(NeedleKind, usize)| *kind == NeedleKind::Arguments;
        let at = one.kinds.iter().position(is_arguments).unwrap_or_default();
        let list = self.prober.list(0, [serde_json::json!({})]);
        let mut empty = self.prober.calls(&list, "").ok().map(|text| self.mask(&text, &list));
        if let (Some(IdForm::Index(number)), Some(empty)) = (id, &mut empty) {
            take_index_of_empty_call(empty, one, *number);
        }
        let empty = empty.as_ref().filter(|empty| empty.kinds.len() + 1 == one.kinds.len());
        let context = arguments::ArgumentContext {
            before: &one.texts[at],
            after: &one.texts[at + 1],
            limit: texts[at + 1].len(),
            empty: empty.map(|empty| &*empty.texts[at]),
        };
        let (mut tags, begin, end) =
            arguments::separate(tags, &context).ok_or("the texts around two arguments differ")?;
        arguments::find_kind(self.prober, &mut tags)?;
        arguments::find_raw_json(self.prober, &mut tags);
        // The text that opens all calls was removed from the first text of the call.
        let kept = (texts[at].len() + begin).checked_sub(one.texts[at].len());
        texts[at].truncate(kept.ok_or("an argument starts before its call")?);
        texts[at + 1].drain(..end);
        Ok(tags)
    }

    /// Renders a call with content. `without` is the text before a call without content.
    fn content_and_call(&self, without: &str) -> ContentAndCall {
        let list = self.prober.strings(1);
        let Ok(text) = self.prober.calls(&list, CONTENT) else { return ContentAndCall::default() };
        let Some(at) = text.find(CONTENT) else { return ContentAndCall::default() };
        let masked = self.mask_after_prompt(&text, &list, &text);
        // Some templates write either content or calls.
        let (true, Some(first), Some(last)) =
            (masked.has(NeedleKind::Arguments), masked.texts.first(), masked.texts.last())
        else {
            return ContentAndCall::default();
        };
        if at < first.len() {
            let between = &first[at + CONTENT.len()..];
            let wrapper = content_wrapper(&first[..at], between, self.controls)
                .filter(|_| first.replacen(CONTENT, "", 1) == without);
            let close = wrapper.as_ref().map_or(0, |wrapper| {
                between.find(&*wrapper.close).unwrap_or(0) + wrapper.close.len()
            });
            return ContentAndCall {
                before: Some(between[close..].to_owned()),
                after: None,
                wrapper,
            };
        }
        let after = last.split_once(CONTENT).map(|(after, _)| after.to_owned());
        ContentAndCall { before: None, after, wrapper: None }
    }
}

/// The texts around calls, separated with the help of the text between two calls.
struct SplitCalls {
    open: String,
    lead: String,
    trail: String,
    separator: String,
    close: String,
}

/// Splits the texts around calls. `before` ends with `open`, which ends at the first needle of the
/// first call. `after` starts at the last needle of the last call. Whitespace next to a call
/// belongs to the separator.
fn split_calls(before: &str, open: &str, after: &str, between: &str) -> SplitCalls {
    let shared = (before.len() - common_suffix(before, between)).max(before.len() - open.len());
    let lead = trim_start(&before[snap_right(before, shared)..]);
    let lead = if between.ends_with(lead) { lead } else { "" };
    // A marker that can both end a call and start the next one counts as the end.
    let ends = snap_left(between, common_prefix(after, between));
    let shared = between.get(between.len() - lead.len()..ends).unwrap_or_default();
    let lead = &lead[if leading_marker(shared) == Some(shared) { shared.len() } else { 0 }..];
    let room = &between[..between.len() - lead.len()];
    let shared = common_prefix(after, room);
    let whole = shared == room.len() && shared == after.len();
    let trail =
        if whole { after } else { &after[..snap_left(after, snap_left(room, shared))] }.trim_end();
    SplitCalls {
        open: open[..open.len() - lead.len()].to_owned(),
        lead: lead.to_owned(),
        trail: trail.to_owned(),
        separator: room[trail.len()..].to_owned(),
        close: after[trail.len()..].to_owned(),
    }
}

/// Texts and needles in turn.
fn call_parts(
    texts: Vec<String>,
    one: &Masked,
    id: Option<&IdForm>,
    encoding: &Encoding,
) -> Result<Vec<CallPart>, String> {
    let mut parts = Vec::new();
    let mut kinds = one.kinds.iter();
    for text in texts {
        if !text.is_empty() {
            parts.push(CallPart::Text(text.into()));
        }
        parts.extend(match kinds.next() {
            Some((NeedleKind::Name, _)) => Some(CallPart::Name),
            Some((NeedleKind::Id, _)) => {
                Some(CallPart::Id(id.cloned().ok_or("the id is not understood")?))
            }
            Some((NeedleKind::Arguments, _)) => Some(CallPart::Arguments(encoding.clone())),
            None => None,
        });
    }
    Ok(parts)
}

/// A call next to content.
#[derive(Default)]
struct ContentAndCall {
    /// The text from the content to the call that follows it.
    before: Option<String>,
    /// The text from the call to the content that follows it.
    after: Option<String>,
    wrapper: Option<Wrapper>,
}

/// A marker before content that content alone does not have, and the marker after it.
fn content_wrapper(before: &str, after: &str, controls: &ControlRenders) -> Option<Wrapper> {
    let open = before.strip_prefix(controls.prompt.as_deref()?)?.trim();
    let (alone, _) = controls.content.as_ref()?;
    let close = leading_marker(after.trim_start())?;
    let is_marker = leading_marker(open) == Some(open) && !alone.contains(open);
    is_marker.then(|| Wrapper { open: open.to_owned().into(), close: close.to_owned().into() })
}

/// Where the calls start in the text before the first name: after the prompt, after the text before
/// content, and after the content if it precedes the calls.
fn start(before: &str, controls: &ControlRenders, adjacent: Option<&str>) -> usize {
    let prompt = controls.prompt.as_deref().map_or(0, |prompt| {
        let shared = snap_left(before, common_prefix(prompt, before));
        // Both may begin with the same part of a tag, which a name cuts off in `before`.
        before[..shared]
            .rfind(['<', '>'])
            .filter(|at| before[*at..].starts_with('<'))
            .unwrap_or(shared)
    });
    let content = controls
        .content
        .as_ref()
        .filter(|(head, _)| before.starts_with(head))
        .map_or(0, |(head, _)| head.len());
    let adjacent = adjacent
        .map_or(0, |adjacent| snap_right(before, before.len() - common_suffix(before, adjacent)));
    prompt.max(content).max(adjacent)
}

/// The text after the last call, split into the part of the calls and the end of the turn.
fn split_end(after: &str, controls: &ControlRenders, adjacent: Option<&str>) -> (String, String) {
    let adjacent = adjacent
        .filter(|adjacent| after.starts_with(adjacent.trim_end()))
        .map(|adjacent| adjacent.trim_end().len());
    let content = controls
        .content
        .as_ref()
        .filter(|(_, end)| after.ends_with(&**end))
        .map(|(_, end)| after.len() - end.len());
    // Content may close a tag of its own first.
    let shared_end = || {
        let (_, end) = controls.content.as_ref()?;
        let at = snap_right(after, after.len() - common_suffix(after, end));
        leading_marker(&after[at..]).map(|_| at)
    };
    let at = adjacent.or(content).or_else(shared_end).unwrap_or(after.len());
    // The end of a turn also ends the calls, even if text follows it.
    let ends = [controls.content.as_ref().map(|(_, end)| end.trim()), controls.turn_end.as_deref()];
    let ends = ends.into_iter().flatten().filter(|end| !end.is_empty());
    let at = ends.filter_map(|end| after[..at].find(end)).min().unwrap_or(at);
    (after[..at].to_owned(), after[at..].to_owned())
}
