//! The projector of a model: media files to pieces of a prompt, with llama.cpp's library mtmd.
//!
//! In: the bytes of a file. Out: tokens and pieces whose embeddings are computed on first use. The
//! content of the last files is kept by their hash, with the embeddings: a file that is sent again
//! is neither decoded nor encoded again, and its pieces are those of the prefix cache.

mod context;
mod memory;
mod reading_memory;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use self::context::{EncoderChunk, ProjectorContext, RawChunk};
pub(super) use self::memory::memory_rows;
use self::reading_memory::ReadingMemory;
use super::context::{LlamaContext, Model};
use crate::api::{MediaLimits, Modality};
use crate::engine::{
    Backend, EmbeddingBatch, Interrupt, MediaChunk, MediaError, MediaPiece, MediaReader,
    MediaSource,
};
use crate::error::{Code, Error, Result};
use crate::gguf::{ProjectorHeader, SoundWindows};
use crate::llama::raw::machine_memory::installed_memory;
use crate::media::{Picture, Sound};
use crate::sync::lock;

/// The most bytes of prepared media and embeddings that are kept, and the part of the machine's
/// memory that they take at most, as a divisor.
const MAX_KEPT_BYTES: u64 = 1 << 30;
const KEPT_SHARE: u64 = 16;

/// The projector of a loaded model.
pub struct MediaEncoder {
    context: Arc<ProjectorContext>,
    header: ProjectorHeader,
    /// The most tokens of a batch of the model.
    n_batch: usize,
    /// The content of files. The one that was used last is at the end.
    kept: Mutex<Vec<KeptFile>>,
}

struct KeptFile {
    hash: [u8; 32],
    content: Arc<[MediaChunk]>,
    /// The bytes of what was prepared and of its embeddings.
    bytes: u64,
    /// The samples of a sound; 0 for a picture.
    samples: usize,
}

/// What was read of a file, with the numbers that are kept of it.
struct ReadFile {
    chunks: Vec<RawChunk>,
    numbers: u64,
    /// What encoding takes while it runs.
    encoding_bytes: u64,
    samples: usize,
}

impl MediaEncoder {
    /// Loads a projector for this model. `context` is one of the model that computes on the calling
    /// thread alone: unless the files are trusted, it decodes the embeddings of a first picture or sound.
    pub(crate) fn load(
        path: &str,
        model: &Arc<Model>,
        context: &mut LlamaContext,
        n_threads: u32,
        is_trusted: bool,
    ) -> Result<MediaEncoder> {
        let header = ProjectorHeader::read_file(Path::new(path))?;
        let n_batch = context.n_batch();
        if !is_trusted {
            let alone = Arc::new(ProjectorContext::load(path, model, 1)?);
            let tried = header
                .modalities()
                .try_for_each(|modality| try_media(&alone, modality, &header, context));
            tried.map_err(|error| match error.code() {
                Code::OutOfMemory | Code::InvalidRequest => error,
                _ => {
                    let message =
                        format!("{path}: the projector cannot be used: {}", error.message());
                    Error::new(Code::ModelInvalid, message).caused_by(error)
                }
            })?;
        }
        let context = Arc::new(ProjectorContext::load(path, model, n_threads)?);
        Ok(MediaEncoder { context, header, n_batch, kept: Mutex::default() })
    }

    /// The content of a file that was read before, if it is within the limits of this chat: another
    /// one, with other limits, may have sent it.
    fn find(
        &self,
        hash: &[u8; 32],
        modality: Modality,
        limits: &MediaLimits,
    ) -> Result<Option<Arc<[MediaChunk]>>, String> {
        let mut kept = lock(&self.kept);
        let Some(place) = kept.iter().position(|file| file.hash == *hash) else { return Ok(None) };
        if let Some(windows) = self.windows(modality) {
            Sound::check_length(kept[place].samples, windows.sample_rate(), limits)?;
        }
        let found = kept.remove(place);
        let content = Arc::clone(&found.content);
        kept.push(found);
        Ok(Some(content))
    }

    /// The windows of a file of this kind, if it is a sound.
    fn windows(&self, modality: Modality) -> Option<SoundWindows> {
        self.header.sound().filter(|_| modality == Modality::Audio)
    }

    /// Checks a file without decoding it.
    fn check(&self, modality: Modality, file: &[u8], limits: &MediaLimits) -> Result<(), String> {
        if self.windows(modality).is_some() {
            return Sound::check_file(file, limits);
        }
        let (width, height) = Picture::size(file, limits)?;
        let places = self.header.picture(width, height)?.places();
        if self.header.places_in_one_batch().is_some() && places > self.n_batch as u64 {
            return Err(format!(
                "a picture of {width}x{height} pixels, whose {places} places attend to each other, \
                 but a batch has at most {}; make it smaller, or raise n_batch",
                self.n_batch
            ));
        }
        Ok(())
    }

    fn read(
        &self,
        modality: Modality,
        file: &[u8],
        limits: &MediaLimits,
        interrupt: &Interrupt,
    ) -> Result<ReadFile, MediaError> {
        let is_over = || interrupt.is_over();
        let length = self.header.embedding_length();
        if let Some(windows) = self.windows(modality) {
            let bytes = Sound::decoding_bytes(file, windows.sample_rate(), limits);
            let _memory = self.memory(bytes, interrupt)?;
            let sound = Sound::decode(file, windows.sample_rate(), limits, &is_over);
            let sound = sound.map_err(MediaError::File)?;
            let samples = sound.samples().len();
            let sound = sound.filled(windows.filled(samples));
            let chunks = self.context.prepare_sound(&sound).map_err(MediaError::Engine)?;
            let tokens: u64 = windows.of_sound(samples).map(u64::from).sum();
            let numbers = windows.spectra_len(samples) + tokens * length;
            return Ok(ReadFile { chunks, numbers, encoding_bytes: 0, samples });
        }
        let (width, height) = Picture::size(file, limits).map_err(MediaError::File)?;
        let layout = self.header.picture(width, height).map_err(MediaError::File)?;
        let numbers = 3 * layout.pixels + layout.places() * length;
        let bytes = Picture::decoding_bytes(file, limits).map_err(MediaError::File)?;
        let bytes = bytes.saturating_add(numbers * size_of::<f32>() as u64);
        // A picture that could not be encoded need not be decoded.
        let encoding_bytes = self.header.encoding_bytes(&layout);
        let _memory = self.memory(bytes.max(encoding_bytes), interrupt)?;
        let picture = Picture::decode(file, limits, &is_over).map_err(MediaError::File)?;
        let chunks = self.context.prepare_picture(&picture).map_err(MediaError::Engine)?;
        Ok(ReadFile { chunks, numbers, encoding_bytes, samples: 0 })
    }

    /// Waits for memory to read a file. Files that are kept make room for it.
    fn memory(&self, bytes: u64, interrupt: &Interrupt) -> Result<ReadingMemory, MediaError> {
        let make_room = || lock(&self.kept).clear();
        ReadingMemory::take(bytes, &|| interrupt.is_over(), &make_room)
    }
}

/// The most bytes of prepared media and embeddings that are kept on this machine.
fn most_kept() -> u64 {
    installed_memory().map_or(MAX_KEPT_BYTES, |memory| MAX_KEPT_BYTES.min(memory / KEPT_SHARE))
}

impl MediaReader for MediaEncoder {
    fn takes(&self, modality: Modality) -> bool {
        self.header.modalities().any(|taken| taken == modality)
    }

    fn content(
        &self,
        modality: Modality,
        file: &[u8],
        limits: &MediaLimits,
        interrupt: &Interrupt,
    ) -> Result<Arc<[MediaChunk]>, MediaError> {
        self.check(modality, file, limits).map_err(MediaError::File)?;
        let hash: [u8; 32] = Sha256::digest(file).into();
        let find = || self.find(&hash, modality, limits).map_err(MediaError::File);
        if let Some(content) = find()? {
            return Ok(content);
        }
        let ReadFile { chunks, numbers, encoding_bytes, samples } =
            self.read(modality, file, limits, interrupt)?;
        let content =
            content_of(&self.context, chunks, encoding_bytes).map_err(MediaError::Engine)?;
        // Another thread may have decoded the same file meanwhile.
        if let Some(content) = find()? {
            return Ok(content);
        }
        let mut kept = lock(&self.kept);
        let content: Arc<[MediaChunk]> = content.into();
        let bytes = numbers * size_of::<f32>() as u64;
        kept.push(KeptFile { hash, content: Arc::clone(&content), bytes, samples });
        let most = most_kept();
        while kept.len() > 1 && kept.iter().map(|file| file.bytes).sum::<u64>() > most {
            kept.remove(0);
        }
        Ok(content)
    }
}

fn content_of(
    context: &Arc<ProjectorContext>,
    chunks: Vec<RawChunk>,
    encoding_bytes: u64,
) -> Result<Vec<MediaChunk>> {
    let chunk = |chunk| match chunk {
        RawChunk::Tokens(tokens) if tokens.iter().any(|token| *token < 0) => {
            let problem = "the model lacks a token that media of this projector need";
            Err(Error::new(Code::ModelInvalid, problem))
        }
        RawChunk::Tokens(tokens) => Ok(MediaChunk::Tokens(tokens)),
        RawChunk::Media { chunk, len, is_causal, rotations } => {
            let source = ChunkSource { context: Arc::clone(context), chunk, len, encoding_bytes };
            let piece = MediaPiece::new(len, is_causal, Box::new(source));
            Ok(MediaChunk::Piece(Arc::new(piece.with_rotations(rotations))))
        }
    };
    chunks.into_iter().map(chunk).collect()
}

/// Encodes a picture or a sound and decodes its embeddings, on the calling thread. Of several tiles,
/// which are alike, it takes the first one.
fn try_media(
    projector: &Arc<ProjectorContext>,
    modality: Modality,
    header: &ProjectorHeader,
    context: &mut LlamaContext,
) -> Result<()> {
    const SIDE: u32 = 16;
    let sound = header.sound().filter(|_| modality == Modality::Audio);
    let chunks = if let Some(windows) = sound {
        let samples = (0..windows.sample_rate()).map(|at| (at % 97) as f32 / 97.0 - 0.5);
        projector.prepare_sound(&Sound::new(samples.collect()))?
    } else {
        let rgb = (0..SIDE * SIDE * 3).map(|value| (value % 251) as u8).collect();
        projector.prepare_picture(&Picture { width: SIDE, height: SIDE, rgb })?
    };
    let content = content_of(projector, chunks, 0)?;
    let piece = content.iter().find_map(|chunk| match chunk {
        MediaChunk::Piece(piece) => Some(piece),
        MediaChunk::Tokens(_) => None,
    });
    let Some(piece) = piece else { return Ok(()) };
    let (len, n_batch) = (piece.len(), context.n_batch());
    if !piece.is_causal() && len > n_batch {
        let problem = format!(
            "{n_batch} is too small for the projector, whose pictures have {len} tokens that \
             attend to each other; set it to {len} or more"
        );
        return Err(Error::invalid("n_batch", problem));
    }
    let rows = piece.embeddings(&|| false)?.unwrap_or_default();
    let count = len.min(n_batch).min(context.n_ctx());
    if count < len && !piece.is_causal() {
        return Ok(());
    }
    let batch = EmbeddingBatch {
        rows: &rows[..count * (rows.len() / len)],
        start: 0,
        count,
        sequence: 0,
        position: 0,
        is_causal: piece.is_causal(),
        rotations: piece.rotations(),
    };
    context.decode_embeddings(&batch, &|| false)?;
    context.truncate(0, 0);
    Ok(())
}

/// Encodes a prepared chunk.
struct ChunkSource {
    context: Arc<ProjectorContext>,
    chunk: EncoderChunk,
    len: usize,
    encoding_bytes: u64,
}

impl MediaSource for ChunkSource {
    fn encode(&mut self, abort: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>> {
        // Waiting would hold up all chats of the model.
        let _memory = ReadingMemory::take_now(self.encoding_bytes)?;
        self.context.encode(&self.chunk, self.len, abort)
    }
}
