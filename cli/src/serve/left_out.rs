//! Parts of a request that no local model can use: tools that run elsewhere, images for a model of
//! text, items of other services. They are left out or become text, the rest of the request works,
//! and the client is told: by a header, and by `diagnostics` of the reply.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response};
use serde_json::{Value, json};

/// Its value has a code and a path for each part: `tool_left_out=tools[1], …`.
const NAME: HeaderName = HeaderName::from_static("x-llb-diagnostics");
/// The most parts that are named. A long conversation repeats them in each request.
const MAX_NOTES: usize = 20;

/// Why a part is missing from what the model gets.
#[derive(Clone, Copy)]
pub(crate) enum Reason {
    /// A tool that is not offered to the model.
    Tool,
    /// An item or a setting that is ignored.
    Item,
    /// Content that is described by a text.
    Replaced,
    /// A format of a tool's input that no grammar enforces.
    Format,
}

impl Reason {
    fn code(self) -> &'static str {
        match self {
            Reason::Tool => "tool_left_out",
            Reason::Item => "item_left_out",
            Reason::Replaced => "part_replaced",
            Reason::Format => "format_not_enforced",
        }
    }
}

/// The parts that were left out so far.
#[derive(Default)]
pub(crate) struct LeftOut {
    notes: Vec<(Reason, String, String)>,
    /// How many more there were.
    more: usize,
    /// The code of a diagnostic about something that the server set, and the client did not.
    unasked: Option<&'static str>,
    /// What the model takes. Texts take the places of other media.
    media: TakenMedia,
}

/// The media that a model takes: those of its projector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TakenMedia {
    pub(crate) pictures: bool,
    pub(crate) sound: bool,
}

impl LeftOut {
    /// Nothing yet, of a request for a model that takes these media.
    pub(crate) fn new(media: TakenMedia) -> LeftOut {
        LeftOut { media, ..LeftOut::default() }
    }

    /// Whether the model takes pictures.
    pub(crate) fn takes_pictures(&self) -> bool {
        self.media.pictures
    }

    /// Whether the model takes sound.
    pub(crate) fn takes_sound(&self) -> bool {
        self.media.sound
    }

    /// `path` is where the part is: `input[3].content[0]`.
    pub(crate) fn note(&mut self, reason: Reason, path: &str, message: impl Into<String>) {
        if self.notes.len() == MAX_NOTES {
            self.more += 1;
            return;
        }
        self.notes.push((reason, path.to_owned(), message.into()));
    }

    /// The client does not get diagnostics of the library with this code.
    pub(crate) fn hide(&mut self, code: &'static str) {
        self.unasked = Some(code);
    }

    /// Tells the client before the reply begins.
    pub(crate) fn header(&self) -> Header {
        let named = self.notes.iter().map(|(reason, path, _)| format!("{}={path}", reason.code()));
        let text = named.collect::<Vec<_>>().join(", ");
        Header(HeaderValue::try_from(text).ok().filter(|value| !value.is_empty()))
    }

    /// Adds the notes and the diagnostics of the reply to an object of a protocol, as this member, and
    /// the names of members that the library ignored.
    pub(crate) fn add_diagnostics(&self, reply: &Value, member: &str, object: &mut Value) {
        let mut all: Vec<Value> = self
            .notes
            .iter()
            .map(|(reason, path, message)| {
                json!({ "code": reason.code(), "param": path, "message": format!("{path}: {message}") })
            })
            .collect();
        if self.more > 0 {
            let message = format!("{} more parts were left out", self.more);
            all.push(json!({ "code": Reason::Item.code(), "message": message }));
        }
        let is_told =
            |diagnostic: &&Value| self.unasked.is_none_or(|code| diagnostic["code"] != code);
        let of_library = reply["diagnostics"].as_array().into_iter().flatten();
        all.extend(of_library.filter(is_told).cloned());
        if !all.is_empty() {
            object[member] = all.into();
        }
        if let Some(names) = reply.get("ignored_keys") {
            object["ignored_keys"] = names.clone();
        }
    }

    /// What was left out first, for the error of a request that has nothing else.
    pub(crate) fn first(&self) -> Option<String> {
        self.notes.first().map(|(_, path, message)| format!("{path}: {message}"))
    }
}

/// The header of a response, if something was left out.
pub(crate) struct Header(Option<HeaderValue>);

impl Header {
    pub(crate) fn on(self, mut response: Response<Body>) -> Response<Body> {
        if let Some(value) = self.0 {
            response.headers_mut().insert(NAME, value);
        }
        response
    }
}
