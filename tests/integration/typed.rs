//! Tests the API for Rust as another crate sees it. Where the C functions give the same answer in
//! another form, that is what is expected.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use llb::{
    Chat, Code, Delta, EmbedRequest, Embedder, Error, Fetch, FinishReason, Model, ModelInfo,
    RankRequest, Reply, Request, Template, Tool, ToolPolicy, ffi,
};
use serde_json::{Value, json};

use crate::abi::{self, model_info, scripted_model, weather_tool};
use crate::scripted::{self, LONG_TOKENS, REASONING, TEXT};

/// As in the tests of the C functions, one thread is the fastest.
fn model(name: &str) -> Model {
    Model::new(scripted_model(name)).n_ctx(1024).n_threads(1)
}

fn open(name: &str) -> Chat {
    model(name).chat().unwrap()
}

fn ask() -> Request {
    Request::new().user("What is the weather in Paris?").temperature(0.0)
}

fn weather() -> Tool {
    let function = &weather_tool()["function"];
    let tool = Tool::new(function["name"].as_str().unwrap(), function["parameters"].clone());
    tool.description(function["description"].as_str().unwrap_or_default())
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, code: Code, message: &str) {
    let error = result.err().expect("refused");
    assert_eq!((error.code(), error.message()), (code, message));
}

#[test]
fn values_may_be_sent_to_threads_and_shared() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Model>();
    check::<ModelInfo>();
    check::<Chat>();
    check::<Request>();
    check::<Reply>();
    check::<Delta>();
    check::<Template>();
    check::<Embedder>();
    check::<Fetch>();
    check::<Error>();
    let _: Box<dyn std::error::Error + Send + Sync> = Model::new("").info().unwrap_err().into();
}

/// The parts of a stream, joined.
#[derive(Default)]
struct Joined {
    content: String,
    reasoning: String,
    calls: Vec<(String, String, String)>,
}

impl Joined {
    fn push(&mut self, delta: Delta) {
        match delta {
            Delta::Content(text) => self.content.push_str(&text),
            Delta::Reasoning(text) => self.reasoning.push_str(&text),
            Delta::ToolCall { index, id, name } => {
                assert_eq!(index, self.calls.len());
                self.calls.push((id, name, String::new()));
            }
            Delta::Arguments { index, fragment } => self.calls[index].2.push_str(&fragment),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_is_its_reply() {
    for (name, request) in
        [("text.gguf", ask()), ("reasoning.gguf", ask()), ("tool_call.gguf", ask().tool(weather()))]
    {
        let chat = open(name);
        let mut joined = Joined::default();
        let reply = chat.stream(&request, |delta| joined.push(delta)).unwrap();
        assert_eq!(joined.content, reply.content, "{name}");
        assert_eq!(joined.reasoning, reply.reasoning.clone().unwrap_or_default(), "{name}");
        let calls = reply.tool_calls.iter();
        let calls = calls.map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone()));
        assert_eq!(joined.calls, calls.collect::<Vec<_>>(), "{name}");
        let whole = chat.reply(&request).unwrap();
        assert_eq!((whole.content, whole.reasoning), (reply.content, reply.reasoning), "{name}");
        match name {
            "text.gguf" => assert_eq!(joined.content, TEXT),
            "reasoning.gguf" => assert_eq!([joined.reasoning, joined.content], REASONING),
            _ => assert_eq!(reply.finish_reason, FinishReason::ToolCalls),
        }
    }
}

#[test]
fn deltas_are_those_of_the_stream() {
    let chat = Arc::new(open("reasoning.gguf"));
    let mut streamed = Vec::new();
    let reply = chat.stream(&ask(), |delta| streamed.push(delta)).unwrap();
    let mut deltas = chat.deltas(&ask()).unwrap();
    assert_eq!(deltas.by_ref().collect::<Vec<_>>(), streamed);
    assert_eq!(deltas.reply().unwrap().content, reply.content);
    // Not read to the end: the reply is whole all the same.
    let mut deltas = chat.deltas(&ask()).unwrap();
    assert_eq!(deltas.next().as_ref(), streamed.first());
    assert_eq!(deltas.reply().unwrap().content, reply.content);
    refused(
        chat.deltas(&Request::new()).unwrap().reply(),
        Code::InvalidRequest,
        "messages: missing",
    );
}

#[test]
fn dropped_deltas_end_their_reply_alone() {
    let chat = Arc::new(open("long.gguf"));
    let mut dropped = chat.deltas(&ask()).unwrap();
    assert!(dropped.next().is_some());
    let next = chat.deltas(&ask()).unwrap();
    drop(dropped);
    assert_eq!(next.reply().unwrap().content, scripted::long_text());

    let chat = Arc::new(model("long.gguf").n_ctx(2048).chat().unwrap());
    assert!(chat.deltas(&ask()).unwrap().next().is_some());
    // Of the reply that nobody reads, only the beginning is in memory.
    let whole = ask().assistant(scripted::long_text()).user("So?").max_tokens(1);
    let usage = chat.reply(&whole).unwrap().usage;
    assert!((1..LONG_TOKENS / 2).contains(&usage.cached_tokens), "{usage:?}");
}

#[test]
fn a_reply_is_that_of_the_c_function() {
    for (name, tools) in [("reasoning.gguf", false), ("tool_call.gguf", true)] {
        let mut json = json!({
            "messages": [{ "role": "user", "content": "What is the weather in Paris?" }],
            "temperature": 0.0, "logprobs": true, "top_logprobs": 1, "strange": [1],
        });
        let mut request = ask().set("logprobs", true).set("top_logprobs", 1).set("strange", 7);
        if tools {
            json["tools"] = json!([weather_tool()]);
            request = request.tool(weather());
        }
        let options = json!({ "model": scripted_model(name), "n_ctx": 1024, "isolation": "none" });
        let expected = abi::Chat::open_with(&options).unwrap().infer(&json);
        let reply = open(name).reply(&request).unwrap();
        assert_eq!(reply.content, expected["text"], "{name}");
        assert_eq!(json!(reply.reasoning), expected["reasoning_content"]);
        assert_eq!(reply.finish_reason.as_str(), expected["finish_reason"]);
        assert_eq!(reply.usage.prompt_tokens, expected["usage"]["prompt_tokens"]);
        assert_eq!(reply.usage.completion_tokens, expected["usage"]["completion_tokens"]);
        assert_eq!(json!(reply.logprobs), expected["logprobs"]["content"]);
        assert_eq!(json!(reply.diagnostics), expected["diagnostics"]);
        assert_eq!(reply.ignored_keys, ["strange"]);
        // The ids of calls are random.
        let without_ids = |message: &Value| {
            let mut message = message.clone();
            for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
                call["id"] = Value::Null;
            }
            message
        };
        assert_eq!(without_ids(reply.message()), without_ids(&expected["message"]));
        assert_eq!(reply.tool_calls.len(), usize::from(tools));
    }
}

#[test]
fn a_conversation_goes_on_with_the_result_of_a_call() {
    let chat = open("tool_call.gguf");
    let request = ask().tool(weather());
    let reply = chat.reply(&request).unwrap();
    let next = request.reply(&reply).tool_result(&reply.tool_calls[0], "21 degrees").user("So?");
    let explanation = chat.explain(&next).unwrap();
    let prompt = explanation["prompt"].as_str().unwrap();
    let end = prompt.split_once("Paris?<|im_end|>\n").unwrap().1;
    assert_eq!(
        end,
        "<|im_start|>assistant\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": \
         {\"city\": \"Paris\"}}\n</tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>\n21 degrees\n</tool_response><|im_end|>\n\
         <|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn a_continued_message_is_replaced() {
    let chat = open("text.gguf");
    let request = ask().assistant("It is").set("continue_final_message", true);
    let reply = chat.reply(&request).unwrap();
    let next = request.reply(&reply).user("Thanks.");
    let explanation = chat.explain(&next).unwrap();
    let prompt = explanation["prompt"].as_str().unwrap();
    assert_eq!(prompt.matches("<|im_start|>assistant\nIt is").count(), 1, "{prompt}");
    assert!(prompt.ends_with("<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n"));
}

#[test]
fn errors_name_the_option_and_the_member() {
    let wrong = |name: &str, value: Value| model("text.gguf").set(name, value).chat();
    refused(
        wrong("n_treads", json!(4)),
        Code::InvalidRequest,
        "n_treads: unknown option; did you mean `n_threads`?",
    );
    refused(
        wrong("isolation", json!("process")),
        Code::InvalidRequest,
        "isolation: the Rust API has no isolated chats; call llb_chat_create_with",
    );
    refused(
        model("text.gguf").tool_policy(ToolPolicy::Any).embedder(),
        Code::InvalidRequest,
        "tool_policy: unknown option",
    );
    let missing = Model::new("/nowhere.gguf");
    assert_eq!(missing.chat().unwrap_err().code(), Code::ModelNotFound);
    assert_eq!(missing.info().unwrap_err().code(), Code::ModelNotFound);
    assert_eq!(missing.embedder().unwrap_err().code(), Code::ModelNotFound);
    let plain = open_error(&model("no_tools.gguf"));
    assert_eq!(plain.code(), Code::ModelNotToolCapable);
    assert!(plain.details().unwrap().contains_key("caps"), "{plain:?}");

    let chat = open("text.gguf");
    refused(chat.reply(&Request::new()), Code::InvalidRequest, "messages: missing");
    refused(
        chat.reply(&ask().message(json!({ "role": "assistent", "content": "" }))),
        Code::InvalidRequest,
        "messages[1].role: unknown role \"assistent\"; expected one of system, developer, user, assistant, tool",
    );
    refused(
        chat.stream(&ask().set("temperature", "hot"), |_| {}),
        Code::InvalidRequest,
        "temperature: expected a number, got \"hot\"",
    );
    let deep = (0..200).fold(Value::Null, |inner, _| json!([inner]));
    refused(
        chat.reply(&ask().set("documents", deep)),
        Code::InvalidRequest,
        "documents: has more than 127 levels of arrays and objects",
    );
    assert_eq!(chat.reply(&ask()).unwrap().content, TEXT);
}

fn open_error(model: &Model) -> Error {
    model.chat().unwrap_err()
}

#[test]
fn a_stream_can_be_cancelled_from_its_closure() {
    let chat = open("long.gguf");
    let mut content = String::new();
    let reply = chat
        .stream(&ask(), |delta| {
            if let Delta::Content(text) = delta {
                content.push_str(&text);
                chat.cancel();
            }
        })
        .unwrap();
    assert_eq!(reply.finish_reason, FinishReason::Cancelled);
    assert_eq!(reply.content, content);
    assert!(reply.usage.completion_tokens < LONG_TOKENS);
    assert_eq!(chat.reply(&ask()).unwrap().content, scripted::long_text());
}

#[test]
fn a_panic_of_a_closure_goes_on_in_the_caller() {
    let chat = open("text.gguf");
    let mut calls = 0;
    let stream = || {
        let stop = |_| {
            calls += 1;
            panic!("stop here");
        };
        chat.stream(&ask(), stop)
    };
    let payload = catch_unwind(AssertUnwindSafe(stream)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"stop here"));
    assert_eq!(calls, 1);
    assert_eq!(chat.reply(&ask()).unwrap().content, TEXT);
}

#[test]
fn a_call_in_a_closure_of_the_same_chat_is_busy() {
    let chat = open("text.gguf");
    let mut codes = Vec::new();
    let reply = chat.stream(&ask(), |_| codes.push(chat.reply(&ask()).unwrap_err().code()));
    assert_eq!(reply.unwrap().content, TEXT);
    assert!(!codes.is_empty() && codes.iter().all(|code| *code == Code::Busy), "{codes:?}");
}

#[test]
fn events_reach_the_closure() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let model =
        model("text.gguf").on_event(move |event| seen.lock().unwrap().push(event.to_owned()));
    let chat = model.chat().unwrap();
    chat.reply(&ask()).unwrap();
    drop(chat);
    let events = events.lock().unwrap();
    let others = events.iter().filter(|event| !event.starts_with("load_progress:"));
    let others: Vec<&str> = others.map(String::as_str).collect();
    assert_eq!(
        others,
        ["create_start", "create_success", "infer_start", "infer_success", "destroy"]
    );
    refused(
        crate::typed::model("text.gguf").on_event(|_| panic!("no")).chat(),
        Code::Cancelled,
        "the closure for events panicked: no",
    );
}

#[test]
fn a_shared_chat_answers_several_threads() {
    let chat = Arc::new(open("text.gguf"));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let chat = Arc::clone(&chat);
            std::thread::spawn(move || chat.reply(&ask()).unwrap().content)
        })
        .collect();
    drop(chat);
    threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), TEXT));
}

#[test]
fn the_header_is_that_of_the_c_function() {
    let path = scripted_model("text.gguf");
    let (info, expected) = (Model::new(&path).info().unwrap(), model_info(&path));
    for name in ["architecture", "caps", "evidence", "findings", "template_sha256"] {
        assert_eq!(info.get(name), Some(&expected[name]), "{name}");
    }
    assert_eq!(info.supports_tools(), expected["supports_tools"]);
    assert_eq!(info.n_params(), expected["n_params"].as_u64());
    assert_eq!(info.context_length(), expected["context_length"].as_u64());
    assert_eq!(info.file_size(), Some(std::fs::metadata(&path).unwrap().len()));
    assert_eq!(info.name(), expected["name"].as_str());
    assert_eq!(info.quantization(), expected["quantization"].as_str());
}

#[test]
fn a_template_renders_and_parses_like_the_c_functions() {
    let path = scripted_model("tool_call.gguf");
    let template = Model::new(&path).template();
    let request = ask().tool(weather()).set("spans", true).set("strange", 1);
    let rendered = template.render(&request).unwrap();
    let expected = abi::call(
        ffi::llb_template_render,
        &json!({
            "gguf": path, "tools": [weather_tool()], "spans": true,
            "messages": [{ "role": "user", "content": "What is the weather in Paris?" }],
        }),
    );
    assert_eq!(rendered.prompt, expected["prompt"]);
    assert_eq!(rendered.details["spans"], expected["spans"]);
    assert_eq!(rendered.ignored_keys, ["temperature", "strange"]);

    let output = format!("Well. {}", scripted::TOOL_CALL);
    let message = template.parse(&output, &ask().tool(weather())).unwrap();
    assert_eq!((message.content.as_str(), message.is_complete), ("Well.", true));
    assert_eq!(message.tool_calls.len(), 1);
    assert_eq!(message.tool_calls[0].arguments, "{\"city\": \"Paris\"}");
    let text = template.parse(&output, &ask()).unwrap();
    assert!(text.tool_calls.is_empty());

    assert_eq!(template.info().unwrap()["tool_support"], "native");
    refused(
        Template::new("{{").render(&ask()),
        Code::TemplateError,
        abi::call(
            ffi::llb_template_render,
            &json!({ "chat_template": "{{", "messages": [{ "role": "user", "content": "a" }] }),
        )["error"]["message"]
            .as_str()
            .unwrap(),
    );
    let composed = Template::composed("qwen2.5").render(&Request::new().user("Hi")).unwrap();
    assert!(composed.prompt.contains("<|im_start|>user\nHi<|im_end|>"), "{}", composed.prompt);
}

#[test]
fn vectors_and_scores_are_those_of_the_c_functions() {
    let path = scripted_model("embedding.gguf");
    let texts = ["a river", "a mountain"];
    for (pooling, normalize) in [("mean", true), ("none", false), ("none", true)] {
        let embedder = Model::new(&path).n_threads(1).set("pooling", pooling).embedder().unwrap();
        let request = EmbedRequest::new(texts).set("normalize", normalize).set("strange", 1);
        let found = embedder.embed(&request).unwrap();
        let options = json!({ "model": path, "n_threads": 1, "pooling": pooling });
        let expected = abi::Embedder::create(&options)
            .unwrap()
            .embed(&json!({ "input": texts, "normalize": normalize }));
        for (vector, item) in found.vectors.iter().zip(expected["data"].as_array().unwrap()) {
            let vectors = item["embedding"].as_array().unwrap();
            let numbers: Vec<&Value> = match pooling {
                "none" => vectors.iter().flat_map(|vector| vector.as_array().unwrap()).collect(),
                _ => vectors.iter().collect(),
            };
            assert_eq!(vector.len(), numbers.len());
            for (found, expected) in vector.iter().zip(numbers) {
                assert!((f64::from(*found) - expected.as_f64().unwrap()).abs() < 1e-6);
            }
        }
        assert_eq!(found.vectors.len(), texts.len());
        assert_eq!(found.prompt_tokens, expected["usage"]["prompt_tokens"]);
        assert_eq!(found.ignored_keys, ["strange"]);
    }
    let path = scripted_model("reranker.gguf");
    let ranker = Model::new(&path).n_threads(1).embedder().unwrap();
    let documents = ["a river", "a mountain", "a lake"];
    let found = ranker.rank(&RankRequest::new("water", documents).set("top_n", 2)).unwrap();
    let options = json!({ "model": path, "n_threads": 1 });
    let expected = abi::rank(
        &abi::Embedder::create(&options).unwrap(),
        &json!({ "query": "water", "documents": documents, "top_n": 2 }),
    );
    let order = |results: &Value| {
        let results = results.as_array().unwrap().iter();
        results.map(|result| result["index"].as_u64().unwrap() as usize).collect::<Vec<_>>()
    };
    let found: Vec<usize> = found.results.iter().map(|result| result.index).collect();
    assert_eq!(found, order(&expected["results"]));
    refused(
        ranker.embed(&EmbedRequest::new(["a"])),
        Code::InvalidRequest,
        "this model was opened to make scores (pooling \"rank\"); call llb_rank, or open it with another pooling",
    );
}

#[test]
fn a_fetch_checks_its_request() {
    refused(Fetch::new("a b").run(), Code::InvalidRequest, &fetch_error("a b"));
    let error = Fetch::new("org/name").set("offline", "yes").run().unwrap_err();
    assert_eq!(error.message(), "offline: expected true or false, got \"yes\"");
}

fn fetch_error(id: &str) -> String {
    let request = std::ffi::CString::new(json!({ "id": id }).to_string()).unwrap();
    // SAFETY: NUL-terminated; the function needs no user data.
    let reply = unsafe { ffi::llb_model_fetch(request.as_ptr(), None, std::ptr::null_mut()) };
    abi::take(reply)["error"]["message"].as_str().unwrap().to_owned()
}
