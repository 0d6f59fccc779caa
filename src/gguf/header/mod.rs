//! `ModelHeader`: the facts that a model file states, without its weights.
//!
//! In: a path or a source. Out: architecture, sizes, templates, token texts, and diagnostics about
//! problems that do not prevent reading. Only little-endian GGUF files of version 2 or 3 with an
//! architecture are accepted.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::path::Path;

use super::file_part::FilePart;
use super::metadata::{CONTROL, Metadata, USER_DEFINED};
use super::quantization::{file_type, tensor_type};
use super::reader::Cursor;
use super::split::{MissingParts, PartName, Split, later_part_error};
use super::tensors::TensorTable;
use super::value::GgufValue;
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};
use crate::regular_file;

const TEMPLATE_KEY: &str = "tokenizer.chat_template";
const TOOL_USE_KEY: &str = "tokenizer.chat_template.tool_use";

/// The header of a model.
pub struct ModelHeader {
    metadata: Metadata,
    /// Sums over all present parts.
    tensors: TensorTable,
    file_size: u64,
    tensor_data_end: u64,
    /// The number of bytes after the tensors, in all present parts.
    trailing_bytes: u64,
    bos_token: Option<String>,
    eos_token: Option<String>,
    diagnostics: Vec<Diagnostic>,
}

impl ModelHeader {
    /// Reads the header of a file. For the first part of a split model, the headers of the other
    /// parts in the folder are read too.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND` if the path is not a readable file. `MODEL_INVALID` with the byte offset
    /// if the file, or a later part of a split model, is invalid.
    pub fn read_file(path: &Path) -> Result<ModelHeader> {
        let (file, size) = open(path)?;
        let mut header =
            ModelHeader::read_whole(file, size).map_err(|error| error.about(path.display()))?;
        let Some(split) = Split::from_metadata(&header.metadata) else { return Ok(header) };
        let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match PartName::parse(file_name) {
            _ if split.no != 0 => return Err(later_part_error(split, PartName::parse(file_name)).about(path.display())),
            Some(name) if name.number == 1 && name.count == split.count => header.add_parts(path, &name, split)?,
            _ => header.report(
                "split_name",
                format!(
                    "the file is part 1 of {}, but {file_name:?} is not named NAME-00001-of-{:05}.gguf, so the other \
                     parts cannot be found; rename it",
                    split.count, split.count
                ),
            ),
        }
        Ok(header)
    }

    /// Reads the header of one file of `file_size` bytes; for a split model, of the first part
    /// only.
    ///
    /// # Errors
    /// `MODEL_INVALID` with the byte offset.
    pub fn read(source: impl Read + Seek, file_size: u64) -> Result<ModelHeader> {
        let mut header = ModelHeader::read_whole(source, file_size)?;
        if let Some(split) = Split::from_metadata(&header.metadata) {
            if split.no != 0 {
                return Err(later_part_error(split, None));
            }
            header.report("split_parts_unread", format!("only part 1 of {} was read", split.count));
        }
        Ok(header)
    }

    fn read_whole(source: impl Read + Seek, file_size: u64) -> Result<ModelHeader> {
        let mut cursor = Cursor::new(source, file_size);
        let part = FilePart::read(&mut cursor)?;
        let mut header = ModelHeader {
            tensor_data_end: part.data_end.unwrap_or(0),
            metadata: part.metadata,
            tensors: part.tensors,
            trailing_bytes: part.data_end.map_or(0, |end| file_size.saturating_sub(end)),
            file_size,
            bos_token: None,
            eos_token: None,
            diagnostics: part.diagnostics,
        };
        let is_later_part =
            Split::from_metadata(&header.metadata).is_some_and(|split| split.no != 0);
        if header.architecture().is_empty() && !is_later_part {
            return Err(Error::new(
                Code::ModelInvalid,
                "the metadata has no general.architecture: llama.cpp cannot load it",
            ));
        }
        header.bos_token = header.token(&mut cursor, "tokenizer.ggml.bos_token_id")?;
        header.eos_token = header.token(&mut cursor, "tokenizer.ggml.eos_token_id")?;
        for key in [TEMPLATE_KEY, TOOL_USE_KEY] {
            if header.metadata.contains(key) && header.metadata.str(key).is_none() {
                header
                    .report("chat_template_type", format!("{key} is not a string and is not used"));
            }
        }
        Ok(header)
    }

    /// Reads the parts after the first, and adds their sums to those of the first.
    fn add_parts(&mut self, first: &Path, name: &PartName<'_>, split: Split) -> Result<()> {
        let mut missing = MissingParts::default();
        for number in 2..=split.count {
            let file_name = name.of_part(number);
            let (file, size) = match regular_file::open(&first.with_file_name(&file_name)) {
                Ok((file, metadata)) => (file, metadata.len()),
                Err(error) => {
                    missing.add(file_name, &error);
                    continue;
                }
            };
            let part = FilePart::read(&mut Cursor::new(file, size)).map_err(|error| {
                Error::new(Code::ModelInvalid, format!("{file_name}: {}", error.message()))
                    .caused_by(error)
            })?;
            let part_split = Split::from_metadata(&part.metadata);
            if part_split.is_none_or(|part_split| {
                part_split.no != number - 1 || part_split.count != split.count
            }) {
                self.report(
                    "split_part_mismatch",
                    format!(
                        "the metadata of {file_name} does not make it part {number} of {}",
                        split.count
                    ),
                );
            }
            self.diagnostics.extend(part.diagnostics.into_iter().map(|diagnostic| {
                Diagnostic::new(diagnostic.code, format!("{file_name}: {}", diagnostic.message))
            }));
            self.tensors.add(part.tensors);
            self.file_size = self.file_size.saturating_add(size);
            let trailing = part.data_end.map_or(0, |end| size.saturating_sub(end));
            self.trailing_bytes = self.trailing_bytes.saturating_add(trailing);
        }
        if let Some(message) = missing.message(split.count) {
            self.report("split_part_missing", message);
        } else if split.tensors.is_some_and(|tensors| tensors != self.tensors.count) {
            self.report(
                "split_tensor_count",
                format!(
                    "the parts have {} tensors, but split.tensors.count is {}",
                    self.tensors.count,
                    split.tensors.unwrap_or(0)
                ),
            );
        }
        Ok(())
    }

    fn token<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        key: &str,
    ) -> Result<Option<String>> {
        // Some converters write -1 in an unsigned field to mean "none".
        let Some(id) = self.metadata.u64(key).filter(|id| *id != u64::from(u32::MAX)) else {
            return Ok(None);
        };
        let token = self.metadata.token(cursor, id)?;
        if let (None, Some(n_tokens)) = (&token, self.metadata.n_tokens()) {
            self.report("token_id", format!("{key} is {id}, but there are {n_tokens} tokens"));
        }
        Ok(token)
    }

    fn report(&mut self, code: &'static str, message: String) {
        self.diagnostics.push(Diagnostic::new(code, message));
    }

    /// Reads the texts of the control tokens from a file's vocabulary; a header does not keep them.
    /// For a split model, the first part is read. Empty if the file has no token types.
    ///
    /// # Errors
    /// As for [`ModelHeader::read_file`].
    pub fn control_tokens(path: &Path) -> Result<Vec<String>> {
        ModelHeader::tokens_of_types(path, &[CONTROL])
    }

    /// Like [`control_tokens`](Self::control_tokens), but includes the user-defined tokens.
    ///
    /// # Errors
    /// As for [`ModelHeader::read_file`].
    pub fn special_tokens(path: &Path) -> Result<Vec<String>> {
        ModelHeader::tokens_of_types(path, &[CONTROL, USER_DEFINED])
    }

    fn tokens_of_types(path: &Path, types: &[u32]) -> Result<Vec<String>> {
        /// Enlarged vocabularies have several thousand unused tokens.
        const MAX: usize = 65_536;
        let (file, size) = open(path)?;
        let mut cursor = Cursor::new(file, size);
        let read = FilePart::read(&mut cursor)
            .and_then(|part| part.metadata.tokens_of_types(&mut cursor, types, MAX));
        read.map_err(|error| error.about(path.display()))
    }

    /// The value of `general.architecture`.
    pub fn architecture(&self) -> &str {
        self.metadata.str("general.architecture").unwrap_or_default()
    }

    /// The value of `general.name`.
    pub fn name(&self) -> Option<&str> {
        self.metadata.str("general.name")
    }

    /// The value of `general.license`.
    pub fn license(&self) -> Option<&str> {
        self.metadata.str("general.license")
    }

    /// The number of elements of all tensors in all present parts.
    pub fn n_params(&self) -> u64 {
        self.tensors.elements
    }

    /// The number of tensors in all present parts.
    pub fn n_tensors(&self) -> u64 {
        self.tensors.count
    }

    /// The bytes from the first tensor of a file to the end of its last one; 0 if a tensor type is
    /// unknown.
    #[cfg(feature = "engine")]
    pub(crate) fn tensor_bytes(&self) -> u64 {
        self.tensors.data_bytes.unwrap_or(0)
    }

    /// The size of all present parts in bytes.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// The size that the first file must have to contain its tensors, in bytes; 0 if a tensor type
    /// is unknown.
    pub fn tensor_data_end(&self) -> u64 {
        self.tensor_data_end
    }

    /// The number of bytes after the tensors, in all present parts. No reader needs them. 0 if a
    /// tensor type is unknown.
    pub fn trailing_bytes(&self) -> u64 {
        self.trailing_bytes
    }

    /// Fails if tensors are missing, because a file is truncated or a part is absent. A loader must
    /// not open such files.
    ///
    /// # Errors
    /// `MODEL_INVALID`.
    pub fn check_complete(&self) -> Result<()> {
        let problem = |code: &str| self.diagnostics.iter().find(|problem| problem.code == code);
        let message = if let Some(cut) = problem("file_truncated") {
            format!("the file is cut short: {}; download it again", cut.message)
        } else if let Some(missing) = problem("split_part_missing").or(problem("split_name")) {
            missing.message.clone()
        } else {
            return Ok(());
        };
        Err(Error::new(Code::ModelInvalid, message))
    }

    /// Names and shapes of the tensors in this file, in its order. Missing extents are 1.
    #[cfg(feature = "engine")]
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (&str, &[u64; 4])> {
        self.tensors.list.iter().map(|tensor| (tensor.name.as_str(), &tensor.shape))
    }

    /// Names and sizes of the tensors in all present parts. The size is 0 if the type is unknown.
    #[cfg(feature = "engine")]
    pub(crate) fn tensor_sizes(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tensors.list.iter().map(|tensor| (tensor.name.as_str(), tensor.bytes))
    }

    /// Whether a token may use an expert twice: by a table of experts in the file, or because several
    /// experts share another one.
    #[cfg(feature = "engine")]
    pub(crate) fn repeats_experts(&self) -> bool {
        let repeats = |name: &str| name.contains(".ffn_gate_tid2eid.") || name.contains("_chexps.");
        self.shapes().any(|(name, _)| repeats(name))
    }

    /// The ggml numbers of the tensor types.
    pub fn tensor_types(&self) -> impl Iterator<Item = u32> {
        self.tensors.elements_by_type.keys().copied()
    }

    /// The quantization: a name such as `Q4_K_M` from `general.file_type`, or else the tensor type
    /// of most elements, or else `unknown`.
    pub fn quantization(&self) -> String {
        let from_key = self.metadata.u64("general.file_type").and_then(file_type);
        let from_tensors = || {
            let most =
                self.tensors.elements_by_type.iter().max_by_key(|(_, elements)| **elements)?;
            tensor_type(*most.0).map(|tensor_type| tensor_type.name)
        };
        from_key.or_else(from_tensors).unwrap_or("unknown").to_owned()
    }

    /// The context length that the model was trained for, in tokens.
    pub fn context_length(&self) -> Option<u64> {
        self.architecture_value("context_length")?.as_u64()
    }

    /// The context length in tokens, including what its rope scaling adds. The file of a model that
    /// was extended later may state the length before the extension.
    pub fn extended_context_length(&self) -> Option<u64> {
        let trained = self.context_length().filter(|tokens| *tokens > 0)?;
        let scaling = |key| self.architecture_value(key).and_then(GgufValue::as_f64);
        let original = scaling("rope.scaling.original_context_length").unwrap_or(0.0);
        let extended = original * scaling("rope.scaling.factor").unwrap_or(1.0);
        Some(trained.max(extended as u64))
    }

    /// The number of learned positions. The model cannot use any others. `None` for models that
    /// compute positions.
    pub fn learned_positions(&self) -> Option<u64> {
        self.tensors.positions
    }

    /// The width of the residual stream.
    pub fn embedding_length(&self) -> Option<u64> {
        self.architecture_value("embedding_length")?.as_u64()
    }

    /// The length of an embedding that a projector computes for the model: some take the states of
    /// several layers of the encoder.
    pub fn input_length(&self) -> Option<u64> {
        let states = self.architecture_value("n_deepstack_layers").and_then(GgufValue::as_u64);
        self.embedding_length()?.checked_mul(states.unwrap_or(0).checked_add(1)?)
    }

    /// The number of layers.
    pub fn block_count(&self) -> Option<u64> {
        self.architecture_value("block_count")?.as_u64()
    }

    /// The value of a key whose prefix is the architecture's name.
    pub(super) fn architecture_value(&self, key: &str) -> Option<&GgufValue> {
        self.metadata.get(&format!("{}.{key}", self.architecture()))
    }

    /// The key-value table; for a split model, that of the first part.
    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The sums over the tensor tables of all present parts.
    pub(super) fn tensors(&self) -> &TensorTable {
        &self.tensors
    }

    /// The number of tokens in the vocabulary; `None` without a vocabulary.
    pub(super) fn n_tokens(&self) -> Option<u64> {
        self.metadata.n_tokens()
    }

    /// The text of the token that begins a sequence.
    pub fn bos_token(&self) -> Option<&str> {
        self.bos_token.as_deref()
    }

    /// The text of the token that ends a sequence.
    pub fn eos_token(&self) -> Option<&str> {
        self.eos_token.as_deref()
    }

    /// The default chat template.
    pub fn chat_template(&self) -> Option<&str> {
        self.metadata.str(TEMPLATE_KEY)
    }

    /// The chat template for requests with tools.
    pub fn tool_use_template(&self) -> Option<&str> {
        self.metadata.str(TOOL_USE_KEY)
    }

    /// The names of the chat templates: `default` first, then the others in alphabetical order.
    pub fn template_names(&self) -> Vec<&str> {
        self.metadata.template_names()
    }

    /// The keys that begin with `prefix`, in alphabetical order. Includes keys for which
    /// [`ModelHeader::get`] has no value.
    pub fn keys<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.metadata.keys(prefix)
    }

    /// A metadata value. Available are all scalars, strings up to 64 KiB, templates of any length,
    /// integer arrays of up to 1,024 elements, and the short strings at the start of an array in
    /// `general.`.
    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.metadata.get(key)
    }

    /// Problems that did not prevent reading.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

/// Opens a regular file and returns its size.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    match regular_file::open(path) {
        Ok((file, metadata)) => Ok((file, metadata.len())),
        Err(error) => Err(unusable(path, error)),
    }
}

/// The error for a path at which no regular file can be opened.
pub(crate) fn unusable(path: &Path, error: std::io::Error) -> Error {
    if path.as_os_str().is_empty() {
        let message = "the path is empty; pass the path of a GGUF file";
        return Error::new(Code::ModelNotFound, message);
    }
    let problem = match error.kind() {
        ErrorKind::NotFound => "no such file".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    let message = format!("{}: {problem}", path.display());
    Error::new(Code::ModelNotFound, message).caused_by(error)
}
