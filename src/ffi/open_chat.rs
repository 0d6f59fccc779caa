//! The chat behind a handle: in this process, or in a helper process.

use serde_json::Value;

use super::guard::ToJson;
use crate::api::response::ChatResponse;
use crate::api::{CreateOptions, Isolation, ReplyShape};
use crate::chat::{Chat, CreateFailure, EventSink, PieceSink};
#[cfg(not(llb_isolation))]
use crate::error::Error;
use crate::error::Result;
#[cfg(llb_isolation)]
use crate::isolation::{IsolatedChat, IsolatedReply};

pub(super) enum OpenChat {
    Here(Box<Chat>),
    #[cfg(llb_isolation)]
    Isolated(Box<IsolatedChat>),
}

/// The reply to a request.
pub(super) enum ChatReply {
    Here(Box<ChatResponse>),
    Explanation(Value),
    #[cfg(llb_isolation)]
    Isolated(IsolatedReply),
}

impl ToJson for ChatReply {
    fn into_json(self) -> serde_json::Result<Vec<u8>> {
        match self {
            ChatReply::Here(reply) => reply.into_json(),
            ChatReply::Explanation(explanation) => explanation.into_json(),
            #[cfg(llb_isolation)]
            ChatReply::Isolated(IsolatedReply::Host(reply)) => reply.into_json(),
            #[cfg(llb_isolation)]
            ChatReply::Isolated(IsolatedReply::Helper(text)) => Ok(text.into_bytes()),
        }
    }
}

/// Calls a method of either kind of chat.
macro_rules! either {
    ($chat:expr, $inner:ident => $call:expr) => {
        match $chat {
            OpenChat::Here($inner) => $call,
            #[cfg(llb_isolation)]
            OpenChat::Isolated($inner) => $call,
        }
    };
}

impl OpenChat {
    /// Opens a chat with these options. The JSON is what they were read from.
    pub(super) fn create(
        options: Result<(CreateOptions, Value)>,
        events: EventSink,
    ) -> Result<OpenChat, CreateFailure> {
        match options {
            Ok((options, json)) if options.isolation == Isolation::Process => {
                isolated(&options, &json, events)
            }
            options => {
                let options = options.map(|(options, _)| options);
                Ok(OpenChat::Here(Box::new(Chat::create(options, events)?)))
            }
        }
    }

    pub(super) fn infer(&self, request: &str, pieces: Option<PieceSink>) -> Result<ChatReply> {
        match self {
            OpenChat::Here(chat) => Ok(ChatReply::Here(Box::new(chat.infer(request, pieces)?))),
            #[cfg(llb_isolation)]
            OpenChat::Isolated(chat) => Ok(ChatReply::Isolated(chat.infer(request, pieces)?)),
        }
    }

    pub(super) fn explain(&self, request: &str) -> Result<ChatReply> {
        match self {
            OpenChat::Here(chat) => chat.explain(request).map(ChatReply::Explanation),
            #[cfg(llb_isolation)]
            OpenChat::Isolated(chat) => chat.explain(request).map(ChatReply::Isolated),
        }
    }

    pub(super) fn reply_shape(&self) -> ReplyShape {
        match self {
            OpenChat::Here(chat) => chat.reply_shape(),
            #[cfg(llb_isolation)]
            OpenChat::Isolated(_) => ReplyShape::Current,
        }
    }

    pub(super) fn cancel(&self) {
        either!(self, chat => chat.cancel());
    }

    pub(super) fn end_reasoning(&self) {
        either!(self, chat => chat.end_reasoning());
    }

    pub(super) fn give_up_call(&self) {
        either!(self, chat => chat.give_up_call());
    }

    pub(super) fn close(&self) {
        either!(self, chat => chat.close());
    }

    pub(super) fn close_from_callback(&self) {
        either!(self, chat => chat.close_from_callback());
    }

    pub(super) fn finish_destroy(&self) {
        either!(self, chat => chat.finish_destroy());
    }
}

#[cfg(llb_isolation)]
fn isolated(
    options: &CreateOptions,
    json: &Value,
    events: EventSink,
) -> Result<OpenChat, CreateFailure> {
    let version = super::version::text();
    let chat = IsolatedChat::create(options, json, events, version, super::helper::start)?;
    Ok(OpenChat::Isolated(Box::new(chat)))
}

#[cfg(not(llb_isolation))]
fn isolated(_: &CreateOptions, _: &Value, events: EventSink) -> Result<OpenChat, CreateFailure> {
    let error = Error::invalid("isolation", "\"process\" needs Linux on x86-64 or aarch64");
    Ok(OpenChat::Here(Box::new(Chat::create(Err(error), events)?)))
}
