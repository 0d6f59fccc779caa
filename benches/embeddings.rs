//! Compares vectors of 512 texts from one `llb_embed` with loops over llama.cpp's own API, on one
//! model.
//!
//! Both have the same weights, threads, batch size and texts. Both tokenize the texts and scale the
//! vectors to length 1. One loop decodes each text alone. The other packs several texts into a
//! decode, as llama.cpp's example `embedding` does. The faster loop is compared. Every round
//! measures everything in rotating order. Only the equality of the vectors is asserted.
//!
//! The model is `LLB_EMBEDDING_MODEL`, or the one of `make embeddings`. `LLB_ROUNDS` is the number
//! of rounds, `LLB_THREADS` the number of threads.
#![allow(unsafe_code, reason = "calls the C ABI and llama.cpp")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/mod.rs"]
#[allow(dead_code, reason = "this benchmark has models of its own")]
mod measure;

use std::ffi::{CStr, CString, c_char};

use llama_cpp_sys_2 as sys;
use llb::ffi;
use measure::{Figures, heading, row, target, timed};
use serde_json::{Value, json};

const TEXTS: usize = 512;
const N_CTX: u32 = 512;
const N_BATCH: u32 = 512;
const SEQUENCES: u32 = 64;
const MIN: f64 = 1.0;

fn main() {
    let default =
        concat!(env!("CARGO_MANIFEST_DIR"), "/target/embeddings/all-MiniLM-L6-v2-f32.gguf");
    let path = std::env::var("LLB_EMBEDDING_MODEL").unwrap_or_else(|_| default.to_owned());
    if !std::path::Path::new(&path).is_file() {
        return println!("skipped: {path} does not exist; run: make embeddings");
    }
    let rounds = measure::number("LLB_ROUNDS", 9);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = measure::number("LLB_THREADS", cores) as u32;
    let texts = texts();
    let llb = Embedder::open(&json!({
        "model": path, "n_ctx": N_CTX, "n_batch": N_BATCH, "n_threads": threads,
    }));
    let mut peer = Peer::open(&path, threads);
    let (own, n_tokens) = llb.vectors(&texts);
    for packed in [false, true] {
        let other = peer.vectors(&texts, packed);
        let least = own.iter().zip(&other).map(|(a, b)| dot(a, b)).fold(1.0, f32::min);
        assert!(least > 0.9999, "the vectors are the same: {least}");
    }
    println!("vectors of {TEXTS} texts ({n_tokens} tokens): {rounds} rounds, {threads} threads");
    let mut took: [Figures; 3] = Default::default();
    for round in 0..rounds {
        for turn in 0..took.len() {
            let which = (round + turn) % took.len();
            let (time, _) = match which {
                0 => timed(|| llb.vectors(&texts).0),
                which => timed(|| peer.vectors(&texts, which == 2)),
            };
            took[which].push(time.as_secs_f64());
        }
    }
    heading("seconds");
    row("llb_embed", &took[0]);
    row("llama.cpp, one text at a time", &took[1]);
    row("llama.cpp, packed", &took[2]);
    let faster = if took[1].median() < took[2].median() { &took[1] } else { &took[2] };
    let ratio = faster.over(&took[0]);
    row("times as fast as the faster loop", &ratio);
    target(&format!("at least {MIN}"), ratio.median() >= MIN);
}

/// Texts of 4 to 27 words, the same in every run.
fn texts() -> Vec<String> {
    const WORDS: [&str; 24] = [
        "the", "history", "of", "a", "small", "city", "begins", "with", "river", "and", "its",
        "people", "who", "built", "houses", "near", "water", "for", "trade", "in", "grain", "salt",
        "wool", "iron",
    ];
    let mut state = 1_u32;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize % bound
    };
    let mut text = || {
        let count = 4 + next(24);
        (0..count).map(|_| WORDS[next(WORDS.len())]).collect::<Vec<_>>().join(" ")
    };
    (0..TEXTS).map(|_| text()).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// llb, used through the C ABI.
struct Embedder(*mut ffi::llb_embedder);

impl Embedder {
    fn open(options: &Value) -> Embedder {
        let options = CString::new(options.to_string()).expect("JSON has no NUL");
        // SAFETY: NUL-terminated.
        let embedder = unsafe { ffi::llb_embed_create(options.as_ptr()) };
        assert!(!embedder.is_null(), "llb opens the model");
        Embedder(embedder)
    }

    /// The vectors and the number of tokens. The time includes parsing the reply.
    fn vectors(&self, texts: &[String]) -> (Vec<Vec<f32>>, u64) {
        let request = CString::new(json!({ "input": texts }).to_string()).expect("no NUL");
        // SAFETY: NUL-terminated.
        let reply = unsafe { ffi::llb_embed(self.0, request.as_ptr()) };
        // SAFETY: a reply is never NULL and NUL-terminated.
        let text = unsafe { CStr::from_ptr(reply) }.to_bytes();
        #[derive(serde::Deserialize)]
        struct Item {
            embedding: Vec<f32>,
        }
        #[derive(serde::Deserialize)]
        struct Usage {
            prompt_tokens: u64,
        }
        #[derive(serde::Deserialize)]
        struct Reply {
            data: Vec<Item>,
            usage: Usage,
        }
        let parsed: Reply = serde_json::from_slice(text).expect("a reply with vectors");
        // SAFETY: the reply is ours and freed once.
        unsafe { ffi::llb_string_free(reply) };
        (parsed.data.into_iter().map(|item| item.embedding).collect(), parsed.usage.prompt_tokens)
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        ffi::llb_embed_destroy(self.0);
    }
}

/// llama.cpp, with as little code as possible.
struct Peer {
    model: *mut sys::llama_model,
    context: *mut sys::llama_context,
    pool: *mut sys::ggml_threadpool,
    /// The tokens of the next decode, with their positions and sequences.
    entries: Vec<(sys::llama_token, i32, i32)>,
}

impl Peer {
    fn open(path: &str, threads: u32) -> Peer {
        let path = CString::new(path).expect("a path has no NUL");
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_model_default_params() };
        params.load_mode = sys::LLAMA_LOAD_MODE_MMAP;
        // SAFETY: the path is NUL-terminated and read only during the call.
        let model = unsafe { sys::llama_model_load_from_file(path.as_ptr(), params) };
        assert!(!model.is_null(), "llama.cpp loads the model");
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = N_CTX;
        params.n_batch = N_BATCH;
        params.n_ubatch = N_BATCH;
        params.n_seq_max = SEQUENCES;
        params.kv_unified = true;
        params.n_threads = threads as i32;
        params.n_threads_batch = threads as i32;
        params.embeddings = true;
        // SAFETY: the model is alive and freed after the context.
        let context = unsafe { sys::llama_init_from_model(model, params) };
        assert!(!context.is_null(), "llama.cpp makes a context");
        // SAFETY: takes and returns plain data.
        let mut params = unsafe { sys::ggml_threadpool_params_default(threads as i32) };
        // SAFETY: the parameters are read only during the call.
        let pool = unsafe { sys::ggml_threadpool_new(&raw mut params) };
        // SAFETY: context and pool are alive, and the pool is freed after the context.
        unsafe { sys::llama_attach_threadpool(context, pool, pool) };
        Peer { model, context, pool, entries: Vec::new() }
    }

    fn vectors(&mut self, texts: &[String], packed: bool) -> Vec<Vec<f32>> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut count = 0;
        for text in texts {
            let tokens = self.tokenize(text);
            let is_full = self.entries.len() + tokens.len() > N_BATCH as usize;
            if count == SEQUENCES || count > 0 && (is_full || !packed) {
                self.decode(count, &mut vectors);
                count = 0;
            }
            self.add(&tokens, count as i32);
            count += 1;
        }
        self.decode(count, &mut vectors);
        self.rest();
        vectors
    }

    /// Lets the threads sleep. By llama.cpp's default they poll for work for about 0.1 s after a
    /// decode, which would take a processor from what is measured next.
    fn rest(&self) {
        // SAFETY: the pool is alive; the next decode wakes its threads.
        unsafe { sys::ggml_threadpool_pause(self.pool) };
    }

    fn tokenize(&self, text: &str) -> Vec<sys::llama_token> {
        let mut tokens = vec![0; text.len() + 16];
        let (start, length) = (text.as_ptr().cast::<c_char>(), text.len() as i32);
        let room = tokens.len() as i32;
        // SAFETY: the model is alive.
        let vocab = unsafe { sys::llama_model_get_vocab(self.model) };
        // SAFETY: text and tokens are valid for the lengths passed with them.
        let count = unsafe {
            sys::llama_tokenize(vocab, start, length, tokens.as_mut_ptr(), room, true, true)
        };
        tokens.truncate(usize::try_from(count).expect("there is room for a token per byte"));
        tokens
    }

    fn add(&mut self, tokens: &[sys::llama_token], sequence: i32) {
        for (position, token) in tokens.iter().enumerate() {
            self.entries.push((*token, position as i32, sequence));
        }
    }

    fn decode(&mut self, count: u32, vectors: &mut Vec<Vec<f32>>) {
        // SAFETY: the context is alive.
        let memory = unsafe { sys::llama_get_memory(self.context) };
        if !memory.is_null() {
            // SAFETY: the memory belongs to the context.
            unsafe { sys::llama_memory_clear(memory, false) };
        }
        let n = self.entries.len();
        let mut tokens: Vec<_> = self.entries.iter().map(|entry| entry.0).collect();
        let mut positions: Vec<_> = self.entries.iter().map(|entry| entry.1).collect();
        let mut sequences: Vec<_> = self.entries.iter().map(|entry| entry.2).collect();
        let mut pointers: Vec<_> = sequences.iter_mut().map(|id| &raw mut *id).collect();
        let (mut n_sequences, mut logits) = (vec![1; n], vec![1; n]);
        let batch = sys::llama_batch {
            n_tokens: n as i32,
            token: tokens.as_mut_ptr(),
            embd: std::ptr::null_mut(),
            pos: positions.as_mut_ptr(),
            n_seq_id: n_sequences.as_mut_ptr(),
            seq_id: pointers.as_mut_ptr(),
            logits: logits.as_mut_ptr(),
        };
        // SAFETY: the context is alive, the arrays have n elements, and n is at most n_batch.
        let status = unsafe { sys::llama_decode(self.context, batch) };
        assert_eq!(status, 0, "llama.cpp decodes");
        // SAFETY: the model is alive.
        let width = unsafe { sys::llama_model_n_embd_out(self.model) } as usize;
        for sequence in 0..count {
            // SAFETY: the context is alive and has computed this sequence.
            let vector = unsafe { sys::llama_get_embeddings_seq(self.context, sequence as i32) };
            // SAFETY: the vector has this many numbers.
            let vector = unsafe { std::slice::from_raw_parts(vector, width) };
            let length = dot(vector, vector).sqrt();
            vectors.push(vector.iter().map(|number| number / length).collect());
        }
        self.entries.clear();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: made by llama_init_from_model, freed once.
        unsafe { sys::llama_free(self.context) };
        // SAFETY: made by ggml_threadpool_new, freed once, after the context that used it.
        unsafe { sys::ggml_threadpool_free(self.pool) };
        // SAFETY: made by llama_model_load_from_file, freed once, after its context.
        unsafe { sys::llama_model_free(self.model) };
    }
}
