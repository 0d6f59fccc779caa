//! The context of a load: chosen by its options, and checked before any weight is read.
//!
//! In: the options and the headers of a load. Out: the options of the context, or an error that
//! names the option to change: the context does not suit the model, or does not fit into memory.

use super::context_fit::{BATCHES, ContextFit, PROCESSOR_BATCH};
use super::fit;
use super::projector_file::places_in_one_batch;
use super::rollback;
use super::weight_places::WeightPlaces;
use crate::api::{CacheType, CreateOptions, DEFAULT_N_CTX, Speculative};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::llama::context::{ContextOptions, ModelOptions};
use crate::llama::raw::{machine_memory, system};
use crate::process::Use;

/// The context length if the header does not contain the trained one.
pub(crate) const UNKNOWN_CONTEXT: u64 = 4096;

/// The context for these options, with defaults by the header and the devices.
pub(crate) fn context_options(
    options: &CreateOptions,
    header: &ModelHeader,
    places: &WeightPlaces,
) -> Result<ContextOptions> {
    let trained = header.context_length().filter(|n| *n > 0).unwrap_or(UNKNOWN_CONTEXT);
    let trained = trained.min(header.learned_positions().unwrap_or(u64::MAX));
    let n_ctx = options.context.n_ctx.unwrap_or_else(|| trained.min(DEFAULT_N_CTX.into()) as u32);
    check_positions(header, n_ctx)?;
    check_cells(options, header)?;
    let usable = system::usable_processors();
    let during = Use::begin();
    let physical = (num_cpus::get_physical() as u32).clamp(1, usable);
    drop(during);
    let mut context = ContextOptions {
        n_ctx,
        n_batch: options.context.n_batch.unwrap_or_default(),
        n_parallel: options.context.n_parallel,
        n_rollback: 0,
        kv_unified: options.context.kv_unified.unwrap_or(true),
        // llama.cpp's threads spin while they wait for each other, so with more threads than cores
        // they make almost no progress.
        n_threads: options.loading.n_threads.unwrap_or(physical).min(usable),
        adapts_threads: options.loading.n_threads.is_none(),
        flash_attn: options.context.flash_attn,
        cache_type_k: options.context.cache_type_k,
        cache_type_v: options.context.cache_type_v,
        pooling: None,
    };
    let devices = places.measured();
    let (tensors, choice) = (&places.tensors, places.choice);
    let fit = ContextFit::new(header, &context, tensors, &devices, choice);
    let speculative = &options.loading.speculative;
    context.n_rollback = rollback::n_rollback(speculative, header, &context, fit.as_ref());
    if options.context.kv_unified.is_none() && may_have_own_cells(options, header) {
        let has_room = |fit: &ContextFit| fit.has_room_for_own_cells(&context);
        context.kv_unified = !fit.as_ref().is_some_and(has_room);
    }
    if options.context.n_batch.is_none() {
        let suited = fit.map_or(PROCESSOR_BATCH, |fit| fit.batch_size(&context));
        let least = places_in_one_batch(options).unwrap_or(0);
        let enough = BATCHES.into_iter().find(|batch| *batch >= suited.max(least));
        context.n_batch = enough.unwrap_or(suited);
    }
    Ok(context)
}

/// Whether each chat may have cells of its own if the options do not say so. The largest context
/// that fits is that of shared cells, and the memory of a draft model is not known yet.
fn may_have_own_cells(options: &CreateOptions, header: &ModelHeader) -> bool {
    options.context.n_parallel > 1
        && !options.context.fits
        && !matches!(options.loading.speculative, Speculative::Draft { .. })
        && !attends_to_blocks(header)
}

/// Refuses a load whose context does not suit the model or does not fit into memory. `headers` are
/// the headers of all its models; the first one is not a draft model. Returns the bytes of main
/// memory that it needs, 0 if unknown.
pub(crate) fn check_memory(
    model: &ModelOptions,
    context: &ContextOptions,
    headers: &[&ModelHeader],
) -> Result<u64> {
    headers.iter().try_for_each(|header| check_keys(header, context))?;
    // The states and the KV cache of a layer are on the layer's device, whose memory is checked
    // elsewhere.
    let on_devices = model.may_use_devices();
    if !on_devices {
        let draft = context.of_draft();
        let contexts = std::iter::once(context).chain(std::iter::repeat(&draft));
        headers.iter().zip(contexts).try_for_each(|(it, context)| check_states(it, context))?;
    }
    let needed = |header: &&ModelHeader| context_bytes(header, context);
    let needed = headers.iter().map(needed).collect::<Option<Vec<_>>>();
    let (Some(available), Some(needed)) = (machine_memory::available_memory(), needed) else {
        return Ok(0);
    };
    let sum = |part: fn(&ContextBytes) -> u64| {
        if on_devices { 0 } else { needed.iter().map(part).fold(0, u64::saturating_add) }
    };
    let (cache, scores, batch) = (sum(|it| it.cache), sum(|it| it.scores), sum(|it| it.batch));
    // Mapped weights can be paged in and out. Weights that are read into memory must fit.
    let size = |header: &&ModelHeader| header.file_size() - header.trailing_bytes();
    let weights = if model.use_mmap { 0 } else { headers.iter().map(size).sum() };
    let needed = [scores, batch, weights].into_iter().fold(cache, u64::saturating_add);
    if needed <= available {
        return Ok(needed);
    }
    let mib = |bytes: u64| bytes / (1 << 20);
    let attention = match scores {
        0 => String::new(),
        scores => format!(", {} MiB attention without flash_attn", mib(scores)),
    };
    // As a rule far less than the cache.
    let is_large = batch > cache.saturating_add(scores);
    let tokens = match is_large {
        true => format!(", {} MiB for a batch of {} tokens", mib(batch), context.n_batch),
        false => String::new(),
    };
    let (chats, remedy) = match (context.kv_unified, is_large) {
        (_, true) => (String::new(), "n_batch"),
        (true, _) => (String::new(), "n_ctx"),
        (false, _) => (format!(" for each of {} chats", context.n_parallel), "n_ctx or n_parallel"),
    };
    let message = format!(
        "n_ctx {}{chats} needs {} MiB ({} MiB KV cache{attention}{tokens}), but {} MiB are \
         available; set a smaller {remedy}",
        context.n_ctx,
        mib(needed),
        mib(cache),
        mib(available)
    );
    Err(Error::new(Code::OutOfMemory, message)
        .with("needed_bytes", needed)
        .with("available_bytes", available))
}

/// Checks that the recurrent states fit in memory, because llama.cpp allocates and clears them, even
/// when it only computes sizes.
pub(crate) fn check_states(header: &ModelHeader, context: &ContextOptions) -> Result<()> {
    let Some(layers) = header.layers(2.0, 2.0) else { return Ok(()) };
    let states = layers.blocks.iter().map(|block| block.per_sequence);
    let states = states.fold(0, u64::saturating_add);
    let needed = states.saturating_mul(context.n_states());
    match machine_memory::available_memory() {
        Some(available) if needed > available => Err(Error::new(
            Code::OutOfMemory,
            "n_parallel: the states of the sequences do not fit into memory; set a smaller one",
        )
        .with("needed_bytes", needed)
        .with("available_bytes", available)),
        _ => Ok(()),
    }
}

/// Refuses a context with more positions than the model has learned. llama.cpp fails an assertion
/// on the first token beyond them.
pub(crate) fn check_positions(header: &ModelHeader, n_ctx: u32) -> Result<()> {
    match header.learned_positions() {
        Some(positions) if positions < u64::from(n_ctx) => Err(Error::invalid(
            "n_ctx",
            format_args!(
                "the model has learned {positions} positions and cannot compute others, got \
                 {n_ctx}; set n_ctx to {positions} or less"
            ),
        )
        .with("n_ctx", n_ctx)
        .with("context_length", positions)),
        _ => Ok(()),
    }
}

/// Refuses cells of its own for each chat if the model chooses blocks of cells to attend to
/// (MiniMax-M3). llama.cpp then chooses other blocks than with shared cells, and the replies differ
/// (docs/upstream.md).
pub(crate) fn check_cells(options: &CreateOptions, header: &ModelHeader) -> Result<()> {
    let is_wanted = options.context.kv_unified == Some(false) && options.context.n_parallel > 1;
    if !is_wanted || !attends_to_blocks(header) {
        return Ok(());
    }
    let problem = "must be true for this model: it attends to blocks of cells, which llama.cpp \
                   chooses wrongly if each chat has its own";
    Err(Error::invalid("kv_unified", problem))
}

/// Whether the model chooses blocks of cells to attend to.
fn attends_to_blocks(header: &ModelHeader) -> bool {
    let block_size = format!("{}.attention.indexer.block_size", header.architecture());
    header.get(&block_size).is_some()
}

/// Refuses quantised keys of heads that are not whole blocks. With flash attention llama.cpp
/// refuses them itself; without it, it reads a head from inside a block, and the replies are wrong.
fn check_keys(header: &ModelHeader, context: &ContextOptions) -> Result<()> {
    const BLOCK: u64 = 32;
    let is_quantized =
        !matches!(context.cache_type_k, CacheType::F32 | CacheType::F16 | CacheType::Bf16);
    let Some(layers) = header.layers(1.0, 1.0).filter(|_| is_quantized) else { return Ok(()) };
    let is_cut = |length: &u64| !length.is_multiple_of(BLOCK);
    let cut = header.key_lengths().into_iter().find(is_cut);
    match cut.filter(|_| !fit::has_flash_attention(&layers, context)) {
        None => Ok(()),
        Some(length) => Err(Error::invalid(
            "cache_type_k",
            format_args!(
                "without flash attention, quantised keys need heads whose length is a multiple of \
                 {BLOCK}, but the model's have {length}; set cache_type_k to f16"
            ),
        )),
    }
}

/// The memory that a context takes, in bytes.
struct ContextBytes {
    cache: u64,
    /// The scores of attention for one batch of a chat, if the context is full.
    scores: u64,
    /// What the tokens of one batch take between the operations of a layer.
    batch: u64,
}

/// The memory that a context takes. `None` if the header lacks the sizes.
fn context_bytes(header: &ModelHeader, context: &ContextOptions) -> Option<ContextBytes> {
    let layers = fit::layers_of(header, context)?;
    let n_ctx = u64::from(context.n_ctx);
    // An embedder checks each text, because a text may be much shorter than a batch.
    let of_batch = if context.pooling.is_some() { 0 } else { u64::from(context.n_batch) };
    let scores = fit::score_bytes(&layers, context.flash_attn).saturating_mul(of_batch);
    Some(ContextBytes {
        cache: layers.cache_per_token().saturating_mul(u64::from(context.n_cells())),
        scores: scores.saturating_mul(n_ctx),
        batch: fit::activation_bytes(&layers).saturating_mul(of_batch),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Cursor;

    use super::*;
    use crate::api::{FlashAttention, Pooling};
    use crate::gguf::gguf_writer::GgufWriter;

    /// Two layers with four heads of this length, one of them with keys.
    fn header(architecture: &str, length: u32) -> ModelHeader {
        let name = |key: &str| format!("{architecture}.{key}");
        let bytes = GgufWriter::new()
            .metadata("general.architecture", architecture)
            .metadata(name("block_count"), 2_u32)
            .metadata(name("embedding_length"), 4 * length)
            .metadata(name("feed_forward_length"), 500_u32)
            .metadata(name("attention.head_count"), 4_u32)
            .metadata(name("attention.head_count_kv"), vec![1_u32, 2])
            .to_bytes();
        let size = bytes.len() as u64;
        ModelHeader::read(Cursor::new(bytes), size).unwrap()
    }

    fn context(flash_attn: FlashAttention, cache_type_k: CacheType) -> ContextOptions {
        ContextOptions {
            n_ctx: 1000,
            n_batch: 100,
            n_parallel: 1,
            n_rollback: 0,
            kv_unified: true,
            n_threads: 1,
            adapts_threads: false,
            flash_attn,
            cache_type_k,
            cache_type_v: CacheType::F16,
            pooling: None,
        }
    }

    #[test]
    fn quantised_keys_are_whole_blocks() {
        let refused = |architecture, length, flash_attn, cache_type_k| {
            check_keys(&header(architecture, length), &context(flash_attn, cache_type_k)).is_err()
        };
        let [auto, off] = [FlashAttention::Auto, FlashAttention::Off];
        assert!(refused("llama", 48, off, CacheType::Q8_0));
        assert!(refused("grok", 48, auto, CacheType::Q4_0));
        assert!(!refused("llama", 48, auto, CacheType::Q8_0));
        assert!(!refused("llama", 48, off, CacheType::F16));
        assert!(!refused("llama", 64, off, CacheType::Q8_0));
    }

    #[test]
    fn contexts_without_flash_attention_take_more() {
        let of = |architecture, flash_attn, pooling| {
            let context = ContextOptions { pooling, ..context(flash_attn, CacheType::F16) };
            let bytes = context_bytes(&header(architecture, 8), &context).unwrap();
            // Six tensors as wide as the embedding, and three as wide as the feed-forward block.
            let of_batch = if context.pooling.is_some() { 0 } else { 100 };
            assert_eq!(bytes.batch, of_batch * 4 * (6 * 32 + 3 * 500));
            (bytes.cache, bytes.scores)
        };
        let [auto, off] = [FlashAttention::Auto, FlashAttention::Off];
        // Three heads of keys and three of values, or two of values in each layer.
        assert_eq!(of("llama", auto, None), (1000 * 6 * 16, 0));
        assert_eq!(of("llama", off, None), (1000 * 7 * 16, 1000 * 100 * 4 * 4));
        assert_eq!(of("grok", auto, None), of("llama", off, None));
        assert_eq!(of("llama", off, Some(Pooling::Mean)), (1000 * 7 * 16, 0));
    }
}
