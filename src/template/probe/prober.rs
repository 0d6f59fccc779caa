//! Renders probes. In: a conversation. Out: the prompt, and the paths that the template read. All
//! capability code renders through this module.
//!
//! A probe is a raw render at a fixed time. It has less fuel than a request. Once the probes of one
//! template have used too much, the prober stops rendering and returns errors.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::jinja::{AccessLog, Context, ErrorKind, Template};
use crate::probing::{PROBE_TIME, Probe, RenderCache};
use crate::template::clock::LocalTime;
use crate::template::environment;
use crate::template::failure::Failure;
use crate::template::host::HostWork;
use crate::template::import;
use crate::template::import::ImportMode;
use crate::template::limits::Limits;
use crate::template::probe::usage::ProbeUsage;

/// The maximum number of missing variables to bind so that a template renders.
const MAX_ASSUMED: usize = 8;
/// Names that the environment defines. A lookup of one in the context is not a missing variable.
pub(crate) const GLOBALS: [&str; 4] = ["range", "dict", "namespace", "raise_exception"];
/// How many times more fuel and output a request has than a probe. A conversation of 12 messages
/// needs a hundredth of a probe's limits.
const SHARE: u64 = 100;

/// The result of a probe, and the paths that the template read.
pub(crate) struct RecordedRender {
    /// The prompt.
    pub(crate) text: Result<String, Failure>,
    log: Rc<AccessLog>,
    /// The variable that holds the tools as text.
    tools_text: Option<&'static str>,
}

impl RecordedRender {
    /// Whether the template read this path, such as `messages[1].tool_calls`.
    pub(crate) fn read(&self, path: &str) -> bool {
        let as_text = || {
            path.starts_with("tools[")
                && self.tools_text.is_some_and(|variable| self.log.has(variable))
        };
        self.log.has(path) || as_text()
    }

    /// The failure, if the render failed.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.text.as_ref().err()
    }

    /// Whether the prompt contains this text.
    pub(crate) fn shows(&self, needle: &str) -> bool {
        self.text.as_ref().is_ok_and(|text| text.contains(needle))
    }
}

pub(crate) fn probe_time(later: i64) -> LocalTime {
    LocalTime::from_unix_local(PROBE_TIME + later, 0)
}

/// The limits of a probe: enough for a short conversation, and cheap for a hostile template.
pub(crate) fn limits() -> Limits {
    let limits = Limits::default();
    Limits {
        fuel: limits.fuel / SHARE,
        output_bytes: limits.output_bytes / SHARE as usize,
        ..limits
    }
}

/// Renders probes of one template.
pub(crate) struct Prober {
    template: Arc<Template>,
    source: Arc<str>,
    host: HostWork,
    limits: Limits,
    /// Variables that are bound because the template does not render without them.
    assumed: Map<String, Value>,
    cache: RenderCache<Failure>,
    usage: Arc<ProbeUsage>,
    renders: Rc<Cell<u32>>,
}

impl Prober {
    /// A prober of the template that was compiled from `source`.
    pub(crate) fn new(
        template: &Arc<Template>,
        source: &Arc<str>,
        host: HostWork,
        usage: &Arc<ProbeUsage>,
    ) -> Prober {
        Prober {
            template: Arc::clone(template),
            source: Arc::clone(source),
            host,
            limits: limits(),
            assumed: Map::new(),
            cache: RenderCache::default(),
            usage: Arc::clone(usage),
            renders: Rc::default(),
        }
    }

    /// Renders and records the paths that the template reads. Not cached.
    pub(crate) fn run(&self, probe: Probe) -> RecordedRender {
        let log = Rc::<AccessLog>::default();
        let text = self.guarded(probe, Some(&log));
        RecordedRender { text, log, tools_text: self.host.names().first().copied() }
    }

    /// Renders without recording. Equal probes are rendered only once.
    pub(crate) fn render(&self, probe: Probe) -> Result<String, Failure> {
        self.cache.get_or_render(probe, |probe| self.guarded(probe, None))
    }

    /// The source.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether the source contains this word. A variable that it does not name cannot change the
    /// prompt, because Jinja reads variables only by name.
    pub(crate) fn mentions(&self, word: &str) -> bool {
        let source = &self.source;
        let part_of_a_name = |c: char| c.is_alphanumeric() || c == '_';
        source.match_indices(word).any(|(at, _)| {
            !source[..at].ends_with(part_of_a_name)
                && !source[at + word.len()..].starts_with(part_of_a_name)
        })
    }

    /// Variables that are bound because the template does not render without them.
    pub(crate) fn assumed(&self) -> Vec<String> {
        self.assumed.keys().cloned().collect()
    }

    /// The number of renders.
    #[cfg(test)]
    pub(crate) fn count(&self) -> Rc<Cell<u32>> {
        Rc::clone(&self.renders)
    }

    /// Binds variables that the template needs but clients do not send. While this simplest
    /// conversation fails, the last missing variable is bound to "", then to a list of "". The
    /// bindings are kept only if the template then renders.
    pub(crate) fn bind_missing_variables(&mut self, plain: &Probe) {
        self.cache.clear();
        let mut seen: Vec<String> = Vec::new();
        loop {
            let outcome = self.run(plain.clone());
            let Some(failure) = outcome.failure() else { return };
            if matches!(failure.kind, ErrorKind::Raised | ErrorKind::Limit | ErrorKind::Engine) {
                break;
            }
            let mut missing = outcome.log.missing();
            missing.retain(|name| !GLOBALS.contains(&name.as_str()));
            let further = missing.last().is_some_and(|name| !seen.contains(name));
            match self.assumed.values_mut().last() {
                // The template still fails with this variable bound, because it indexes it.
                Some(last) if !further && last.is_string() => *last = vec![""; 16].into(),
                _ => match missing.last() {
                    Some(name) if self.assumed.len() < MAX_ASSUMED => {
                        self.assumed.insert(name.clone(), "".into());
                    }
                    _ => break,
                },
            }
            seen = missing;
        }
        self.assumed.clear();
    }

    fn context(&self, probe: Probe) -> Vec<(String, Value)> {
        let messages = self.host.messages(&probe.messages).into_owned();
        let mut members = vec![("messages".to_owned(), Value::Array(messages))];
        let tools_yaml = self
            .host
            .tools_yaml(probe.tools.as_ref().and_then(Value::as_array).map_or(&[], Vec::as_slice));
        members.extend(tools_yaml.map(|yaml| ("tools_yaml".to_owned(), yaml)));
        members.extend(probe.tools.map(|tools| ("tools".to_owned(), tools)));
        members.push(("documents".to_owned(), Value::Null));
        members.push(("add_generation_prompt".to_owned(), probe.add_generation_prompt.into()));
        members.push(("bos_token".to_owned(), json!("")));
        members.push(("eos_token".to_owned(), json!("")));
        members.extend(self.assumed.iter().map(|(name, value)| (name.clone(), value.clone())));
        members.extend(probe.kwargs.into_iter().map(|(name, value)| (name.to_owned(), value)));
        members
    }

    fn guarded(&self, probe: Probe, log: Option<&Rc<AccessLog>>) -> Result<String, Failure> {
        self.usage.check()?;
        self.renders.set(self.renders.get() + 1);
        let mut wanted = log.map_or(ImportMode::Plain, ImportMode::Reads);
        let now = probe_time(probe.later);
        let mut variables = Vec::new();
        for (name, json) in self.context(probe) {
            let value = import::value(&json, &name, &mut wanted);
            variables.push((name.into(), value));
        }
        let strftime_now: Box<dyn Fn(&str) -> String> =
            Box::new(move |format| now.strftime(format));
        let context = Context { variables, strftime_now: Some(strftime_now), log: log.cloned() };
        let (rendered, cost) = environment::render(&self.template, context, &self.limits);
        self.usage.record(&rendered, cost);
        rendered.map(|rendered| rendered.text)
    }
}

/// A prober of this source.
#[cfg(test)]
pub(crate) fn for_source(source: &str) -> Prober {
    let template = Arc::new(environment::compile(source).expect("the source of a test parses"));
    Prober::new(&template, &source.into(), HostWork::default(), &Arc::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::usage::MAX_EXCEEDED;

    fn plain() -> Probe {
        Probe { messages: vec![json!({ "role": "user", "content": "Hi" })], ..Probe::default() }
    }

    #[test]
    fn words_are_whole_names() {
        let prober = for_source("{% if enable_thinking and m['reasoning'] %}{% endif %}");
        assert!(prober.mentions("enable_thinking") && prober.mentions("reasoning"));
        assert!(!prober.mentions("thinking") && !prober.mentions("reason"));
    }

    #[test]
    fn recorded_and_plain_renders_agree() {
        let prober = for_source(
            "{{ messages[0].content }}{{ tools is defined }}{{ add_generation_prompt }}",
        );
        let outcome = prober.run(plain());
        assert_eq!(prober.render(plain()), outcome.text);
        assert_eq!(outcome.text.as_deref(), Ok("HiFalseFalse"));
        assert!(outcome.read("messages[0].content") && !outcome.read("messages[0].role"));
    }

    #[test]
    fn a_hostile_template_is_not_rendered_again_and_again() {
        let prober = for_source(
            "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        );
        for number in 0..10 {
            let probe = Probe { kwargs: vec![("number", number.into())], ..plain() };
            assert_eq!(prober.render(probe).map_err(|failure| failure.kind.as_str()), Err("limit"));
        }
        assert_eq!(prober.count().get(), MAX_EXCEEDED);
    }

    #[test]
    fn probes_below_their_limit_are_not_rendered_without_end() {
        let prober = for_source("{% for i in range(90000) %}{% set x = i %}{% endfor %}");
        let rendered =
            |number: u32| prober.render(Probe { kwargs: vec![("n", number.into())], ..plain() });
        assert!(rendered(0).is_ok());
        let failed = (1..200).find_map(|number| rendered(number).err());
        assert_eq!(failed.map(|failure| failure.kind.as_str()), Some("limit"));
        assert!((10..100).contains(&prober.count().get()), "{}", prober.count().get());
    }
}
