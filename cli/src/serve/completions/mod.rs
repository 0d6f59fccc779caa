//! `/v1/completions`: continuations of plain prompts, as in OpenAI's older API and llama.cpp's
//! server.
//!
//! Source: the types of the package `openai` 3.54.

mod logprobs;
mod request;
mod writer;

use super::call::{Call, ParsedCall, Reply, json_parts};
use super::event_stream;
use super::left_out::LeftOut;
use super::{choices, fields};

pub(super) async fn respond(mut call: Call) -> Reply {
    let convert = |mut call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        let has_usage = call.body["stream_options"]["include_usage"] == true;
        let n = choices::count(&call.body)?;
        let mut left_out = LeftOut::default();
        let prompts = request::prompts(&mut call.body)?;
        let echoes = match fields::boolean(&call.body, "echo")? {
            Some(true) => request::texts(&prompts, &model)?,
            _ => Vec::new(),
        };
        let library = request::library_request(&mut call.body, &model, &mut left_out)?;
        let mut requests = Vec::new();
        for prompt in prompts {
            for mut request in choices::requests(&library, n) {
                request["prompt"] = prompt.clone();
                requests.push(call.library_request(&model, is_stream, request));
            }
        }
        let echo = request::Echo { texts: echoes, n };
        Ok((model, requests, n, is_stream, has_usage, echo, left_out))
    };
    let (model, requests, n, is_stream, has_usage, echo, left_out) = call.read(convert).await?;
    let header = left_out.header();
    let writer = writer::TextWriter::new(&model.name, has_usage, echo, left_out);
    let (app, choices) = call.choices(&model, requests, n, is_stream);
    let reply = if is_stream {
        event_stream::respond(choices, writer, app.replies.begin()).await?
    } else {
        json_parts(writer.completion(&choices.replies().await?, n))
    };
    Ok(header.on(reply))
}
