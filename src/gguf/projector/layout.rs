//! What stands for a picture or a sound in a prompt: texts, tokens and embeddings, in their order.

use std::borrow::Cow;

use super::slices::Slices;

/// What stands for a picture in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PictureLayout {
    /// In their order.
    pub parts: Vec<MediaPart>,
    /// The pixels after scaling.
    pub pixels: u64,
}

/// A part of what stands for a picture or a sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaPart {
    /// A text, which is tokenized on its own.
    Text(Cow<'static, str>),
    /// The token that is this text.
    Token(&'static str),
    /// So many embeddings.
    Places(u32),
}

impl PictureLayout {
    /// The number of embeddings.
    pub fn places(&self) -> u64 {
        let places = |part: &MediaPart| match part {
            MediaPart::Text(_) | MediaPart::Token(_) => 0,
            MediaPart::Places(count) => u64::from(*count),
        };
        self.parts.iter().map(places).sum()
    }
}

/// The tiles of LFM2-VL, with the texts before each and before the whole picture.
pub(super) fn ratio_tiled(columns: u32, rows: u32, tokens: u32) -> Vec<MediaPart> {
    let places = (1..=rows).flat_map(|row| (1..=columns).map(move |column| (row, column)));
    let tile = |(row, column)| {
        let text = format!("<|img_row_{row}_col_{column}|>");
        [MediaPart::Text(text.into()), MediaPart::Places(tokens)]
    };
    places.flat_map(tile).chain([MediaPart::Token("<|img_thumbnail|>")]).collect()
}

/// The tiles of Idefics 3 and SmolVLM, with the texts around each.
pub(super) fn tiled(columns: u64, rows: u64, tokens: u32) -> Vec<MediaPart> {
    const AROUND: &str = "<fake_token_around_image>";
    let mut parts = Vec::new();
    for row in 1..=rows {
        for column in 1..=columns {
            let text = format!("{AROUND}<row_{row}_col_{column}>");
            parts.extend([MediaPart::Text(text.into()), MediaPart::Places(tokens)]);
        }
        if row < rows {
            parts.push(MediaPart::Token("\n"));
        }
    }
    parts.extend(["\n\n", AROUND, "<global-img>"].map(MediaPart::Token));
    parts.extend([MediaPart::Places(tokens), MediaPart::Token(AROUND)]);
    parts
}

/// The whole picture and the slices of MiniCPM-V, with the tokens around them.
pub(super) fn sliced(slices: Slices, [columns, rows]: [u32; 2]) -> Vec<MediaPart> {
    const IMAGE: [&str; 2] = ["<image>", "</image>"];
    const SLICE: [&str; 2] = ["<slice>", "</slice>"];
    let around = |[before, after]: [&'static str; 2]| {
        [MediaPart::Token(before), MediaPart::Places(slices.tokens), MediaPart::Token(after)]
    };
    let mut parts = around(IMAGE).to_vec();
    if rows == 0 {
        return parts;
    }
    let of_slice = if slices.is_nested { IMAGE } else { SLICE };
    let row = |_| (0..columns).flat_map(|_| around(of_slice)).collect::<Vec<_>>();
    let rows: Vec<Vec<MediaPart>> = (0..rows).map(row).collect();
    let rows = rows.join(&MediaPart::Token("\n"));
    if slices.is_nested {
        parts.push(MediaPart::Token(SLICE[0]));
        parts.extend(rows);
        parts.push(MediaPart::Token(SLICE[1]));
    } else {
        parts.extend(rows);
    }
    parts
}
