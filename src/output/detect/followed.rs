//! Histories whose last answer another turn follows. Some templates treat an answer at the end of a
//! conversation as the beginning of the reply, and leave its calls out.

use crate::probing::diff::common_suffix;
use crate::probing::{Probe, ProbeRenderer};

const NEXT_USER: &str = "Chortle the frumious.";

/// Renders a probe that ends with an answer as if a user message followed, up to the header of that
/// message. Other probes are rendered as they are.
pub(super) fn renderer<'a>(renderer: &'a ProbeRenderer<'a>) -> ProbeRenderer<'a> {
    ProbeRenderer::new(move |probe: &Probe| {
        let ends_with_answer =
            probe.messages.last().is_some_and(|message| message["role"] == "assistant");
        if !ends_with_answer || probe.add_generation_prompt {
            return renderer.render(probe);
        }
        let before_next = |probe: &Probe| {
            let text = renderer.render(&probe.clone().user(NEXT_USER))?;
            let (before, _) = text.rsplit_once(NEXT_USER).ok_or("the user message is left out")?;
            Ok::<_, String>(before.to_owned())
        };
        let answer = before_next(probe)?;
        let first = before_next(&Probe { messages: Vec::new(), ..probe.clone() })?;
        let header = common_suffix(&answer, &first);
        Ok(answer[..answer.len() - header].to_owned())
    })
}
