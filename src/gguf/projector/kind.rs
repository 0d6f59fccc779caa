//! The types of projectors, and the error for a file of another type.

use crate::api::Modality;
use crate::error::{Code, Error};

named_enum! {
    /// The types of projectors that are supported, by llama.cpp's names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ProjectorType {
        /// CLIP and two layers, as in LLaVA 1.5.
        Mlp = "mlp",
        /// CLIP, two layers and two blocks of convolutions, as in MobileVLM.
        Ldp = "ldp",
        /// CLIP, two layers, a mean over patches and a convolution, as in MobileVLM V2.
        LdpV2 = "ldpv2",
        /// SigLIP, a mean over patches and a matrix, as in Gemma 3.
        Gemma3 = "gemma3",
        /// MobileNetV5, a norm and a matrix, as in Gemma 3n.
        Gemma3NV = "gemma3nv",
        /// A ViT with norms, rotary and learned positions, a mean over patches and a matrix, as in
        /// Gemma 4.
        Gemma4V = "gemma4v",
        /// Norms of patches, learned positions and a matrix, as in Gemma 4 12B.
        Gemma4UnifiedV = "gemma4uv",
        /// SigLIP on slices of a picture, and attention of a fixed number of queries, as in MiniCPM-V.
        MiniCpmV = "resampler",
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
        /// A ViT on tiles of a picture, a norm and two layers, as in InternVL.
        InternVl = "internvl",
        /// A ViT with rotary positions, two layers, and an embedding that ends a row, as in Pixtral
        /// and Mistral Small.
        Pixtral = "pixtral",
        /// SigLIP with resized positions, and two layers, as in LFM2-VL.
        Lfm2 = "lfm2",
        /// A ViT with rotary and resized positions, and two layers, as in Kimi-VL.
        KimiVl = "kimivl",
        /// SigLIP with resized positions, and two layers, as in the vision models of Phi 4.
        Phi4 = "phi4",
        /// As Pixtral, without an embedding that ends a row, as in LightOnOCR.
        LightOnOcr = "lightonocr",
        /// A ViT with rotary and resized positions, a convolution and two blocks, as in GLM-4.1V.
        Glm4V = "glm4v",
        /// A ViT with rotary positions on tiles of a picture, and three matrices, as in Llama 4.
        Llama4 = "llama4",
        /// A ViT with rotary and resized positions, and two layers, as in PaddleOCR-VL.
        PaddleOcr = "paddleocr",
        /// A ViT with rotary positions, and two layers, as in dots.ocr.
        DotsOcr = "dots_ocr",
        /// EVA-CLIP, a matrix and a block with a gate, as in CogVLM.
        CogVlm = "cogvlm",
        /// SigLIP, a convolution and a block with a gate, as in GLM-Edge.
        GlmEdge = "adapter",
        /// Whisper, a mean over pairs and a matrix, as in Qwen2-Audio.
        Qwen2Audio = "qwen2a",
        /// Three convolutions, a transformer and two layers, as in Qwen3-ASR.
        Qwen3Audio = "qwen3a",
        /// Whisper, stacked embeddings and two layers with a gate, as in Ultravox.
        Ultravox = "ultravox",
        /// Whisper, a mean over pairs, stacked embeddings and two layers, as in Voxtral.
        Voxtral = "voxtral",
        /// Whisper, a mean over pairs and two layers, as in Music Flamingo.
        MusicFlamingo = "musicflamingo",
        /// Whisper, stacked embeddings, a layer and a block with a gate, as in MERaLiON.
        Meralion = "meralion",
        /// Whisper, stacked embeddings and two layers, as in GLM-ASR.
        GlmAsr = "glma",
        /// Two convolutions, a conformer, a norm and a matrix, as in Gemma 4 E2B and E4B.
        Gemma4Audio = "gemma4a",
        /// A norm of samples and a matrix, as in Gemma 4 12B.
        Gemma4UnifiedAudio = "gemma4ua",
    }
}

/// The lengths of embeddings of the models of Gemma 4 that were trained with causal pictures.
const CAUSAL_GEMMA4: [u64; 2] = [1536, 2560];

impl ProjectorType {
    /// What projectors of this type take.
    pub fn modality(self) -> Modality {
        match self {
            ProjectorType::Qwen2Audio
            | ProjectorType::Qwen3Audio
            | ProjectorType::Ultravox
            | ProjectorType::Voxtral
            | ProjectorType::MusicFlamingo
            | ProjectorType::Meralion
            | ProjectorType::GlmAsr
            | ProjectorType::Gemma4Audio
            | ProjectorType::Gemma4UnifiedAudio => Modality::Audio,
            _ => Modality::Image,
        }
    }

    /// Whether it has an encoder with layers.
    pub(super) fn has_layers(self) -> bool {
        !matches!(self, ProjectorType::Gemma4UnifiedV | ProjectorType::Gemma4UnifiedAudio)
    }

    /// Whether all places of a picture attend to each other in a model with embeddings of this
    /// length: `mtmd_decode_use_non_causal`.
    pub(super) fn attends_to_itself(self, embedding_length: u64) -> bool {
        match self {
            ProjectorType::Gemma3 | ProjectorType::Gemma4UnifiedV => true,
            ProjectorType::Gemma4V => !CAUSAL_GEMMA4.contains(&embedding_length),
            _ => false,
        }
    }

    /// Whether llama.cpp makes a mask of all patches of a picture, for attention in windows.
    pub(super) fn masks_patches(self) -> bool {
        self == ProjectorType::Qwen25Vl
    }

    /// The texts that llama.cpp adds before and after a picture or a sound.
    pub(super) fn texts_around(self) -> [&'static str; 2] {
        match self {
            ProjectorType::Mlp
            | ProjectorType::Ldp
            | ProjectorType::LdpV2
            | ProjectorType::MiniCpmV
            | ProjectorType::JanusPro
            | ProjectorType::CogVlm
            | ProjectorType::GlmEdge
            | ProjectorType::Idefics3
            | ProjectorType::Phi4
            | ProjectorType::Ultravox
            | ProjectorType::Meralion
            | ProjectorType::GlmAsr => ["", ""],
            ProjectorType::Gemma3 | ProjectorType::Gemma3NV => {
                ["<start_of_image>", "<end_of_image>"]
            }
            ProjectorType::Gemma4V | ProjectorType::Gemma4UnifiedV => ["<|image>", "<image|>"],
            ProjectorType::InternVl => ["<img>", "</img>"],
            ProjectorType::Pixtral => ["", "[IMG_END]"],
            ProjectorType::Lfm2 | ProjectorType::Llama4 => ["<|image_start|>", "<|image_end|>"],
            ProjectorType::KimiVl => ["<|media_start|>", "<|media_end|>"],
            ProjectorType::LightOnOcr => ["<|im_start|>", "<|im_end|>"],
            ProjectorType::PaddleOcr => ["<|IMAGE_START|>", "<|IMAGE_END|>"],
            ProjectorType::DotsOcr => ["<|img|>", "<|endofimg|>"],
            ProjectorType::Glm4V => ["<|begin_of_image|>", "<|end_of_image|>"],
            ProjectorType::Qwen2Vl | ProjectorType::Qwen25Vl | ProjectorType::Qwen3Vl => {
                ["<|vision_start|>", "<|vision_end|>"]
            }
            ProjectorType::Qwen2Audio => ["<|audio_bos|>", "<|audio_eos|>"],
            ProjectorType::Qwen3Audio => ["<|audio_start|>", "<|audio_end|>"],
            ProjectorType::Voxtral => ["[BEGIN_AUDIO]", ""],
            ProjectorType::MusicFlamingo => ["<sound>", ""],
            ProjectorType::Gemma4Audio | ProjectorType::Gemma4UnifiedAudio => {
                ["<|audio>", "<audio|>"]
            }
        }
    }
}

/// The error for a rule that a projector file breaks.
pub(super) fn refused(message: String) -> Error {
    Error::new(Code::ModelInvalid, message)
}
