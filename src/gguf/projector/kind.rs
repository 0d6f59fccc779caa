//! The kinds of projectors and media, and the error for a file that is none of them.

use crate::error::{Code, Error};

named_enum! {
    /// The types of projectors that are supported, by llama.cpp's names. All scale a picture to one
    /// size.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ProjectorType {
        /// CLIP and two layers, as in LLaVA 1.5.
        Mlp = "mlp",
        /// SigLIP, a mean over patches and a matrix, as in Gemma 3.
        Gemma3 = "gemma3",
        /// SigLIP and two layers, as in Janus-Pro.
        JanusPro = "janus_pro",
    }
}

impl ProjectorType {
    /// The texts that llama.cpp adds before and after a picture.
    #[cfg(feature = "engine")]
    pub(crate) fn texts_around(self) -> [&'static str; 2] {
        match self {
            ProjectorType::Mlp | ProjectorType::JanusPro => ["", ""],
            ProjectorType::Gemma3 => ["<start_of_image>", "<end_of_image>"],
        }
    }
}

named_enum! {
    /// A kind of media that a model takes besides text.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Modality {
        /// Pictures.
        Image = "image",
    }
}

/// The error for a rule that a projector file breaks.
pub(super) fn refused(message: String) -> Error {
    Error::new(Code::ModelInvalid, message)
}
