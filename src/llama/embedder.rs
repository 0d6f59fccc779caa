//! A context that computes vectors of texts.
//!
//! In: texts as tokens. Out: for each text one vector, its scores, or one vector per token. One
//! decode computes several texts. A text that is longer than a decode is computed in parts if no
//! token attends to later ones.

use std::sync::Arc;

use llama_cpp_sys_2 as sys;

use super::context::{ContextOptions, LlamaContext, Model, ModelOptions, lora};
use super::kernels;
use super::load::context_checks::{check_memory, context_options};
use super::load::file_identity::{ModelFiles, SINCE_CHECKED};
use super::load::fit::{self, MemoryNeeds};
use super::load::weight_places::WeightPlaces;
use super::load::{Loader, model_options, placement};
use super::raw::{LogQueue, exit, machine_memory, shim};
use super::vocab::LlamaVocab;
use crate::api::{EmbedOptions, Pooling};
use crate::engine::{Backend, BatchEntry, Decoded, ThreadController, TokenId, Vocab};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;

/// The most texts in one decode. For models with recurrent states, llama.cpp keeps a state for
/// each.
const SEQUENCES: u32 = 64;
const SEQUENCES_WITH_STATE: u32 = 4;

/// The maximum number of tokens of several texts in one decode. A larger decode is no faster per
/// token.
const MAX_PACKED: usize = 512;
/// The fewest. Smaller decodes are slower per token.
const MIN_PACKED: usize = 64;
/// The maximum number of bytes of output for them. llama.cpp reserves logits for every token, even
/// for encoders.
const MAX_OUTPUT_BYTES: usize = 256 << 20;

/// A loaded embedding model. It computes on the thread that loaded it.
pub(crate) struct Embedder {
    context: LlamaContext,
    threads: ThreadController,
    vocab: Arc<LlamaVocab>,
    pooling: Pooling,
    /// The length of a vector.
    width: usize,
    /// The maximum number of tokens of several texts in one decode, and of one part of a long text.
    n_packed: usize,
    /// Whether all tokens of a text must be in one decode.
    takes_whole_texts: bool,
    /// The number of tokens that llama.cpp has reserved output for.
    n_reserved: usize,
    /// The bytes of main memory that the attention takes for each pair of tokens.
    pair_bytes: usize,
}

impl Embedder {
    /// `score_bytes` is what the scores of all heads take in main memory for each pair of tokens.
    fn new(
        context: LlamaContext,
        vocab: Arc<LlamaVocab>,
        pooling: Pooling,
        score_bytes: u64,
    ) -> Embedder {
        let model = context.model();
        let width = match pooling {
            Pooling::Rank => model.n_scores(),
            _ => model.vector_length(),
        };
        let takes_whole_texts = needs_whole_texts(&context);
        let n_packed = MAX_OUTPUT_BYTES / output_bytes(&vocab, width);
        let n_packed = n_packed.clamp(MIN_PACKED, MAX_PACKED).min(context.n_batch());
        let threads = ThreadController::new(context.threads());
        Embedder {
            context,
            threads,
            vocab,
            pooling,
            width,
            n_packed,
            takes_whole_texts,
            n_reserved: 0,
            // The mask as f32 and as f16.
            pair_bytes: (score_bytes as usize).saturating_add(6),
        }
    }

    pub(crate) fn vocab(&self) -> &Arc<LlamaVocab> {
        &self.vocab
    }

    /// The maximum number of tokens of a text.
    pub(crate) fn n_ctx(&self) -> usize {
        self.context.n_ctx()
    }

    /// The length of a vector, or the number of scores.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Leaves the processors to the other engines of the process until the next decode.
    pub(crate) fn rest(&self) {
        self.threads.rest();
    }

    /// Whether a fault has left it in an unknown state. Every call then fails.
    pub(crate) fn is_broken(&self) -> bool {
        self.context.is_broken()
    }

    /// Computes the vectors of as many of the first texts as fit into one pack, at least one.
    /// `None` if `abort` returned true. Each text must have 1 to `n_ctx` tokens.
    pub(crate) fn compute_next(
        &mut self,
        texts: &[Vec<TokenId>],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<Vec<f32>>>> {
        self.compute_pack(&texts[..self.packed(texts)], abort)
    }

    /// The number of these texts to compute together. At least one.
    fn packed(&self, texts: &[Vec<TokenId>]) -> usize {
        let sums = texts.iter().scan(0, |sum, text| {
            *sum += text.len();
            Some(*sum)
        });
        sums.take(self.context.n_sequences()).take_while(|sum| *sum <= self.n_packed).count().max(1)
    }

    fn compute_pack(
        &mut self,
        texts: &[Vec<TokenId>],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<Vec<f32>>>> {
        let entry = |sequence, (position, token): (usize, &TokenId)| BatchEntry {
            token: *token,
            position,
            sequence,
            logits: true,
        };
        let texts = texts.iter().enumerate();
        let entries: Vec<BatchEntry> = texts
            .clone()
            .flat_map(|(sequence, text)| text.iter().enumerate().map(move |it| entry(sequence, it)))
            .collect();
        loop {
            let computed = self.compute_entries(&entries, texts.len(), abort);
            if matches!(computed, Ok(Some(_))) {
                (0..texts.len()).for_each(|sequence| {
                    self.context.truncate(sequence, 0);
                });
            } else if !self.is_broken() {
                self.context.clear();
            }
            // A decode that took too long is given up, and computed again with fewer threads.
            if !matches!(computed, Ok(None)) || abort() {
                return computed;
            }
        }
    }

    fn compute_entries(
        &mut self,
        entries: &[BatchEntry],
        n_texts: usize,
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<Vec<f32>>>> {
        let mut vectors = vec![Vec::new(); n_texts];
        let whole = if self.takes_whole_texts { self.context.n_batch() } else { self.n_packed };
        for part in entries.chunks(whole) {
            self.check_memory(part.len())?;
            let (decoded, _) = self.threads.decode(&mut self.context, part, abort);
            if decoded? == Decoded::Aborted {
                return Ok(None);
            }
            self.read(part, &mut vectors)?;
        }
        Ok(Some(vectors))
    }

    /// Checks that there is enough memory for a decode of this many tokens, else `OUT_OF_MEMORY`.
    /// llama.cpp touches all memory that it reserves, because it fills it with zeros.
    fn check_memory(&mut self, n_tokens: usize) -> Result<()> {
        if n_tokens <= self.n_reserved {
            return Ok(());
        }
        // The output, and the attention.
        let of_pairs = self.pair_bytes.saturating_mul(n_tokens);
        let per_token = output_bytes(&self.vocab, self.width).saturating_add(of_pairs);
        let needed = n_tokens.saturating_mul(per_token) as u64;
        if let Some(available) =
            machine_memory::available_memory().filter(|available| *available < needed)
        {
            let message = format!(
                "a text of {n_tokens} tokens needs {} MiB, but {} MiB are available; shorten it, or \
                 open the model with a smaller n_ctx and set `truncate` to true",
                needed >> 20,
                available >> 20
            );
            return Err(Error::new(Code::OutOfMemory, message)
                .with("needed_bytes", needed)
                .with("available_bytes", available));
        }
        self.n_reserved = n_tokens;
        Ok(())
    }

    /// Adds the results of decoding `part` to the vectors of its texts.
    fn read(&self, part: &[BatchEntry], vectors: &mut [Vec<f32>]) -> Result<()> {
        if self.pooling == Pooling::None {
            for (row, entry) in part.iter().enumerate() {
                vectors[entry.sequence].extend_from_slice(self.row(row)?);
            }
            return Ok(());
        }
        for text in part.chunk_by(|a, b| a.sequence == b.sequence) {
            let before = text[0].position as f32;
            let vector = &mut vectors[text[0].sequence];
            let computed = self.pooled(text[0].sequence)?;
            match self.pooling {
                Pooling::Mean if !vector.is_empty() => {
                    // The mean of two parts, weighted by their tokens.
                    let share = text.len() as f32 / (before + text.len() as f32);
                    let both = vector.iter_mut().zip(computed);
                    both.for_each(|(old, new)| *old += (new - *old) * share);
                }
                Pooling::Cls if !vector.is_empty() => {}
                _ => {
                    vector.clear();
                    vector.extend_from_slice(computed);
                }
            }
        }
        Ok(())
    }

    /// The vector of a sequence in the last decode.
    fn pooled(&self, sequence: usize) -> Result<&[f32]> {
        let context = self.context.as_ptr();
        // SAFETY: the context is alive; NULL is returned for an unknown sequence.
        let vector = shim::guard(|| unsafe {
            shim::calls::llama_get_embeddings_seq(context, sequence as sys::llama_seq_id)
        });
        self.vector(vector.ok())
    }

    /// The vector of an entry of the last decode's batch.
    fn row(&self, row: usize) -> Result<&[f32]> {
        let context = self.context.as_ptr();
        // SAFETY: the context is alive; NULL is returned for an unknown row.
        let vector =
            shim::guard(|| unsafe { shim::calls::llama_get_embeddings_ith(context, row as i32) });
        self.vector(vector.ok())
    }

    fn vector(&self, vector: Option<*mut f32>) -> Result<&[f32]> {
        let vector = vector.filter(|vector| !vector.is_null()).ok_or_else(|| {
            Error::new(Code::InferenceFailed, "llama.cpp computed no vector for a text")
        })?;
        // SAFETY: a vector of llama.cpp has `width` numbers and lives until the next decode, which
        // needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(vector, self.width) })
    }
}

/// The bytes of output that llama.cpp reserves for each token.
fn output_bytes(vocab: &LlamaVocab, width: usize) -> usize {
    (vocab.len() + width) * size_of::<f32>()
}

/// Whether all tokens of a text must be in one decode.
fn needs_whole_texts(context: &LlamaContext) -> bool {
    // SAFETY: the context is alive.
    let is_causal = unsafe { sys::llama_get_causal_attn(context.as_ptr()) };
    !is_causal || !context.has_memory()
}

/// Checks the options of a load. Returns a closure that loads on the thread that will compute.
pub(crate) fn load_embedder(
    options: &EmbedOptions,
    pooling: Pooling,
    files: &Arc<ModelFiles>,
    header: &ModelHeader,
) -> Result<impl FnOnce() -> Result<Embedder> + Send + 'static + use<>> {
    kernels::choose(options.load.loading.backend.as_deref())?;
    let places = WeightPlaces::of(&options.load, header)?;
    let mut context = context_options(&options.load, header, &places)?;
    // Texts of any length are packed into the cells.
    context.kv_unified = true;
    context.n_rollback = 0;
    context.pooling = Some(pooling);
    if header.is_bidirectional() {
        context.n_batch = context.n_batch.max(context.n_ctx);
    }
    let model = model_options(&options.load, &options.model, &places, &[header]);
    check_memory(&model, &context, &[header])?;
    lora::check_all(&options.load.loading.lora, header)?;
    files.check_unchanged(SINCE_CHECKED)?;
    let files = Arc::clone(files);
    let needs = MemoryNeeds::of(header, &context, &places.tensors);
    let layers = fit::layers_of(header, &context).filter(|_| !model.may_use_devices());
    let score_bytes = layers.map_or(0, |it| fit::score_bytes(&it, context.flash_attn));
    let n_threads = context.n_threads;
    let adapters = options.load.loading.lora.clone();
    Ok(move || {
        let loader = Loader::new(Arc::new(LogQueue::default()), files, false);
        let load = &mut |options: &ModelOptions| {
            let loaded = load_as(options, &context, &loader);
            loaded.map_err(|error| loader.with_reason(error))
        };
        let (model, context) = placement::load_fitting(&model, needs.as_ref(), &loader.log, load)?;
        let adapters = adapters.iter().map(|adapter| (adapter.path.as_str(), adapter.scale));
        let context = loader.with_adapters(context, adapters)?;
        let context = context.with_threads(n_threads)?;
        exit::register();
        Ok(Embedder::new(context, Arc::new(LlamaVocab::new(model)), pooling, score_bytes))
    })
}

fn load_as(
    options: &ModelOptions,
    context: &ContextOptions,
    loader: &Loader,
) -> Result<(Arc<Model>, LlamaContext)> {
    let model = Arc::new(Model::load(options, &mut |_| true)?);
    if !model.has_vocabulary() {
        return Err(Error::new(Code::ModelInvalid, "the model has no vocabulary"));
    }
    if model.has_encoder() && model.has_decoder() {
        let message =
            "llama.cpp cannot compute vectors with a model that has an encoder and a decoder";
        return Err(Error::new(Code::ModelInvalid, message));
    }
    let n_parallel = if model.has_state() { SEQUENCES_WITH_STATE } else { SEQUENCES };
    let options = ContextOptions { n_parallel, ..context.clone() };
    let mut created = LlamaContext::new(Arc::clone(&model), &options)?;
    if options.n_batch < options.n_ctx && needs_whole_texts(&created) {
        let options = ContextOptions { n_batch: options.n_ctx, ..options };
        drop(created);
        created = LlamaContext::new(Arc::clone(&model), &options)?;
    }
    Ok((model, loader.tried(created)?))
}
