//! Cached renders of probes.

use std::cell::RefCell;
use std::collections::HashMap;

use super::Probe;

/// Caches prompts, and render failures, by conversation.
pub(crate) struct RenderCache<E>(RefCell<HashMap<String, Result<String, E>>>);

impl<E> Default for RenderCache<E> {
    fn default() -> Self {
        RenderCache(RefCell::default())
    }
}

impl<E: Clone> RenderCache<E> {
    /// Returns the cached prompt of this conversation. Calls `render` only if it is not cached yet.
    pub(crate) fn get_or_render(
        &self,
        probe: Probe,
        render: impl FnOnce(Probe) -> Result<String, E>,
    ) -> Result<String, E> {
        let Probe { messages, tools, skills, kwargs, add_generation_prompt, later } = &probe;
        // A template can tell `null` tools from undefined ones.
        let defined = tools.is_some();
        let key = (messages, tools, defined, skills, kwargs, add_generation_prompt, later);
        let key = serde_json::to_string(&key).expect("JSON is written without errors");
        if let Some(known) = self.0.borrow().get(&key) {
            return known.clone();
        }
        let text = render(probe);
        self.0.borrow_mut().insert(key, text.clone());
        text
    }

    /// Forgets all renders.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// The number of different conversations that were rendered.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

/// Renders a probe to the prompt, or to the message of the error.
type RenderProbe<'a> = dyn Fn(&Probe) -> Result<String, String> + 'a;

/// Renders probes of one template. Each conversation is rendered only once.
pub(crate) struct ProbeRenderer<'a> {
    render: Box<RenderProbe<'a>>,
    cache: RenderCache<String>,
}

impl<'a> ProbeRenderer<'a> {
    /// A renderer that calls `render` for each new conversation.
    pub(crate) fn new<E: ToString>(render: impl Fn(&Probe) -> Result<String, E> + 'a) -> Self {
        let render =
            Box::new(move |probe: &Probe| render(probe).map_err(|error| error.to_string()));
        ProbeRenderer { render, cache: RenderCache::default() }
    }

    /// Returns the prompt, or the message of the render error.
    pub(crate) fn render(&self, probe: &Probe) -> Result<String, String> {
        self.cache.get_or_render(probe.clone(), |probe| (self.render)(&probe))
    }

    /// Returns the prompt, or `None` if the template refuses the conversation.
    pub(crate) fn prompt(&self, probe: &Probe) -> Option<String> {
        self.render(probe).ok()
    }

    /// The number of renders so far, without cached ones.
    pub(crate) fn count(&self) -> usize {
        self.cache.len()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_is_rendered_once() {
        let renders = Cell::new(0);
        let renderer = ProbeRenderer::new(|probe: &Probe| {
            renders.set(renders.get() + 1);
            probe.tools.as_ref().map(ToString::to_string).ok_or("no tools")
        });
        let probe = Probe::from_user("Hi");
        let null = Probe { tools: Some(json!(null)), ..probe.clone() };
        for _ in 0..2 {
            assert_eq!(renderer.render(&probe), Err("no tools".to_owned()));
            assert_eq!(renderer.prompt(&null), Some("null".to_owned()));
        }
        assert_eq!((renders.get(), renderer.count()), (2, 2));
    }
}
