//! Runs a grammar over the tokens of one vocabulary.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv,
};
use llguidance::{Matcher, ParserFactory};
use once_cell::sync::OnceCell;

use crate::error::{Code, Error, Result};

/// Text to tokens, without special ones.
pub type Tokenize = Box<dyn Fn(&str) -> Vec<u32> + Send + Sync>;

/// A vocabulary as grammars see it.
pub struct Vocabulary {
    /// The bytes of each token; 0xFF and the token's text where the token prints nothing.
    pub words: Vec<Vec<u8>>,
    /// Tokens that end a generation; at least one.
    pub ends: Vec<u32>,
    /// Text to tokens, without special ones.
    pub tokenize: Tokenize,
}

/// Compiles grammars for one vocabulary. The tables it needs (a second or two for a large
/// vocabulary) are built when the first grammar is asked for, or before.
///
/// The last grammars are kept: a chat asks for the same one with every message, and many tools take
/// a second to compile.
pub struct Grammars {
    tables: Arc<Tables>,
    building: Option<JoinHandle<()>>,
    kept: Mutex<VecDeque<(String, Matcher)>>,
}

struct Tables {
    factory: OnceCell<ParserFactory>,
    words: Box<dyn Fn() -> Vocabulary + Send + Sync>,
    /// Nobody needs them any more.
    abandoned: AtomicBool,
}

/// How many grammars are kept.
const KEPT: usize = 8;

impl Grammars {
    /// `words` is called once, with the first grammar.
    pub fn new(words: impl Fn() -> Vocabulary + Send + Sync + 'static) -> Self {
        let tables = Tables {
            factory: OnceCell::new(),
            words: Box::new(words),
            abandoned: AtomicBool::new(false),
        };
        Grammars { tables: Arc::new(tables), building: None, kept: Mutex::default() }
    }

    /// Begins to build the tables on a thread of their own. Who needs them before they are done
    /// waits; where there can be no such thread they are built then.
    pub fn begin(mut self) -> Self {
        let tables = Arc::clone(&self.tables);
        // What fails is tried again, and reported, when a grammar is asked for.
        let build = move || drop(tables.factory());
        self.building = std::thread::Builder::new().name("llb-grammars".into()).spawn(build).ok();
        self
    }

    /// Compiles a Lark grammar; one that cannot be enforced is `SCHEMA_UNSUPPORTED` with
    /// llguidance's reason.
    pub fn compile(&self, lark: &str) -> Result<Constraint> {
        if let Some(matcher) = self.kept(lark) {
            return Ok(Constraint { matcher });
        }
        let factory = self.tables.factory()?;
        let parser = factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned()));
        let mut matcher = Matcher::new(parser);
        // Some schemas (a reference to itself) compile, and fail with the first mask: then nothing
        // may be generated either.
        let usable = matcher
            .get_error()
            .map_or_else(|| matcher.compute_mask().map(drop).map_err(|error| reason(&error)), Err);
        match usable {
            Ok(()) => {
                let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.truncate(KEPT - 1);
                kept.push_front((lark.to_owned(), matcher.deep_clone()));
                Ok(Constraint { matcher })
            }
            Err(error) => Err(Error::new(
                Code::SchemaUnsupported,
                format!("cannot be enforced: {}", reason(&error)),
            )),
        }
    }

    /// A copy of a grammar that was compiled before; nothing of it is shared.
    fn kept(&self, lark: &str) -> Option<Matcher> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let index = kept.iter().position(|(text, _)| text == lark)?;
        let entry = kept.remove(index)?;
        let matcher = entry.1.deep_clone();
        kept.push_front(entry);
        Some(matcher)
    }
}

impl Drop for Grammars {
    fn drop(&mut self) {
        self.tables.abandoned.store(true, Ordering::Relaxed);
        if let Some(building) = self.building.take() {
            // A panic of that thread left nothing behind.
            let _ = building.join();
        }
    }
}

impl Tables {
    fn factory(&self) -> Result<&ParserFactory> {
        self.factory.get_or_try_init(|| self.build())
    }

    fn build(&self) -> Result<ParserFactory> {
        let requirements = || {
            let abandoned = self.abandoned.load(Ordering::Relaxed);
            if abandoned {
                Err(Error::new(Code::EngineClosed, "the model was closed"))
            } else {
                Ok(())
            }
        };
        requirements()?;
        let words = (self.words)();
        requirements()?;
        let end = words
            .ends
            .first()
            .copied()
            .ok_or_else(|| unusable("it has no end-of-generation token"))?;
        let info = TokRxInfo::new(words.words.len() as u32, end);
        let trie = TokTrie::from(&info, &words.words).with_eos_tokens(&words.ends);
        requirements()?;
        let env: TokEnv = Arc::new(Tokenizer { trie, tokenize: words.tokenize });
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(unusable)?;
        factory.quiet();
        Ok(factory)
    }
}

fn unusable(reason: impl Display) -> Error {
    Error::new(Code::InternalBridgeError, format!("the vocabulary cannot be constrained: {reason}"))
}

struct Tokenizer {
    trie: TokTrie,
    tokenize: Tokenize,
}

impl TokenizerEnv for Tokenizer {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| (self.tokenize)(text))
    }

    /// Vocabularies that put a blank before the first word do not tokenise a part of a text as they
    /// do the whole.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// A grammar being followed.
pub struct Constraint {
    matcher: Matcher,
}

impl Constraint {
    /// The tokens that may come next.
    pub fn mask(&mut self) -> Result<SimpleVob> {
        self.matcher.compute_mask_or_eos().map_err(broken)
    }

    /// Whether these tokens may come next, one after another. Costs much less than a mask, and
    /// changes nothing.
    pub fn allows(&mut self, tokens: &[i32]) -> Result<bool> {
        let tokens = tokens
            .iter()
            .map(|token| TokenId::try_from(*token))
            .collect::<Result<Vec<_>, _>>()
            .map_err(broken)?;
        // A token without text is in no mask, but would count as valid here.
        let env = self.matcher.tok_env().map_err(broken)?;
        let trie = env.tok_trie();
        if tokens
            .iter()
            .any(|token| *token as usize >= trie.vocab_size() || trie.token(*token).is_empty())
        {
            return Ok(false);
        }
        let allowed = self.matcher.validate_tokens(&tokens).map_err(broken)?;
        Ok(allowed == tokens.len())
    }

    /// Takes a token that is allowed.
    pub fn accept(&mut self, token: i32) -> Result<()> {
        let token = TokenId::try_from(token).map_err(broken)?;
        self.matcher.consume_token(token).map_err(broken)
    }

    /// Whether this token may come next. Much cheaper than a mask: draw first, ask, and mask only
    /// if refused.
    pub fn validate(&mut self, token: i32) -> Result<bool> {
        let token = TokenId::try_from(token).map_err(broken)?;
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            let env = self.matcher.tok_env().map_err(broken)?;
            return Ok(env.tok_trie().eos_tokens().contains(&token));
        }
        Ok(self.matcher.validate_tokens(&[token]).map_err(broken)? == 1)
    }

    /// Whether the text so far is a whole one.
    pub fn may_end(&mut self) -> Result<bool> {
        Ok(self.matcher.is_stopped() || self.matcher.is_accepting().map_err(broken)?)
    }

    /// Whether nothing more can follow.
    pub fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }
}

/// Generation stops: a text that the grammar does not allow is never let through.
fn broken(error: impl Display) -> Error {
    Error::new(
        Code::InferenceFailed,
        format!("the grammar failed while sampling: {}", reason(&error)),
    )
}

/// The first line; llguidance goes on with the state of its parser, which holds generated text.
fn reason(error: &impl Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
