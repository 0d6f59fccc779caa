//! Prepares a computed vector for the reply: cuts it, scales it to length 1, and encodes it.

use base64::prelude::{BASE64_STANDARD, Engine as _};

use crate::api::{EmbedRequest, Pooling, VectorEncoding};
use crate::error::{Code, Error, Result};

use super::response::Embedding;

/// The result of one text. `computed` has one vector of `width` numbers, or one such vector for
/// each token.
pub(super) fn finish(
    index: usize,
    computed: &[f32],
    (width, pooling): (usize, Pooling),
    request: &EmbedRequest,
) -> Result<Embedding> {
    let of_tokens = pooling == Pooling::None;
    let length = request.dimensions.unwrap_or(width);
    let normalize = request.normalize.unwrap_or(!of_tokens);
    if !computed.iter().all(|number| number.is_finite()) {
        let message = format!(
            "input[{index}]: the model computed numbers that are not finite; its weights may be \
             damaged"
        );
        return Err(Error::new(Code::InferenceFailed, message));
    }
    let mut vectors = computed.chunks_exact(width).map(|vector| {
        let mut vector = vector[..length].to_vec();
        if normalize {
            bring_to_length_one(&mut vector);
        }
        vector
    });
    Ok(match (of_tokens, request.encoding) {
        (true, VectorEncoding::Float) => Embedding::TokenFloats(vectors.collect()),
        (true, VectorEncoding::Base64) => {
            Embedding::TokenBase64(vectors.map(|vector| base64_of(&vector)).collect())
        }
        (false, VectorEncoding::Float) => Embedding::Floats(vectors.next().unwrap_or_default()),
        (false, VectorEncoding::Base64) => {
            Embedding::Base64(base64_of(&vectors.next().unwrap_or_default()))
        }
    })
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
