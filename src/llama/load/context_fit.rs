//! The batch and the cells of a context that suit the devices of a model.

use crate::gguf::{Layers, ModelHeader};
use crate::llama::context::ContextOptions;
use crate::llama::devices::Device;

use super::fit::{LayerChoice, MemoryNeeds, layers_of};
use super::tensor_places::TensorPlaces;

/// The largest batch on the CPU. Longer batches are no faster there.
pub(crate) const PROCESSOR_BATCH: u32 = 512;
/// The largest batch on devices. On an H100, prefill of a 7B model with 2048 tokens per decode is
/// 1.18 times as fast as with 512 (10,900 and 9,250 tokens/s).
const DEVICE_BATCH: u32 = 2048;
/// The fraction of a device's memory, as a divisor, that the compute buffers of the large batch may
/// take.
const COMPUTE_SHARE: u64 = 8;

/// The sizes of a batch to choose from.
pub(crate) const BATCHES: [u32; 2] = [PROCESSOR_BATCH, DEVICE_BATCH];

/// What a context needs, and where it may go.
pub(crate) struct ContextFit<'a> {
    layers: Layers,
    tensors: &'a TensorPlaces,
    devices: &'a [Device],
    choice: LayerChoice,
}

impl<'a> ContextFit<'a> {
    /// `None` if the header lacks the sizes.
    pub(crate) fn new(
        header: &ModelHeader,
        context: &ContextOptions,
        tensors: &'a TensorPlaces,
        devices: &'a [Device],
        choice: LayerChoice,
    ) -> Option<ContextFit<'a>> {
        Some(ContextFit { layers: layers_of(header, context)?, tensors, devices, choice })
    }

    fn needs(&self, context: &ContextOptions) -> MemoryNeeds {
        MemoryNeeds::of_layers(&self.layers, context, self.tensors)
    }

    /// The tokens per decode call that suit the devices, or the CPU if there are no devices. If the
    /// caller has not set the number of layers, a large batch must not leave layers or experts in
    /// main memory: that would cost more than it gains.
    pub(crate) fn batch_size(&self, context: &ContextOptions) -> u32 {
        let with = |n_batch| self.needs(&ContextOptions { n_batch, ..context.clone() });
        let large = with(DEVICE_BATCH);
        let buffers = large.compute.saturating_add(large.logits);
        let least = self.devices.iter().map(|device| device.total).min();
        let changes_nothing = || {
            let plan = large.plan(self.devices, self.choice);
            plan.layers == large.n_layers()
                && plan == with(PROCESSOR_BATCH).plan(self.devices, self.choice)
        };
        let fits = least.is_some_and(|least| buffers <= least / COMPUTE_SHARE)
            && (self.choice.n_gpu_layers.is_some() || changes_nothing());
        if fits { DEVICE_BATCH } else { PROCESSOR_BATCH }
    }

    /// Whether all layers go where they would go without further states for drafts.
    pub(crate) fn has_room_for_states(&self, context: &ContextOptions) -> bool {
        let n_batch = if context.n_batch == 0 { PROCESSOR_BATCH } else { context.n_batch };
        let plan = |n_rollback| {
            let context = ContextOptions { n_rollback, n_batch, ..context.clone() };
            self.needs(&context).plan(self.devices, self.choice)
        };
        plan(context.n_rollback) == plan(0)
    }

    /// Whether each chat can have cells of its own on the devices. All layers must be there, as many
    /// experts as with shared cells, and half of the memory that shared cells would leave.
    pub(crate) fn has_room_for_own_cells(&self, context: &ContextOptions) -> bool {
        let n_batch = if context.n_batch == 0 { PROCESSOR_BATCH } else { context.n_batch };
        let with =
            |kv_unified| self.needs(&ContextOptions { kv_unified, n_batch, ..context.clone() });
        let (own, shared) = (with(false), with(true));
        let plan = shared.plan(self.devices, self.choice);
        if plan.layers < shared.n_layers() || plan != own.plan(self.devices, self.choice) {
            return false;
        }
        let taken = [&own, &shared].map(|needs| needs.taken(plan, self.devices));
        let [own, shared] = taken;
        own.iter().zip(shared).zip(self.devices).all(|((own, shared), device)| {
            let left = device.usable().checked_sub(shared);
            left.is_some_and(|left| own.saturating_sub(shared) <= left / 2)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llama::devices::MAX_RESERVE;
    use crate::llama::load::fit::tests::{MIB, context, device, layers};

    fn batch_size_of(
        layers: Layers,
        context: &ContextOptions,
        devices: &[Device],
        n_gpu_layers: Option<u32>,
    ) -> u32 {
        let choice = LayerChoice { n_gpu_layers, n_cpu_moe: None };
        let tensors = &TensorPlaces::default();
        ContextFit { layers, tensors, devices, choice }.batch_size(context)
    }

    #[test]
    fn devices_with_memory_have_large_batches() {
        let of = |totals: &[u64], logits| {
            let layers = Layers { widths: [0, 0, logits], ..layers() };
            let device = |total: &u64| Device::new("d".into(), *total, *total);
            let devices: Vec<Device> = totals.iter().map(device).collect();
            batch_size_of(layers, &context(1024), &devices, None)
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
            let device = Device::new("d".into(), free, total);
            batch_size_of(layers.clone(), &context(1024), &[device], n_gpu_layers)
        };
        // Ten blocks with their caches take 110 MiB, the output 50, the logits 1188, the mask 12.
        assert_eq!(of(1360, None), 2048);
        assert_eq!(of(1359, None), 512);
        assert_eq!(of(0, Some(3)), 2048);
    }

    #[test]
    fn chats_have_cells_of_their_own_where_memory_allows() {
        let tensors = TensorPlaces::default();
        let has_room = |usable: u64, n_parallel, n_gpu_layers| {
            let devices = [device(usable * MIB)];
            let choice = LayerChoice { n_gpu_layers, n_cpu_moe: None };
            let fit = ContextFit { layers: layers(), tensors: &tensors, devices: &devices, choice };
            fit.has_room_for_own_cells(&ContextOptions { n_parallel, ..context(1024) })
        };
        // With shared cells the model takes 163 MiB. Four chats take 3 MiB more for each block: 30
        // MiB, half of the 60 that are left.
        assert!(has_room(163 + 60, 4, None));
        assert!(!has_room(163 + 59, 4, None));
        assert!(has_room(163 + 60, 4, Some(11)) && has_room(163 + 60, 4, Some(99)));
        // A part of the layers is in main memory.
        assert!(!has_room(1000, 4, Some(10)));
        assert!(!has_room(162, 4, None));
        // 63 chats more: 630 MiB.
        assert!(has_room(163 + 1260, 64, None) && !has_room(163 + 1259, 64, None));
        let fit = ContextFit {
            layers: layers(),
            tensors: &tensors,
            devices: &[],
            choice: LayerChoice::default(),
        };
        assert!(!fit.has_room_for_own_cells(&context(1024)));
    }
}
