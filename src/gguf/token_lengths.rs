//! Refuses vocabularies that llama.cpp's tokenizers cannot handle: they would recurse, loop or
//! allocate without a limit.
//!
//! In: the metadata and, for the few vocabularies that need it, the token texts. Out: an error that
//! names the token.

use std::io::{Read, Seek};

use super::metadata::{CHARSMAP_KEY, Metadata};
use super::reader::Cursor;
use crate::error::{Code, Error, Result};

/// RWKV's and T5's tokenizers recurse for each byte of a token when they are loaded and freed.
const MAX_BYTES_OF_A_TREE: u64 = 1_024;
/// A vocabulary takes up to 40 bytes for each byte of a token, RWKV's and T5's 200. The tokens of a
/// small file may have only this many bytes together.
const MIN_BYTES_OF_ALL: u64 = 256 << 10;
/// Further bytes for each token. Known vocabularies have 7 to 9. One for a single language with three
/// bytes for each letter, and six in GPT-2's byte letters, may have 50.
const BYTES_PER_TOKEN: u64 = 64;
const BYTES_PER_TOKEN_OF_A_TREE: u64 = 32;
/// WordPiece tries every length up to that of the longest token, at each character.
const MAX_BYTES_OF_WORDPIECE: u64 = 128;
/// PLaMo-2's tokenizer builds every part of each token. Its own vocabulary needs a fifth of this
/// limit.
const MAX_CUBES: u128 = 100_000_000;
/// The maximum that byte-pair encodings may allocate for tokens that are not written in GPT-2's
/// byte letters. llama.cpp takes up to twice as much.
const MAX_SQUARES: u128 = 16_000_000;
/// Further bytes for each token, in case a whole vocabulary is not written in them.
const SQUARES_PER_TOKEN: u128 = 256;

/// The most bytes that replace a character before it is tokenized. The tokenizer keeps 25 bytes for
/// each of them. The longest replacement of Unicode's own rules (NFKC) has 33 bytes.
const MAX_BYTES_OF_REPLACEMENT: u64 = 128;
/// T5's tokenizer walks through its tokens at each byte of the replacements.
const MAX_STEPS_OF_REPLACEMENT: u64 = 8_192;

const TOKENS: &str = "tokenizer.ggml.tokens";

/// Checks the vocabulary of a file. Fails with `MODEL_INVALID` if llama.cpp cannot handle it. The
/// file is opened again only if the token texts have to be read.
pub(super) fn check<R: Read + Seek>(
    metadata: &Metadata,
    open: impl FnOnce() -> Result<Cursor<R>>,
) -> Result<()> {
    let (Some(lengths), Some(count)) = (metadata.token_lengths(), metadata.n_tokens()) else {
        return Ok(());
    };
    let kind = metadata.str("tokenizer.ggml.model").unwrap_or_default();
    let most = match kind {
        "rwkv" | "t5" => MAX_BYTES_OF_A_TREE,
        "bert" => MAX_BYTES_OF_WORDPIECE,
        _ => u64::MAX,
    };
    if lengths.longest > most {
        return Err(refused(format!(
            "a token has {} bytes, more than the {most} of a tokenizer of the kind {kind:?}",
            lengths.longest
        )));
    }
    let per_token = match kind {
        "rwkv" | "t5" => BYTES_PER_TOKEN_OF_A_TREE,
        _ => BYTES_PER_TOKEN,
    };
    let most = MIN_BYTES_OF_ALL + count.saturating_mul(per_token);
    if lengths.sum > most {
        return Err(refused(format!(
            "{count} tokens have {} bytes, more than {most}",
            lengths.sum
        )));
    }
    let most_squares = MAX_SQUARES + u128::from(count) * SQUARES_PER_TOKEN;
    match kind {
        "plamo2" if lengths.cubes > MAX_CUBES => Err(refused(format!(
            "the tokens are too long for a tokenizer of the kind {kind:?}; one has {} bytes",
            lengths.longest
        ))),
        "plamo2" => check_encoding(metadata, &mut open()?),
        "rwkv" => check_first_bytes(metadata, &mut open()?),
        "t5" if metadata.contains(CHARSMAP_KEY) => {
            check_replacements(metadata, lengths.longest, &mut open()?)
        }
        "gpt2" | "hybriddna" | "whitespace" if lengths.squares > most_squares => {
            check_letters(metadata, most_squares, &mut open()?)
        }
        _ => Ok(()),
    }
}

fn refused(problem: String) -> Error {
    Error::new(Code::ModelInvalid, format!("{TOKENS}: {problem}"))
}

/// PLaMo-2's tokenizer finds the rest of a token by its characters, and takes another one for it if a
/// token is not UTF-8.
fn check_encoding<R: Read + Seek>(metadata: &Metadata, cursor: &mut Cursor<R>) -> Result<()> {
    let (mut number, mut wrong) = (0_u64, None);
    metadata.each_token(cursor, &mut |text| {
        if str::from_utf8(text).is_err() {
            wrong.get_or_insert(number);
        }
        number += 1;
    })?;
    match wrong {
        Some(number) => Err(refused(format!("token {number} is not valid UTF-8"))),
        None => Ok(()),
    }
}

/// Where a token begins with a byte that is not a token itself, llama.cpp's RWKV tokenizer starts
/// again from the beginning of the text and never ends.
fn check_first_bytes<R: Read + Seek>(metadata: &Metadata, cursor: &mut Cursor<R>) -> Result<()> {
    let (mut first, mut single) = ([false; 256], [false; 256]);
    let mut wrong = None;
    metadata.each_token(cursor, &mut |text| {
        // llama.cpp reads a text up to its first NUL, and gives an empty one a name.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = if text.is_empty() { b"[EMPTY_" } else { text };
        let Some(bytes) = unescaped(text) else {
            wrong.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
            return;
        };
        if let Some(byte) = bytes.first() {
            first[usize::from(*byte)] = true;
            single[usize::from(*byte)] |= bytes.len() == 1;
        }
    })?;
    if let Some(text) = wrong {
        return Err(refused(format!("the token {text:?} has an escape with a wrong digit")));
    }
    match (0..256).find(|byte| first[*byte] && !single[*byte]) {
        Some(byte) => Err(refused(format!(
            "tokens begin with the byte 0x{byte:02X}, which is no token itself"
        ))),
        None => Ok(()),
    }
}

/// A text grows by the length of the replacements. They follow a table, whose length comes first,
/// and each ends with a NUL.
fn check_replacements<R: Read + Seek>(
    metadata: &Metadata,
    longest_token: u64,
    cursor: &mut Cursor<R>,
) -> Result<()> {
    let (mut head, mut table) = (Vec::new(), None);
    let (mut length, mut longest) = (0, 0);
    metadata.charsmap(cursor, &mut |block| {
        for &byte in block {
            match &mut table {
                None => {
                    head.push(byte);
                    table = head.as_slice().try_into().ok().map(u32::from_le_bytes);
                }
                Some(1..) => table = table.map(|remaining| remaining - 1),
                Some(0) => {
                    length = if byte == 0 { 0 } else { length + 1 };
                    longest = longest.max(length);
                }
            }
        }
    })?;
    let most = MAX_BYTES_OF_REPLACEMENT.min(MAX_STEPS_OF_REPLACEMENT / longest_token.max(1));
    if longest > most {
        let message = format!(
            "{CHARSMAP_KEY}: a replacement has {longest} bytes, more than {most}, and the longest \
             token has {longest_token}"
        );
        return Err(Error::new(Code::ModelInvalid, message));
    }
    Ok(())
}

/// The bytes of an RWKV token text, unescaped as in llama.cpp. `None` if a digit is not ASCII, whose
/// value depends on the processor.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    let digit =
        |digit: u8| if digit >= b'a' { digit - b'a' + 10 } else { digit.wrapping_sub(b'0') };
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b't') => bytes.push(b'\t'),
            Some(b'n') => bytes.push(b'\n'),
            Some(b'r') => bytes.push(b'\r'),
            Some(b'x') => {
                if let (Some(high), Some(low)) = (rest.next(), rest.next()) {
                    if !high.is_ascii() || !low.is_ascii() {
                        return None;
                    }
                    bytes.push((digit(high) << 4).wrapping_add(digit(low)));
                }
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    Some(bytes)
}

/// For each character of a token that is not one of GPT-2's byte letters, llama.cpp writes the
/// whole token into its text.
fn check_letters<R: Read + Seek>(
    metadata: &Metadata,
    most: u128,
    cursor: &mut Cursor<R>,
) -> Result<()> {
    let is_letter =
        |it: &char| matches!(it, '!'..='~' | '\u{A1}'..='\u{AC}' | '\u{AE}'..='\u{143}');
    let (mut written, mut longest) = (0_u128, 0);
    metadata.each_token(cursor, &mut |text| {
        let others = String::from_utf8_lossy(text).chars().filter(|it| !is_letter(it)).count();
        written += others as u128 * text.len() as u128;
        longest = longest.max(if others > 0 { text.len() } else { 0 });
    })?;
    if written > most {
        return Err(refused(format!(
            "the tokens with characters outside GPT-2's byte letters are too long; the longest has \
             {longest} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor as Bytes;

    use super::*;
    use crate::gguf::file_part::FilePart;
    use crate::gguf::gguf_writer::GgufWriter;

    /// The problem that is found in a vocabulary; empty if it is accepted.
    fn problem(kind: &str, tokens: Vec<String>) -> String {
        let bytes = GgufWriter::new()
            .metadata("general.architecture", "llama")
            .metadata("tokenizer.ggml.model", kind)
            .metadata(TOKENS, tokens)
            .to_bytes();
        let size = bytes.len() as u64;
        let mut cursor = Cursor::new(Bytes::new(bytes), size);
        let file = FilePart::read(&mut cursor).expect("a header");
        match check(&file.metadata, || Ok(cursor)) {
            Ok(()) => String::new(),
            Err(error) => error.message().to_owned(),
        }
    }

    #[track_caller]
    fn refuse(kind: &str, tokens: Vec<String>, expected: &str) {
        let problem = problem(kind, tokens);
        assert!(problem.contains(expected), "{problem:?}");
    }

    fn long(count: usize, length: usize, letter: &str) -> Vec<String> {
        (0..count).map(|number| format!("{number:06}{}", letter.repeat(length - 6))).collect()
    }

    #[test]
    fn tokens_that_a_tokenizer_cannot_take_are_refused() {
        refuse("t5", long(1, 1_025, "x"), "has 1025 bytes");
        refuse("t5", long(300, 1_000, "x"), "300 tokens have 300000 bytes, more than 271744");
        refuse("rwkv", long(300, 1_000, "x"), "300 tokens have 300000 bytes");
        refuse("bert", long(1, 129, "x"), "has 129 bytes");
        refuse("rwkv", long(1, 2_000, "x"), "has 2000 bytes");
        refuse("plamo2", long(1_000, 60, "x"), "too long");
        refuse("llama", long(300, 1_000, "x"), "300 tokens have 300000 bytes, more than 281344");
        refuse("gpt2", long(1, 10_000, "\u{4E2D}"), "too long");
        refuse("gpt2", long(50, 1_000, "\u{4E2D}"), "too long");
        for (kind, tokens) in [
            ("gpt2", long(100_000, 66, "x")),
            ("gpt2", long(100_000, 30, "\u{DF}")),
            ("whitespace", long(100_000, 16, "\u{4E2D}")),
            ("gpt2", long(1, 200_000, "x")),
            ("llama", long(3, 20_000, "\u{4E2D}")),
            ("gpt2", long(5, 1_000, "\u{4E2D}")),
            ("plamo2", long(90_000, 10, "x")),
            ("t5", long(10, 1_000, "x")),
            ("t5", long(100_000, 34, "x")),
        ] {
            assert_eq!(problem(kind, tokens), "");
        }
    }

    #[test]
    fn long_replacements_are_refused() {
        let problem_with = |kind: &str, token: usize, rules: Vec<u8>| {
            let bytes = GgufWriter::new()
                .metadata("general.architecture", "llama")
                .metadata("tokenizer.ggml.model", kind)
                .metadata(TOKENS, vec!["a".repeat(token)])
                .metadata(CHARSMAP_KEY, rules)
                .to_bytes();
            let size = bytes.len() as u64;
            let mut cursor = Cursor::new(Bytes::new(bytes), size);
            let file = FilePart::read(&mut cursor).expect("a header");
            let checked = check(&file.metadata, || Ok(cursor));
            checked.err().map(|error| error.message().to_owned()).unwrap_or_default()
        };
        let problem = |kind, rules| problem_with(kind, 1, rules);
        let rules = |table: u32, length: usize| {
            let text = [vec![b'x'; length], vec![0], vec![b'y'; 3], vec![0]].concat();
            [table.to_le_bytes().to_vec(), vec![7; table as usize], text].concat()
        };
        for table in [0, 4, 1024, 200_000] {
            assert_eq!(problem("t5", rules(table, 128)), "");
            let expected = "tokenizer.ggml.precompiled_charsmap: a replacement has 129 bytes, more \
                            than 128, and the longest token has 1";
            assert_eq!(problem("t5", rules(table, 129)), expected);
            // Other tokenizers do not read it.
            assert_eq!(problem("llama", rules(table, 129)), "");
        }
        assert_eq!(problem_with("t5", 64, rules(4, 128)), "");
        let expected = "tokenizer.ggml.precompiled_charsmap: a replacement has 128 bytes, more than \
                        81, and the longest token has 100";
        assert_eq!(problem_with("t5", 100, rules(4, 128)), expected);
        // llama.cpp refuses these.
        assert_eq!(problem("t5", vec![1]), "");
        assert_eq!(problem("t5", [u32::MAX.to_le_bytes().to_vec(), vec![7; 500]].concat()), "");
    }

    #[test]
    fn an_rwkv_token_whose_first_byte_is_no_token_is_refused() {
        let tokens = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(problem("rwkv", tokens(&["<", "<s>", "\\n", "\\n\\n", "\\x41b", "A"])), "");
        refuse("rwkv", tokens(&["a", "\\n\\n"]), "0x0A");
        refuse("rwkv", tokens(&["\\x41b", "b"]), "0x41");
        // llama.cpp names an empty token [EMPTY_0], and reads others up to a NUL.
        refuse("rwkv", tokens(&["", "a"]), "0x5B");
        assert_eq!(problem("rwkv", tokens(&["", "["])), "");
        refuse("rwkv", tokens(&["\0a", "a"]), "0x5B");
        assert_eq!(problem("rwkv", tokens(&["a\0b"])), "");
        refuse("rwkv", tokens(&["\\x\u{441}b", "\\x4"]), "has an escape with a wrong digit");
    }

    #[test]
    fn tokens_of_plamo2_are_utf8() {
        let of = |token: &[u8]| {
            let writer = GgufWriter::new()
                .metadata("general.architecture", "plamo2")
                .metadata("tokenizer.ggml.model", "plamo2");
            let mut bytes =
                writer.metadata(TOKENS, ["<0x80>", "#####"].map(str::to_owned).to_vec()).to_bytes();
            let at = bytes.windows(5).position(|part| part == b"#####").expect("the token");
            bytes[at..at + token.len()].copy_from_slice(token);
            let mut cursor = Cursor::new(Bytes::new(&bytes), bytes.len() as u64);
            let file = FilePart::read(&mut cursor).expect("a header");
            let checked = check(&file.metadata, || Ok(cursor));
            checked.err().map(|error| error.message().to_owned())
        };
        assert_eq!(of("a\u{80}".as_bytes()), None);
        let refusal = "tokenizer.ggml.tokens: token 1 is not valid UTF-8";
        assert_eq!(of(b"a\x80\x80").as_deref(), Some(refusal));
    }
}
