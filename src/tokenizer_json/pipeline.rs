//! The normalizer, the pre-tokenizer and the model of a tokenizer.json, which `tokenizers` runs.
//!
//! In: the parts of the file. Out: a pipeline that turns text into ids as transformers does,
//! without the added tokens. Only known components are passed on, and none makes a text much longer.

use serde_json::Value;
use tokenizers::models::bpe::{BPE, BpeBuilder};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::whitespace::Whitespace;
use tokenizers::{
    Model, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer,
};

use super::document::{Merge, ModelDocument, PipelinePart, TokenizerDocument, invalid};
use super::library_call::{caught, parsed};
use super::word_step::WordStep;
use crate::engine::{Interrupt, TokenId};
use crate::error::{Code, Error, Result};
use crate::process::Lazy;

/// The components that are passed on.
const NORMALIZERS: [&str; 8] =
    ["Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "StripAccents"];
const PRE_TOKENIZERS: [&str; 7] =
    ["ByteLevel", "Digits", "Metaspace", "Punctuation", "Split", "Whitespace", "WhitespaceSplit"];
/// The maximum factor by which normalizers may make a text longer, in bytes.
const MAX_GROWTH: usize = 16;
/// How many words are tokenized between two looks at the interrupt.
const WORDS: usize = 256;

/// Turns text into ids, without added tokens.
pub(super) struct Pipeline {
    normalizers: Vec<NormalizerWrapper>,
    word_steps: Vec<WordStep>,
    /// The same, for a text that follows others.
    following: Option<Vec<WordStep>>,
    model: BPE,
}

impl Pipeline {
    /// Builds the pipeline, and takes the vocabulary and the merges out of the document.
    pub(super) fn new(document: &mut TokenizerDocument) -> Result<Pipeline> {
        start();
        let normalizers = document.components(PipelinePart::Normalizer)?;
        check_known(PipelinePart::Normalizer, &normalizers, &NORMALIZERS)?;
        check_growth(&normalizers)?;
        let normalizers = normalizers.into_iter().map(|value| parsed("normalizer", value));
        let normalizers = normalizers.collect::<Result<_>>()?;
        let words = document.components(PipelinePart::PreTokenizer)?;
        check_known(PipelinePart::PreTokenizer, &words, &PRE_TOKENIZERS)?;
        let following: Vec<Value> = words.iter().map(|value| following(value)).collect();
        let is_same = following.iter().eq(words.iter().copied());
        let following = (!is_same).then(|| word_steps(following.iter())).transpose()?;
        let word_steps = word_steps(words.into_iter())?;
        let model = model(&mut document.model)?;
        Ok(Pipeline { normalizers, word_steps, following, model })
    }

    /// The ids of a text. `follows` is whether other tokens are before it.
    pub(super) fn ids(
        &self,
        text: &str,
        follows: bool,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>> {
        let ids = caught(|| self.run(text, follows, interrupt)).map_err(|problem| {
            let problem = format!("tokenizer.json: cannot tokenize a text: {problem}");
            interrupt.check().err().unwrap_or(Error::new(Code::InferenceFailed, problem))
        })?;
        let token = |id| TokenId::try_from(id).map_err(|_| invalid("an id is too large"));
        ids.into_iter().map(token).collect()
    }

    /// A text after the normalizers.
    pub(super) fn normalized(&self, text: &str) -> Result<String> {
        let text = caught(|| self.normalize(text));
        let text = text.map_err(|problem| invalid(format_args!("normalizer: {problem}")))?;
        Ok(text.get().to_owned())
    }

    fn normalize(&self, text: &str) -> tokenizers::Result<NormalizedString> {
        let mut text = NormalizedString::from(text);
        for normalizer in &self.normalizers {
            normalizer.normalize(&mut text)?;
        }
        Ok(text)
    }

    fn run(
        &self,
        text: &str,
        follows: bool,
        interrupt: &Interrupt,
    ) -> tokenizers::Result<Vec<u32>> {
        let mut words = PreTokenizedString::from(self.normalize(text)?);
        for step in self.following.as_ref().filter(|_| follows).unwrap_or(&self.word_steps) {
            interrupt.check()?;
            step.run(&mut words, interrupt)?;
        }
        let mut ids = Vec::new();
        let words = words.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
        for (index, (word, ..)) in words.into_iter().enumerate() {
            if index % WORDS == 0 {
                interrupt.check()?;
            }
            ids.extend(self.model.tokenize(word)?.into_iter().map(|token| token.id));
        }
        Ok(ids)
    }
}

/// Makes the tables that `tokenizers` makes once.
fn start() {
    static STARTED: Lazy<()> = Lazy::new(|| {
        let components: [PreTokenizerWrapper; 2] = [ByteLevel::default().into(), Whitespace.into()];
        for component in components {
            let _ = component.pre_tokenize(&mut PreTokenizedString::from("a"));
        }
    });
    *STARTED;
}

fn check_known(part: PipelinePart, components: &[&Value], known: &[&str]) -> Result<()> {
    let name = |value: &&&Value| value["type"].as_str().unwrap_or_default().to_owned();
    let unknown = components.iter().find(|value| !known.contains(&&*name(value)));
    unknown.map_or(Ok(()), |value| {
        let problem = format_args!(
            "{} has the component {:?}, which llb does not run; use a GGUF file of the model",
            part.member(),
            name(&value)
        );
        Err(invalid(problem))
    })
}

/// Refuses expressions, and normalizers that may together make a text much longer.
fn check_growth(normalizers: &[&Value]) -> Result<()> {
    if normalizers.iter().any(|value| !value["pattern"]["Regex"].is_null()) {
        let problem = "normalizer: llb does not replace by regular expressions; use a GGUF file of \
                       the model";
        return Err(invalid(problem));
    }
    let growth = |value: &&Value| {
        let text = value["content"].as_str().or(value["prepend"].as_str());
        text.map_or(1, str::len).max(1)
    };
    let all = normalizers.iter().map(growth).try_fold(1, usize::checked_mul);
    match all {
        Some(all) if all <= MAX_GROWTH => Ok(()),
        _ => Err(invalid("its normalizer makes texts too long")),
    }
}

fn word_steps<'v>(components: impl Iterator<Item = &'v Value>) -> Result<Vec<WordStep>> {
    let steps = components.map(WordStep::of).collect::<Result<Vec<_>>>()?;
    Ok(steps.into_iter().flatten().collect())
}

/// A pre-tokenizer for a text that follows others.
fn following(value: &Value) -> Value {
    let mut value = value.clone();
    if value["type"] == "Metaspace" && value["prepend_scheme"] == "first" {
        value["prepend_scheme"] = "never".into();
    }
    value
}

fn model(document: &mut ModelDocument) -> Result<BPE> {
    let (kind, merges) = (document.kind.as_deref(), document.merges.take());
    let (None | Some("BPE"), Some(merges)) = (kind, merges) else {
        return Err(invalid(format_args!(
            "its model is of type {:?}, and llb runs only \"BPE\" with `merges`; use a GGUF file \
             of the model",
            kind.unwrap_or("?")
        )));
    };
    if document.vocab.0.is_empty() {
        return Err(invalid("its model has no vocabulary"));
    }
    if document.dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err(invalid("`dropout` makes ids random"));
    }
    for (name, affix) in [
        ("continuing_subword_prefix", &document.continuing_subword_prefix),
        ("end_of_word_suffix", &document.end_of_word_suffix),
    ] {
        if affix.as_ref().is_some_and(|affix| !affix.is_empty()) {
            return Err(invalid(format_args!(
                "llb does not run `{name}`; use a GGUF file of the model"
            )));
        }
    }
    let vocab = std::mem::take(&mut document.vocab.0);
    let longest = vocab.iter().map(|(text, _)| text.len()).max().unwrap_or_default();
    if let Some(Merge((first, second))) =
        merges.iter().find(|Merge((first, second))| first.len() + second.len() > longest)
    {
        let problem = format_args!("the merge of {first:?} and {second:?} makes no token");
        return Err(invalid(problem));
    }
    let merges = merges.into_iter().map(|Merge(two)| two).collect();
    // A cache of `tokenizers` would belong to the threads of the host.
    let mut builder = BpeBuilder::new()
        .cache_capacity(0)
        .vocab_and_merges(vocab.into_iter().collect::<tokenizers::models::bpe::Vocab>(), merges)
        .fuse_unk(document.fuse_unk.unwrap_or(false))
        .byte_fallback(document.byte_fallback.unwrap_or(false))
        .ignore_merges(document.ignore_merges.unwrap_or(false));
    if let Some(unknown) = document.unk_token.take() {
        builder = builder.unk_token(unknown);
    }
    caught(|| builder.build()).map_err(invalid)
}
