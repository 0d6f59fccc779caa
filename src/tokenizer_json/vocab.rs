//! The vocabulary of a tokenizer.json, as the engine uses it.
//!
//! In: the parts of the file, and what the files beside it say. Out: text to tokens and back, in
//! which only the template may write reserved tokens. Added tokens are found here, not by
//! `tokenizers`, which cannot tell a template's text from a message's.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use super::configuration::TokenizerConfiguration;
use super::document::{AddedToken, PipelinePart, TokenizerDocument, invalid};
use super::pipeline::Pipeline;
use super::token_bytes::TokenSpelling;
use crate::engine::{
    Interrupt, PlainVocab, SpecialToken, SpecialTokens, TokenCache, TokenId, Vocab,
    without_reserved,
};
use crate::error::Result;

/// The maximum id of a token. Large vocabularies have 260,000 tokens.
const MAX_ID: u32 = (1 << 20) - 1;
/// The maximum number of bytes of a text whose tokens are kept.
const MAX_KEPT: usize = 4096;

/// The vocabulary of a tokenizer.json. It is immutable and may be used from any thread.
pub(crate) struct TokenizerVocab {
    pipeline: Pipeline,
    tokens: Vec<FileToken>,
    special: SpecialTokens,
    bos: Option<TokenId>,
    unknown: Option<TokenId>,
    byte_tokens: OnceLock<Box<[Option<TokenId>; 256]>>,
    known: TokenCache,
    known_after: TokenCache,
}

/// A token.
#[derive(Clone, Default)]
struct FileToken {
    bytes: Box<[u8]>,
    /// The spelling in the file, if it differs from the bytes.
    spelling: Option<Box<str>>,
    /// A control token prints nothing.
    is_control: bool,
    /// Whether only the template may write it.
    is_reserved: bool,
    /// Whether it ends a reply.
    ends: bool,
}

impl TokenizerVocab {
    pub(super) fn new(
        mut document: TokenizerDocument,
        config: &TokenizerConfiguration,
    ) -> Result<TokenizerVocab> {
        let spelling = TokenSpelling::of(&document)?;
        let (mut tokens, mut ids) = model_tokens(&document.model.vocab.0, spelling)?;
        let unknown = document.model.unk_token.as_ref().and_then(|text| ids.get(text)).copied();
        let bos = required_bos(&document, config)?;
        let pipeline = Pipeline::new(&mut document)?;
        let added = added_tokens(&document.added_tokens, &pipeline, &mut ids)?;
        for (added, id) in &added {
            let entry = FileToken {
                bytes: added.content.as_bytes().into(),
                is_control: added.special,
                is_reserved: added.special,
                ..FileToken::default()
            };
            put(&mut tokens, *id, entry)?;
        }
        let mut reserve = |id: u32, ends: bool| {
            let entry = tokens.get_mut(id as usize)?;
            entry.ends |= ends;
            // A single character may be punctuation.
            entry.is_reserved |=
                entry.is_control || String::from_utf8_lossy(&entry.bytes).chars().nth(1).is_some();
            Some(())
        };
        let id_of = |text: &Option<String>| ids.get(text.as_deref()?).copied();
        let roles = config.other_tokens.iter().filter_map(|text| ids.get(text).copied());
        for id in roles.chain(id_of(&config.bos_token)).chain(id_of(&bos)).chain(unknown) {
            reserve(id, false);
        }
        let ends = config.end_tokens.iter().filter_map(|id| u32::try_from(*id).ok());
        for id in ends.chain(id_of(&config.eos_token)) {
            reserve(id, true);
        }
        let special = special_tokens(&tokens, &added);
        Ok(TokenizerVocab {
            pipeline,
            special,
            bos: id_of(&bos).and_then(|id| TokenId::try_from(id).ok()),
            unknown: unknown.and_then(|id| TokenId::try_from(id).ok()),
            byte_tokens: OnceLock::new(),
            known: TokenCache::default(),
            known_after: TokenCache::default(),
            tokens,
        })
    }

    /// The spellings of the control tokens.
    pub(crate) fn control_tokens(&self) -> Vec<String> {
        let controls = self.tokens.iter().filter(|token| token.is_control);
        let texts = controls.map(|token| String::from_utf8_lossy(&token.bytes).into_owned());
        texts.filter(|text| !text.is_empty()).collect()
    }

    fn is_reserved(&self, token: TokenId) -> bool {
        self.entry(token).is_none_or(|entry| entry.is_reserved)
    }

    /// The token for this byte.
    fn byte_token(&self, byte: u8) -> Option<TokenId> {
        let tokens = self.byte_tokens.get_or_init(|| {
            let mut tokens = Box::new([None; 256]);
            for (id, entry) in self.tokens.iter().enumerate() {
                if let ([byte], false) = (&*entry.bytes, entry.is_reserved)
                    && tokens[usize::from(*byte)].is_none()
                {
                    tokens[usize::from(*byte)] = TokenId::try_from(id).ok();
                }
            }
            tokens
        });
        tokens[usize::from(byte)]
    }

    fn entry(&self, token: TokenId) -> Option<&FileToken> {
        self.tokens.get(usize::try_from(token).ok()?)
    }

    /// The tokens of a text without added tokens, none of them reserved.
    fn plain_tokens(
        &self,
        text: &str,
        follows: bool,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>> {
        interrupt.check()?;
        let tokenize = || {
            let tokens = self.pipeline.ids(text, follows, interrupt)?;
            if tokens.iter().all(|token| !self.is_reserved(*token)) {
                return Ok(tokens);
            }
            let vocab = BetweenAdded { vocab: self, follows, interrupt };
            without_reserved(&vocab, text, tokens, interrupt)
        };
        if text.len() > MAX_KEPT {
            return tokenize();
        }
        if follows {
            self.known_after.tokens(text, tokenize)
        } else {
            self.known.tokens(text, tokenize)
        }
    }
}

/// The vocabulary without its added tokens, for the text between these.
struct BetweenAdded<'a> {
    vocab: &'a TokenizerVocab,
    /// Whether other tokens are before the text.
    follows: bool,
    /// That of the call.
    interrupt: &'a Interrupt,
}

impl Vocab for BetweenAdded<'_> {
    fn len(&self) -> usize {
        self.vocab.len()
    }

    fn tokenize(&self, text: &str, _: bool, interrupt: &Interrupt) -> Result<Vec<TokenId>> {
        self.vocab.plain_tokens(text, self.follows, interrupt)
    }

    fn tokenize_after(&self, text: &str, interrupt: &Interrupt) -> Result<Vec<TokenId>> {
        self.vocab.plain_tokens(text, true, interrupt)
    }

    fn piece(&self, token: TokenId, special: bool) -> Vec<u8> {
        self.vocab.piece(token, special)
    }

    fn is_end_of_generation(&self, token: TokenId) -> bool {
        self.vocab.is_end_of_generation(token)
    }

    fn required_bos(&self) -> Option<TokenId> {
        self.vocab.required_bos()
    }

    fn special_tokens(&self) -> &SpecialTokens {
        self.vocab.special_tokens()
    }
}

impl TokenizerVocab {
    fn tokens_of(
        &self,
        text: &str,
        (parse_special, follows): (bool, bool),
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>> {
        let plain =
            if parse_special { Vec::new() } else { std::iter::once(0..text.len()).collect() };
        let between = BetweenAdded { vocab: self, follows, interrupt };
        Ok(self.special.tokenize(&between, text, plain, None, interrupt)?.tokens)
    }
}

impl Vocab for TokenizerVocab {
    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn tokenize(
        &self,
        text: &str,
        parse_special: bool,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>> {
        self.tokens_of(text, (parse_special, false), interrupt)
    }

    fn tokenize_after(&self, text: &str, interrupt: &Interrupt) -> Result<Vec<TokenId>> {
        self.tokens_of(text, (false, true), interrupt)
    }

    fn piece(&self, token: TokenId, special: bool) -> Vec<u8> {
        let entry = self.entry(token).filter(|entry| special || !entry.is_control);
        entry.map(|entry| entry.bytes.to_vec()).unwrap_or_default()
    }

    fn is_end_of_generation(&self, token: TokenId) -> bool {
        self.entry(token).is_some_and(|entry| entry.ends)
    }

    fn required_bos(&self) -> Option<TokenId> {
        self.bos
    }

    fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }
}

impl PlainVocab for BetweenAdded<'_> {
    fn raw_tokens(&self, text: &str) -> Result<Vec<TokenId>> {
        self.vocab.pipeline.ids(text, self.follows, self.interrupt)
    }

    fn is_reserved(&self, token: TokenId) -> bool {
        self.vocab.is_reserved(token)
    }

    fn is_unknown(&self, token: TokenId) -> bool {
        self.vocab.unknown == Some(token)
    }

    fn spellings(&self, token: TokenId) -> Vec<String> {
        let Some(entry) = self.vocab.entry(token) else { return Vec::new() };
        let printed = String::from_utf8_lossy(&entry.bytes).into_owned();
        let start = printed.trim_start_matches(' ').to_owned();
        let spelling = entry.spelling.as_deref().map(str::to_owned);
        let mut spellings: Vec<String> = spelling.into_iter().chain([printed, start]).collect();
        spellings.sort_unstable();
        spellings.dedup();
        spellings.retain(|spelling| !spelling.is_empty());
        spellings
    }

    fn text_of(&self, tokens: &[TokenId]) -> Vec<u8> {
        tokens.iter().flat_map(|token| self.vocab.piece(*token, true)).collect()
    }

    fn byte_token(&self, byte: u8) -> Option<TokenId> {
        self.vocab.byte_token(byte)
    }
}

/// Sets the token with this id.
fn put(tokens: &mut Vec<FileToken>, id: u32, entry: FileToken) -> Result<()> {
    if id > MAX_ID {
        return Err(invalid(format_args!("the id {id} is too large")));
    }
    let index = id as usize;
    if tokens.len() <= index {
        tokens.resize(index + 1, FileToken::default());
    }
    tokens[index] = entry;
    Ok(())
}

/// The tokens of the model by their ids, and their ids by their texts.
fn model_tokens(
    entries: &[(String, u32)],
    spelling: TokenSpelling,
) -> Result<(Vec<FileToken>, HashMap<String, u32>)> {
    let mut tokens: Vec<FileToken> = Vec::new();
    let mut ids = HashMap::with_capacity(entries.len());
    let mut texts: HashMap<u32, &str> = HashMap::with_capacity(entries.len());
    for (text, id) in entries {
        if ids.insert(text.clone(), *id).is_some() {
            return Err(invalid(format_args!("the vocabulary has the token {text:?} twice")));
        }
        if let Some(other) = texts.insert(*id, text) {
            let problem = format_args!("the tokens {other:?} and {text:?} both have the id {id}");
            return Err(invalid(problem));
        }
        let bytes = spelling.bytes(text);
        let same = bytes == text.as_bytes();
        let entry = FileToken {
            bytes: bytes.into(),
            spelling: (!same).then(|| text.as_str().into()),
            ..FileToken::default()
        };
        put(&mut tokens, *id, entry)?;
    }
    Ok((tokens, ids))
}

/// The added tokens with their ids: those of the model's vocabulary, or those that follow.
fn added_tokens<'d>(
    added: &'d [AddedToken],
    pipeline: &Pipeline,
    ids: &mut HashMap<String, u32>,
) -> Result<Vec<(&'d AddedToken, u32)>> {
    let mut following = (0..).skip(ids.len());
    let mut contents = HashSet::new();
    let mut all = Vec::with_capacity(added.len());
    for token in added.iter().filter(|token| !token.content.is_empty()) {
        let AddedToken { content, id: given, .. } = token;
        let refused = |why: &str| {
            let problem = format_args!(
                "the added token {content:?} is matched {why}, which llb does not do; use a GGUF \
                 file of the model"
            );
            Err(invalid(problem))
        };
        if token.single_word {
            return refused("as a word only");
        }
        if token.normalized && pipeline.normalized(content)? != *content {
            return refused("in normalized text");
        }
        if !contents.insert(content) {
            return Err(invalid(format_args!("the added token {content:?} is there twice")));
        }
        let id = ids.get(content).copied().or_else(|| following.next()).unwrap_or(u32::MAX);
        if id != *given {
            return Err(invalid(format_args!(
                "the added token {content:?} has the id {given}, and its place in the vocabulary \
                 is {id}"
            )));
        }
        ids.insert(content.clone(), id);
        all.push((token, id));
    }
    Ok(all)
}

/// The added tokens, and the others that only the template may write.
fn special_tokens(tokens: &[FileToken], added: &[(&AddedToken, u32)]) -> SpecialTokens {
    let added_ids: HashSet<u32> = added.iter().map(|(_, id)| *id).collect();
    let mut special: Vec<SpecialToken> = Vec::with_capacity(added.len());
    for (token, id) in added {
        let Ok(token_id) = TokenId::try_from(*id) else { continue };
        special.push(SpecialToken {
            text: token.content.clone(),
            token: token_id,
            control: token.special,
            reserved: tokens[*id as usize].is_reserved,
            strips_before: token.lstrip,
            strips_after: token.rstrip,
        });
    }
    for (id, entry) in tokens.iter().enumerate().filter(|(_, entry)| entry.is_reserved) {
        let Ok(token) = TokenId::try_from(id) else { continue };
        let text = String::from_utf8(entry.bytes.to_vec());
        if let (Ok(text), false) = (text, added_ids.contains(&(id as u32))) {
            special.push(SpecialToken {
                text,
                token,
                control: false,
                reserved: true,
                strips_before: false,
                strips_after: false,
            });
        }
    }
    SpecialTokens::new(special)
}

/// The token that begins every text, by the post-processor or by the configuration.
fn required_bos(
    document: &TokenizerDocument,
    config: &TokenizerConfiguration,
) -> Result<Option<String>> {
    let processors = document.components(PipelinePart::PostProcessor)?;
    let templates = processors.iter().filter(|it| it["type"] == "TemplateProcessing");
    let firsts = templates.filter_map(|it| it["single"][0]["SpecialToken"]["id"].as_str());
    let of_template = firsts.map(str::to_owned).next();
    let of_config = config.bos_token.clone().filter(|_| config.adds_bos);
    Ok(of_template.or(of_config))
}
