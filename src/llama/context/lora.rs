//! LoRA adapters: small files that change a model's weights.
//!
//! llama.cpp asserts on metadata of wrong types, and trusts tensor types and numbers of experts, so
//! the file's header is checked before llama.cpp reads the file. Other wrong shapes show only during
//! computation: a context with adapters decodes one token before it is used.

use std::collections::HashMap;
use std::ffi::CString;
use std::path::Path;
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use super::model::Model;
use crate::api::{AdapterScales, Lora};
use crate::error::{Code, Error, Result};
use crate::gguf::{GgufValue, ModelHeader, ValueType};
use crate::llama::raw::shim;

/// F32, F16, Q8_0 and BF16, the types that llama.cpp's converter writes. Other types may not
/// support multiplication; integers do not.
const TENSOR_TYPES: [u32; 4] = [0, 1, 8, 30];

/// The highest rank for small matrices. For others it is the shorter side: a higher rank adds
/// nothing, and each token of a batch takes memory in proportion to it.
const MAX_RANK: u64 = 1024;

/// Marks an error as being about the option `lora`, not about the model.
pub(crate) fn option_error(index: usize, error: Error) -> Error {
    Error::invalid(format_args!("lora[{index}].path"), error.message()).caused_by(error)
}

/// A loaded adapter. Owned by the context that uses it, on the engine thread; freed before its
/// model.
pub(crate) struct Adapter {
    raw: NonNull<sys::llama_adapter_lora>,
}

impl Adapter {
    /// Loads an adapter that passed [`check`]. The model must outlive it.
    pub(crate) fn load(model: &Model, path: &str) -> Result<Adapter> {
        let c_path = CString::new(path)
            .map_err(|error| Error::new(Code::InvalidRequest, error.to_string()))?;
        // SAFETY: the model is alive and used by this thread alone; the path is NUL-terminated.
        let raw = shim::guard(|| unsafe {
            shim::calls::llama_adapter_lora_init(model.as_ptr(), c_path.as_ptr())
        });
        let raw = raw.map_err(|failed| failed.error(Code::InvalidRequest, path))?;
        let raw = NonNull::new(raw);
        raw.map(|raw| Adapter { raw }).ok_or_else(|| {
            Error::new(Code::InvalidRequest, format!("{path}: llama.cpp rejected the adapter"))
        })
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // SAFETY: created by llama_adapter_lora_init, freed once, before its model and after the
        // last decode with it.
        shim::free(|| unsafe { shim::calls::llama_adapter_lora_free(self.raw.as_ptr()) });
    }
}

/// The adapters of a context, and their current scales.
#[derive(Default)]
pub(crate) struct AppliedAdapters {
    adapters: Vec<Adapter>,
    scales: AdapterScales,
}

impl AppliedAdapters {
    /// Adapters for a context without adapters. They have no effect until
    /// [`AppliedAdapters::apply`].
    pub(crate) fn new(adapters: Vec<Adapter>) -> AppliedAdapters {
        AppliedAdapters { adapters, scales: AdapterScales::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.adapters.is_empty()
    }

    /// Changes the scales if they differ from the current ones. A change makes llama.cpp plan the
    /// memory of the next decode again. The context must be alive and the one that the adapters
    /// belong to. After an error the context must not be used again.
    pub(crate) fn apply(
        &mut self,
        context: NonNull<sys::llama_context>,
        scales: &AdapterScales,
    ) -> Result<()> {
        if *scales == self.scales {
            return Ok(());
        }
        let what = "llama.cpp cannot apply the adapters";
        let mut raw: Vec<_> = self.adapters.iter().map(|adapter| adapter.raw.as_ptr()).collect();
        let mut values = scales.0.to_vec();
        values.resize(raw.len(), 0.0);
        let (n, raw, values) = (raw.len(), raw.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: context and adapters are alive, and both arrays have `n` elements.
        let set = shim::guard(|| unsafe {
            shim::calls::llama_set_adapters_lora(context.as_ptr(), raw, n, values)
        });
        match set {
            Ok(0) => self.scales = scales.clone(),
            Ok(_) => return Err(Error::new(Code::InvalidRequest, what)),
            Err(failed) => return Err(failed.error(Code::InvalidRequest, what)),
        }
        Ok(())
    }
}

/// Checks the files of these adapters for a model with the header `model`. Returns the size of all
/// their tensors in bytes.
pub(crate) fn check_all(adapters: &[Lora], model: &ModelHeader) -> Result<u64> {
    let checked = adapters.iter().enumerate().map(|(index, adapter)| {
        check(&adapter.path, model).map_err(|error| option_error(index, error))
    });
    checked.sum()
}

/// Checks from its header that a file is an adapter for a model with the header `model`. Returns
/// the size of its tensors in bytes.
fn check(path: &str, model: &ModelHeader) -> Result<u64> {
    let header = ModelHeader::read_file(Path::new(path))?;
    let refuse =
        |problem: String| Err(Error::new(Code::ModelInvalid, format!("{path}: {problem}")));
    let text = |key: &str| header.get(key).and_then(GgufValue::as_str);
    if text("general.type") != Some("adapter") || text("adapter.type") != Some("lora") {
        return refuse("not a LoRA adapter (by general.type and adapter.type)".to_owned());
    }
    if header.architecture() != model.architecture() {
        return refuse(format!(
            "the adapter is for the architecture {:?}, but the model is {:?}",
            header.architecture(),
            model.architecture()
        ));
    }
    let alpha = header.get("adapter.lora.alpha");
    if !matches!(alpha, Some(GgufValue::F32(alpha)) if alpha.is_finite()) {
        return refuse("adapter.lora.alpha is missing or not a 32-bit float".to_owned());
    }
    // An "activated" adapter applies only to the tokens after a phrase. Applying it to all tokens
    // would change what it does.
    if header.keys("adapter.alora.").next().is_some() {
        return refuse("an activated LoRA (aLoRA) is not supported".to_owned());
    }
    if header
        .get("general.alignment")
        .is_some_and(|alignment| alignment.value_type() != ValueType::U32)
    {
        return refuse("general.alignment is not a 32-bit number".to_owned());
    }
    if header.tensor_types().any(|number| !TENSOR_TYPES.contains(&number)) {
        return refuse("its tensors must be F32, F16, BF16 or Q8_0".to_owned());
    }
    header.check_complete().map_err(|error| error.about(path))?;
    let matrices: Matrices = model.shapes().collect();
    check_copies(&header, model, &matrices).map_err(|error| error.about(path))?;
    check_ranks(&header, &matrices).map_err(|error| error.about(path))?;
    Ok(header.tensor_bytes())
}

/// The shapes of a model's tensors by their names.
type Matrices<'a> = HashMap<&'a str, &'a [u64; 4]>;

/// Checks that an adapter has as many copies of its factors as the model has of the matrix, such as
/// one for each expert. llama.cpp compares only the first two extents, and reads the copy of an
/// expert without a check.
fn check_copies(adapter: &ModelHeader, model: &ModelHeader, matrices: &Matrices<'_>) -> Result<()> {
    let experts = format!("{}.expert_count", model.architecture());
    let experts = model.get(&experts).and_then(GgufValue::as_u64).unwrap_or(1);
    for (name, shape) in adapter.shapes() {
        let Some(matrix) = name.strip_suffix(".lora_a").or(name.strip_suffix(".lora_b")) else {
            continue;
        };
        // llama.cpp removes the endings wherever they are in a name.
        if matrix.contains(".lora_a") || matrix.contains(".lora_b") {
            let problem = format!("tensor {name:?} has an ending in its middle");
            return Err(Error::new(Code::ModelInvalid, problem));
        }
        let expected = match matrices.get(matrix) {
            Some(shape) => [shape[2], shape[3]],
            // The matrix may be in another part of a split model.
            None if matrix.contains("_exps.") => [experts, 1],
            None => continue,
        };
        if shape[2..] != expected {
            let problem = format!(
                "tensor {name:?} has the shape {shape:?}, but the last two extents of {matrix:?} \
                 in the model are {expected:?}"
            );
            return Err(Error::new(Code::ModelInvalid, problem));
        }
    }
    Ok(())
}

/// Refuses ranks that are higher than any useful one. A rank is the first extent of the second
/// factor, also for embeddings (`llama_adapter_lora_init_impl`).
fn check_ranks(adapter: &ModelHeader, matrices: &Matrices<'_>) -> Result<()> {
    for (name, [rank, ..]) in adapter.shapes() {
        let Some(matrix) = name.strip_suffix(".lora_b") else { continue };
        // A matrix in another part of a split model is unknown here.
        let side = matrices.get(matrix).map_or(u64::MAX, |shape| shape[0].min(shape[1]));
        let most = side.max(MAX_RANK);
        if *rank > most {
            let problem = format!("tensor {name:?} has the rank {rank}, more than {most}");
            return Err(Error::new(Code::ModelInvalid, problem));
        }
    }
    Ok(())
}
