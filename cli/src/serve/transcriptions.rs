//! `/v1/audio/transcriptions`: the text of a sound, by a chat model that hears. The sound and an
//! instruction are the only message.
//!
//! Source: <https://platform.openai.com/docs/api-reference/audio/createTranscription>.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use multer::Multipart;
use serde_json::{Map, Value, json};

use super::call::{Call, ParsedCall, Reply};
use super::error::ApiError;
use super::event_stream::{EventWriter, event_text};
use super::fields;
use super::generation::Generated;
use super::pictures;

const INSTRUCTION: &str = "Transcribe the speech in this sound. Answer with the text alone.";
/// Parts whose content is text, whatever it looks like.
const TEXTS: [&str; 4] = ["model", "prompt", "language", "response_format"];
/// Members that the server reads.
const OWN: [&str; 7] =
    ["model", "stream", "stream_format", "file", "prompt", "language", "response_format"];

pub(super) async fn respond(headers: HeaderMap, mut call: Call) -> Reply {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = media_type.and_then(|media_type| multer::parse_boundary(media_type).ok());
    let boundary = boundary.ok_or_else(|| {
        let message =
            "expected Content-Type: multipart/form-data, with the parts `file` and `model`";
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    })?;
    call.replace_body(|body| async move { form(&body, &boundary).await }).await?;
    let convert = |mut call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        if !model.media().sound {
            let message = "takes no sound; serve a model that hears with its --projector";
            return Err(ApiError::invalid("model", message));
        }
        let is_json = match fields::string(&call.body, "response_format")? {
            None | Some("json") => true,
            Some("text") => false,
            Some(_) => {
                let message = "expected \"json\" or \"text\"; the model tells no times";
                return Err(ApiError::invalid("response_format", message));
            }
        };
        let request = request(&mut call.body)?;
        let request = call.library_request(&model, is_stream, request);
        Ok((model, request, is_stream, is_json))
    };
    let (model, request, is_stream, is_json) = call.read(convert).await?;
    let writer = || TranscriptWriter { is_json, text: String::new() };
    let mut response = call.generate(&model, request, is_stream, writer).await?;
    if !is_json && !is_stream {
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
    }
    Ok(response)
}

/// The parts of a form as members of an object. The file is in base64, numbers and booleans are
/// those of JSON.
async fn form(body: &[u8], boundary: &str) -> Result<Value, ApiError> {
    let mut form = Multipart::with_reader(body, boundary);
    let mut members = Map::new();
    while let Some(part) = form.next_field().await.map_err(|error| damaged(&error))? {
        let name = part.name().unwrap_or_default().to_owned();
        let content = part.bytes().await.map_err(|error| damaged(&error))?;
        let value = if name == "file" {
            STANDARD.encode(&content).into()
        } else {
            let text = std::str::from_utf8(&content)
                .map_err(|_| ApiError::invalid(&name, "is not UTF-8"))?;
            let is_text = TEXTS.contains(&name.as_str());
            let value = crate::json::value(text)
                .ok()
                .filter(|value| !is_text && (value.is_number() || value.is_boolean()));
            value.unwrap_or_else(|| text.into())
        };
        members.insert(name, value);
    }
    Ok(members.into())
}

fn damaged(error: &multer::Error) -> ApiError {
    let message = format!("the body is not a form of its Content-Type: {error}");
    ApiError::new(StatusCode::BAD_REQUEST, message)
}

/// The request of the library.
fn request(body: &mut Value) -> Result<Value, ApiError> {
    let file = fields::string(body, "file")?.unwrap_or_default();
    if file.is_empty() {
        return Err(ApiError::invalid("file", "is missing, or empty"));
    }
    let mut text = INSTRUCTION.to_owned();
    if let Some(language) = fields::string(body, "language")? {
        text += &format!(" It is in the language {language}.");
    }
    if let Some(prompt) = fields::string(body, "prompt")? {
        text += &format!(" {prompt}");
    }
    let sound = pictures::sound(file, "file");
    let content = json!([sound, { "type": "text", "text": text }]);
    let mut request = body.take();
    if let Some(members) = request.as_object_mut() {
        members.retain(|name, _| !OWN.contains(&name.as_str()));
        members.entry("temperature").or_insert_with(|| 0.into());
    }
    request["messages"] = json!([{ "role": "user", "content": content }]);
    fields::positive(&request, "timeout_ms")?;
    Ok(request)
}

struct TranscriptWriter {
    is_json: bool,
    /// What was streamed.
    text: String,
}

/// The usage in the names of this route.
fn usage(reply: &Value) -> Value {
    let usage = &reply["usage"];
    json!({
        "type": "tokens", "input_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"], "total_tokens": usage["total_tokens"],
    })
}

impl EventWriter for TranscriptWriter {
    fn chunk(&mut self, chunk: &Generated) -> String {
        let delta = chunk.value["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        if delta.is_empty() {
            return String::new();
        }
        self.text += delta;
        event_text(&json!({ "type": "transcript.text.delta", "delta": delta }).to_string())
    }

    fn end(&mut self, reply: &Value) -> String {
        let done = json!({
            "type": "transcript.text.done", "text": self.text, "usage": usage(reply),
            "finish_reason": reply["finish_reason"],
        });
        event_text(&done.to_string())
    }

    fn whole(self, reply: &Generated) -> Vec<Bytes> {
        let reply = &reply.value;
        let text = reply["text"].as_str().unwrap_or_default();
        if !self.is_json {
            return vec![format!("{text}\n").into()];
        }
        let mut whole = json!({
            "text": text, "usage": usage(reply), "finish_reason": reply["finish_reason"],
        });
        for name in ["diagnostics", "ignored_keys"] {
            if let Some(value) = reply.get(name) {
                whole[name] = value.clone();
            }
        }
        vec![whole.to_string().into()]
    }
}
