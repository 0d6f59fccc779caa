//! The kinds of projectors and media, and the error for a file that is none of them.

use crate::error::{Code, Error};

named_enum! {
    /// The types of projectors that are supported, by llama.cpp's names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ProjectorType {
        /// CLIP and two layers, as in LLaVA 1.5.
        Mlp = "mlp",
        /// SigLIP, a mean over patches and a matrix, as in Gemma 3.
        Gemma3 = "gemma3",
        /// SigLIP and two layers, as in Janus-Pro.
        JanusPro = "janus_pro",
        /// A ViT with rotary positions, and two layers on four patches, as in Qwen2-VL.
        Qwen2Vl = "qwen2vl_merger",
        /// The same with windows, as in Qwen2.5-VL.
        Qwen25Vl = "qwen2.5vl_merger",
        /// The same with learned positions and the states of several layers, as in Qwen3-VL.
        Qwen3Vl = "qwen3vl_merger",
        /// SigLIP on tiles of a picture, and a matrix, as in Idefics 3 and SmolVLM.
        Idefics3 = "idefics3",
    }
}

impl ProjectorType {
    /// The texts that llama.cpp adds before and after a picture.
    pub(super) fn texts_around(self) -> [&'static str; 2] {
        match self {
            ProjectorType::Mlp | ProjectorType::JanusPro | ProjectorType::Idefics3 => ["", ""],
            ProjectorType::Gemma3 => ["<start_of_image>", "<end_of_image>"],
            ProjectorType::Qwen2Vl | ProjectorType::Qwen25Vl | ProjectorType::Qwen3Vl => {
                ["<|vision_start|>", "<|vision_end|>"]
            }
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
