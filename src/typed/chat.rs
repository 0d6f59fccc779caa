//! An open chat.

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::deltas::Deltas;
use super::reply::Reply;
use super::request::Request;
use crate::api::CreateOptions;
use crate::chat::{DeltaSink, EventSink};
use crate::engine::Interrupt;
use crate::error::Result;
use crate::ffi::OwnedChat;
use crate::output::Delta;
use crate::panic;

/// An open chat: a model in memory, with its chat template.
///
/// [`Model::chat`](super::Model::chat) opens one. All methods may be called from any thread, and a
/// chat can be shared by an [`Arc`]. Requests to one chat run one after another, in order of
/// arrival; those to different chats of the same file share its weights and run together. When a
/// chat is dropped, its requests end and its memory is freed.
#[derive(Debug)]
pub struct Chat(OwnedChat);

impl Chat {
    pub(super) fn open(
        options: impl FnOnce() -> Result<CreateOptions>,
        events: EventSink,
    ) -> Result<Chat> {
        OwnedChat::open(options, events).map(Chat)
    }

    /// Generates a reply.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`](super::Code::InvalidRequest) with the name of the member, and the
    /// errors of the template, the context, the schemas and the engine. A reply that is cancelled or
    /// reaches its time-out is not an error.
    ///
    /// ```
    #[doc = include_str!("scripted.txt")]
    /// # let path = scripted("text.gguf");
    /// use llb::{FinishReason, Model, Request};
    ///
    /// let chat = Model::new(path).n_ctx(512).chat()?;
    /// let reply = chat.reply(&Request::new().user("Greet me."))?;
    /// assert_eq!(reply.content, "Grüße aus Köln: naïve 東京, and an emoji 😀 cut in two.");
    /// assert_eq!(reply.finish_reason, FinishReason::Stop);
    /// # Ok::<(), llb::Error>(())
    /// ```
    pub fn reply(&self, request: &Request) -> Result<Reply> {
        self.generate(request.to_value()?, Interrupt::default(), None)
    }

    /// Like [`Chat::reply`], and passes each delta of the reply to a closure as it is generated.
    ///
    /// The closure runs on the calling thread. [`Chat::cancel`] in it ends the reply. A panic in it
    /// ends the reply too, and then continues from this method.
    ///
    /// ```
    #[doc = include_str!("scripted.txt")]
    /// # let path = scripted("tool_call.gguf");
    /// use llb::{Delta, Model, Request, Tool};
    /// use serde_json::json;
    ///
    /// let chat = Model::new(path).n_ctx(1024).chat()?;
    /// let weather = Tool::new("get_weather", json!({
    ///     "type": "object",
    ///     "properties": { "city": { "type": "string" } },
    ///     "required": ["city"],
    /// }));
    /// let request = Request::new().user("What is the weather in Paris?").tool(weather);
    /// let mut names = Vec::new();
    /// let reply = chat.stream(&request, |delta| match delta {
    ///     Delta::Content(text) => print!("{text}"),
    ///     Delta::ToolCall { name, .. } => names.push(name),
    ///     _ => {}
    /// })?;
    /// assert_eq!(names, ["get_weather"]);
    /// let call = &reply.tool_calls[0];
    /// assert_eq!(call.arguments, r#"{"city": "Paris"}"#);
    ///
    /// // The next request has the call and its result.
    /// let request = request.reply(&reply).tool_result(call, "21 °C, clear");
    /// # let _ = request;
    /// # Ok::<(), llb::Error>(())
    /// ```
    pub fn stream(&self, request: &Request, mut on_delta: impl FnMut(Delta)) -> Result<Reply> {
        let request = request.to_value()?;
        let interrupt = Interrupt::default();
        let cancel = Arc::clone(&interrupt.cancel);
        let mut panicked: Option<Box<dyn Any + Send>> = None;
        let mut pass = |delta| {
            if panicked.is_none()
                && let Err(payload) = panic::of_caller(|| on_delta(delta))
            {
                panicked = Some(payload);
                cancel.store(true, Ordering::Relaxed);
            }
        };
        let reply = self.generate(request, interrupt, Some(&mut pass));
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
        reply
    }

    /// Like [`Chat::stream`], but returns an iterator over the deltas, while a thread of its own
    /// generates the reply.
    ///
    /// # Errors
    /// [`Code::OutOfMemory`](super::Code::OutOfMemory) if the system cannot start the thread. All
    /// other errors are those of [`Deltas::reply`].
    ///
    /// ```
    #[doc = include_str!("scripted.txt")]
    /// # let path = scripted("text.gguf");
    /// use std::sync::Arc;
    ///
    /// use llb::{Delta, Model, Request};
    ///
    /// let chat = Arc::new(Model::new(path).n_ctx(512).chat()?);
    /// let mut deltas = chat.deltas(&Request::new().user("Greet me."))?;
    /// for delta in &mut deltas {
    ///     if let Delta::Content(text) = delta {
    ///         print!("{text}");
    ///     }
    /// }
    /// println!("\n{} tokens", deltas.reply()?.usage.completion_tokens);
    /// # Ok::<(), llb::Error>(())
    /// ```
    pub fn deltas(self: &Arc<Self>, request: &Request) -> Result<Deltas> {
        let (chat, request) = (Arc::clone(self), request.to_value());
        Deltas::start(move |interrupt, pass| chat.generate(request?, interrupt, Some(pass)))
    }

    /// Generates the reply to a request that was read from its builder.
    pub(super) fn generate(
        &self,
        request: Value,
        interrupt: Interrupt,
        on_delta: Option<DeltaSink>,
    ) -> Result<Reply> {
        self.0.call(|chat| chat.infer_value(request, interrupt, on_delta)).map(Reply::from)
    }

    /// What a request would do, without generating a token, as JSON: its prompt, its grammar, the
    /// tokens that are cached, and more (`llb_chat_explain` in docs/abi.md).
    ///
    /// # Errors
    /// Those of [`Chat::reply`] that come before the first token.
    pub fn explain(&self, request: &Request) -> Result<Value> {
        let request = request.to_value()?;
        self.0.call(|chat| chat.explain_value(request))
    }

    /// Ends the running request and all waiting ones. Each returns what it has so far, with the
    /// finish reason [`Cancelled`](super::FinishReason::Cancelled). Does not wait.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Ends the reasoning that the running reply is in; its answer follows. Does not wait.
    pub fn end_reasoning(&self) {
        self.0.end_reasoning();
    }
}
