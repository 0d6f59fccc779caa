//! The tensors that llama.cpp's encoders expect, with their shapes and types.
//!
//! Source: `load_tensors` in tools/mtmd/clip.cpp, and the graphs in models/llava.cpp, siglip.cpp,
//! gemma4v.cpp, gemma4uv.cpp, qwen2vl.cpp, qwen3vl.cpp, internvl.cpp, pixtral.cpp, kimivl.cpp,
//! glm4v.cpp, llama4.cpp, paddleocr.cpp, dotsocr.cpp, cogvlm.cpp and minicpmv.cpp. A tensor that
//! is named like those of encoders, but is not in the table of its type, is refused: llama.cpp
//! might compute with it.

use super::kind::{ProjectorType, refused};
use super::tensors::{Types, Unchecked, check, length, missing};
use crate::error::Result;

/// The matrix that makes embeddings of patches.
const PATCHES: &str = "v.patch_embd.weight";
/// The positions of patches.
const POSITIONS: &str = "v.position_embd.weight";
/// Positions of MiniCPM-V in each direction, among which those of a picture are chosen.
const BUCKETS: u64 = 70;
/// The length of a head of its resampler.
const RESAMPLER_HEAD: u64 = 128;
/// The sizes that shapes follow from.
pub(super) struct Shapes {
    /// The length of the encoder's embeddings.
    pub(super) width: u64,
    /// The length of a head.
    pub(super) head: u64,
    /// The side of a patch in pixels.
    pub(super) patch: u64,
    /// The patches of a picture.
    pub(super) patches: u64,
    /// How many of them become one token.
    pub(super) patches_of_token: u64,
    /// As many patches as no picture has in a row or a column.
    pub(super) longest_row: u64,
    /// The queries of MiniCPM-V.
    pub(super) queries: u64,
    pub(super) layers: u32,
}

impl Shapes {
    /// Checks the tensors of the encoder and of its projection. Returns the length of the
    /// embeddings that the projector computes.
    pub(super) fn check(&self, kind: ProjectorType, rest: &mut Unchecked) -> Result<u64> {
        let patch = [self.patch, self.patch, 3, self.width];
        match kind {
            // Their graphs unfold the picture, and multiply.
            ProjectorType::Gemma4UnifiedV => {
                let from = 3 * self.patch * self.patch;
                rest.required(PATCHES, Types::Matrix, &[from, self.width])?;
            }
            ProjectorType::Llama4 => {
                let from = 3 * self.patch * self.patch;
                rest.required(PATCHES, Types::Unblocked, &[from, self.width])?;
            }
            _ => rest.required(PATCHES, Types::Floats, &patch)?,
        }
        rest.norm("v.pre_ln", self.width, false)?;
        rest.norm("v.post_ln", self.width, false)?;
        for layer in 0..self.layers {
            self.check_layer(rest, layer, LayerForm::of(kind))?;
            if kind == ProjectorType::Gemma4V {
                self.check_gemma4_layer(rest, layer)?;
            }
        }
        let (positions, bias) = (POSITIONS, "v.patch_embd.bias");
        let embedding = match kind {
            ProjectorType::Mlp => {
                rest.optional_vector(bias, self.width)?;
                let has_class = rest.optional_vector("v.class_embd", self.width)?;
                let rows = self.patches + u64::from(has_class);
                rest.required(positions, Types::Floats, &[self.width, rows])?;
                // llama.cpp loads it, and computes nothing with it.
                rest.ignore("v.image_newline");
                check_two_layers(rest, "mm.0", "mm.2", self.width)?
            }
            ProjectorType::Ldp | ProjectorType::LdpV2 => {
                rest.optional_vector(bias, self.width)?;
                let has_class = rest.optional_vector("v.class_embd", self.width)?;
                let rows = self.patches + u64::from(has_class);
                rest.required(positions, Types::Floats, &[self.width, rows])?;
                check_mobile_projection(rest, kind, self.width)?
            }
            ProjectorType::JanusPro => {
                rest.optional_vector(bias, self.width)?;
                rest.required(positions, Types::F32, &[self.width, self.patches])?;
                check_two_layers(rest, "mm.0", "mm.1", self.width)?
            }
            ProjectorType::CogVlm => {
                rest.optional_vector(bias, self.width)?;
                rest.vector("v.class_embd", self.width)?;
                rest.required(positions, Types::F32, &[self.width, self.patches + 1])?;
                let row = rest.matrix("mm.model.fc.weight", self.width)?;
                rest.full_norm("mm.post_fc_norm", row)?;
                let embedding = check_gated(rest, ["mm.up", "mm.gate", "mm.down"], row)?;
                rest.vector("v.boi", embedding)?;
                rest.vector("v.eoi", embedding)?;
                embedding
            }
            ProjectorType::GlmEdge => {
                rest.optional_vector(bias, self.width)?;
                rest.required(positions, Types::Floats, &[self.width, self.patches])?;
                let merge = self.patches_of_token.isqrt();
                let convolution = rest.take("adapter.conv.weight", Types::Floats)?;
                let merged = length(convolution, 3)?;
                check(convolution, Types::Floats, &[merge, merge, self.width, merged])?;
                rest.vector("adapter.conv.bias", merged)?;
                let row = rest.matrix("adapter.linear.linear.weight", merged)?;
                rest.full_norm("adapter.linear.norm1", row)?;
                let block = ["dense_h_to_4h", "gate", "dense_4h_to_h"];
                let block = block.map(|name| format!("adapter.linear.{name}"));
                let embedding = check_gated(rest, block.each_ref().map(String::as_str), row)?;
                rest.vector("adapter.boi", embedding)?;
                rest.vector("adapter.eoi", embedding)?;
                embedding
            }
            ProjectorType::Gemma3 => {
                rest.optional_vector(bias, self.width)?;
                rest.required(positions, Types::F32, &[self.width, self.patches])?;
                rest.vector("mm.soft_emb_norm.weight", self.width)?;
                let projection = rest.take("mm.input_projection.weight", Types::Unblocked)?;
                let embedding = length(projection, 0)?;
                check(projection, Types::Unblocked, &[embedding, self.width])?;
                embedding
            }
            ProjectorType::Gemma4V => {
                self.check_positions_of_sides(rest, Types::Floats)?;
                // They have an effect together.
                rest.optional_vector("v.std_bias", self.width)?;
                rest.optional_vector("v.std_scale", self.width)?;
                rest.bounds("mm.input_projection")?;
                rest.matrix("mm.input_projection.weight", self.width)?
            }
            ProjectorType::Gemma4UnifiedV => {
                rest.vector(bias, self.width)?;
                rest.full_norm("v.patch_norm.1", 3 * self.patch * self.patch)?;
                rest.full_norm("v.patch_norm.2", self.width)?;
                rest.full_norm("v.patch_norm.3", self.width)?;
                self.check_positions_of_sides(rest, Types::Matrix)?;
                rest.matrix("mm.input_projection.weight", self.width)?
            }
            ProjectorType::MiniCpmV => {
                rest.optional_vector(bias, self.width)?;
                let table = rest.take(positions, Types::Floats)?;
                let rows = length(table, 1)?.max(BUCKETS * BUCKETS);
                check(table, Types::Floats, &[self.width, rows])?;
                self.check_resampler(rest)?
            }
            ProjectorType::Idefics3 => {
                rest.optional_vector(bias, self.width)?;
                rest.required(positions, Types::F32, &[self.width, self.patches])?;
                rest.matrix("mm.model.fc.weight", self.patches_of_token * self.width)?
            }
            ProjectorType::InternVl => {
                rest.optional_vector(bias, self.width)?;
                rest.vector("v.class_embd", self.width)?;
                rest.required(positions, Types::F32, &[self.width, self.patches + 1])?;
                let from = self.patches_of_token * self.width;
                rest.full_norm("mm.model.mlp.0", from)?;
                check_two_layers(rest, "mm.model.mlp.1", "mm.model.mlp.3", from)?
            }
            ProjectorType::Llama4 => {
                rest.vector("v.class_embd", self.width)?;
                rest.required(positions, Types::F32, &[self.width, self.patches + 1])?;
                let inner =
                    rest.matrix("mm.model.mlp.1.weight", self.patches_of_token * self.width)?;
                let outer = rest.matrix("mm.model.mlp.2.weight", inner)?;
                rest.matrix("mm.model.fc.weight", outer)?
            }
            ProjectorType::Pixtral | ProjectorType::LightOnOcr => {
                rest.optional_vector(bias, self.width)?;
                let merger = "mm.patch_merger.weight";
                let from = if self.patches_of_token > 1 || rest.has(merger) {
                    rest.vector("mm.input_norm.weight", self.width)?;
                    rest.matrix(merger, self.patches_of_token * self.width)?
                } else {
                    // llama.cpp computes nothing with it.
                    rest.optional_vector("mm.input_norm.weight", self.width)?;
                    self.width
                };
                let inner = rest.matrix("mm.1.weight", from)?;
                rest.optional_vector("mm.1.bias", inner)?;
                let embedding = rest.matrix("mm.2.weight", inner)?;
                rest.optional_vector("mm.2.bias", embedding)?;
                if kind == ProjectorType::Pixtral {
                    rest.vector("v.token_embd.img_break", embedding)?;
                }
                embedding
            }
            ProjectorType::Lfm2 => {
                rest.optional_vector(bias, self.width)?;
                self.check_resized_positions(rest)?;
                let merged = self.patches_of_token * self.width;
                rest.norm("mm.input_norm", merged, false)?;
                check_two_layers(rest, "mm.1", "mm.2", merged)?
            }
            ProjectorType::DotsOcr => {
                rest.optional_vector(bias, self.width)?;
                rest.vector("mm.post_norm.weight", self.width)?;
                rest.full_norm("mm.input_norm", self.width)?;
                check_two_layers(rest, "mm.0", "mm.2", self.patches_of_token * self.width)?
            }
            ProjectorType::KimiVl | ProjectorType::PaddleOcr => {
                rest.optional_vector(bias, self.width)?;
                self.check_resized_positions(rest)?;
                rest.full_norm("mm.input_norm", self.width)?;
                check_two_layers(rest, "mm.1", "mm.2", self.patches_of_token * self.width)?
            }
            ProjectorType::Glm4V => {
                // Two frames of a video; a picture is both.
                rest.required("v.patch_embd.weight.1", Types::Floats, &patch)?;
                rest.vector(bias, self.width)?;
                rest.norm("v.norm_embd", self.width, false)?;
                if rest.has(positions) {
                    self.check_resized_positions(rest)?;
                }
                self.check_glm_projection(rest)?
            }
            ProjectorType::Phi4 => {
                rest.optional_vector(bias, self.width)?;
                self.check_resized_positions(rest)?;
                check_two_layers(rest, "mm.0", "mm.2", self.width)?
            }
            ProjectorType::Qwen2Vl | ProjectorType::Qwen25Vl => {
                // Two frames of a video; a picture is both.
                rest.required("v.patch_embd.weight.1", Types::Floats, &patch)?;
                check_two_layers(rest, "mm.0", "mm.2", self.patches_of_token * self.width)?
            }
            ProjectorType::Qwen3Vl => {
                rest.required("v.patch_embd.weight.1", Types::Floats, &patch)?;
                rest.vector(bias, self.width)?;
                self.check_resized_positions(rest)?;
                let embedding =
                    check_two_layers(rest, "mm.0", "mm.2", self.patches_of_token * self.width)?;
                embedding * (1 + self.check_deep_layers(rest, embedding)?)
            }
            _ => unreachable!("the type is one of pictures"),
        };
        Ok(embedding)
    }

    /// Checks attention of queries to patches, with heads of one length, and a matrix.
    fn check_resampler(&self, rest: &mut Unchecked) -> Result<u64> {
        const PROJECTION: &str = "resampler.proj.weight";
        const ORDER: &str = "resampler.pos_embed_k";
        let projection = rest.take(PROJECTION, Types::Matrix)?;
        let embedding = length(projection, 0)?;
        if !embedding.is_multiple_of(RESAMPLER_HEAD) {
            return Err(refused(format!(
                "tensor {PROJECTION:?} has embeddings of length {embedding}, which \
                 {RESAMPLER_HEAD} must divide"
            )));
        }
        check(projection, Types::Matrix, &[embedding, embedding])?;
        rest.required("resampler.kv.weight", Types::Matrix, &[self.width, embedding])?;
        rest.required("resampler.query", Types::F32, &[embedding, self.queries])?;
        for matrix in ["q", "k", "v", "out"] {
            let name = format!("resampler.attn.{matrix}");
            rest.required(&format!("{name}.weight"), Types::Matrix, &[embedding, embedding])?;
            rest.vector(&format!("{name}.bias"), embedding)?;
        }
        for norm in ["q", "kv", "post"] {
            rest.full_norm(&format!("resampler.ln_{norm}"), embedding)?;
        }
        // llama.cpp needs it, and computes nothing with it.
        if !rest.has(ORDER) {
            return Err(missing(ORDER));
        }
        rest.ignore(ORDER);
        Ok(embedding)
    }

    /// Checks a convolution of squares of patches, a matrix, and a block with a gate.
    fn check_glm_projection(&self, rest: &mut Unchecked) -> Result<u64> {
        let merge = self.patches_of_token.isqrt();
        let merger = rest.take("mm.patch_merger.weight", Types::Floats)?;
        let merged = length(merger, 3)?;
        check(merger, Types::Floats, &[merge, merge, self.width, merged])?;
        rest.vector("mm.patch_merger.bias", merged)?;
        let row = rest.matrix("mm.model.fc.weight", merged)?;
        rest.norm("mm.post_norm", row, true)?;
        let inner = rest.matrix("mm.up.weight", row)?;
        rest.optional_vector("mm.up.bias", inner)?;
        rest.required("mm.gate.weight", Types::Matrix, &[row, inner])?;
        rest.optional_vector("mm.gate.bias", inner)?;
        let embedding = rest.matrix("mm.down.weight", inner)?;
        rest.optional_vector("mm.down.bias", embedding)?;
        Ok(embedding)
    }

    /// Checks two tables of positions, of columns and of rows. The graph reads one for each patch.
    fn check_positions_of_sides(&self, rest: &mut Unchecked, types: Types) -> Result<()> {
        let table = rest.take(POSITIONS, types)?;
        let rows = length(table, 1)?;
        if rows < self.longest_row {
            return Err(refused(format!(
                "tensor {POSITIONS:?} has {rows} rows; a picture may have up to {} patches in a \
                 row or a column",
                self.longest_row
            )));
        }
        check(table, types, &[self.width, rows, 2])
    }

    /// Checks what only the layers of Gemma 4 have: norms of queries and keys, and of the results of
    /// both blocks, and bounds of the numbers before and after each matrix.
    fn check_gemma4_layer(&self, rest: &mut Unchecked, layer: u32) -> Result<()> {
        let name = |tensor: &str| format!("v.blk.{layer}.{tensor}");
        for norm in ["attn_q_norm", "attn_k_norm"] {
            rest.vector(&name(&format!("{norm}.weight")), self.head)?;
        }
        for norm in ["attn_post_norm", "ffn_post_norm"] {
            rest.optional_vector(&name(&format!("{norm}.weight")), self.width)?;
        }
        rest.optional_vector(&name("out_scale.weight"), 1)?;
        for matrix in GEMMA4_MATRICES {
            rest.bounds(&name(matrix))?;
        }
        Ok(())
    }

    /// Checks positions that are resized to those of a picture. They are those of a square.
    fn check_resized_positions(&self, rest: &mut Unchecked) -> Result<()> {
        let table = rest.take(POSITIONS, Types::F32)?;
        let rows = length(table, 1)?;
        if rows.isqrt() * rows.isqrt() != rows {
            let problem = format!("tensor {POSITIONS:?} has {rows} rows, which are no square");
            return Err(refused(problem));
        }
        check(table, Types::F32, &[self.width, rows])
    }

    /// Checks the projections of the states of single layers. Returns how many there are.
    fn check_deep_layers(&self, rest: &mut Unchecked, embedding: u64) -> Result<u64> {
        let mut count = 0;
        for layer in 0..self.layers {
            let name = |tensor: &str| format!("v.deepstack.{layer}.{tensor}");
            if !rest.has(&name("fc1.weight")) {
                continue;
            }
            count += 1;
            let from = self.patches_of_token * self.width;
            let inner = rest.matrix(&name("fc1.weight"), from)?;
            rest.optional_vector(&name("fc1.bias"), inner)?;
            rest.required(&name("fc2.weight"), Types::Matrix, &[inner, embedding])?;
            rest.optional_vector(&name("fc2.bias"), embedding)?;
            rest.norm(&name("norm"), from, false)?;
        }
        Ok(count)
    }

    fn check_layer(&self, rest: &mut Unchecked, layer: u32, kind: LayerForm) -> Result<()> {
        let name = |tensor: &str| format!("v.blk.{layer}.{tensor}");
        for norm in ["ln1", "ln2"] {
            rest.norm(&name(norm), self.width, true)?;
        }
        if kind.may_have_scales {
            rest.optional_vector(&name("ls1.weight"), self.width)?;
            rest.optional_vector(&name("ls2.weight"), self.width)?;
        }
        let joins_inputs = match kind.joins_inputs {
            Some(joins) => joins,
            None => rest.has(&name("attn_qkv.weight")),
        };
        let inputs: &[(&str, u64)] = if joins_inputs {
            &[("attn_qkv", 3)]
        } else {
            &[("attn_q", 1), ("attn_k", 1), ("attn_v", 1)]
        };
        for (matrix, parts) in inputs {
            let rows = parts * self.width;
            let weight = name(&format!("{matrix}.weight"));
            rest.required(&weight, Types::Matrix, &[self.width, rows])?;
            let bias = name(&format!("{matrix}.bias"));
            if !rest.optional_vector(&bias, rows)? && kind.needs_input_biases {
                return Err(missing(&bias));
            }
        }
        rest.required(&name("attn_out.weight"), Types::Matrix, &[self.width, self.width])?;
        rest.optional_vector(&name("attn_out.bias"), self.width)?;
        let down = rest.take(&name("ffn_down.weight"), Types::Matrix)?;
        let up = rest.take(&name("ffn_up.weight"), Types::Matrix)?;
        let is_swapped = kind.may_be_swapped && down.shape[0] == self.width;
        let (up, down) = if is_swapped { (down, up) } else { (up, down) };
        let inner = length(up, 1)?;
        check(up, Types::Matrix, &[self.width, inner])?;
        check(down, Types::Matrix, &[inner, self.width])?;
        let biases = [("ffn_up.bias", "ffn_down.bias"), ("ffn_down.bias", "ffn_up.bias")];
        let (up, down) = biases[usize::from(is_swapped)];
        rest.optional_vector(&name(up), inner)?;
        rest.optional_vector(&name(down), self.width)?;
        if kind.may_have_gates
            && rest.optional(&name("ffn_gate.weight"), Types::Matrix, &[self.width, inner])?
        {
            rest.optional_vector(&name("ffn_gate.bias"), inner)?;
        }
        Ok(())
    }
}

/// Checks two layers, and the convolutions of MobileVLM after them. Returns the length of the
/// embeddings.
fn check_mobile_projection(rest: &mut Unchecked, kind: ProjectorType, width: u64) -> Result<u64> {
    const SIDE: u64 = 3;
    if kind == ProjectorType::LdpV2 {
        let embedding = check_two_layers(rest, "mm.model.mlp.0", "mm.model.mlp.2", width)?;
        rest.depthwise("mm.model.peg.0.weight", SIDE, embedding)?;
        rest.vector("mm.model.peg.0.bias", embedding)?;
        return Ok(embedding);
    }
    let embedding = check_two_layers(rest, "mm.model.mlp.1", "mm.model.mlp.3", width)?;
    for block in [1, 2] {
        let name = |part: &str| format!("mm.model.mb_block.{block}.block.{part}");
        rest.depthwise(&name("0.0.weight"), SIDE, embedding)?;
        rest.full_norm(&name("0.1"), embedding)?;
        let inner = rest.linear(&name("1.fc1"), embedding)?;
        rest.required(&name("1.fc2.weight"), Types::Matrix, &[inner, embedding])?;
        rest.vector(&name("1.fc2.bias"), embedding)?;
        rest.required(&name("2.0.weight"), Types::Matrix, &[embedding, embedding])?;
        rest.full_norm(&name("2.1"), embedding)?;
    }
    Ok(embedding)
}

/// The matrices of a layer of Gemma 4.
const GEMMA4_MATRICES: [&str; 7] =
    ["attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_gate", "ffn_down"];

/// What the layers of a type are like.
#[derive(Clone, Copy)]
struct LayerForm {
    /// Queries, keys and values are computed by one matrix. `None`: they may be.
    joins_inputs: Option<bool>,
    /// The graph adds their biases without a question.
    needs_input_biases: bool,
    /// Old files have the names of the two matrices of the feed-forward block swapped; llama.cpp looks
    /// at the shape.
    may_be_swapped: bool,
    may_have_gates: bool,
    /// The results of both blocks may be multiplied by element.
    may_have_scales: bool,
}

impl LayerForm {
    fn of(kind: ProjectorType) -> LayerForm {
        let is_qwen2 = matches!(kind, ProjectorType::Qwen2Vl | ProjectorType::Qwen25Vl);
        let is_qwen3 = kind == ProjectorType::Qwen3Vl;
        let is_glm = kind == ProjectorType::Glm4V;
        let is_gated = matches!(kind, ProjectorType::DotsOcr | ProjectorType::Gemma4V);
        let is_cog = kind == ProjectorType::CogVlm;
        let is_pixtral = matches!(kind, ProjectorType::Pixtral | ProjectorType::LightOnOcr);
        LayerForm {
            joins_inputs: if is_glm { None } else { Some(is_qwen3 || is_cog) },
            needs_input_biases: is_qwen2 || is_qwen3 || is_cog,
            may_be_swapped: is_qwen2
                || matches!(
                    kind,
                    ProjectorType::Mlp
                        | ProjectorType::Ldp
                        | ProjectorType::LdpV2
                        | ProjectorType::Gemma3
                        | ProjectorType::Idefics3
                        | ProjectorType::MiniCpmV
                        | ProjectorType::GlmEdge
                ),
            may_have_gates: is_qwen2 || is_qwen3 || is_pixtral || is_glm || is_gated,
            may_have_scales: kind == ProjectorType::InternVl,
        }
    }
}

/// Checks two matrices with their biases, the first with rows of this length. Returns the length of the
/// embeddings.
fn check_two_layers(rest: &mut Unchecked, inner: &str, outer: &str, from: u64) -> Result<u64> {
    let rows = rest.linear(inner, from)?;
    rest.linear(outer, rows)
}

/// Checks a block with a gate and without biases: its matrices up, of the gate, and down. Returns the
/// length of the embeddings.
fn check_gated(rest: &mut Unchecked, [up, gate, down]: [&str; 3], from: u64) -> Result<u64> {
    let inner = rest.matrix(&format!("{up}.weight"), from)?;
    rest.required(&format!("{gate}.weight"), Types::Matrix, &[from, inner])?;
    rest.matrix(&format!("{down}.weight"), inner)
}
