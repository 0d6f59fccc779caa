//! Tool results: what stands round one and round a block of them.

use super::calls;
use super::chat::{ANSWER, Chat, USER};
use super::conversation::{Conversation, shows_probe};
use super::renderer::Renderer;
use super::text::{Wrapping, escape, pieces};

const RESULT: &str = "Qresultone";
const RESULT_2: &str = "Qresulttwo";

/// What a template does with tool results.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Results {
    pub(super) wrapping: Option<Wrapping>,
    pub(super) residual: Vec<String>,
}

impl Results {
    /// `single_observation_template` and `observations_template`.
    pub(super) fn templates(&self) -> Option<[String; 2]> {
        let Wrapping { before, each_before, each_after, after } = self.wrapping.as_ref()?;
        Some([
            format!("{}{{observation}}{}", escape(each_before), escape(each_after)),
            format!("{}{{observations}}{}", escape(before), escape(after)),
        ])
    }
}

impl Results {
    /// What stands round each result, without white space; None where one of the two is nothing else.
    pub(super) fn tags(&self) -> Option<[String; 2]> {
        let Wrapping { each_before, each_after, .. } = self.wrapping.as_ref()?;
        let tags = [each_before, each_after].map(|text| text.trim().to_owned());
        tags.iter().all(|tag| !tag.is_empty()).then_some(tags)
    }
}

/// Finds it; None when results are not printed.
pub(super) fn derive(foreign: &dyn Renderer, chat: &Chat) -> Option<Results> {
    let with_calls = |count: usize| Conversation::asking(USER).calling("", &calls::probes()[..count]);
    let spoken = Conversation::asking(USER).assistant(ANSWER);
    let mut found = Results::default();
    let mut refused = true;
    for (one, two) in [(with_calls(1), with_calls(2)), (spoken.clone(), spoken)] {
        let first = |start: &Conversation| start.clone().result("qcallonex", RESULT);
        let Some(single) = foreign.render(&first(&one)) else { continue };
        refused = false;
        if !single.contains(RESULT) {
            continue;
        }
        let Some([before, after]) = around(foreign, chat, &one, &single) else {
            found.residual.push("tool results do not stand behind the turn before them".to_owned());
            return Some(found);
        };
        if [&before, &after].into_iter().any(|text| shows_probe(text)) {
            found.residual.push("names or ids of calls stand round a tool result, which building blocks cannot say".to_owned());
            return Some(found);
        }
        let double = foreign.render(&first(&two).result("qcalltwox", RESULT_2));
        let double = double.as_deref().and_then(|double| pieces(double, [RESULT, RESULT_2]));
        found.wrapping = match double.as_deref() {
            Some([_, between, end]) if *end == after => Wrapping::of(&before, between, &after),
            _ => None,
        };
        if found.wrapping.is_none() {
            found.residual.push("several tool results are not joined by the end and the begin of one".to_owned());
            found.wrapping = Some(Wrapping { each_before: before, each_after: after, ..Wrapping::default() });
        }
        return Some(found);
    }
    refused.then(|| {
        found.residual.push("the template refuses tool results".to_owned());
        found
    })
}

/// What stands before and behind the one result.
fn around(foreign: &dyn Renderer, chat: &Chat, start: &Conversation, single: &str) -> Option<[String; 2]> {
    let (before, after) = single.split_once(RESULT)?;
    let until = [foreign.render(start), calls::turn(foreign, chat, start)];
    let own = until.iter().flatten().find_map(|until| before.strip_prefix(&**until)).or_else(|| {
        // The turn before is not the last any more: it ends as an earlier one does.
        let (_, behind) = before.split_once(ANSWER)?;
        behind.strip_prefix(&*chat.assistant.after)
    })?;
    Some([own.to_owned(), after.to_owned()])
}
