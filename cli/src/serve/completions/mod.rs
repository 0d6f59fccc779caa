//! `/v1/completions`: continuations of plain prompts, as in OpenAI's older API and llama.cpp's
//! server.
//!
//! Source: the types of the package `openai` 3.54.

mod request;
mod writer;

use super::blocking::on_thread;
use super::call::{Call, ParsedCall, Reply, json_parts};
use super::error::ApiError;
use super::event_stream;
use super::left_out::LeftOut;
use super::library_request::LibraryRequest;
use super::{choices, fields};

pub(super) async fn respond(mut call: Call) -> Reply {
    let convert = |mut call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        let has_usage = call.body["stream_options"]["include_usage"] == true;
        let n = choices::count(&call.body)?;
        let mut left_out = LeftOut::default();
        let prompts = request::prompts(&mut call.body)?;
        request::check_replies(prompts.len(), n)?;
        let echoes = match fields::boolean(&call.body, "echo")? {
            Some(true) => request::texts(&prompts, &model)?,
            _ => Vec::new(),
        };
        let library = request::library_request(&mut call.body, &mut left_out)?;
        let library = call.library_request(&model, is_stream, library);
        let requests = prompts.iter().flat_map(|prompt| library.with_prompt(prompt).choices(n));
        let requests: Vec<LibraryRequest> = requests.collect();
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
        let replies = choices.replies().await?;
        // Log probabilities are converted, which may take long.
        json_parts(on_thread(move || Ok::<_, ApiError>(writer.completion(&replies, n))).await?)
    };
    Ok(header.on(reply))
}
