//! How many layers of a model fit on the devices: computed from sizes, before anything is loaded.
//!
//! In: the needs of the layers from the model's header, and the free memory of each device. Out: a
//! number of layers for llama.cpp, which puts the last layers on devices and the first ones in main
//! memory. Compute buffers can only be estimated, so the estimate is on the high side and a reserve
//! is left.
//!
//! llama.cpp's own function for this (common/fit.h) is not used: it redirects the log of the whole
//! process while it runs, is part of a large library, and reports failures by C++ exceptions.

use crate::api::FlashAttention;
use crate::gguf::{Attention, Layers, ModelHeader};
use crate::llama::context::ContextOptions;
use crate::llama::devices::Device;

/// The largest batch on the CPU. Longer batches are no faster there.
const PROCESSOR_BATCH: u32 = 512;
/// The largest batch on devices. On an H100, prefill of a 7B model with 2048 tokens per decode is
/// 1.18 times as fast as with 512 (10,900 and 9,250 tokens/s).
const DEVICE_BATCH: u32 = 2048;
/// The fraction of a device's memory, as a divisor, that the compute buffers of the large batch may
/// take.
const COMPUTE_SHARE: u64 = 8;

/// The sizes that [`batch_size`] chooses from.
pub(crate) const BATCHES: [u32; 2] = [PROCESSOR_BATCH, DEVICE_BATCH];

/// The tokens per decode call that suit the devices, or the CPU if there are no devices. If the
/// caller has not set the number of layers, a large batch must not leave layers in main memory:
/// that would cost more than it gains.
pub(crate) fn batch_size(
    header: &ModelHeader,
    context: &ContextOptions,
    devices: &[Device],
    n_gpu_layers: Option<u32>,
) -> u32 {
    let layers = layers_of(header, context);
    layers.map_or(PROCESSOR_BATCH, |layers| batch_size_of(&layers, context, devices, n_gpu_layers))
}

fn batch_size_of(
    layers: &Layers,
    context: &ContextOptions,
    devices: &[Device],
    n_gpu_layers: Option<u32>,
) -> u32 {
    let large = ContextOptions { n_batch: DEVICE_BATCH, ..context.clone() };
    let needs = MemoryNeeds::of_layers(layers, &large);
    let buffers = needs.compute.saturating_add(needs.logits);
    let least = devices.iter().map(|device| device.total).min();
    let fits = least.is_some_and(|least| buffers <= least / COMPUTE_SHARE)
        && (n_gpu_layers.is_some() || needs.fitting(devices) == needs.n_layers());
    if fits { DEVICE_BATCH } else { PROCESSOR_BATCH }
}

/// The layers with the KV cache of this context. `None` if the header lacks the sizes.
pub(crate) fn layers_of(header: &ModelHeader, context: &ContextOptions) -> Option<Layers> {
    let layers = header.layers(context.cache_type_k.bytes(), context.cache_type_v.bytes())?;
    let is_flash = has_flash_attention(&layers, context);
    Some(if is_flash { layers } else { layers.with_equal_values() })
}

/// Whether a chat with this context computes with flash attention on the CPU.
pub(crate) fn has_flash_attention(layers: &Layers, context: &ContextOptions) -> bool {
    context.flash_attn != FlashAttention::Off && layers.attention != Attention::Scored
}

/// The bytes that the scores of all heads take for one token of a batch and one of the context. 0
/// with flash attention, which keeps no scores.
pub(crate) fn score_bytes(layers: &Layers, flash_attn: FlashAttention) -> u64 {
    let of_head = match layers.attention {
        // The scores, and what is added to them, in two orders.
        Attention::Biased => 12,
        Attention::Any if flash_attn != FlashAttention::Off => 0,
        Attention::Any | Attention::Scored => 4,
    };
    layers.heads.saturating_mul(of_head)
}

/// The bytes that one token of a batch takes between the operations of a layer. Several tensors
/// exist at the same time: some as wide as the embedding, and three inside a feed-forward block.
pub(crate) fn activation_bytes(layers: &Layers) -> u64 {
    let [embedding, inner, _] = layers.widths;
    embedding.saturating_mul(6).saturating_add(inner.saturating_mul(3)).saturating_mul(4)
}

/// The memory that a model needs on devices, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryNeeds {
    /// The size of each block with its KV cache.
    blocks: Vec<u64>,
    /// The output weights.
    output: u64,
    /// The compute buffers on each device that has a block.
    compute: u64,
    /// Further compute buffers on the device with the output.
    logits: u64,
    /// Further memory on each device if some blocks are in main memory. For large batches, the
    /// weights of those blocks are copied to the device.
    largest: u64,
}

impl MemoryNeeds {
    /// The memory that a model needs with this context. `None` if its header lacks the sizes.
    pub(crate) fn of(header: &ModelHeader, context: &ContextOptions) -> Option<MemoryNeeds> {
        Some(MemoryNeeds::of_layers(&layers_of(header, context)?, context))
    }

    fn of_layers(layers: &Layers, context: &ContextOptions) -> MemoryNeeds {
        let [n_ctx, n_batch, n_parallel] =
            [context.n_cells(), context.n_batch, context.n_parallel].map(u64::from);
        // llama.cpp rounds the context up.
        let n_ctx = n_ctx.next_multiple_of(256);
        let [_, _, logits] = layers.widths;
        let block = |layer: &crate::gguf::Layer| {
            let kept = layer
                .per_token
                .saturating_mul(n_ctx)
                .saturating_add(layer.per_sequence.saturating_mul(n_parallel));
            layer.weights.saturating_add(kept)
        };
        // The attention mask as f32 and as f16. Without flash attention, also the scores of all
        // heads before and after the softmax.
        let scores = score_bytes(layers, context.flash_attn).saturating_mul(2);
        let attention = n_batch.saturating_mul(n_ctx).saturating_mul(scores.saturating_add(6));
        MemoryNeeds {
            blocks: layers.blocks.iter().map(block).collect(),
            output: layers.output,
            compute: attention.saturating_add(activation_bytes(layers).saturating_mul(n_batch)),
            logits: logits.saturating_mul(4).saturating_mul(n_batch),
            largest: layers.largest,
        }
    }

    /// The number of layers as llama.cpp counts them: the blocks and the output.
    pub(crate) fn n_layers(&self) -> usize {
        self.blocks.len() + 1
    }

    /// The most layers that fit.
    pub(crate) fn fitting(&self, devices: &[Device]) -> usize {
        if devices.iter().all(|device| device.free == 0) {
            return 0;
        }
        let fits = |n: &usize| {
            let taken = self.taken(*n, devices);
            taken
                .iter()
                .zip(devices)
                .all(|(taken, device)| *taken == 0 || *taken <= device.usable())
        };
        (1..=self.n_layers()).rev().find(fits).unwrap_or(0)
    }

    /// The memory used on each device if the last `n` layers are on devices. As in llama.cpp,
    /// layers are assigned in proportion to free memory (`llama_model_base::load_tensors`).
    fn taken(&self, n: usize, devices: &[Device]) -> Vec<u64> {
        let mut taken = vec![0_u64; devices.len()];
        let ends: Vec<f32> = devices
            .iter()
            .scan(0.0_f32, |sum, device| {
                *sum += device.free as f32;
                Some(*sum)
            })
            .collect();
        let Some(all) = ends.last().copied().filter(|all| *all > 0.0) else { return taken };
        let first = self.n_layers() - n;
        let mut used = vec![false; devices.len()];
        for layer in first..self.n_layers() {
            let share = (layer - first) as f32 / n as f32;
            let device = ends.iter().position(|end| end / all > share).unwrap_or(devices.len() - 1);
            let weights = self
                .blocks
                .get(layer)
                .copied()
                .unwrap_or_else(|| self.output.saturating_add(self.logits));
            taken[device] = taken[device].saturating_add(weights);
            used[device] = true;
        }
        let beside = self.compute.saturating_add(if first > 0 { self.largest } else { 0 });
        taken
            .iter_mut()
            .zip(used)
            .filter(|(_, used)| *used)
            .for_each(|(taken, _)| *taken = taken.saturating_add(beside));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::CacheType;
    use crate::gguf::Layer;
    use crate::llama::devices::{MAX_RESERVE, MIN_RESERVE};

    const MIB: u64 = 1 << 20;

    fn context(n_ctx: u32) -> ContextOptions {
        ContextOptions {
            n_ctx,
            n_batch: 512,
            n_parallel: 4,
            kv_unified: true,
            n_threads: 1,
            adapts_threads: false,
            flash_attn: FlashAttention::Auto,
            cache_type_k: CacheType::F16,
            cache_type_v: CacheType::F16,
            pooling: None,
        }
    }

    /// A device with this much usable memory.
    fn device(usable: u64) -> Device {
        Device { name: "d".into(), free: usable + MIN_RESERVE, total: usable + MIN_RESERVE }
    }

    /// Ten blocks of 10 MiB with 1 KiB per token, and an output of 50 MiB.
    fn layers() -> Layers {
        let block = Layer { weights: 10 * MIB, per_token: 1024, ..Layer::default() };
        Layers {
            blocks: vec![block; 10],
            output: 50 * MIB,
            largest: 4 * MIB,
            widths: [0, 0, 0],
            heads: 0,
            attention: Attention::Any,
        }
    }

    #[test]
    fn devices_with_memory_have_large_batches() {
        let of = |totals: &[u64], logits| {
            let layers = Layers { widths: [0, 0, logits], ..layers() };
            let device = |total: &u64| Device { name: "d".into(), free: *total, total: *total };
            let devices: Vec<Device> = totals.iter().map(device).collect();
            batch_size_of(&layers, &context(1024), &devices, None)
        };
        // 2048 rows of logits take 1188 MiB, the mask 12 MiB: 1200 MiB, an eighth of 9600 MiB.
        let logits = 152_064;
        assert_eq!(of(&[9600 * MIB], logits), 2048);
        assert_eq!(of(&[9599 * MIB], logits), 512);
        assert_eq!(of(&[9599 * MIB], logits / 2), 2048);
        assert_eq!(of(&[80_000 * MIB, 9599 * MIB], logits), 512);
        // The processor, and a device that does not report its memory.
        assert_eq!(of(&[], logits), 512);
        assert_eq!(of(&[0], logits), 512);
    }

    #[test]
    fn a_large_batch_leaves_no_layers_in_main_memory() {
        let layers = Layers { widths: [0, 0, 152_064], ..layers() };
        let of = |usable: u64, n_gpu_layers| {
            let total = 80_000 * MIB;
            let free = usable * MIB + MAX_RESERVE;
            let device = Device { name: "d".into(), free, total };
            batch_size_of(&layers, &context(1024), &[device], n_gpu_layers)
        };
        // Ten blocks with their caches take 110 MiB, the output 50, the logits 1188, the mask 12.
        assert_eq!(of(1360, None), 2048);
        assert_eq!(of(1359, None), 512);
        assert_eq!(of(0, Some(3)), 2048);
    }

    #[test]
    fn as_many_layers_as_fit_are_placed() {
        // The cache of 1024 tokens takes 1 MiB per block, the mask 512 * 1024 * 6 bytes, 3 MiB.
        let needs = MemoryNeeds::of_layers(&layers(), &context(1024));
        let cases = [
            (0, 0),
            (56, 0),
            // The output comes first, with the mask and the largest tensor.
            (57, 1),
            (57 + 10, 1),
            (57 + 11, 2),
            (57 + 9 * 11, 10),
            // With all layers on the device, no weights are copied for large batches.
            (57 - 4 + 10 * 11, 11),
            (100_000, 11),
        ];
        for (usable, fitting) in cases {
            assert_eq!(needs.fitting(&[device(usable * MIB)]), fitting, "{usable} MiB");
        }
        assert_eq!(needs.fitting(&[]), 0);
        assert_eq!(
            needs.fitting(&[Device { name: "d".into(), free: 100 * MIB, total: 100 * MIB }]),
            0
        );
    }

    #[test]
    fn needs_grow_with_the_context() {
        let state = Layer { per_sequence: 3 * MIB, ..Layer::default() };
        let layers =
            Layers { blocks: vec![state], widths: [256, 1024, 2048], heads: 2, ..layers() };
        let needs = |change: &dyn Fn(&mut ContextOptions)| {
            let mut context = context(1000);
            change(&mut context);
            MemoryNeeds::of_layers(&layers, &context)
        };
        let plain = needs(&|_| ());
        assert_eq!((plain.blocks[0], plain.logits), (4 * 3 * MIB, 4 * MIB));
        // 1000 tokens are rounded up to 1024 cells.
        assert_eq!(plain.compute, 3 * MIB + 512 * 4 * (6 * 256 + 3 * 1024));
        let off = needs(&|context| context.flash_attn = FlashAttention::Off);
        assert_eq!(off.compute - plain.compute, 512 * 1024 * 2 * 8);
        // Some architectures never use it.
        let scored = Layers { attention: Attention::Scored, ..layers.clone() };
        assert_eq!(MemoryNeeds::of_layers(&scored, &context(1000)), off);
        let bytes = |attention, flash_attn| {
            score_bytes(&Layers { attention, ..layers.clone() }, flash_attn)
        };
        let [auto, off] = [FlashAttention::Auto, FlashAttention::Off];
        assert_eq!([bytes(Attention::Any, auto), bytes(Attention::Any, off)], [0, 8]);
        assert_eq!([bytes(Attention::Scored, auto), bytes(Attention::Scored, off)], [8, 8]);
        assert_eq!([bytes(Attention::Biased, auto), bytes(Attention::Biased, off)], [24, 24]);
    }

    #[test]
    fn several_devices_share_in_proportion_to_free_memory() {
        let needs = MemoryNeeds::of_layers(&layers(), &context(1024));
        let free = |mib: u64| Device { name: "d".into(), free: mib * MIB, total: 0 };
        // 11 layers, a third of the memory: the first four blocks, up to a share of 1/3.
        assert_eq!(
            needs.taken(11, &[free(1000), free(2000)]),
            [4 * 11 * MIB + 3 * MIB, (6 * 11 + 50 + 3) * MIB]
        );
        assert_eq!(needs.fitting(&[free(1000), free(2000)]), 11);
        // The second device has too little memory for the output, which llama.cpp puts there from
        // five layers on. The first device has 1000/1286 of the memory, so it gets the layers below
        // that share: three of four layers, or all of them.
        assert_eq!(needs.fitting(&[free(1000), free(256 + 30)]), 4);
        // A device without free memory gets nothing.
        assert_eq!(needs.taken(11, &[free(3000), free(0)])[1], 0);
    }

    #[test]
    fn real_headers_are_enough() {
        let Some(folder) = std::env::var_os("LLB_MODELS").map(std::path::PathBuf::from) else {
            return crate::test_support::conformance::say(
                "skipped: layers of real headers: LLB_MODELS is not set",
            );
        };
        // The number of blocks of these models, and the output.
        let cases = [
            ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 25),
            ("smollm2-135m-instruct-q4_1.gguf", 31),
            ("gemma-3-270m-q4_k_m.gguf", 19),
        ];
        for (name, n_layers) in cases {
            let path = folder.join(name);
            if !path.is_file() {
                crate::test_support::conformance::say(&format!(
                    "skipped: layers of {name}: it is not in LLB_MODELS"
                ));
                continue;
            }
            let header = ModelHeader::read_file(&path).expect("a header");
            let needs = MemoryNeeds::of(&header, &context(8192)).expect("the header says enough");
            assert_eq!(needs.n_layers(), n_layers, "{name}");
            // All weights are counted once; the embedding may be counted twice.
            let cache = header.kv_bytes_per_token(2.0, 2.0).expect("it has heads") * 8192;
            let weights = needs.blocks.iter().sum::<u64>() - cache + needs.output;
            assert!(
                weights <= header.file_size() && weights * 5 > header.file_size() * 3,
                "{name}: {weights}"
            );
            assert_eq!(needs.fitting(&[device(0)]), 0);
            assert_eq!(needs.fitting(&[device(64 << 30)]), n_layers);
            // More memory never means fewer layers.
            let fitting: Vec<usize> =
                (0..1000).map(|step| needs.fitting(&[device(step * 2 * MIB)])).collect();
            assert!(
                fitting.is_sorted() && (0..n_layers - 1).all(|n| fitting.contains(&n)),
                "{name}: {fitting:?}"
            );
        }
    }
}
