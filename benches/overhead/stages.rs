//! Measures the stages of a call on its thread: processor time, with the processor's caches in the
//! state after a decode.

use std::hint::black_box;

use llb::api::{self, ChatRequest, Polyfills};
use llb::gguf::ModelHeader;
use llb::output::{PreparedFormat, ReplyParser, ReplyParserInput};
use llb::profile::ModelProfile;
use llb::template::{Limits, LocalTime, Prompt, RenderInput, Variables, polyfill, thinking};

use crate::chat::thread_seconds;
use crate::measure::{Figures, heading, row};

/// Enough memory to evict a call's data from the processor's caches. A decode reads the whole
/// model.
const COLD_BYTES: usize = 32 << 20;

/// Measures reading and rendering a request to chats of this model.
pub(crate) fn stages(path: &str, request: &str, rounds: usize) {
    let header = ModelHeader::read_file(path.as_ref()).expect("the header of the model");
    let profile =
        ModelProfile::of(&ModelProfile::sources(&header, None)).expect("its template compiles");
    let traits = profile.templates.traits();
    let allowed = Polyfills::default();
    let mut memory = vec![1u8; COLD_BYTES];
    let mut stage = Stage { memory: &mut memory, rounds };
    heading("its stages, microseconds of processor time");
    let parse = || api::parse(request, "request").expect("JSON");
    stage.run("parse", parse);
    let read = || ChatRequest::read(parse()).expect("a request");
    stage.run("parse and read", read);
    let request = read();
    let apply = || polyfill::apply(&request.messages, None, traits, &allowed).expect("messages");
    stage.run("polyfills", apply);
    let polyfilled = apply();
    let kwargs = thinking::variables(&request.thinking, traits, &request.prompt.template_kwargs)
        .expect("variables");
    let render = || -> Prompt {
        let input = RenderInput {
            polyfilled: Some(&polyfilled),
            add_generation_prompt: true,
            kwargs: Some(&kwargs),
            spans: true,
            variables: Variables::of(&allowed),
            limits: Limits::default(),
            ..RenderInput::new(&polyfilled.messages, LocalTime::now())
        };
        profile.templates.render(&input).expect("a prompt")
    };
    stage.run("render", render);
    let prompt = render();
    let prepared = profile.format().map(PreparedFormat::new).unwrap_or_default();
    stage.run("parse a token", || {
        let input = ReplyParserInput {
            format: profile.format(),
            tools: std::sync::Arc::clone(&request.tools),
            calls_allowed: false,
            reasoning: true,
            json: false,
            parallel: true,
            new_id: api::call_ids(None),
        };
        let mut parser = ReplyParser::with_prepared(&prepared, input);
        parser.prime(profile.turn(&prompt.text), false);
        parser.push("Sure");
        parser.finish_early()
    });
}

struct Stage<'m> {
    memory: &'m mut [u8],
    rounds: usize,
}

impl Stage<'_> {
    fn run<T>(&mut self, name: &str, mut run: impl FnMut() -> T) {
        let mut figures = Figures::default();
        for _ in 0..self.rounds {
            self.memory.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            black_box(&mut *self.memory);
            let start = thread_seconds();
            drop(black_box(run()));
            figures.push((thread_seconds() - start) * 1e6);
        }
        row(name, &figures);
    }
}
