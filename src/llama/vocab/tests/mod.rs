//! Tests each kind of tokenizer with small vocabularies: control tokens in plain text, cuts, and
//! long runs of one character. The kinds are in one file because they share the checks.

mod test_vocab;

use std::process::Command;

use super::*;
use crate::engine::PlainVocab;
use crate::error::Code;
use test_vocab::{CONTROL, NORMAL, TestVocab, UNKNOWN, USER_DEFINED, letter};

/// All values of `tokenizer.ggml.pre` that llama.cpp knows.
const PRE_TOKENIZERS: &str = "a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe \
    codeshell cohere2moe command-r dbrx deepseek-coder deepseek-llm deepseek-r1-qwen deepseek-v3 \
    default exaone exaone-moe exaone4 f2llmv2 falcon falcon-h1 falcon3 gemma4 gigachat glm4 glm5 \
    gpt-2 gpt-4o gpt3-finnish granite-docling granite-embed-multi-311m granite-embed-multi-97m \
    grok-2 hunyuan hunyuan-dense hy_v4 jais jais-2 jina-de jina-es jina-v1-en jina-v2-code \
    jina-v2-de jina-v2-es jina-v5-nano joyai-llm kanana2 kimi-k2 kormo laguna lfm2 llada-moe \
    llama-bpe llama-v3 llama3 llama4 megrez mellum mellum2 midm-2.0 minerva-7b minicpm5 minimax-m2 \
    mmbert modern-bert mpt olmo phi-2 pixtral poro-chat qwen2 qwen35 refact roberta-bpe sarvam-moe \
    seed-coder smaug-bpe smollm solar-open spark2_5 stablelm2 starcoder superbpe talkie tekken \
    tiny_aya trillion ufakzeka viking whitespace youtu";

fn plain(vocab: &LlamaVocab, text: &str) -> Result<Vec<TokenId>> {
    vocab.tokenize(text, false, &Interrupt::default())
}

/// Checks texts that llama.cpp turns into reserved tokens: llb must not, and must keep the text the
/// same.
#[track_caller]
fn check(vocab: &TestVocab, texts: &[&str]) {
    let vocab = vocab.load();
    for text in texts {
        let raw = vocab.raw_tokens(text).expect("tokens");
        let reserved = |tokens: &[TokenId]| tokens.iter().any(|token| vocab.is_reserved(*token));
        assert!(reserved(&raw), "{text:?} is no case: {raw:?}");
        let tokens = plain(&vocab, text).expect("tokens");
        assert!(!reserved(&tokens), "{text:?}: {tokens:?}");
        let written = String::from_utf8_lossy(&vocab.text_of(&tokens)).into_owned();
        let words = matches!(vocab.model.metadata("tokenizer.ggml.model").as_deref(), Some("bert"));
        let (written, expected) = match words {
            // This tokenizer drops spaces and marks the start of each word.
            true => (written.replace(' ', ""), text.replace(' ', "")),
            false => (written.strip_prefix(' ').unwrap_or(&written).to_owned(), (*text).to_owned()),
        };
        assert_eq!(written, expected, "{tokens:?}");
    }
}

#[test]
fn merges_of_sentencepiece_reach_no_control_token() {
    let mut vocab = TestVocab::new("llama", "");
    vocab.add("<unk>", UNKNOWN, 0.0).add("<s>", CONTROL, 0.0).add("</s>", CONTROL, 5.0).add_bytes();
    for text in ["\u{2581}", "<", "/", "s", ">", "a", "</", "s>", "<s"] {
        vocab.add(text, NORMAL, 1.0);
    }
    check(&vocab, &["</s>", "a</s>a", "</s></s>", "<s> </s>a <s>a", "<<s>s>"]);
}

#[test]
fn special_tokens_are_short_and_utf8() {
    let loaded = |text: &str, token_type, bytes: &dyn Fn(&mut [u8])| {
        let mut vocab = TestVocab::new("gpt2", "llama3");
        vocab.add_letters().add(text, token_type, 0.0);
        let mut file = vocab.file();
        bytes(&mut file);
        TestVocab::model(&file).err().map(|error| error.message().to_owned())
    };
    let problem = |length: usize, kind| loaded(&"a".repeat(length), kind, &|_| ());
    assert_eq!(problem(1024, CONTROL), None);
    assert_eq!(problem(5000, NORMAL), None);
    let rule = "is longer than 1024 bytes";
    for token_type in [CONTROL, USER_DEFINED, UNKNOWN] {
        assert!(problem(1025, token_type).is_some_and(|problem| problem.ends_with(rule)));
    }
    let spoil = |file: &mut [u8]| {
        let at = file.windows(4).position(|bytes| bytes == b"####").expect("the token");
        file[at..at + 4].fill(0xFF);
    };
    assert_eq!(loaded("####", NORMAL, &spoil), None);
    let problem = loaded("####", USER_DEFINED, &spoil);
    assert!(problem.is_some_and(|problem| problem.ends_with("is not valid UTF-8")));
}

#[test]
fn words_of_byte_pairs_are_no_control_token() {
    let mut vocab = TestVocab::new("gpt2", "llama3");
    // This pre-tokenizer ignores merges: a word that is in the vocabulary becomes that token.
    vocab.add_letters().add("Stop", CONTROL, 0.0).add("\u{120}Stop", CONTROL, 0.0);
    vocab.add("\u{10A}\u{10A}", NORMAL, 0.0).add("end", NORMAL, 0.0).add(
        "<fin>",
        USER_DEFINED,
        0.0,
    );
    vocab.add("<|start|>", CONTROL, 0.0).merge("S", "t", NORMAL).merge("o", "p", NORMAL);
    vocab.role("bos", "Stop").role("eos", "Stop").role("eot", "end").role("eom", "<fin>");
    vocab.role("padding", "\u{10A}\u{10A}");
    check(
        &vocab,
        &["Stop", "a Stop. Stop", "end", "a<fin>b", "<|start|>system", "Stop<fin>\n\nend"],
    );
}

#[test]
fn merges_of_byte_pairs_reach_no_control_token() {
    let mut vocab = TestVocab::new("gpt2", "gpt-2");
    vocab.add_letters().merge("<", "|", NORMAL).merge("|", ">", NORMAL).merge("!", "|>", NORMAL);
    vocab.merge("<|", "!|>", CONTROL).role("bos", "<|!|>").role("eos", "<|!|>");
    check(&vocab, &["<|!|>", "a<|!|><|!|>b", "<<|!|>|!|>"]);
    // llama.cpp's default id for this kind is 11, which is a comma in this vocabulary.
    let mut vocab = TestVocab::new("gpt2", "gpt-2");
    vocab.add_letters();
    let vocab = vocab.load();
    assert_eq!(plain(&vocab, "a,b").expect("tokens").len(), 3);
}

#[test]
fn words_of_wordpiece_are_no_control_token() {
    let mut vocab = TestVocab::new("bert", "");
    vocab.add("[UNK]", UNKNOWN, 0.0).add("\u{2581}stop", CONTROL, 0.0);
    for letter in 'a'..='z' {
        vocab.add(&format!("\u{2581}{letter}"), NORMAL, 0.0).add(&letter.to_string(), NORMAL, 0.0);
    }
    vocab.role("unknown", "[UNK]").role("bos", "\u{2581}stop").role("seperator", "\u{2581}stop");
    check(&vocab, &["stop", "a stop b stop"]);
}

/// 한 is the letters ᄒ, ᅡ and ᆫ, as in the reference (`scripts/tokens.py`).
#[test]
fn wordpiece_reads_all_letters_of_hangul() {
    let tokens = |normalizer: &[(&'static str, bool)]| {
        let mut vocab = TestVocab::new("bert", "");
        vocab.add("[UNK]", UNKNOWN, 0.0).role("unknown", "[UNK]");
        for text in ["\u{2581}\u{1112}", "\u{1161}", "\u{11AB}", "\u{2581}한"] {
            vocab.add(text, NORMAL, 0.0);
        }
        vocab.normalizer = normalizer.to_vec();
        plain(&vocab.load(), "한").expect("tokens")
    };
    assert_eq!(tokens(&[]), [1, 2, 3]);
    assert_eq!(tokens(&[("lowercase", false)]), [4]);
    assert_eq!(tokens(&[("lowercase", false), ("strip_accents", true)]), [1, 2, 3]);
    assert_eq!(tokens(&[("strip_accents", false)]), [4]);
}

#[test]
fn unigrams_are_no_control_token() {
    let mut vocab = TestVocab::new("t5", "");
    vocab.add("<pad>", CONTROL, 0.0).add("</s>", NORMAL, -1.0).add("<unk>", UNKNOWN, 0.0);
    for text in ["\u{2581}", "<", "/", "s", ">", "a"] {
        vocab.add(text, NORMAL, -2.0);
    }
    check(&vocab, &["</s>", "a</s>a</s>"]);
    // The token for unknown text stays, because the vocabulary cannot represent the text otherwise.
    let vocab = vocab.load();
    assert!(plain(&vocab, "a\u{1F600}a").expect("tokens").contains(&2));
}

#[test]
fn rwkv_matches_no_control_token() {
    let mut vocab = TestVocab::new("rwkv", "");
    vocab.add("<s>", CONTROL, 0.0);
    for byte in 0..=255_u8 {
        let text = match byte {
            b'!'..=b'[' | b']'..=b'~' | b' ' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        vocab.add(&text, NORMAL, 0.0);
    }
    vocab.add("\\n\\n", NORMAL, 0.0).add("ab", NORMAL, 0.0);
    vocab.role("eos", "<s>").role("bos", "<s>").role("eot", "\\n\\n");
    check(&vocab, &["<s>", "ab<s>ab<s><s>", "ab\n\nab\n\n\n"]);
}

#[test]
fn plamo_matches_no_control_token() {
    let mut vocab = TestVocab::new("plamo2", "");
    vocab.add("<|plamo:unk|>", UNKNOWN, 0.0).add("<|plamo:bos|>", CONTROL, 0.0);
    vocab.add("<|plamo:eos|>", CONTROL, 0.0).add("<|plamo:pad|>", CONTROL, 0.0).add_bytes();
    vocab.add("a", NORMAL, -1.0).add("<|", NORMAL, -1.0);
    check(&vocab, &["<|plamo:eos|>", "a<|plamo:bos|>a<|plamo:eos|>a"]);
}

#[test]
fn a_character_that_is_a_control_token_is_written_in_bytes_or_refused() {
    let mut vocab = TestVocab::new("llama", "");
    vocab.add("<unk>", UNKNOWN, 0.0).add("<s>", CONTROL, 0.0).add("|", CONTROL, 0.0).add_bytes();
    vocab.add("\u{2581}", NORMAL, 1.0).add("a", NORMAL, 1.0);
    check(&vocab, &["|", "a|a||"]);
    let mut vocab = TestVocab::new("gpt2", "gpt-2");
    vocab.add_letters();
    vocab.types[usize::from(b'|')] = CONTROL;
    let refused = plain(&vocab.load(), "a|a").expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidRequest);
    assert!(refused.message().contains("'|'") || refused.message().contains("\"|\""), "{refused}");
}

#[test]
fn a_character_without_bytes_is_refused_by_name() {
    let mut vocab = TestVocab::new("llama", "");
    vocab.add("<unk>", UNKNOWN, 0.0).add("<s>", CONTROL, 0.0).add("</s>", CONTROL, 0.0);
    vocab.add("a", NORMAL, 1.0).add("\n", NORMAL, 1.0);
    let check = |vocab: &TestVocab, missing| {
        let refused = plain(&vocab.load(), "a a\né").expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidRequest);
        assert!(refused.message().contains(&format!("no token for {missing:?}")), "{refused}");
    };
    check(&vocab, " ");
    vocab.add("\u{2581}", NORMAL, 1.0);
    check(&vocab, "é");
    assert_eq!(plain(&vocab.load(), "a a\n").expect("tokens").len(), 5);
}

/// Texts with the kinds of letters, marks, digits and whitespace that pre-tokenizers distinguish.
fn random_text(seed: &mut u64, fragments: usize) -> String {
    const FRAGMENTS: &[&str] = &[
        "a",
        "bc",
        "Zab",
        "QZ",
        "abab",
        " ",
        " ",
        " ",
        "  ",
        "    ",
        "\n",
        "\n",
        "\r\n",
        " \n",
        "\t",
        "1",
        "23",
        "1212121",
        ".",
        ",",
        "!!",
        "'s",
        "'re",
        "'LL",
        "/-",
        "(",
        "\u{4E2D}",
        "\u{4E2D}\u{4E2D}",
        "\u{E9}",
        "a\u{301}",
        "\u{1F600}",
        "\u{3000}",
        "\u{AC00}",
        "a b a",
        "<sentinel:1>",
        "IMGIMGABZ",
    ];
    let mut text = String::new();
    for _ in 0..fragments {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text += FRAGMENTS[(*seed >> 33) as usize % FRAGMENTS.len()];
    }
    text
}

/// Cuts a text at every place that the rules allow, and checks that the tokens are those of the
/// whole text. Returns the number of pieces.
#[track_caller]
fn check_pieces(vocab: &LlamaVocab, name: &str, text: &str) -> usize {
    let Ok(whole) = vocab.raw_tokens(text) else { return 0 };
    let pieces: Vec<&str> = vocab.cuts().cut(text, 1).collect();
    let tokens: Vec<TokenId> =
        pieces.iter().flat_map(|piece| vocab.raw_tokens(piece).expect("tokens")).collect();
    assert_eq!(tokens, whole, "{name}: {pieces:?}");
    pieces.len()
}

/// A vocabulary whose merges join any two characters of a word, so that the tokens show where words
/// end.
fn pairs(pre: &'static str) -> TestVocab {
    let kind = if pre == "whitespace" { pre } else { "gpt2" };
    let mut vocab = TestVocab::new(kind, pre);
    vocab.add_letters().add_bytes();
    let bytes = "abcZQ12 \n.,!'/-(\u{4E2D}\u{E9}".bytes().map(letter);
    let characters = "\u{2581}\u{4E2D}\u{E9}\u{1F600}\u{301}".chars();
    let alphabet: Vec<String> = bytes.chain(characters).map(|it| it.to_string()).collect();
    for text in &alphabet {
        vocab.add(text, NORMAL, 0.0);
    }
    vocab.add("\n", NORMAL, 0.0);
    for left in &alphabet {
        for right in &alphabet {
            vocab.merge(left, right, NORMAL);
        }
    }
    vocab
}

#[test]
fn pieces_have_the_tokens_of_the_whole_text() {
    let mut seed = 7;
    for pre in PRE_TOKENIZERS.split_whitespace() {
        let vocab = pairs(pre).load();
        let mut cuts = 0;
        for _ in 0..3 {
            cuts += check_pieces(&vocab, pre, &random_text(&mut seed, 120)).saturating_sub(1);
        }
        assert!(cuts > 3 || pre == "superbpe", "{pre}: {cuts} cuts");
    }
}

#[test]
fn pieces_have_the_tokens_of_the_whole_text_without_a_pre_tokenizer() {
    let mut seed = 11;
    let characters = "abcZQ12.,!'/-(\u{4E2D}\u{E9}";
    for kind in ["llama", "bert", "rwkv", "plamo2"] {
        let mut vocab = TestVocab::new(kind, "");
        vocab.add("<unk>", UNKNOWN, 0.0).add("<s>", CONTROL, 0.0).add("</s>", CONTROL, 0.0);
        vocab.add("<pad>", CONTROL, 0.0);
        if kind != "bert" {
            vocab.add_bytes();
        }
        if kind == "rwkv" {
            (0..=255).for_each(|byte| {
                vocab.add(&format!("\\x{byte:02x}"), NORMAL, 0.0);
            });
        }
        let space = if kind == "rwkv" || kind == "plamo2" { " " } else { "\u{2581}" };
        for left in characters.chars().map(String::from).chain([space.to_owned()]) {
            vocab.add(&left, NORMAL, -1.0);
            for right in characters.chars() {
                let score = -1.5 - (right as u32 % 7) as f32 / 10.0;
                vocab.add(&format!("{left}{right}"), NORMAL, score);
            }
        }
        vocab.add(&space.repeat(2), NORMAL, -1.2);
        if kind == "bert" {
            vocab.role("unknown", "<unk>").role("bos", "<s>").role("seperator", "</s>");
        }
        let loaded = vocab.load();
        let mut cuts = 0;
        for _ in 0..20 {
            cuts += check_pieces(&loaded, kind, &random_text(&mut seed, 100)).saturating_sub(1);
        }
        assert!(cuts > 20, "{kind}: {cuts} cuts");
        // A token that joins a letter and a space forbids cuts between them.
        vocab.add(&format!("a{space}"), NORMAL, -0.5);
        let loaded = vocab.load();
        for _ in 0..20 {
            check_pieces(&loaded, kind, &random_text(&mut seed, 100));
        }
    }
}

/// Set in the environment of a child process, for tests that may crash their process.
const CHILD: &str = "LLB_TEST_CHILD";

#[test]
fn long_runs_are_tokenized_or_refused_on_small_stacks() {
    let name = "llama::vocab::tests::long_runs_are_tokenized_or_refused_on_small_stacks";
    if std::env::var_os(CHILD).is_none() {
        let test = std::env::current_exe().expect("the test program");
        let output = Command::new(test).args(["--exact", name]).env(CHILD, "1").output();
        let output = output.expect("a child process");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}\n{shown}", output.status);
        assert!(shown.contains("1 passed"), "{shown}");
        return;
    }
    for pre in PRE_TOKENIZERS.split_whitespace() {
        let vocab = pairs(pre).load();
        let run = move || {
            for character in [" ", "a", "/\n", "1"] {
                let count = |text: String| plain(&vocab, &text).map(|tokens| tokens.len());
                let tokens = count(character.repeat(30_000 / character.len()));
                let known = tokens.as_ref().is_ok_and(|tokens| *tokens > 0 || pre == "whitespace")
                    || tokens.as_ref().is_err_and(|error| error.code() == Code::ContextOverflow);
                assert!(known, "{pre} {character:?}: {tokens:?}");
            }
            let endless = plain(&vocab, &" ".repeat(2_000_000)).expect_err("refused");
            assert_eq!(endless.code(), Code::ContextOverflow);
        };
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(run);
        thread.expect("a thread").join().expect("no fault");
    }
}

#[test]
fn a_cancel_reaches_into_a_long_text() {
    let vocab = pairs("qwen2").load();
    let interrupt = Interrupt::default();
    interrupt.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    let text = "a few words ".repeat(10_000);
    let stopped = vocab.tokenize(&text, false, &interrupt).expect_err("cancelled");
    assert_eq!(stopped.code(), Code::Cancelled);
    let late = Interrupt { deadline: Some(std::time::Instant::now()), ..Interrupt::default() };
    assert_eq!(vocab.tokenize(&text, false, &late).expect_err("late").code(), Code::Cancelled);
}

/// The tokens of `llama_tokenize` for a whole text.
fn of_llama_cpp(vocab: &LlamaVocab, text: &str, flags: [bool; 2]) -> Vec<TokenId> {
    let mut tokens = vec![0; 2 * text.len() + 16];
    let (length, room) = (text.len() as i32, tokens.len() as i32);
    // SAFETY: text and tokens are valid for the given lengths, and the model is alive.
    let count = shim::guard(|| unsafe {
        shim::calls::llama_tokenize(
            vocab.model.vocab(),
            text.as_ptr().cast::<c_char>(),
            length,
            tokens.as_mut_ptr(),
            room,
            flags[0],
            flags[1],
        )
    });
    tokens.truncate(usize::try_from(count.expect("no fault")).expect("tokens"));
    tokens
}

#[test]
fn texts_have_the_tokens_of_llama_cpp() {
    let special = |vocab: &mut TestVocab| {
        vocab.add("<s>", CONTROL, 0.0).add("</s>", CONTROL, 0.0).add("<w>", USER_DEFINED, 0.0);
        vocab.add("<s><w>", CONTROL, 0.0).role("bos", "<s>").role("eos", "</s>");
    };
    let mut all: Vec<TestVocab> = ["gpt-2", "llama3", "qwen2", "tekken"].map(pairs).into();
    for kind in ["llama", "bert"] {
        let mut vocab = TestVocab::new(kind, "");
        vocab.add("<unk>", UNKNOWN, 0.0);
        if kind == "llama" {
            vocab.add_bytes();
        }
        for left in "\u{2581}abcZ12.,<sw>/".chars() {
            vocab.add(&left.to_string(), NORMAL, -1.0);
            vocab.add(&format!("\u{2581}{left}"), NORMAL, -1.2);
        }
        all.push(vocab);
    }
    let mut seed = 5;
    for mut vocab in all {
        special(&mut vocab);
        if vocab.kind == "bert" {
            vocab.role("unknown", "<unk>").role("seperator", "</s>");
        }
        let (name, vocab) = (format!("{} {}", vocab.kind, vocab.pre), vocab.load());
        let mut longest = 0;
        for length in [0, 1, 20, 20, 20, 40_000] {
            let mut text = random_text(&mut seed, length);
            for spelt in ["<s><w>", " </s> ", "<w>a<s>"] {
                text.insert_str(text.floor_char_boundary(text.len() / 2), spelt);
                text.push_str(spelt);
            }
            longest = longest.max(text.len());
            for flags in [[false, false], [true, false], [false, true], [true, true]] {
                let own = vocab.tokenize_text(&text, flags[0], flags[1]).expect("tokens");
                assert_eq!(own, of_llama_cpp(&vocab, &text, flags), "{name} {flags:?}");
            }
        }
        assert!(longest > PIECE, "{longest}");
    }
}
