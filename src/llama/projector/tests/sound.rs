//! Compares the embeddings of sounds with those of Hugging Face transformers, for encoders with random
//! weights. The spectra are computed by both.

use super::*;
use scripted::projector::{MEL_BINS, SAMPLE_RATE, window_tokens};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/sound-encoder-reference.py");

/// Samples from -1 to 1 of a sound with this many milliseconds.
fn samples(milliseconds: u32, sample: impl Fn(f32) -> f32) -> Vec<f32> {
    let count = SAMPLE_RATE / 1000 * milliseconds;
    (0..count).map(|at| sample(at as f32 / SAMPLE_RATE as f32)).collect()
}

fn sine(turns: f32) -> f32 {
    (turns.fract() * std::f32::consts::TAU).sin()
}

/// A tone that rises from 100 to 4,000 oscillations a second.
fn rising(time: f32) -> f32 {
    0.5 * sine(100.0 * time + 780.0 * time * time)
}

/// A tone in noise that comes and goes.
fn noise(time: f32) -> f32 {
    let number = (time * SAMPLE_RATE as f32) as u32;
    let hash = number.wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(40_503);
    let envelope = 0.5 + 0.5 * sine(time * 0.7);
    0.3 * sine(440.0 * time) + envelope * ((hash >> 16) as f32 / 65_536.0 - 0.5)
}

/// The harmonics of a voice, in syllables.
fn voice(time: f32) -> f32 {
    let pitch = 120.0 * time + 3.0 * sine(time * 5.0);
    let harmonics = (1..20).map(|number| sine(pitch * number as f32) / number as f32);
    0.3 * harmonics.sum::<f32>() * (0.5 + 0.5 * sine(time * 4.0)).powi(2)
}

/// A WAV file with one channel.
fn wav(samples: &[f32]) -> Vec<u8> {
    let data = samples.iter().flat_map(|sample| ((sample * 32_767.0) as i16).to_le_bytes());
    let data: Vec<u8> = data.collect();
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    file.extend(SAMPLE_RATE.to_le_bytes());
    file.extend((SAMPLE_RATE * 2).to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    // The size of the rest of the file, which Python checks.
    let rest = file.len() as u32 - 8;
    file[4..8].copy_from_slice(&rest.to_le_bytes());
    file
}

/// The sounds, and whether their embeddings are those of transformers. The floor of a spectrum is
/// 5.96e-8 in llama.cpp and 1e-10 in transformers. Both raise what is less than 1e-8 of the loudest
/// to that, so the floors matter only for sounds that are nowhere louder than 5.96.
fn sounds() -> [(&'static str, Vec<f32>, bool); 6] {
    let quieter = |factor: f32| samples(2500, move |time| voice(time) * factor);
    [
        ("a rising tone of 2.5 s", samples(2500, rising), true),
        ("a tone in noise of 12 s", samples(12_000, noise), true),
        ("a voice of 29.9 s", samples(29_900, voice), true),
        ("a voice of 42 s", samples(42_000, voice), true),
        ("a voice of 2.5 s, a tenth as loud", quieter(0.1), false),
        ("a voice of 2.5 s, a thousandth as loud", quieter(0.001), false),
    ]
}

#[track_caller]
fn rows_of(folder: &Path, name: &str) -> Vec<Value> {
    let rows = std::fs::read(folder.join(name)).unwrap();
    serde_json::from_slice(&rows).unwrap()
}

#[test]
#[allow(clippy::print_stdout, reason = "a skipped test prints a line")]
fn embeddings_of_sounds_are_those_of_transformers() {
    let sounds = sounds().map(|(name, samples, is_same)| (name, wav(&samples), is_same));
    for kind in [ProjectorType::Qwen2Audio, ProjectorType::Ultravox, ProjectorType::Voxtral] {
        let folder = tempfile::tempdir().unwrap();
        let file = ProjectorFile::new(kind, embedding(kind));
        let given = json!({
            "kind": kind.as_str(), "tensors": tensors(&file), "width": WIDTH, "layers": 2,
            "inner": 48, "heads": 4, "bins": MEL_BINS,
            "stack": (1500 / window_tokens(kind)) / if kind == ProjectorType::Ultravox { 1 } else { 2 },
        });
        std::fs::write(folder.path().join("weights.json"), given.to_string()).unwrap();
        for (index, (_, sound, _)) in sounds.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{index}.wav")), sound).unwrap();
        }
        if !run_reference(SCRIPT, folder.path()) {
            return;
        }
        let encoder = encoder(kind, &file);
        for (index, (name, sound, is_same)) in sounds.iter().enumerate() {
            let ours = embeddings(&encoder, Modality::Audio, sound);
            let cosine = least_cosine(&ours, &rows_of(folder.path(), &format!("{index}.json")));
            println!("{} {name}: {cosine:.6}", kind.as_str());
            assert!(cosine >= 0.999 || !is_same, "{} {name}: {cosine}", kind.as_str());
            if kind == ProjectorType::Qwen2Audio {
                let kept = rows_of(folder.path(), &format!("{index}.kept.json"));
                let count = kept.len();
                let first = &ours[..count * embedding(kind) as usize];
                let cosine = least_cosine(first, &kept);
                println!("  the {count} rows without silence: {cosine:.6}");
            }
        }
    }
}
