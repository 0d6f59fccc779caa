//! The reply of `llb_embed`, in the shape of OpenAI's embeddings API. Each computed vector is cut,
//! scaled to length 1, and written as JSON at once, so a reply takes the memory of its text.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Serialize;

use super::texts::TruncatedText;
use crate::api::{EmbedRequest, Pooling, VectorEncoding};
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};

/// The most numbers in a reply, and with base64, whose numbers take a third of the bytes.
const MAX_NUMBERS: usize = 8 << 20;
const MAX_BASE64_NUMBERS: usize = 3 * MAX_NUMBERS;

/// The most bytes of a number and its comma, such as `-0.000012345678,`.
const NUMBER_BYTES: usize = 17;
/// The most bytes of an item without its vectors.
const ITEM_BYTES: usize = 80;
/// The bytes of most replies without their items.
const FRAME_BYTES: usize = 1024;

/// How the vectors of a reply are cut, scaled and written.
#[derive(Debug, Clone, Copy)]
pub(super) struct VectorForm {
    /// The length of a computed vector.
    width: usize,
    /// How many of its numbers are kept.
    length: usize,
    normalize: bool,
    encoding: VectorEncoding,
    /// Whether a text has a vector for each of its tokens.
    of_tokens: bool,
}

impl VectorForm {
    /// The form that a request wants for vectors of `width` numbers.
    pub(super) fn of(request: &EmbedRequest, width: usize, pooling: Pooling) -> VectorForm {
        let of_tokens = pooling == Pooling::None;
        VectorForm {
            width,
            length: request.dimensions.unwrap_or(width),
            normalize: request.normalize.unwrap_or(!of_tokens),
            encoding: request.encoding,
            of_tokens,
        }
    }

    /// Cuts and scales a computed vector.
    fn finish(self, computed: &[f32], vector: &mut Vec<f32>) {
        vector.clear();
        vector.extend(computed.iter().take(self.length));
        if self.normalize {
            bring_to_length_one(vector);
        }
    }

    /// The most bytes of the items of texts with this many tokens in all. `INVALID_REQUEST` if they
    /// would have more numbers than a reply may have.
    fn bytes(self, n_texts: usize, n_tokens: usize) -> Result<usize> {
        let n_vectors = if self.of_tokens { n_tokens } else { n_texts };
        let numbers = n_vectors.saturating_mul(self.length);
        let (most, hint) = match self.encoding {
            VectorEncoding::Float => (MAX_NUMBERS, ", or ask for base64"),
            VectorEncoding::Base64 => (MAX_BASE64_NUMBERS, ""),
        };
        if numbers > most {
            let problem = format!(
                "the reply would have {numbers} numbers, more than {most}; send fewer texts in one \
                 call{hint}"
            );
            return Err(Error::invalid("input", problem));
        }
        let of_vector = match self.encoding {
            VectorEncoding::Float => self.length * NUMBER_BYTES,
            VectorEncoding::Base64 => (self.length * size_of::<f32>()).div_ceil(3) * 4,
        };
        // Brackets or quotes, and a comma.
        Ok(n_texts * ITEM_BYTES + n_vectors * (of_vector + 3))
    }
}

/// Token counts under OpenAI's names.
#[derive(Serialize)]
pub(super) struct EmbedUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl EmbedUsage {
    pub(super) fn of(n_tokens: usize) -> EmbedUsage {
        EmbedUsage { prompt_tokens: n_tokens, total_tokens: n_tokens }
    }
}

/// The time, under the names used in a chat's reply.
#[derive(Serialize)]
pub(super) struct EmbedTimings {
    prompt_ms: f64,
    prompt_per_second: f64,
}

impl EmbedTimings {
    pub(super) fn of(took: Duration, n_tokens: usize) -> EmbedTimings {
        let seconds = took.as_secs_f64();
        let prompt_per_second = if seconds > 0.0 { n_tokens as f64 / seconds } else { 0.0 };
        EmbedTimings { prompt_ms: seconds * 1000.0, prompt_per_second }
    }
}

/// What a reply says besides its vectors.
pub(crate) struct EmbedSummary {
    /// The total number of tokens in all texts.
    pub(crate) n_tokens: usize,
    /// The texts that were cut because they were too long.
    pub(crate) truncated: Vec<TruncatedText>,
    /// The pooling that was used.
    pub(crate) pooling: Pooling,
    /// The time of the call, without waiting for earlier calls.
    pub(crate) took: Duration,
    /// What the caller should know about the model.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The unknown members of the request, by path.
    pub(crate) ignored_keys: Vec<String>,
}

/// A finished reply of `llb_embed`.
#[derive(Debug)]
pub struct EmbedResponse {
    json: Vec<u8>,
}

impl EmbedResponse {
    /// The reply object of the ABI, as JSON text.
    pub fn into_json(self) -> Vec<u8> {
        self.json
    }
}

/// Receives the vectors of one text after another.
pub(super) trait VectorSink {
    /// Adds the vector of the next text, or one vector for each of its tokens.
    ///
    /// # Errors
    /// `INFERENCE_FAILED` if a number is not finite.
    fn push(&mut self, computed: &[f32]) -> Result<()>;
}

/// `INFERENCE_FAILED` if a number of the text at this index is not finite.
fn check_finite(index: usize, computed: &[f32]) -> Result<()> {
    if computed.iter().all(|number| number.is_finite()) {
        return Ok(());
    }
    let message = format!(
        "input[{index}]: the model computed numbers that are not finite; its weights may be damaged"
    );
    Err(Error::new(Code::InferenceFailed, message))
}

/// The vectors of texts as numbers.
pub(super) struct VectorList {
    form: VectorForm,
    vectors: Vec<Vec<f32>>,
}

impl VectorList {
    /// Begins a list.
    ///
    /// # Errors
    /// `INVALID_REQUEST` if there would be too many numbers.
    pub(super) fn begin(form: VectorForm, n_texts: usize, n_tokens: usize) -> Result<VectorList> {
        // Four bytes for each number, as in base64.
        let form = VectorForm { encoding: VectorEncoding::Base64, ..form };
        form.bytes(n_texts, n_tokens)?;
        Ok(VectorList { form, vectors: Vec::with_capacity(n_texts) })
    }

    /// The vectors of each text, one after another.
    pub(super) fn into_vectors(self) -> Vec<Vec<f32>> {
        self.vectors
    }
}

impl VectorSink for VectorList {
    fn push(&mut self, computed: &[f32]) -> Result<()> {
        check_finite(self.vectors.len(), computed)?;
        let n_vectors = if self.form.of_tokens { computed.len() / self.form.width } else { 1 };
        let (mut vector, mut all) = (Vec::new(), Vec::with_capacity(n_vectors * self.form.length));
        for computed in computed.chunks_exact(self.form.width).take(n_vectors) {
            self.form.finish(computed, &mut vector);
            all.extend_from_slice(&vector);
        }
        self.vectors.push(all);
        Ok(())
    }
}

/// A reply whose items are written one after another, while later texts are computed.
pub(super) struct EmbedWriter {
    json: Vec<u8>,
    form: VectorForm,
    n_items: usize,
    /// The vector that is being written.
    vector: Vec<f32>,
}

impl EmbedWriter {
    /// Begins a reply with vectors of texts. Takes its memory at once.
    ///
    /// # Errors
    /// `INVALID_REQUEST` if there would be too many numbers, and `OUT_OF_MEMORY`.
    pub(super) fn begin(
        model: &str,
        form: VectorForm,
        n_texts: usize,
        n_tokens: usize,
    ) -> Result<EmbedWriter> {
        #[derive(Serialize)]
        struct EmbedHead<'a> {
            r#type: &'static str,
            object: &'static str,
            model: &'a str,
        }
        let bytes = form.bytes(n_texts, n_tokens)? + FRAME_BYTES;
        let mut json = Vec::new();
        json.try_reserve_exact(bytes).map_err(|error| {
            let message = format!("a reply of {} MiB: {error}; send fewer texts", bytes >> 20);
            Error::new(Code::OutOfMemory, message).caused_by(error)
        })?;
        write(&mut json, &EmbedHead { r#type: "embeddings", object: "list", model })?;
        // The closing brace is removed, and `data` follows.
        json.pop();
        json.extend_from_slice(b",\"data\":[");
        Ok(EmbedWriter { json, form, n_items: 0, vector: Vec::new() })
    }

    fn write_vector(&mut self, computed: &[f32]) -> Result<()> {
        self.form.finish(computed, &mut self.vector);
        match self.form.encoding {
            VectorEncoding::Float => write(&mut self.json, &self.vector),
            VectorEncoding::Base64 => write(&mut self.json, &base64_of(&self.vector)),
        }
    }

    /// Ends the reply.
    pub(super) fn end(mut self, summary: &EmbedSummary) -> Result<EmbedResponse> {
        #[derive(Serialize)]
        struct EmbedTail<'a> {
            usage: EmbedUsage,
            pooling: &'static str,
            dimensions: usize,
            truncated: &'a [TruncatedText],
            timings: EmbedTimings,
            #[serde(skip_serializing_if = "<[Diagnostic]>::is_empty")]
            diagnostics: &'a [Diagnostic],
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            ignored_keys: &'a [String],
        }
        let tail = EmbedTail {
            usage: EmbedUsage::of(summary.n_tokens),
            pooling: summary.pooling.as_str(),
            dimensions: self.form.length,
            truncated: &summary.truncated,
            timings: EmbedTimings::of(summary.took, summary.n_tokens),
            diagnostics: &summary.diagnostics,
            ignored_keys: &summary.ignored_keys,
        };
        self.json.extend_from_slice(b"],");
        let opened = self.json.len();
        write(&mut self.json, &tail)?;
        // The opening brace of the tail. What follows it is short.
        self.json.remove(opened);
        Ok(EmbedResponse { json: self.json })
    }
}

/// Writes the item of each text.
impl VectorSink for EmbedWriter {
    fn push(&mut self, computed: &[f32]) -> Result<()> {
        let index = self.n_items;
        check_finite(index, computed)?;
        if index > 0 {
            self.json.push(b',');
        }
        self.n_items += 1;
        let head = format!("{{\"object\":\"embedding\",\"index\":{index},\"embedding\":");
        self.json.extend_from_slice(head.as_bytes());
        let vectors = computed.chunks_exact(self.form.width);
        if self.form.of_tokens {
            self.json.push(b'[');
            for (number, vector) in vectors.enumerate() {
                if number > 0 {
                    self.json.push(b',');
                }
                self.write_vector(vector)?;
            }
            self.json.push(b']');
        } else {
            self.write_vector(vectors.take(1).next().unwrap_or_default())?;
        }
        self.json.push(b'}');
        Ok(())
    }
}

fn write(json: &mut Vec<u8>, value: &impl Serialize) -> Result<()> {
    let written = serde_json::to_writer(json, value);
    written.map_err(|error| Error::new(Code::InternalBridgeError, error.to_string()))
}

/// Scales a vector to length 1. A vector of zeros does not change.
fn bring_to_length_one(vector: &mut [f32]) {
    let length = vector.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|number| *number = (f64::from(*number) / length) as f32);
    }
}

/// Base64 (RFC 4648, with padding) of little-endian 32-bit floats, as OpenAI writes vectors.
fn base64_of(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_python() {
        // From `base64.b64encode(struct.pack('<3f', 1.0, -2.5, 0.1))` and shorter lists, CPython
        // 3.11.
        assert_eq!(base64_of(&[1.0, -2.5, 0.1]), "AACAPwAAIMDNzMw9");
        assert_eq!(base64_of(&[1.0, -2.5]), "AACAPwAAIMA=");
        assert_eq!(base64_of(&[1.0]), "AACAPw==");
        assert_eq!(base64_of(&[]), "");
    }

    #[track_caller]
    fn check_bytes(form: VectorForm, (n_texts, n_tokens): (usize, usize), vector: &[f32]) {
        let most = form.bytes(n_texts, n_tokens).expect("not too many");
        let mut reply = EmbedWriter::begin("m", form, n_texts, n_tokens).expect("there is memory");
        let (begun, room) = (reply.json.len(), reply.json.capacity());
        assert!(room >= most + begun, "{room} bytes");
        let n_vectors = if form.of_tokens { n_tokens / n_texts } else { 1 };
        (0..n_texts).for_each(|_| reply.push(&vector.repeat(n_vectors)).expect("finite"));
        let written = reply.json.len() - begun;
        assert!(written <= most && written > most / 2, "{written} bytes, estimated {most}");
        assert_eq!(reply.json.capacity(), room);
    }

    #[test]
    fn replies_stay_within_the_memory_that_they_took() {
        let long = [-1.234_567_9e-5_f32, -1.234_567_9e-38, -12345.679, -0.123_456_79];
        for encoding in [VectorEncoding::Float, VectorEncoding::Base64] {
            let form =
                VectorForm { width: 4, length: 4, normalize: false, encoding, of_tokens: false };
            check_bytes(form, (70, 700), &long);
            check_bytes(VectorForm { of_tokens: true, ..form }, (10, 700), &long);
            check_bytes(VectorForm { width: 4000, length: 3000, ..form }, (9, 9), &[-1e-5; 4000]);
        }
    }

    #[test]
    fn replies_with_too_many_numbers_are_refused() {
        let form = VectorForm {
            width: 1 << 10,
            length: 1 << 10,
            normalize: true,
            encoding: VectorEncoding::Float,
            of_tokens: false,
        };
        #[track_caller]
        fn check(form: VectorForm, n_texts: usize, n_tokens: usize, numbers: Option<&str>) {
            let refused = form.bytes(n_texts, n_tokens).err();
            assert_eq!(refused.is_some(), numbers.is_some());
            if let (Some(error), Some(numbers)) = (refused, numbers) {
                assert_eq!(error.code(), Code::InvalidRequest);
                let message = format!("input: the reply would have {numbers} numbers, more than ");
                assert!(error.message().starts_with(&message), "{}", error.message());
            }
        }
        check(form, 8192, usize::MAX, None);
        check(form, 8193, 0, Some("8389632"));
        let of_tokens = VectorForm { of_tokens: true, ..form };
        check(of_tokens, 1, 8193, Some("8389632"));
        check(of_tokens, 1, usize::MAX, Some("18446744073709551615"));
        check(VectorForm { encoding: VectorEncoding::Base64, ..form }, 24_576, 0, None);
        check(VectorForm { encoding: VectorEncoding::Base64, ..form }, 24_577, 0, Some("25166848"));
    }

    #[test]
    fn lengths_are_one_or_zero() {
        let mut vector = [3.0, 0.0, 4.0];
        bring_to_length_one(&mut vector);
        assert_eq!(vector, [0.6, 0.0, 0.8]);
        let mut zeros = [0.0; 3];
        bring_to_length_one(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
        let mut huge = [f32::MAX, f32::MAX];
        bring_to_length_one(&mut huge);
        assert!((huge[0] - 0.5_f32.sqrt()).abs() < 1e-6);
    }
}
