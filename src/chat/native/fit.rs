//! Renders a request to a prompt that fits the context. If `context_overflow` allows it, some old
//! turns are left out.

use std::ops::Range;

use serde_json::Value;

use super::NativeSource;
use super::last_request::LastRequest;
use super::shift::check_n_keep;
use super::truncation::{Measured, boundaries, is_too_long, search};
use crate::api::{ChatRequest, ContextOverflow};
use crate::chat::media::RequestMedia;
use crate::chat::plain_prompt::given_tokens;
use crate::chat::render::{RenderedPrompt, renumbered, tokenize, with_bos};
use crate::chat::source::{FittedPrompt, Truncation};
use crate::engine::{Interrupt, MediaReader, TokenizedPrompt, Vocab};
use crate::error::{Code, Error, Result};

impl NativeSource {
    /// What to do with this request if it does not fit.
    pub(super) fn overflow(&self, request: &ChatRequest) -> ContextOverflow {
        request.prompt.context_overflow.unwrap_or(self.overflow)
    }

    /// The maximum number of prompt tokens that leaves enough room for the reply: `max_tokens`, or
    /// a quarter of the context if that is less. One token is enough if the context can be shifted.
    fn room(&self, request: &ChatRequest, n_ctx: usize) -> usize {
        let least = match self.overflow(request) {
            ContextOverflow::Shift => 1,
            _ => request.output.max_tokens.unwrap_or(n_ctx).clamp(1, (n_ctx / 4).max(1)),
        };
        n_ctx - least
    }

    /// Renders and tokenizes a request. If the prompt is too long and the strategy allows it,
    /// leaves out whole old turns.
    ///
    /// Tries to leave the room that [`NativeSource::room`] asks for. If that is impossible, room
    /// for one token is enough. If that is impossible too, fails with `CONTEXT_OVERFLOW`.
    pub(super) fn fit(
        &self,
        request: &ChatRequest,
        render: &dyn Fn(&[Value]) -> Result<RenderedPrompt>,
        interrupt: &Interrupt,
    ) -> Result<FittedPrompt> {
        let model = self.model()?;
        let n_ctx = model.n_ctx;
        check_n_keep("n_keep", request.output.n_keep, n_ctx)?;
        let room = self.room(request, n_ctx);
        let overflow = self.overflow(request);
        let last = self.last_request.get();
        let remedy = if model.most_ctx.is_some_and(|most| n_ctx >= most) {
            "shorten the messages; this model cannot have a larger context"
        } else {
            "shorten the messages or raise n_ctx"
        };
        let reader = model.media.as_ref().map(|encoder| encoder as &dyn MediaReader);
        let media = RequestMedia::read(request, reader, &self.media_files, interrupt)?;
        let messages = media.messages(request);
        let mut measure =
            |dropped: Range<usize>| -> Result<Measured<(RenderedPrompt, TokenizedPrompt)>> {
                let mut rendered = if dropped.is_empty() {
                    render(messages)?
                } else {
                    let kept = [&messages[..dropped.start], &messages[dropped.end..]];
                    render(&kept.concat()).map_err(|error| {
                        let message = renumbered(error.message(), &dropped);
                        error.with_message(message)
                    })?
                };
                rendered.renumber_messages(&dropped);
                let vocab = model.engine.vocab().as_ref();
                if let Some((tokens, prompt)) = given_tokens(request, vocab)? {
                    rendered.prompt = prompt;
                    let size = tokens.len();
                    let tokenized = TokenizedPrompt::from_tokens(tokens);
                    return Ok(Measured { size, dropped, result: (rendered, tokenized) });
                }
                if let Some(least) = least_tokens(vocab, &rendered.prompt.text, n_ctx) {
                    let size = PromptSize::AtLeast(least);
                    return Err(context_overflow(size, n_ctx, &dropped, overflow, remedy));
                }
                let prompt = &rendered.prompt;
                let tokenized = if media.is_empty() {
                    let last = last.as_deref().map(LastRequest::tokenized);
                    tokenize(vocab, request, prompt, last, interrupt)?
                } else {
                    let tokenized = media.tokenize(vocab, request, prompt, &dropped, interrupt)?;
                    with_bos(vocab, request, tokenized)?
                };
                Ok(Measured {
                    size: tokenized.tokens.len(),
                    dropped,
                    result: (rendered, tokenized),
                })
            };
        let boundaries = match overflow {
            ContextOverflow::Error => Vec::new(),
            strategy => boundaries(&request.messages, strategy),
        };
        let known_cut = self.recent_cuts.find(request, &boundaries);
        let first_range =
            boundaries.first().map_or(0..0, |first| *first..boundaries[known_cut.unwrap_or(0)]);
        let first = match measure(first_range) {
            // The whole conversation is too long even for rendering or tokenizing.
            Err(error) if is_too_long(&error) && boundaries.len() > 1 => None,
            measured => Some(measured?),
        };
        let fits = first.as_ref().is_some_and(|first| first.size <= room);
        let Measured { size, dropped, result } = match first {
            Some(first) if fits || boundaries.len() < 2 => first,
            first => {
                let start = (known_cut.unwrap_or(0), first);
                let sizes: Vec<usize> =
                    messages.iter().map(|message| message.to_string().len()).collect();
                search(&boundaries, &sizes, start, room, &mut measure)?
            }
        };
        if size >= n_ctx {
            let size = PromptSize::Exactly(size);
            return Err(context_overflow(size, n_ctx, &dropped, overflow, remedy));
        }
        let (mut rendered, tokenized) = result;
        let truncation = (!dropped.is_empty()).then(|| {
            self.recent_cuts.insert(request, &dropped);
            let strategy = match overflow {
                ContextOverflow::Shift => ContextOverflow::TruncateOldest,
                strategy => strategy,
            };
            Truncation { dropped, strategy, prompt_tokens: size, n_ctx }
        });
        rendered.diagnostics.extend(truncation.as_ref().map(Truncation::diagnostic));
        Ok(FittedPrompt { rendered, tokenized, truncation })
    }
}

/// The number of tokens of a prompt that does not fit.
enum PromptSize {
    Exactly(usize),
    AtLeast(usize),
}

/// The number of tokens that a text has at least, if it is so long that it cannot fit a context.
/// It then need not be tokenized, which can take many seconds.
fn least_tokens(vocab: &dyn Vocab, text: &str, n_ctx: usize) -> Option<usize> {
    /// Shorter texts take at most a few seconds, and the error then has the exact number.
    const LONG: usize = 2 << 20;
    if text.len() < LONG {
        return None;
    }
    let least = text.len() / vocab.longest_token()?;
    (least >= n_ctx).then_some(least)
}

fn context_overflow(
    size: PromptSize,
    n_ctx: usize,
    dropped: &Range<usize>,
    strategy: ContextOverflow,
    remedy: &str,
) -> Error {
    let what = match strategy {
        ContextOverflow::Error => "the prompt",
        _ => {
            "the part of the prompt that must stay (system messages, the last user message and \
             everything after it)"
        }
    };
    let (bound, tokens) = match size {
        PromptSize::Exactly(tokens) => ("", tokens),
        PromptSize::AtLeast(tokens) => ("at least ", tokens),
    };
    let message =
        format!("{what} has {bound}{tokens} tokens, but the context has {n_ctx}; {remedy}");
    let error = Error::new(Code::ContextOverflow, message)
        .with("prompt_tokens", tokens)
        .with("n_ctx", n_ctx);
    if dropped.is_empty() { error } else { error.with("dropped_messages", dropped.len()) }
}
