//! mtmd's context of a projector, and its calls.

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use llama_cpp_sys_2 as sys;

use crate::engine::{self, PieceRotations, TokenId};
use crate::error::{Code, Error, Result};
use crate::llama::context::{AbortCheck, Model};
use crate::llama::raw::shim::{self, CallFailed};
use crate::llama::raw::{exit, log};
use crate::media::{Picture, Sound};
use crate::process;
use crate::sync::lock;

/// After so many operations an encode asks whether it is cancelled.
const OPERATIONS_PER_CHECK: u32 = 16;

/// The projector of a loaded model. Media are prepared on any thread. One thread after another
/// encodes.
pub(super) struct ProjectorContext {
    raw: NonNull<sys::mtmd_context>,
    /// mtmd holds a pointer to it.
    encoding: Box<EncodeState>,
    /// Held while a chunk is encoded.
    turn: Mutex<()>,
    /// A call has failed. The context is not used again, not even freed.
    broken: AtomicBool,
    /// The number of forks when it was loaded. A forked child does not free it.
    forks: usize,
    embedding_length: usize,
    /// Whether the places of a picture are a grid for the model.
    uses_mrope: bool,
    // Freed after the context, which refers to its vocabulary.
    _model: Arc<Model>,
}

// SAFETY: `mtmd_tokenize_from_parts` may be called by several threads, and only reads the context.
// Everything else is called by the thread that holds `turn`, or by the last owner.
unsafe impl Send for ProjectorContext {}
// SAFETY: as above.
unsafe impl Sync for ProjectorContext {}

/// The data of the callback of a running encode. Only the thread that encodes uses it.
#[derive(Default)]
struct EncodeState {
    /// A device computes several operations at once, unless it is asked to stop after one.
    is_on_device: bool,
    check: Cell<Option<AbortCheck<'static>>>,
    operations: Cell<u32>,
    is_aborted: Cell<bool>,
}

/// A part of what stands for a picture or a sound.
pub(super) enum RawChunk {
    Tokens(Vec<TokenId>),
    Media { chunk: EncoderChunk, len: usize, is_causal: bool, rotations: Option<PieceRotations> },
}

/// A prepared picture, or a window of a sound.
pub(super) struct EncoderChunk(NonNull<sys::mtmd_input_chunk>);

// SAFETY: it owns its memory, and nothing in it belongs to a thread.
unsafe impl Send for EncoderChunk {}

impl Drop for EncoderChunk {
    fn drop(&mut self) {
        // SAFETY: made by mtmd_input_chunk_copy, freed once.
        shim::free(|| unsafe { shim::calls::mtmd_input_chunk_free(self.0.as_ptr()) });
    }
}

/// mtmd's callback for operations. `data` is an [`EncodeState`].
unsafe extern "C" fn on_operation(
    operation: *mut sys::ggml_tensor,
    is_before: bool,
    data: *mut c_void,
) -> bool {
    // SAFETY: `data` is the box of the context, which outlives it.
    let encoding = unsafe { &*data.cast::<EncodeState>() };
    shim::callback(false, || {
        if is_before {
            clear_cleared(operation);
            if encoding.is_on_device {
                return false;
            }
            // Whether to stop after this operation, so that the question is asked.
            let operations = encoding.operations.get() + 1;
            encoding.operations.set(operations % OPERATIONS_PER_CHECK);
            return operations == OPERATIONS_PER_CHECK;
        }
        let is_over = exit::is_stopping() || encoding.check.get().is_some_and(|check| check());
        encoding.is_aborted.set(encoding.is_aborted.get() || is_over);
        !is_over
    })
}

/// Called before an operation. If it multiplies memory that nothing has written by 0, to clear it,
/// writes zeros there: NaN or infinity in it would remain. The memory belongs to the input from the
/// beginning of the graph. See `docs/upstream.md`.
fn clear_cleared(operation: *const sys::ggml_tensor) {
    // SAFETY: llama.cpp passes an operation of the graph that it computes.
    let operation = unsafe { &*operation };
    if operation.op != sys::GGML_OP_SCALE || f32::from_bits(operation.op_params[0] as u32) != 0.0 {
        return;
    }
    let input = operation.src[0];
    // SAFETY: the input of an operation lives as long as its graph.
    let Some(tensor) = (unsafe { input.as_ref() }) else { return };
    // The weights are in another buffer.
    if tensor.op != sys::GGML_OP_NONE || tensor.buffer != operation.buffer {
        return;
    }
    // SAFETY: the tensor is alive.
    let zeros = vec![0_u8; unsafe { shim::calls::ggml_nbytes(input) }];
    // SAFETY: the tensor has this length.
    unsafe { shim::calls::ggml_backend_tensor_set(input, zeros.as_ptr().cast(), 0, zeros.len()) };
}

impl ProjectorContext {
    /// Loads a projector, which the header checks have accepted.
    pub(super) fn load(path: &str, model: &Arc<Model>, n_threads: u32) -> Result<Self> {
        log::install();
        let file = CString::new(path)
            .map_err(|_| Error::invalid("projector", "the path contains a NUL"))?;
        let is_on_device = model.uses_device();
        let encoding = Box::new(EncodeState { is_on_device, ..EncodeState::default() });
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::mtmd_context_params_default() };
        params.use_gpu = is_on_device;
        params.print_timings = false;
        params.n_threads = n_threads as i32;
        params.cb_eval = Some(on_operation);
        params.cb_eval_user_data = (&raw const *encoding).cast_mut().cast::<c_void>();
        let what = format!("{path}: llama.cpp could not load the projector");
        // SAFETY: the path is NUL-terminated, the model is alive, and `encoding` lives as long as the
        // context.
        let load =
            || unsafe { shim::calls::mtmd_init_from_file(file.as_ptr(), model.as_ptr(), params) };
        let raw = shim::create(Code::ModelInvalid, &what, load)?;
        let mut made = ProjectorContext {
            raw,
            encoding,
            turn: Mutex::new(()),
            broken: AtomicBool::new(false),
            forks: process::forks(),
            embedding_length: model.embedding_length(),
            uses_mrope: false,
            _model: Arc::clone(model),
        };
        // SAFETY: the context is alive.
        let uses_mrope =
            shim::guard(|| unsafe { shim::calls::mtmd_decode_use_mrope(raw.as_ptr()) });
        made.uses_mrope = made.checked(uses_mrope, &what)?;
        Ok(made)
    }

    /// Scales a picture as the encoder needs it.
    pub(super) fn prepare_picture(&self, picture: &Picture) -> Result<Vec<RawChunk>> {
        let (width, height) = (picture.width, picture.height);
        let bytes = width as usize * height as usize * 3;
        assert_eq!(picture.rgb.len(), bytes, "a picture has three bytes for each pixel");
        // SAFETY: the data has the length that the sides say.
        let bitmap =
            || unsafe { shim::calls::mtmd_bitmap_init(width, height, picture.rgb.as_ptr()) };
        self.prepare(bitmap, "llama.cpp could not prepare the picture")
    }

    /// Computes the spectra of a sound, in windows.
    pub(super) fn prepare_sound(&self, sound: &Sound) -> Result<Vec<RawChunk>> {
        let samples = sound.samples();
        // SAFETY: the slice has this length, and mtmd copies it.
        let bitmap =
            || unsafe { shim::calls::mtmd_bitmap_init_from_audio(samples.len(), samples.as_ptr()) };
        self.prepare(bitmap, "llama.cpp could not prepare the sound")
    }

    fn prepare(
        &self,
        bitmap: impl FnOnce() -> *mut sys::mtmd_bitmap,
        what: &str,
    ) -> Result<Vec<RawChunk>> {
        if self.broken.load(Ordering::Acquire) {
            return Err(engine::stopped());
        }
        let raw = self.raw.as_ptr();
        let bitmap = Owned(shim::create(Code::OutOfMemory, what, bitmap)?, free_bitmap);
        // SAFETY: takes nothing.
        let chunks = || unsafe { shim::calls::mtmd_input_chunks_init() };
        let chunks = Owned(shim::create(Code::OutOfMemory, what, chunks)?, free_chunks);
        let part = sys::mtmd_input_part { text: std::ptr::null(), bitmap: bitmap.0.as_ptr() };
        let parts = [&raw const part];
        let tokenize = || {
            // SAFETY: all objects are alive, and there is one part.
            unsafe {
                let (parts, count) = (parts.as_ptr(), parts.len());
                shim::calls::mtmd_tokenize_from_parts(raw, chunks.0.as_ptr(), parts, count, false)
            }
        };
        // Several threads compute the spectra of a sound.
        let status = self.checked(shim::guard_with_threads(tokenize), what)?;
        if status != 0 {
            let message = format!("{what} (status {status})");
            return Err(Error::new(Code::InferenceFailed, message));
        }
        // SAFETY: the chunks are alive.
        let count = || unsafe { shim::calls::mtmd_input_chunks_size(chunks.0.as_ptr()) };
        let count = self.checked(shim::guard(count), what)?;
        (0..count).map(|index| self.chunk(&chunks, index, what)).collect()
    }

    fn chunk(
        &self,
        chunks: &Owned<sys::mtmd_input_chunks>,
        index: usize,
        what: &str,
    ) -> Result<RawChunk> {
        let raw = self.raw.as_ptr();
        let read = || {
            // SAFETY: the index is below the number of chunks.
            let chunk = unsafe { shim::calls::mtmd_input_chunks_get(chunks.0.as_ptr(), index) };
            // SAFETY: the chunk is alive as long as the list.
            if unsafe { shim::calls::mtmd_input_chunk_get_type(chunk) }
                == sys::MTMD_INPUT_CHUNK_TYPE_TEXT
            {
                let mut count = 0;
                // SAFETY: as above.
                let tokens =
                    unsafe { shim::calls::mtmd_input_chunk_get_tokens_text(chunk, &raw mut count) };
                if tokens.is_null() || count == 0 {
                    return Some(RawChunk::Tokens(Vec::new()));
                }
                // SAFETY: the chunk has so many tokens.
                let tokens = unsafe { std::slice::from_raw_parts(tokens, count) };
                return Some(RawChunk::Tokens(tokens.to_vec()));
            }
            // SAFETY: as above.
            let len = unsafe { shim::calls::mtmd_input_chunk_get_n_tokens(chunk) };
            // SAFETY: as above.
            let is_causal = !unsafe { shim::calls::mtmd_decode_use_non_causal(raw, chunk) };
            // SAFETY: as above.
            let kind = unsafe { shim::calls::mtmd_input_chunk_get_type(chunk) };
            let rotations = self.uses_mrope.then(|| match kind {
                // SAFETY: the chunk is one of a picture.
                sys::MTMD_INPUT_CHUNK_TYPE_IMAGE => unsafe { rotations(chunk, len) },
                _ => sequence(len),
            });
            // SAFETY: as above.
            let copy = NonNull::new(unsafe { shim::calls::mtmd_input_chunk_copy(chunk) })?;
            Some(RawChunk::Media { chunk: EncoderChunk(copy), len, is_causal, rotations })
        };
        let chunk = self.checked(shim::guard(read), what)?;
        chunk.ok_or_else(|| Error::new(Code::OutOfMemory, what))
    }

    /// Computes the embeddings of a prepared chunk. `None` if `abort` returned true.
    pub(super) fn encode(
        &self,
        chunk: &EncoderChunk,
        len: usize,
        abort: AbortCheck,
    ) -> Result<Option<Vec<f32>>> {
        const WHAT: &str = "llama.cpp could not encode the media";
        let _turn = lock(&self.turn);
        if self.broken.load(Ordering::Acquire) {
            return Err(engine::stopped());
        }
        if abort() {
            return Ok(None);
        }
        let raw = self.raw.as_ptr();
        // SAFETY: only the lifetime changes; the cell is emptied below, before `abort` goes out of
        // scope.
        let check = unsafe { std::mem::transmute::<AbortCheck<'_>, AbortCheck<'static>>(abort) };
        self.encoding.check.set(Some(check));
        self.encoding.operations.set(0);
        self.encoding.is_aborted.set(false);
        // SAFETY: the context and the chunk are alive, and no other thread encodes.
        let encode = || unsafe { shim::calls::mtmd_encode_chunk(raw, chunk.0.as_ptr()) };
        let status = shim::guard(encode);
        self.encoding.check.set(None);
        let status = self.checked(status, WHAT)?;
        if self.encoding.is_aborted.get() {
            return Ok(None);
        }
        if status != 0 {
            let message = format!("{WHAT} (status {status})");
            return Err(Error::new(Code::InferenceFailed, message));
        }
        let read = || {
            // SAFETY: the context is alive.
            let embeddings = unsafe { shim::calls::mtmd_get_output_embd(raw) };
            // SAFETY: mtmd's buffer has this length for the chunk that was encoded last.
            let embeddings = (!embeddings.is_null()).then(|| unsafe {
                std::slice::from_raw_parts(embeddings, len * self.embedding_length)
            });
            embeddings.map(<[f32]>::to_vec)
        };
        let embeddings = self.checked(shim::guard(read), WHAT)?;
        embeddings.map(Some).ok_or_else(|| Error::new(Code::InferenceFailed, WHAT))
    }

    /// The result of a call. After a failed one the context is not used again.
    fn checked<T>(&self, result: std::result::Result<T, CallFailed>, what: &str) -> Result<T> {
        result.map_err(|failed| {
            self.broken.store(true, Ordering::Release);
            failed.error(Code::InferenceFailed, what)
        })
    }
}

/// The grid of a picture with so many places.
///
/// # Safety
/// The chunk is alive, and is one of a picture.
unsafe fn rotations(chunk: *const sys::mtmd_input_chunk, len: usize) -> PieceRotations {
    // SAFETY: the chunk is alive.
    let image = unsafe { shim::calls::mtmd_input_chunk_get_tokens_image(chunk) };
    let offsets = |place| {
        // SAFETY: the picture is alive as long as its chunk, and has this place.
        let position = unsafe { shim::calls::mtmd_image_tokens_get_decoder_pos(image, 0, place) };
        [position.t, position.y, position.x]
    };
    // SAFETY: the chunk is alive.
    let count = unsafe { shim::calls::mtmd_input_chunk_get_n_pos(chunk) };
    PieceRotations { offsets: (0..len).map(offsets).collect(), count: count.max(0) as usize }
}

/// The places of a sound, which follow each other like tokens.
fn sequence(len: usize) -> PieceRotations {
    PieceRotations { offsets: (0..len as u32).map(|place| [place; 3]).collect(), count: len }
}

impl Drop for ProjectorContext {
    fn drop(&mut self) {
        if self.broken.load(Ordering::Acquire) || self.forks != process::forks() {
            return std::mem::forget((
                std::mem::take(&mut self.encoding),
                Arc::clone(&self._model),
            ));
        }
        // SAFETY: made by mtmd_init_from_file, freed once, before the model.
        shim::free(|| unsafe { shim::calls::mtmd_free(self.raw.as_ptr()) });
    }
}

/// An object of mtmd and the function that frees it.
struct Owned<T>(NonNull<T>, unsafe fn(*mut T));

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the function frees objects of this kind, and this one once.
        shim::free(|| unsafe { self.1(self.0.as_ptr()) });
    }
}

unsafe fn free_bitmap(bitmap: *mut sys::mtmd_bitmap) {
    // SAFETY: the caller passes an object of mtmd that it owns.
    unsafe { shim::calls::mtmd_bitmap_free(bitmap) };
}

unsafe fn free_chunks(chunks: *mut sys::mtmd_input_chunks) {
    // SAFETY: as above.
    unsafe { shim::calls::mtmd_input_chunks_free(chunks) };
}
