//! The projector of a model: media files to pieces of a prompt, with llama.cpp's library mtmd.
//!
//! In: the bytes of a file. Out: tokens and pieces whose embeddings are computed on first use. The
//! content of the last files is kept by their hash, with the embeddings: a file that is sent again
//! is neither decoded nor encoded again, and its pieces are those of the prefix cache.

mod context;
mod memory;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use self::context::{EncoderChunk, ProjectorContext, RawChunk};
pub(super) use self::memory::memory_rows;
use super::context::{LlamaContext, Model};
use crate::api::MediaLimits;
use crate::engine::{
    Backend, EmbeddingBatch, MediaChunk, MediaError, MediaPiece, MediaReader, MediaSource,
};
use crate::error::{Code, Error, Result};
use crate::gguf::ProjectorHeader;
use crate::media::Picture;
use crate::sync::lock;

/// The most bytes of prepared pictures and embeddings that are kept.
const MAX_KEPT_BYTES: u64 = 1 << 30;

/// The projector of a loaded model.
pub struct MediaEncoder {
    context: Arc<ProjectorContext>,
    header: ProjectorHeader,
    /// The content of files. The one that was used last is at the end.
    kept: Mutex<Vec<KeptFile>>,
}

struct KeptFile {
    hash: [u8; 32],
    content: Arc<[MediaChunk]>,
    /// The bytes of the prepared picture and its embeddings.
    bytes: u64,
}

impl MediaEncoder {
    /// Loads a projector for this model. `context` is one of the model that computes on the calling
    /// thread alone: unless the files are trusted, it decodes the embeddings of a first picture.
    pub(crate) fn load(
        path: &str,
        model: &Arc<Model>,
        context: &mut LlamaContext,
        n_threads: u32,
        is_trusted: bool,
    ) -> Result<MediaEncoder> {
        let header = ProjectorHeader::read_file(Path::new(path))?;
        if !is_trusted {
            let alone = Arc::new(ProjectorContext::load(path, model, 1)?);
            try_picture(&alone, context).map_err(|error| match error.code() {
                Code::OutOfMemory | Code::InvalidRequest => error,
                _ => {
                    let message =
                        format!("{path}: the projector cannot be used: {}", error.message());
                    Error::new(Code::ModelInvalid, message).caused_by(error)
                }
            })?;
        }
        let context = Arc::new(ProjectorContext::load(path, model, n_threads)?);
        Ok(MediaEncoder { context, header, kept: Mutex::default() })
    }

    fn find(&self, hash: &[u8; 32]) -> Option<Arc<[MediaChunk]>> {
        let mut kept = lock(&self.kept);
        let place = kept.iter().position(|file| file.hash == *hash)?;
        let found = kept.remove(place);
        let content = Arc::clone(&found.content);
        kept.push(found);
        Some(content)
    }
}

impl MediaReader for MediaEncoder {
    fn content(&self, file: &[u8], limits: &MediaLimits) -> Result<Arc<[MediaChunk]>, MediaError> {
        // Another chat of the model, with other limits, may have sent it before.
        let (width, height) = Picture::size(file, limits).map_err(MediaError::File)?;
        let layout = self.header.picture(width, height).map_err(MediaError::File)?;
        let hash: [u8; 32] = Sha256::digest(file).into();
        if let Some(content) = self.find(&hash) {
            return Ok(content);
        }
        let picture = Picture::decode(file, limits).map_err(MediaError::File)?;
        let content = content_of(&self.context, &picture).map_err(MediaError::Engine)?;
        // Another thread may have decoded the same file meanwhile.
        if let Some(content) = self.find(&hash) {
            return Ok(content);
        }
        let mut kept = lock(&self.kept);
        let content: Arc<[MediaChunk]> = content.into();
        let numbers = 3 * layout.pixels + layout.places() * self.header.embedding_length();
        let bytes = numbers * size_of::<f32>() as u64;
        kept.push(KeptFile { hash, content: Arc::clone(&content), bytes });
        while kept.len() > 1 && kept.iter().map(|file| file.bytes).sum::<u64>() > MAX_KEPT_BYTES {
            kept.remove(0);
        }
        Ok(content)
    }
}

fn content_of(context: &Arc<ProjectorContext>, picture: &Picture) -> Result<Vec<MediaChunk>> {
    let chunk = |chunk| match chunk {
        RawChunk::Tokens(tokens) if tokens.iter().any(|token| *token < 0) => {
            let problem = "the model lacks a token that pictures of this projector need";
            Err(Error::new(Code::ModelInvalid, problem))
        }
        RawChunk::Tokens(tokens) => Ok(MediaChunk::Tokens(tokens)),
        RawChunk::Media { chunk, len, is_causal, rotations } => {
            let source = PictureSource { context: Arc::clone(context), chunk, len };
            let piece = MediaPiece::new(len, is_causal, Box::new(source));
            Ok(MediaChunk::Piece(Arc::new(piece.with_rotations(rotations))))
        }
    };
    context.prepare(picture)?.into_iter().map(chunk).collect()
}

/// Encodes a picture and decodes its embeddings, on the calling thread. Of several tiles, which are
/// alike, it takes the first one.
fn try_picture(projector: &Arc<ProjectorContext>, context: &mut LlamaContext) -> Result<()> {
    const SIDE: u32 = 16;
    let rgb = (0..SIDE * SIDE * 3).map(|value| (value % 251) as u8).collect();
    let content = content_of(projector, &Picture { width: SIDE, height: SIDE, rgb })?;
    let piece = content.iter().find_map(|chunk| match chunk {
        MediaChunk::Piece(piece) => Some(piece),
        MediaChunk::Tokens(_) => None,
    });
    let Some(piece) = piece else { return Ok(()) };
    let (len, n_batch) = (piece.len(), context.n_batch());
    if !piece.is_causal() && len > n_batch {
        let problem = format!(
            "{n_batch} is too small for the projector, whose pictures have {len} tokens that attend to each other; set it to {len} or more"
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

/// Encodes a prepared picture.
struct PictureSource {
    context: Arc<ProjectorContext>,
    chunk: EncoderChunk,
    len: usize,
}

impl MediaSource for PictureSource {
    fn encode(&mut self, abort: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>> {
        self.context.encode(&self.chunk, self.len, abort)
    }
}
