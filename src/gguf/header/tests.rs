#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor as Bytes;

use super::*;
use crate::gguf::ValueType;
use crate::gguf::gguf_writer::GgufWriter;

fn small() -> GgufWriter {
    GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("general.name", "Tiny")
        .metadata("general.license", "mit")
        .metadata("general.file_type", 15_u32)
        .metadata("llama.context_length", 2048_u32)
        .metadata("llama.embedding_length", 64_u32)
        .metadata("llama.block_count", 2_u32)
        .metadata("llama.attention.head_count", 8_u32)
        .metadata("llama.attention.head_count_kv", 2_u32)
        .metadata("tokenizer.ggml.bos_token_id", 0_u32)
        .metadata("tokenizer.ggml.eos_token_id", 300_i32)
        .metadata("tokenizer.ggml.tokens", (0..600).map(|i| format!("<{i}>")).collect::<Vec<_>>())
        .metadata("tokenizer.ggml.scores", vec![0.5_f32; 600])
        .metadata("tokenizer.ggml.add_bos_token", false)
        .metadata("tokenizer.chat_template", "{{ messages }}")
        .metadata("tokenizer.chat_template.tool_use", "{{ tools }}")
        .metadata("tokenizer.chat_template.rag", "{{ documents }}")
        .tensor("a", &[4, 2], &[1.0; 8])
        .tensor("b", &[3], &[1.0; 3])
}

fn read(bytes: &[u8]) -> Result<ModelHeader> {
    ModelHeader::read(Bytes::new(bytes), bytes.len() as u64)
}

fn codes(header: &ModelHeader) -> Vec<&'static str> {
    header.diagnostics().iter().map(|diagnostic| diagnostic.code).collect()
}

#[track_caller]
fn check_refused(bytes: &[u8], message: &str) {
    let error = read(bytes).err().unwrap();
    assert_eq!(error.code(), Code::ModelInvalid);
    assert!(error.message().contains(message), "{error}");
}

#[test]
fn answers() {
    for version in [2, 3] {
        let bytes = small().version(version).to_bytes();
        let header = read(&bytes).unwrap();
        assert_eq!(header.architecture(), "llama");
        assert_eq!((header.name(), header.license()), (Some("Tiny"), Some("mit")));
        assert_eq!((header.n_params(), header.n_tensors()), (11, 2));
        assert_eq!(header.file_size(), bytes.len() as u64);
        assert_eq!(header.tensor_data_end(), bytes.len() as u64 - 20);
        assert_eq!(header.quantization(), "Q4_K_M");
        assert_eq!(header.context_length(), Some(2048));
        assert_eq!((header.embedding_length(), header.block_count()), (Some(64), Some(2)));
        assert_eq!((header.bos_token(), header.eos_token()), (Some("<0>"), Some("<300>")));
        assert_eq!(header.chat_template(), Some("{{ messages }}"));
        assert_eq!(header.tool_use_template(), Some("{{ tools }}"));
        assert_eq!(header.template_names(), ["default", "rag", "tool_use"]);
        assert_eq!(header.kv_bytes_per_token(2.0, 2.0), Some(2 * 2 * 8 * 4));
        assert!(header.get("tokenizer.ggml.scores").is_none());
        assert!(header.diagnostics().is_empty(), "{:?}", header.diagnostics());
    }
}

#[test]
fn every_value_type_round_trips() {
    let values: Vec<GgufValue> = vec![
        200_u8.into(),
        (-100_i8).into(),
        60_000_u16.into(),
        (-30_000_i16).into(),
        4_000_000_000_u32.into(),
        (-2_000_000_000_i32).into(),
        1.5_f32.into(),
        true.into(),
        "grüß 😀".into(),
        u64::MAX.into(),
        i64::MIN.into(),
        (-2.5_f64).into(),
        vec![1_u8, 2].into(),
        vec![-1_i64; 1024].into(),
        vec![true, false].into(),
        GgufValue::Array(ValueType::U16, Vec::new()),
    ];
    let mut writer = GgufWriter::new().metadata("general.architecture", "x");
    for (i, value) in values.iter().enumerate() {
        writer = writer.metadata(format!("k{i}"), value.clone());
    }
    writer = writer.metadata("floats", vec![1.0_f64]).metadata("long", vec![1_u8; 1025]);
    let header = read(&writer.to_bytes()).unwrap();
    for (i, value) in values.iter().enumerate() {
        assert_eq!(header.get(&format!("k{i}")), Some(value));
    }
    for key in ["floats", "long", "absent"] {
        assert_eq!(header.get(key), None, "{key}");
    }
}

#[test]
fn quantization_without_a_file_type() {
    let base = || GgufWriter::new().metadata("general.architecture", "x");
    let quantization = |writer: GgufWriter| read(&writer.to_bytes()).unwrap().quantization();
    let mixed = base().tensor("a", &[8], &[0.0; 8]).tensor_bytes("b", &[32], 8, vec![0; 34]);
    assert_eq!(quantization(mixed), "Q8_0");
    assert_eq!(quantization(base()), "unknown");
    assert_eq!(quantization(base().metadata("general.file_type", 9_999_u32)), "unknown");
    assert_eq!(quantization(base().metadata("general.file_type", 1_u32)), "F16");
}

#[test]
fn rope_scaling_extends_the_context() {
    let extended = |trained: u32, scaling: &[(&str, f32)]| {
        let mut writer = GgufWriter::new()
            .metadata("general.architecture", "x")
            .metadata("x.context_length", trained);
        for (key, value) in scaling {
            writer = writer.metadata(format!("x.rope.scaling.{key}"), *value);
        }
        read(&writer.to_bytes()).unwrap().extended_context_length()
    };
    let (original, factor) = (("original_context_length", 32_768.0), ("factor", 4.0));
    assert_eq!(extended(32_768, &[]), Some(32_768));
    assert_eq!(extended(32_768, &[original, factor]), Some(131_072));
    // A file that states the context length of the extended model.
    assert_eq!(extended(131_072, &[original, factor]), Some(131_072));
    assert_eq!(extended(131_072, &[("original_context_length", 4096.0)]), Some(131_072));
    assert_eq!(extended(4096, &[factor]), Some(4096));
    assert_eq!(extended(4096, &[original, ("factor", f32::NAN)]), Some(4096));
    assert_eq!(extended(0, &[original, factor]), None);
}

#[test]
fn kv_bytes() {
    let base =
        || GgufWriter::new().metadata("general.architecture", "x").metadata("x.block_count", 3_u32);
    let kv = |writer: GgufWriter| read(&writer.to_bytes()).unwrap().kv_bytes_per_token(2.0, 1.0625);
    assert_eq!(kv(base()), None);
    let heads =
        || base().metadata("x.attention.head_count", 4_u32).metadata("x.embedding_length", 32_u32);
    assert_eq!(kv(heads()), Some(12 * 16 + 12 * 17 / 2));
    assert_eq!(
        kv(heads().metadata("x.attention.head_count_kv", vec![1_i32, 0, 2])),
        Some(3 * 16 + 26)
    );
    let lengths = |k: u64| {
        heads().metadata("x.attention.key_length", k).metadata("x.attention.value_length", 16_u32)
    };
    assert_eq!(kv(lengths(10)), Some(12 * (20 + 17)));
    assert_eq!(kv(lengths(u64::MAX)), Some(u64::MAX));
    assert_eq!(kv(base().metadata("x.attention.head_count", 0_u32)), None);
}

#[test]
fn refusals_of_other_files() {
    check_refused(b"", "not a GGUF file: it is empty (at byte 0)");
    check_refused(
        b"PNG\x01 and so on",
        "not a GGUF file (it starts with \"PNG\\x01\") (at byte 0)",
    );
    check_refused(b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer");
    check_refused(b"<!DOCTYPE html>", "web page");
    check_refused(&GgufWriter::new().version(1).to_bytes(), "convert the model again");
    check_refused(&GgufWriter::new().version(4).to_bytes(), "version 4 is unknown");
    check_refused(&GgufWriter::new().version(0).to_bytes(), "version 0 is unknown");
    check_refused(
        &GgufWriter::new().version(3_u32.swap_bytes()).to_bytes(),
        "gguf_convert_endian.py (at byte 4)",
    );
    check_refused(&GgufWriter::new().to_bytes(), "no general.architecture");
    check_refused(&GgufWriter::new().alignment(48).to_bytes(), "48, which is not a power of two");
    check_refused(
        &GgufWriter::new().metadata("general.alignment", 0_u32).to_bytes(),
        "0, which is not a power of two",
    );
    check_refused(
        &GgufWriter::new().metadata("general.alignment", 32_u64).to_bytes(),
        "not an unsigned 32-bit",
    );
}

#[test]
fn another_alignment() {
    let bytes = small().alignment(4096).to_bytes();
    let header = read(&bytes).unwrap();
    assert_eq!(header.tensor_data_end(), bytes.len() as u64 - 4096 + 12);
    assert!(header.diagnostics().is_empty());
}

#[test]
fn oddities_are_diagnostics() {
    let mut bytes = small().to_bytes();
    let end = bytes.len() - 20;
    assert!(read(&bytes[..end]).unwrap().diagnostics().is_empty());
    let cut = read(&bytes[..end - 1]).unwrap();
    assert_eq!(codes(&cut), ["file_truncated"]);
    assert_eq!(
        cut.diagnostics()[0].message,
        format!("the file has {} bytes, but its tensors need {end}", end - 1)
    );
    bytes.push(0);
    assert_eq!(codes(&read(&bytes).unwrap()), ["trailing_bytes"]);

    let base = || GgufWriter::new().metadata("general.architecture", "x");
    let unknown = read(&base().tensor_bytes("a", &[8], 77, vec![0; 8]).to_bytes()).unwrap();
    assert_eq!((codes(&unknown), unknown.tensor_data_end()), (vec!["unknown_tensor_type"], 0));
    let template = read(&base().metadata("tokenizer.chat_template", 1_u32).to_bytes()).unwrap();
    assert_eq!((codes(&template), template.chat_template()), (vec!["chat_template_type"], None));
    let tokens = base()
        .metadata("tokenizer.ggml.tokens", vec!["a".to_owned()])
        .metadata("tokenizer.ggml.bos_token_id", 1_u32);
    let tokens =
        read(&tokens.metadata("tokenizer.ggml.eos_token_id", u32::MAX).to_bytes()).unwrap();
    assert_eq!((codes(&tokens), tokens.bos_token()), (vec!["token_id"], None));
}

#[test]
fn every_prefix_is_an_error_or_a_truncated_file() {
    let bytes = small().to_bytes();
    let header_end = read(&bytes).unwrap().tensor_data_end() as usize - 44;
    for length in 0..bytes.len() - 20 {
        match read(&bytes[..length]) {
            Ok(header) => assert_eq!(
                (codes(&header), length + 32 > header_end),
                (vec!["file_truncated"], true),
                "{length}"
            ),
            Err(error) => assert!(
                length < header_end && error.code() == Code::ModelInvalid,
                "{length}: {error}"
            ),
        }
        // The file is shorter than its stated size.
        if let Err(error) = ModelHeader::read(Bytes::new(&bytes[..length]), bytes.len() as u64) {
            assert_eq!(error.code(), Code::ModelInvalid);
        }
    }
}

#[test]
fn mutations_do_not_panic() {
    let original = small().to_bytes();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut read_well, mut refused) = (0, 0);
    for _ in 0..4_000 {
        let mut bytes = original.clone();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = 0xFF,
                1 => bytes[at] = 0,
                2 => bytes.truncate(at.max(1)),
                _ => bytes[at] ^= 1 << random(8),
            }
        }
        match read(&bytes) {
            Ok(header) => {
                read_well += 1;
                header.kv_bytes_per_token(2.0, 2.0);
                header.quantization();
                header.template_names();
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.code(), Code::ModelInvalid);
            }
        }
    }
    assert!(read_well > 100 && refused > 100, "{read_well} read, {refused} refused");
}

#[test]
fn hostile_counts_return_at_once() {
    let mut bytes = small().to_bytes();
    for at in [8, 16] {
        for count in [u64::MAX, 1 << 63, 1 << 40, 70_000] {
            let mut hostile = bytes.clone();
            hostile[at..at + 8].copy_from_slice(&count.to_le_bytes());
            check_refused(&hostile, "claims");
        }
    }
    // The stated size is huge, so counts pass the size check, but the number of elements that are
    // read is limited.
    bytes.truncate(24);
    bytes[16] = 1;
    for element in [8_u32, 4] {
        let mut hostile = bytes.clone();
        hostile.extend_from_slice(b"\x01\0\0\0\0\0\0\0k\x09\0\0\0");
        hostile.extend_from_slice(&element.to_le_bytes());
        hostile.extend_from_slice(&(1_u64 << 50).to_le_bytes());
        let source = hostile.chain_zeros();
        let error = ModelHeader::read(source, 1 << 60).err().unwrap();
        assert_eq!(error.code(), Code::ModelInvalid, "{error}");
    }
}

/// A sparse file: bytes followed by zeros.
struct Sparse {
    start: Vec<u8>,
    at: u64,
}

trait ChainZeros {
    fn chain_zeros(self) -> Sparse;
}

impl ChainZeros for Vec<u8> {
    fn chain_zeros(self) -> Sparse {
        Sparse { start: self, at: 0 }
    }
}

impl Read for Sparse {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        out.fill(0);
        if let Some(rest) = usize::try_from(self.at).ok().and_then(|at| self.start.get(at..)) {
            let n = rest.len().min(out.len());
            out[..n].copy_from_slice(&rest[..n]);
        }
        self.at += out.len() as u64;
        Ok(out.len())
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        if let std::io::SeekFrom::Start(at) = to {
            self.at = at;
        }
        Ok(self.at)
    }
}

fn part(no: u16, count: u16) -> GgufWriter {
    let writer = if no == 0 { small() } else { GgufWriter::new() };
    writer
        .metadata("split.no", no)
        .metadata("split.count", count)
        .metadata("split.tensors.count", 4_i32)
        .tensor(format!("part{no}"), &[5], &[0.0; 5])
}

#[test]
fn split_models() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).unwrap();
    let (first, second) = (part(0, 2).to_bytes(), part(1, 2).to_bytes());
    write("m-00001-of-00002.gguf", &first);

    let header = ModelHeader::read_file(&path("m-00001-of-00002.gguf")).unwrap();
    assert_eq!(codes(&header), ["split_part_missing"]);
    assert_eq!(header.diagnostics()[0].message, "1 of 2 parts missing: m-00002-of-00002.gguf");

    write("m-00002-of-00002.gguf", &second);
    let header = ModelHeader::read_file(&path("m-00001-of-00002.gguf")).unwrap();
    assert!(header.diagnostics().is_empty(), "{:?}", header.diagnostics());
    assert_eq!((header.n_tensors(), header.n_params()), (4, 21));
    assert_eq!(header.file_size(), (first.len() + second.len()) as u64);
    assert_eq!(header.tensor_data_end(), first.len() as u64 - 12);

    let error = ModelHeader::read_file(&path("m-00002-of-00002.gguf")).err().unwrap();
    assert_eq!(error.code(), Code::ModelInvalid);
    assert!(
        error.message().starts_with(&*path("m-00002-of-00002.gguf").to_string_lossy()),
        "{error}"
    );
    assert!(
        error
            .message()
            .ends_with(": this is part 2 of 2 of a split model: open m-00001-of-00002.gguf"),
        "{error}"
    );
    check_refused(&second, "open the file whose name ends in -00001-of-00002.gguf");

    write("m-00002-of-00002.gguf", &second[..second.len() - 13]);
    let header = ModelHeader::read_file(&path("m-00001-of-00002.gguf")).unwrap();
    assert_eq!(codes(&header), ["file_truncated"]);
    assert!(header.diagnostics()[0].message.starts_with("m-00002-of-00002.gguf: "));

    write("m-00002-of-00002.gguf", &part(0, 2).to_bytes());
    let header = ModelHeader::read_file(&path("m-00001-of-00002.gguf")).unwrap();
    assert_eq!(codes(&header), ["split_part_mismatch", "split_tensor_count"]);

    write("m-00002-of-00002.gguf", b"nonsense");
    let error = ModelHeader::read_file(&path("m-00001-of-00002.gguf")).err().unwrap();
    assert!(error.message().starts_with("m-00002-of-00002.gguf: not a GGUF file"), "{error}");

    write("renamed.gguf", &first);
    assert_eq!(codes(&ModelHeader::read_file(&path("renamed.gguf")).unwrap()), ["split_name"]);
    assert_eq!(codes(&read(&first).unwrap()), ["split_parts_unread"]);

    write("n-00001-of-60000.gguf", &part(0, 60_000).to_bytes());
    let header = ModelHeader::read_file(&path("n-00001-of-60000.gguf")).unwrap();
    assert!(
        header.diagnostics()[0].message.ends_with("and 59995 more"),
        "{}",
        header.diagnostics()[0].message
    );
}

#[test]
fn paths_that_are_no_model() {
    let dir = tempfile::tempdir().unwrap();
    let check = |path: &Path, message: &str| {
        let error = ModelHeader::read_file(path).err().unwrap();
        assert_eq!(error.code(), Code::ModelNotFound);
        assert!(error.message().contains(message), "{error}");
    };
    check(&dir.path().join("absent.gguf"), "no such file");
    check(dir.path(), "is a directory");
    check(Path::new("a\0b"), "a\0b");
    check(Path::new(""), "the path is empty; pass the path of a GGUF file");
    #[cfg(unix)]
    check(Path::new("/dev/null"), "is a device, not a regular file");
}
