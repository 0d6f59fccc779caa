//! The options of a context, converted to llama.cpp's parameters.

use llama_cpp_sys_2 as sys;

use crate::api::{CacheType, FlashAttention, Pooling};

/// The options of a context.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContextOptions {
    /// The maximum number of tokens of a sequence.
    pub(crate) n_ctx: u32,
    pub(crate) n_batch: u32,
    pub(crate) n_parallel: u32,
    /// The maximum number of tokens by which the state of a sequence can be taken back after a
    /// decode. For each of them llama.cpp keeps another state of each sequence. 0 for models without
    /// states.
    pub(crate) n_rollback: u32,
    /// Whether all sequences share `n_ctx` cells. If not, each has `n_ctx` cells of its own.
    pub(crate) kv_unified: bool,
    pub(crate) n_threads: u32,
    /// Whether the number of threads may be lowered while other programs are busy.
    pub(crate) adapts_threads: bool,
    pub(crate) flash_attn: FlashAttention,
    pub(crate) cache_type_k: CacheType,
    pub(crate) cache_type_v: CacheType,
    /// How the context computes vectors of texts. `None` if it generates text.
    pub(crate) pooling: Option<Pooling>,
}

impl ContextOptions {
    /// The number of cells in the KV cache.
    pub(crate) fn n_cells(&self) -> u32 {
        if self.kv_unified { self.n_ctx } else { self.n_ctx.saturating_mul(self.n_parallel) }
    }

    /// The options of a draft model's context. It computes a draft token by token, so the states of
    /// its last decode are of no use.
    pub(crate) fn of_draft(&self) -> ContextOptions {
        ContextOptions { n_rollback: 0, ..self.clone() }
    }

    /// The states that llama.cpp keeps of all sequences.
    pub(crate) fn n_states(&self) -> u64 {
        u64::from(self.n_parallel).saturating_mul(1 + u64::from(self.n_rollback))
    }

    /// llama.cpp's parameters, without threads and callbacks.
    pub(crate) fn params(
        &self,
        context_type: sys::llama_context_type,
    ) -> sys::llama_context_params {
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = self.n_cells();
        params.n_batch = self.n_batch;
        params.n_ubatch = self.n_batch;
        params.n_seq_max = self.n_parallel;
        if context_type == sys::LLAMA_CONTEXT_TYPE_DEFAULT {
            // A batch must have room for the tokens of these states, and for two more
            // (`llama_batch_allocr::split_equal`).
            let most = self.n_batch.min(self.n_cells()).saturating_sub(2);
            params.n_rs_seq = self.n_rollback.min(most);
        }
        params.n_threads = 1;
        params.n_threads_batch = 1;
        params.flash_attn_type = match self.flash_attn {
            FlashAttention::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            FlashAttention::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            FlashAttention::Off => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
        };
        params.type_k = ggml_type(self.cache_type_k);
        params.type_v = ggml_type(self.cache_type_v);
        params.kv_unified = self.kv_unified;
        params.ctx_type = context_type;
        if context_type == sys::LLAMA_CONTEXT_TYPE_MTP {
            // A draft reads the logits of one token of each sequence.
            params.n_outputs_max = self.n_parallel;
        }
        params.no_perf = true;
        if let Some(pooling) = self.pooling {
            params.embeddings = true;
            params.pooling_type = match pooling {
                Pooling::None => sys::LLAMA_POOLING_TYPE_NONE,
                Pooling::Mean => sys::LLAMA_POOLING_TYPE_MEAN,
                Pooling::Cls => sys::LLAMA_POOLING_TYPE_CLS,
                Pooling::Last => sys::LLAMA_POOLING_TYPE_LAST,
                Pooling::Rank => sys::LLAMA_POOLING_TYPE_RANK,
            };
        }
        params
    }
}

fn ggml_type(cache: CacheType) -> sys::ggml_type {
    match cache {
        CacheType::F32 => sys::GGML_TYPE_F32,
        CacheType::F16 => sys::GGML_TYPE_F16,
        CacheType::Bf16 => sys::GGML_TYPE_BF16,
        CacheType::Q8_0 => sys::GGML_TYPE_Q8_0,
        CacheType::Q5_1 => sys::GGML_TYPE_Q5_1,
        CacheType::Q5_0 => sys::GGML_TYPE_Q5_0,
        CacheType::Q4_1 => sys::GGML_TYPE_Q4_1,
        CacheType::Q4_0 => sys::GGML_TYPE_Q4_0,
    }
}
