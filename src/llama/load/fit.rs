//! How many layers of a model fit on the devices, and with how many of their experts: computed from
//! sizes, before anything is loaded.
//!
//! In: the needs of the layers from the model's header, and the free memory of each device. Out: a
//! number of layers for llama.cpp, which puts the last layers on devices and the first ones in main
//! memory, and the number of layers whose experts stay in main memory. Compute buffers can only be
//! estimated, so the estimate is on the high side and a reserve is left.
//!
//! llama.cpp's own function for this (common/fit.h) is not used: it redirects the log of the whole
//! process while it runs, is part of a large library, and reports failures by C++ exceptions.

use crate::api::FlashAttention;
use crate::gguf::{Attention, Layers, ModelHeader};
use crate::llama::context::ContextOptions;
use crate::llama::devices::Device;

use super::tensor_places::TensorPlaces;

/// What the options say about layers. `None` is as many as fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LayerChoice {
    /// The number of layers on devices.
    pub(crate) n_gpu_layers: Option<u32>,
    /// The number of blocks, from the first one, whose experts stay in main memory.
    pub(crate) n_cpu_moe: Option<u32>,
}

/// Where the layers of a model are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerPlan {
    /// The number of layers on devices.
    pub(crate) layers: usize,
    /// The number of blocks, from the first one, whose experts are in main memory.
    pub(crate) n_cpu_moe: usize,
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
    blocks: Vec<BlockNeeds>,
    /// The output weights.
    output: u64,
    /// The tensors that the options put on a device, whichever layer they belong to: the device's
    /// name and the size.
    placed: Vec<(String, u64)>,
    /// Whether the options put tensors of blocks into main memory.
    uses_main_memory: bool,
    /// The compute buffers on each device that has a block.
    pub(super) compute: u64,
    /// Further compute buffers on the device with the output.
    pub(super) logits: u64,
    /// Further memory on each device if weights of some blocks are in main memory. For large
    /// batches, they are copied to the device.
    largest: u64,
}

/// The memory that one block needs on its device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockNeeds {
    /// The weights that are not experts, and the KV cache.
    base: u64,
    /// The experts, which may be in main memory.
    experts: u64,
}

impl MemoryNeeds {
    /// The memory that a model needs with this context. `None` if its header lacks the sizes.
    pub(crate) fn of(
        header: &ModelHeader,
        context: &ContextOptions,
        tensors: &TensorPlaces,
    ) -> Option<MemoryNeeds> {
        Some(MemoryNeeds::of_layers(&layers_of(header, context)?, context, tensors))
    }

    pub(super) fn of_layers(
        layers: &Layers,
        context: &ContextOptions,
        tensors: &TensorPlaces,
    ) -> MemoryNeeds {
        let [n_ctx, n_batch, n_parallel] =
            [context.n_ctx, context.n_batch, context.n_parallel].map(u64::from);
        // llama.cpp rounds the context up. A token attends to the cells of its own sequence, or to
        // all that are shared.
        let n_ctx = n_ctx.next_multiple_of(256);
        let n_cells = if context.kv_unified { n_ctx } else { n_ctx.saturating_mul(n_parallel) };
        let [_, _, logits] = layers.widths;
        let block = |(index, layer): (usize, &crate::gguf::Layer)| {
            let kept = layer
                .per_token
                .saturating_mul(n_cells)
                .saturating_add(layer.per_sequence.saturating_mul(context.n_states()));
            let experts = tensors.experts(index);
            let elsewhere = tensors.moved(index).saturating_add(experts);
            let base = layer.weights.saturating_sub(elsewhere).saturating_add(kept);
            BlockNeeds { base, experts }
        };
        let placed = tensors.on_devices().iter().map(|(name, bytes)| (name.clone(), *bytes));
        // The attention mask as f32 and as f16. Without flash attention, also the scores of all
        // heads before and after the softmax.
        let scores = score_bytes(layers, context.flash_attn).saturating_mul(2);
        let attention = n_batch.saturating_mul(n_ctx).saturating_mul(scores.saturating_add(6));
        // The states of a layer are computed together, before they are stored.
        let states = match context.n_rollback {
            0 => 0,
            _ => layers.blocks.iter().map(|layer| layer.per_sequence).max().unwrap_or(0),
        };
        let states = states.saturating_mul(context.n_states());
        let tokens = activation_bytes(layers).saturating_mul(n_batch);
        MemoryNeeds {
            blocks: layers.blocks.iter().enumerate().map(block).collect(),
            output: layers.output.saturating_sub(tensors.moved_output()),
            placed: placed.collect(),
            uses_main_memory: tensors.uses_main_memory(),
            compute: attention.saturating_add(tokens).saturating_add(states),
            logits: logits.saturating_mul(4).saturating_mul(n_batch),
            largest: layers.largest,
        }
    }

    /// The number of layers as llama.cpp counts them: the blocks and the output.
    pub(crate) fn n_layers(&self) -> usize {
        self.blocks.len() + 1
    }

    /// The number of blocks up to the last one with experts that may be in main memory; 0 without
    /// experts.
    pub(crate) fn n_expert_blocks(&self) -> usize {
        self.blocks.iter().rposition(|block| block.experts > 0).map_or(0, |last| last + 1)
    }

    /// Where the layers go. First, all layers are on devices, and as few experts as possible in main
    /// memory. If not even that fits, all experts are there, and as many layers as possible on
    /// devices. What the caller has chosen is used as given.
    pub(crate) fn plan(&self, devices: &[Device], choice: LayerChoice) -> LayerPlan {
        let (all, most) = (self.n_layers(), self.n_expert_blocks());
        let given = choice.n_gpu_layers.map(|layers| (layers as usize).min(all));
        let experts = choice.n_cpu_moe.map(|count| count as usize);
        let fits = |layers, n_cpu_moe| self.fits(LayerPlan { layers, n_cpu_moe }, devices);
        let with_experts = |layers| match experts {
            Some(count) => Some(count).filter(|count| fits(layers, *count)),
            None if fits(layers, 0) => Some(0),
            None if most == 0 || !fits(layers, most) => None,
            // The more experts are in main memory, the less a device needs.
            None => {
                let (mut fails, mut fitting) = (0, most);
                while fitting - fails > 1 {
                    let middle = usize::midpoint(fails, fitting);
                    if fits(layers, middle) { fitting = middle } else { fails = middle }
                }
                Some(fitting)
            }
        };
        let layers = given.unwrap_or(all);
        if let Some(n_cpu_moe) = with_experts(layers) {
            return LayerPlan { layers, n_cpu_moe };
        }
        let n_cpu_moe = experts.unwrap_or(most);
        let fitting = || (1..all).rev().find(|layers| fits(*layers, n_cpu_moe)).unwrap_or(0);
        LayerPlan { layers: given.unwrap_or_else(fitting), n_cpu_moe }
    }

    /// Whether the devices have the memory.
    fn fits(&self, plan: LayerPlan, devices: &[Device]) -> bool {
        if devices.iter().all(|device| device.free == 0) {
            return false;
        }
        let taken = self.taken(plan, devices);
        let mut pairs = taken.iter().zip(devices);
        pairs.all(|(taken, device)| *taken == 0 || *taken <= device.usable())
    }

    /// The device of each layer on devices, as an index. As in llama.cpp, layers are assigned by the
    /// devices' shares (`llama_model_base::load_tensors`).
    fn assigned(layers: usize, devices: &[Device]) -> Vec<usize> {
        let ends: Vec<f32> = devices
            .iter()
            .scan(0.0_f32, |sum, device| {
                *sum += device.share;
                Some(*sum)
            })
            .collect();
        let Some(all) = ends.last().copied().filter(|all| *all > 0.0) else { return Vec::new() };
        let device = |layer| {
            let share = layer as f32 / layers as f32;
            ends.iter().position(|end| end / all > share).unwrap_or(devices.len() - 1)
        };
        (0..layers).map(device).collect()
    }

    /// The number of layers on each device, if this many are on devices.
    pub(crate) fn layers_of_devices(layers: usize, devices: &[Device]) -> Vec<usize> {
        let mut counts = vec![0; devices.len()];
        for device in MemoryNeeds::assigned(layers, devices) {
            counts[device] += 1;
        }
        counts
    }

    /// The memory used on each device.
    pub(super) fn taken(&self, plan: LayerPlan, devices: &[Device]) -> Vec<u64> {
        let mut taken = vec![0_u64; devices.len()];
        let mut used = vec![false; devices.len()];
        let first = self.n_layers() - plan.layers;
        let assigned = MemoryNeeds::assigned(plan.layers, devices);
        for (layer, device) in (first..).zip(assigned) {
            let weights = match self.blocks.get(layer) {
                Some(block) if layer < plan.n_cpu_moe => block.base,
                Some(block) => block.base.saturating_add(block.experts),
                None => self.output.saturating_add(self.logits),
            };
            taken[device] = taken[device].saturating_add(weights);
            used[device] = true;
        }
        for (name, bytes) in &self.placed {
            if let Some(device) = devices.iter().position(|device| device.name == *name) {
                taken[device] = taken[device].saturating_add(*bytes);
                used[device] = true;
            }
        }
        let keeps_weights = first > 0
            || self.uses_main_memory
            || self.blocks.iter().take(plan.n_cpu_moe).any(|block| block.experts > 0);
        let beside = self.compute.saturating_add(if keeps_weights { self.largest } else { 0 });
        taken
            .iter_mut()
            .zip(used)
            .filter(|(_, used)| *used)
            .for_each(|(taken, _)| *taken = taken.saturating_add(beside));
        taken
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::api::CacheType;
    use crate::gguf::Layer;
    use crate::llama::devices::MIN_RESERVE;

    pub(in crate::llama::load) const MIB: u64 = 1 << 20;

    pub(in crate::llama::load) fn context(n_ctx: u32) -> ContextOptions {
        ContextOptions {
            n_ctx,
            n_batch: 512,
            n_parallel: 4,
            n_rollback: 0,
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
    pub(in crate::llama::load) fn device(usable: u64) -> Device {
        Device::new("d".into(), usable + MIN_RESERVE, usable + MIN_RESERVE)
    }

    fn needs_of(layers: &Layers, context: &ContextOptions) -> MemoryNeeds {
        MemoryNeeds::of_layers(layers, context, &TensorPlaces::default())
    }

    /// The most layers that fit.
    fn most_layers(needs: &MemoryNeeds, devices: &[Device]) -> usize {
        needs.plan(devices, LayerChoice::default()).layers
    }

    /// Ten blocks of 10 MiB with 1 KiB per token, and an output of 50 MiB.
    pub(in crate::llama::load) fn layers() -> Layers {
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
    fn as_many_layers_as_fit_are_placed() {
        // The cache of 1024 tokens takes 1 MiB per block, the mask 512 * 1024 * 6 bytes, 3 MiB.
        let needs = needs_of(&layers(), &context(1024));
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
            assert_eq!(most_layers(&needs, &[device(usable * MIB)]), fitting, "{usable} MiB");
        }
        assert_eq!(most_layers(&needs, &[]), 0);
        assert_eq!(most_layers(&needs, &[Device::new("d".into(), 100 * MIB, 100 * MIB)]), 0);
    }

    /// The same layers; the last eight blocks have experts of 8 of their 10 MiB.
    fn needs_with_experts(context: &ContextOptions) -> MemoryNeeds {
        let mut needs = needs_of(&layers(), context);
        for block in &mut needs.blocks[2..] {
            (block.base, block.experts) = (block.base - 8 * MIB, 8 * MIB);
        }
        needs
    }

    #[test]
    fn experts_leave_a_full_device_first() {
        let needs = needs_with_experts(&context(1024));
        let plan = |usable: u64, n_gpu_layers, n_cpu_moe| {
            let plan = needs.plan(&[device(usable * MIB)], LayerChoice { n_gpu_layers, n_cpu_moe });
            (plan.layers, plan.n_cpu_moe)
        };
        assert_eq!(needs.n_expert_blocks(), 10);
        // Ten blocks of 11 MiB with their caches, the output of 50, the mask of 3. As soon as weights
        // are in main memory, the largest tensor of 4 is copied.
        let all = 10 * 11 + 50 + 3;
        for (usable, expected) in [
            (all, (11, 0)),
            // The first blocks have no experts.
            (all - 1, (11, 3)),
            (all + 4 - 8, (11, 3)),
            (all + 4 - 9, (11, 4)),
            (all + 4 - 8 * 8, (11, 10)),
            // Without any experts, a block takes 3 MiB, and each of the first two 11.
            (all + 3 - 8 * 8, (10, 10)),
            (57, (1, 10)),
            (56, (0, 10)),
        ] {
            assert_eq!(plan(usable, None, None), expected, "{usable} MiB");
        }
        // What the caller has chosen is used.
        assert_eq!(plan(all, None, Some(5)), (11, 5));
        assert_eq!(plan(57 + 11, None, Some(0)), (2, 0));
        assert_eq!(plan(57 + 3, None, Some(10)), (2, 10));
        assert_eq!(plan(1, Some(4), Some(0)), (4, 0));
        assert_eq!(plan(all, Some(99), None), (11, 0));
        assert_eq!(plan(57 + 3 * 11, Some(4), None), (4, 0));
        assert_eq!(plan(57 + 3 * 11 - 8, Some(4), None), (4, 8));
        assert_eq!(plan(1, Some(4), None), (4, 10));
        // A model without experts has none to move.
        let dense = needs_of(&layers(), &context(1024)).plan(&[device(0)], LayerChoice::default());
        assert_eq!(dense, LayerPlan { layers: 0, n_cpu_moe: 0 });
    }

    #[test]
    fn tensors_elsewhere_count_where_they_are() {
        let needs = MemoryNeeds {
            placed: vec![("d".into(), 7 * MIB), ("other".into(), 100 * MIB)],
            uses_main_memory: true,
            ..needs_of(&layers(), &context(1024))
        };
        let plan = LayerPlan { layers: 11, n_cpu_moe: 0 };
        let devices = [device(1000 * MIB)];
        assert_eq!(needs.taken(plan, &devices), [(163 + 4 + 7) * MIB]);
    }

    #[test]
    fn layers_follow_the_shares() {
        let device = |share| Device { share, ..device(1000 * MIB) };
        let of = |shares: &[f32]| {
            let devices: Vec<Device> = shares.iter().copied().map(device).collect();
            MemoryNeeds::layers_of_devices(10, &devices)
        };
        assert_eq!(of(&[1.0, 1.0]), [5, 5]);
        assert_eq!(of(&[3.0, 1.0]), [8, 2]);
        assert_eq!(of(&[0.0, 1.0, 0.0]), [0, 10, 0]);
    }

    #[test]
    fn needs_grow_with_the_context() {
        let state = Layer { per_sequence: 3 * MIB, ..Layer::default() };
        let layers =
            Layers { blocks: vec![state], widths: [256, 1024, 2048], heads: 2, ..layers() };
        let needs = |change: &dyn Fn(&mut ContextOptions)| {
            let mut context = context(1000);
            change(&mut context);
            needs_of(&layers, &context)
        };
        let plain = needs(&|_| ());
        assert_eq!((plain.blocks[0].base, plain.logits), (4 * 3 * MIB, 4 * MIB));
        let more = needs(&|context| context.n_rollback = 2);
        assert_eq!(more.blocks[0].base, 3 * 4 * 3 * MIB);
        assert_eq!(more.compute - plain.compute, 3 * 4 * 3 * MIB);
        // 1000 tokens are rounded up to 1024 cells.
        assert_eq!(plain.compute, 3 * MIB + 512 * 4 * (6 * 256 + 3 * 1024));
        let off = needs(&|context| context.flash_attn = FlashAttention::Off);
        assert_eq!(off.compute - plain.compute, 512 * 1024 * 2 * 8);
        // Some architectures never use it.
        let scored = Layers { attention: Attention::Scored, ..layers.clone() };
        assert_eq!(needs_of(&scored, &context(1000)), off);
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
        let needs = needs_of(&layers(), &context(1024));
        let free = |mib: u64| Device::new("d".into(), mib * MIB, 0);
        let all = LayerPlan { layers: 11, n_cpu_moe: 0 };
        // 11 layers, a third of the memory: the first four blocks, up to a share of 1/3.
        assert_eq!(
            needs.taken(all, &[free(1000), free(2000)]),
            [4 * 11 * MIB + 3 * MIB, (6 * 11 + 50 + 3) * MIB]
        );
        assert_eq!(most_layers(&needs, &[free(1000), free(2000)]), 11);
        // The second device has too little memory for the output, which llama.cpp puts there from
        // five layers on. The first device has 1000/1286 of the memory, so it gets the layers below
        // that share: three of four layers, or all of them.
        assert_eq!(most_layers(&needs, &[free(1000), free(256 + 30)]), 4);
        // A device without free memory gets nothing.
        assert_eq!(needs.taken(all, &[free(3000), free(0)])[1], 0);
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
            let needs = MemoryNeeds::of(&header, &context(8192), &TensorPlaces::default())
                .expect("the header says enough");
            assert_eq!(needs.n_layers(), n_layers, "{name}");
            // All weights are counted once; the embedding may be counted twice.
            let cache = header.kv_bytes_per_token(2.0, 2.0).expect("it has heads") * 8192;
            let weights =
                needs.blocks.iter().map(|block| block.base).sum::<u64>() - cache + needs.output;
            assert!(
                weights <= header.file_size() && weights * 5 > header.file_size() * 3,
                "{name}: {weights}"
            );
            assert_eq!(most_layers(&needs, &[device(0)]), 0);
            assert_eq!(most_layers(&needs, &[device(64 << 30)]), n_layers);
            // More memory never means fewer layers.
            let fitting: Vec<usize> =
                (0..1000).map(|step| most_layers(&needs, &[device(step * 2 * MIB)])).collect();
            assert!(
                fitting.is_sorted() && (0..n_layers - 1).all(|n| fitting.contains(&n)),
                "{name}: {fitting:?}"
            );
        }
    }
}
