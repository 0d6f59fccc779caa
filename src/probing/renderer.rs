//! Renders of probes, each taken once.

use std::cell::RefCell;
use std::collections::HashMap;

use super::Probe;

/// Prompts by conversation, failures included.
pub(crate) struct RenderCache<E>(RefCell<HashMap<String, Result<String, E>>>);

impl<E> Default for RenderCache<E> {
    fn default() -> Self {
        RenderCache(RefCell::default())
    }
}

impl<E: Clone> RenderCache<E> {
    /// The prompt of this conversation. `render` runs only the first time.
    pub(crate) fn get_or_render(
        &self,
        probe: Probe,
        render: impl FnOnce(Probe) -> Result<String, E>,
    ) -> Result<String, E> {
        let Probe { messages, tools, skills, kwargs, add_generation_prompt, later } = &probe;
        // `null` tools are not the same as no tools.
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

    /// How many different conversations were rendered.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

/// Renders a probe to the prompt, or to the message of the error.
type RenderProbe<'a> = dyn Fn(&Probe) -> Result<String, String> + 'a;

/// Renders probes of one template, each once.
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

    /// The prompt, or the message of the error.
    pub(crate) fn render(&self, probe: &Probe) -> Result<String, String> {
        self.cache.get_or_render(probe.clone(), |probe| (self.render)(&probe))
    }

    /// The prompt; None when the template refuses the conversation.
    pub(crate) fn prompt(&self, probe: &Probe) -> Option<String> {
        self.render(probe).ok()
    }

    /// How many renders there were.
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
