//! Names and block sizes of the tensor types, and names of the file types.
//!
//! Source: `ggml_type`, `llama_ftype` and the block layouts of llama.cpp in llama-cpp-sys-2
//! 0.1.161.

/// A tensor type: its short name and the size of a block of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TensorType {
    pub(crate) name: &'static str,
    pub(crate) block_elements: u64,
    pub(crate) block_bytes: u64,
}

/// The tensor types by number: (ggml type, name, elements per block, bytes per block). Retired
/// numbers are absent.
const TENSOR_TYPES: &[(u32, &str, u64, u64)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
];

/// The names of file types by the number in `general.file_type`, spelled as in file names.
const FILE_TYPES: &[(u64, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4"),
    (39, "NVFP4"),
    (40, "Q1_0"),
    (41, "Q2_0"),
];

/// A flag that converters set in `general.file_type` if they guessed it.
const GUESSED: u64 = 1024;

/// The tensor type of this number; `None` if it is retired or newer than the engine.
pub(crate) fn tensor_type(number: u32) -> Option<TensorType> {
    let &(_, name, block_elements, block_bytes) =
        TENSOR_TYPES.iter().find(|row| row.0 == number)?;
    Some(TensorType { name, block_elements, block_bytes })
}

/// The name of a `general.file_type`.
pub(crate) fn file_type(number: u64) -> Option<&'static str> {
    FILE_TYPES.iter().find(|row| row.0 == number & !GUESSED).map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_ascend() {
        assert!(TENSOR_TYPES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(FILE_TYPES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn names() {
        assert_eq!(file_type(15), Some("Q4_K_M"));
        assert_eq!(file_type(1024 + 7), Some("Q8_0"));
        assert_eq!(file_type(5), None);
        assert_eq!(tensor_type(12).map(|t| (t.name, t.block_bytes)), Some(("Q4_K", 144)));
        assert_eq!(tensor_type(31), None);
    }
}
