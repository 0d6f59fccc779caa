//! Runs grammars over the tokens of one vocabulary, with llguidance.

use std::collections::VecDeque;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::earley::lexerspec::{LexemeIdx, LexerSpec};
use llguidance::toktrie::{
    InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv,
};
use llguidance::{Logger, Matcher, ParserFactory, panic_utils};
use once_cell::sync::OnceCell;

use super::call_texts::{CallProgress, CallTexts};
use super::compilation::{self, Compilation, CompileTime, Compilers, unsupported};
use super::trie_limits::fit_trie;
use super::{forced, regex_work, schema_regexes};
use crate::error::{Code, Error, Result};
use crate::process::{self, Lazy};
use crate::spawn;

/// Converts text to tokens, without special tokens.
pub type Tokenize = Box<dyn Fn(&str) -> Vec<u32> + Send + Sync>;

/// The facts about a vocabulary that grammars need.
pub struct Vocabulary {
    /// The bytes of each token. A token that prints nothing has the byte 0xFF followed by its
    /// spelling.
    pub token_bytes: Vec<Vec<u8>>,
    /// The end-of-generation tokens; at least one.
    pub end_tokens: Vec<u32>,
    /// Converts text to tokens, without special tokens.
    pub tokenize: Tokenize,
}

/// Compiles grammars for one vocabulary. The tables take a second or two for a large vocabulary.
/// They are built for the first grammar, or earlier by [`Grammars::begin`].
///
/// The most recent grammars are cached. A chat needs the same grammar for every message, and a
/// grammar for many tools takes a second to compile.
pub struct Grammars {
    tables: Arc<Tables>,
    building: Option<JoinHandle<()>>,
    /// The number of forks when the thread was started. In a forked child the thread does not
    /// exist.
    forks: usize,
    compilers: Arc<Compilers>,
}

struct Tables {
    factory: OnceCell<ParserFactory>,
    vocabulary: Box<dyn Fn() -> Vocabulary + Send + Sync>,
    /// Set when the tables are no longer needed.
    abandoned: AtomicBool,
    cache: Mutex<VecDeque<(String, Constraint)>>,
}

/// The maximum number of cached grammars, and the maximum length of their texts. The newest grammar
/// is cached regardless of its length.
const CACHED: usize = 8;
const CACHED_BYTES: usize = 512 << 10;

/// The maximum work of the lexer for one mask: at most about 0.2 s. The default of llguidance is a
/// tenth of it, and is too little where many tags may end a text. The lexer caches its states, so
/// that only the first masks in a text need much.
const MAX_STEP_LEXER_FUEL: u64 = 2_000_000;
/// The maximum work of the lexer for its first byte, in the same units: at most about 0.5 s.
/// llguidance itself does not limit it.
const MAX_FIRST_LEXER_FUEL: u64 = 4_000_000;
/// The maximum number of large expressions that llguidance compares with the whole vocabulary while
/// it compiles a grammar, and the weight that makes an expression large. With more of them, that
/// work is done while a reply is generated, where the reply needs it.
const MAX_LARGE_LEXEMES: usize = 8;
const LARGE_LEXEME: u32 = 1_000;

impl Grammars {
    /// `vocabulary` is called once, when the tables are built.
    pub fn new(vocabulary: impl Fn() -> Vocabulary + Send + Sync + 'static) -> Self {
        let tables = Tables {
            factory: OnceCell::new(),
            vocabulary: Box::new(vocabulary),
            abandoned: AtomicBool::new(false),
            cache: Mutex::default(),
        };
        Grammars {
            tables: Arc::new(tables),
            building: None,
            forks: process::forks(),
            compilers: Arc::default(),
        }
    }

    /// Starts to build the tables on a separate thread. The first grammar waits for them. If the
    /// thread cannot be started, the first grammar builds them.
    pub fn begin(mut self) -> Self {
        let tables = Arc::clone(&self.tables);
        // After a failure, the first grammar tries again and reports the error.
        let build = move || drop(tables.factory());
        self.building = spawn::thread("llb-grammars", build).ok();
        self
    }

    /// Compiles a Lark grammar. Fails with `SCHEMA_UNSUPPORTED` and llguidance's reason if the
    /// grammar cannot be enforced, and with `CANCELLED` if the request is over first.
    pub fn compile(&self, lark: &str, time: &CompileTime) -> Result<Constraint> {
        if let Some(constraint) = self.tables.cached(lark) {
            return Ok(constraint);
        }
        let (tables, text) = (Arc::clone(&self.tables), lark.to_owned());
        let compile = move |compilation: &Compilation| tables.compile(text, compilation);
        compilation::run(lark, &self.compilers, time, compile)
    }
}

impl Drop for Grammars {
    fn drop(&mut self) {
        self.tables.abandoned.store(true, Ordering::Relaxed);
        let Some(building) = self.building.take() else { return };
        if self.forks != process::forks() {
            return std::mem::forget(building);
        }
        if !process::is_exiting() {
            // If that thread has panicked, there is nothing to clean up.
            let _ = building.join();
        }
    }
}

impl Tables {
    /// Compiles a grammar and caches a copy. Nothing can stop a step of the compiler. The limits keep
    /// each step below a second, and the compilation may end between two steps.
    fn compile(&self, lark: String, compilation: &Compilation) -> Result<Constraint> {
        // The crate installs its panic hook once, while it holds a lock that a forked child would
        // inherit.
        static HOOK: Lazy<()> = Lazy::new(|| drop(panic_utils::catch_unwind(|| Ok(()))));
        *HOOK;
        let factory = self.factory()?;
        compilation.check()?;
        schema_regexes::check(&lark).map_err(unsupported)?;
        compilation.check()?;
        let grammar = GrammarInit::Serialized(TopLevelGrammar::from_lark(lark.clone()));
        let internal = AssertUnwindSafe(|| {
            grammar.to_internal(Some(factory.tok_env().clone()), factory.limits().clone())
        });
        let (grammar, lexer) =
            panic_utils::catch_unwind(internal).map_err(|error| unsupported(&reason(&error)))?;
        compilation.check()?;
        regex_work::check(&lexer.regex_builder).map_err(unsupported)?;
        let mut limits = factory.limits().clone();
        limits.precompute_large_lexemes = has_few_large_lexemes(factory, &lexer, compilation)?;
        compilation.check()?;
        let forces = !lexer.no_forcing && lexer.can_rollback();
        let parser = factory.create_parser_from_init_ext(
            GrammarInit::Internal(grammar, lexer),
            Logger::new(0, 0),
            InferenceCapabilities::default(),
            limits,
        );
        let mut matcher = Matcher::new(parser);
        compilation.check()?;
        // Some schemas compile and fail only at the first mask, such as a reference to itself. They
        // must be refused before anything is generated.
        let usable = matcher
            .get_error()
            .map_or_else(|| matcher.compute_mask().map(drop).map_err(|error| reason(&error)), Err);
        usable.map_err(|error| unsupported(&reason(&error)))?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.truncate(CACHED - 1);
        let constraint =
            Constraint { matcher, forces, has_forced: false, calls: CallProgress::default() };
        cache.push_front((lark, constraint.deep_clone()));
        while cache.len() > 1
            && cache.iter().map(|(text, _)| text.len()).sum::<usize>() > CACHED_BYTES
        {
            cache.pop_back();
        }
        Ok(constraint)
    }

    /// A deep copy of a cached grammar.
    fn cached(&self, lark: &str) -> Option<Constraint> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let index = cache.iter().position(|(text, _)| text == lark)?;
        let entry = cache.remove(index)?;
        let constraint = entry.1.deep_clone();
        cache.push_front(entry);
        Some(constraint)
    }

    fn factory(&self) -> Result<&ParserFactory> {
        self.factory.get_or_try_init(|| {
            catch_unwind(AssertUnwindSafe(|| self.build())).unwrap_or_else(|payload| {
                Err(unusable(crate::panic::error(payload.as_ref()).message()))
            })
        })
    }

    fn build(&self) -> Result<ParserFactory> {
        let check_open = || {
            let abandoned = self.abandoned.load(Ordering::Relaxed);
            if abandoned {
                Err(Error::new(Code::EngineClosed, "the model was closed"))
            } else {
                Ok(())
            }
        };
        check_open()?;
        let mut vocabulary = (self.vocabulary)();
        check_open()?;
        fit_trie(&mut vocabulary.token_bytes);
        let end = vocabulary
            .end_tokens
            .first()
            .copied()
            .ok_or_else(|| unusable("it has no end-of-generation token"))?;
        let info = TokRxInfo::new(vocabulary.token_bytes.len() as u32, end);
        let trie =
            TokTrie::from(&info, &vocabulary.token_bytes).with_eos_tokens(&vocabulary.end_tokens);
        check_open()?;
        let env: TokEnv = Arc::new(GrammarTokenizer { trie, tokenize: vocabulary.tokenize });
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(unusable)?;
        factory.quiet();
        factory.limits_mut().step_lexer_fuel = MAX_STEP_LEXER_FUEL;
        Ok(factory)
    }
}

/// Computes the first byte of every expression of a lexer, as llguidance does without a limit when
/// it creates a parser. Returns whether only few expressions are large.
fn has_few_large_lexemes(
    factory: &ParserFactory,
    lexer: &LexerSpec,
    compilation: &Compilation,
) -> Result<bool> {
    let mut lexer = lexer.clone();
    lexer.add_extra_lexemes(&factory.extra_lexemes());
    let regexes = AssertUnwindSafe(|| lexer.to_regex_vec(&mut factory.limits().clone()));
    let mut regexes =
        panic_utils::catch_unwind(regexes).map_err(|error| unsupported(&reason(&error)))?;
    let large = (0..lexer.lexemes.len())
        .filter(|index| regexes.lexeme_weight(LexemeIdx::new(*index)) > LARGE_LEXEME);
    let are_few = large.count() <= MAX_LARGE_LEXEMES;
    regexes.set_fuel(MAX_FIRST_LEXER_FUEL);
    let start = regexes.initial_state(&lexer.all_lexemes());
    for byte in 0..=u8::MAX {
        compilation.check()?;
        regexes.transition(start, byte);
        if regexes.has_error() {
            return Err(unsupported("its regular expressions are too complex"));
        }
    }
    Ok(are_few)
}

fn unusable(reason: impl Display) -> Error {
    Error::new(Code::InternalBridgeError, format!("the vocabulary cannot be constrained: {reason}"))
}

struct GrammarTokenizer {
    trie: TokTrie,
    tokenize: Tokenize,
}

impl TokenizerEnv for GrammarTokenizer {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| (self.tokenize)(text))
    }

    /// Vocabularies that prepend a space to the first word tokenize a part of a text differently
    /// from the whole.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// The state of a grammar after some tokens.
pub struct Constraint {
    matcher: Matcher,
    /// Whether the tokens that must come next can be computed. Not with `stop`, `max_tokens` or
    /// `no_forcing` in a caller's grammar.
    forces: bool,
    /// Whether the matcher may hold text that must come next.
    has_forced: bool,
    /// What the reply has written of its calls.
    calls: CallProgress,
}

impl Constraint {
    fn deep_clone(&self) -> Constraint {
        let (forces, has_forced) = (self.forces, self.has_forced);
        let calls = self.calls.clone();
        Constraint { matcher: self.matcher.deep_clone(), forces, has_forced, calls }
    }

    /// Adds the texts of calls, which [`Constraint::likely`] continues.
    pub fn with_call_texts(mut self, texts: Arc<CallTexts>) -> Constraint {
        self.calls = CallProgress::new(texts);
        self
    }

    /// The tokens that are likely to follow `before`, the last token: the text that must come next,
    /// as a tokenizer writes it. Empty if more than one text may come next.
    pub fn forced(&mut self, before: Option<i32>) -> Vec<i32> {
        if !self.forces || self.matcher.is_stopped() {
            return Vec::new();
        }
        let before = before.and_then(|token| TokenId::try_from(token).ok());
        self.has_forced = true;
        let tokens = forced::tokens(&mut self.matcher, before);
        tokens.into_iter().filter_map(|token| i32::try_from(token).ok()).collect()
    }

    /// The tokens that are likely to follow `forced`, which follow `before`: the rest of a text
    /// between the values of a call. The grammar allows them.
    pub fn likely(&mut self, before: Option<i32>, forced: &[i32]) -> Vec<i32> {
        if self.calls.is_empty() || self.matcher.is_stopped() {
            return Vec::new();
        }
        let Ok(env) = self.matcher.tok_env() else { return Vec::new() };
        let token_of = |token: i32| TokenId::try_from(token).unwrap_or(TokenId::MAX);
        let more = forced.iter().map(|token| (*token, env.tok_trie().token(token_of(*token))));
        let before = forced.last().copied().or(before).map(token_of);
        let likely = self.calls.rest(more);
        let likely: Vec<_> =
            likely.into_iter().map(|text| forced::tokenized(&env, before, text)).collect();
        let mut best = Vec::new();
        let forced: Vec<TokenId> = forced.iter().copied().map(token_of).collect();
        for mut tokens in likely {
            let all = [&*forced, &*tokens].concat();
            let allowed = self.matcher.validate_tokens(&all).unwrap_or_default();
            let is_whole = allowed == all.len();
            tokens.truncate(allowed.saturating_sub(forced.len()));
            if tokens.len() > best.len() || is_whole {
                best = tokens;
            }
            if is_whole {
                break;
            }
        }
        best.into_iter().filter_map(|token| i32::try_from(token).ok()).collect()
    }

    /// The tokens that may come next.
    pub fn mask(&mut self) -> Result<SimpleVob> {
        if self.has_forced
            && let Some(mask) = forced::control_mask(&mut self.matcher)
        {
            return Ok(mask);
        }
        self.matcher.compute_mask_or_eos().map_err(matcher_error)
    }

    /// How many of these tokens may come next, in this order. Does not change the state.
    pub fn allowed(&mut self, tokens: &[i32]) -> usize {
        let known = tokens.iter().map_while(|token| TokenId::try_from(*token).ok());
        let known: Vec<TokenId> = known.collect();
        self.matcher.validate_tokens(&known).unwrap_or_default()
    }

    /// Whether these tokens may come next, in this order. Costs much less than a mask, and does not
    /// change the state.
    pub fn allows(&mut self, tokens: &[i32]) -> Result<bool> {
        let tokens = tokens
            .iter()
            .map(|token| TokenId::try_from(*token))
            .collect::<Result<Vec<_>, _>>()
            .map_err(matcher_error)?;
        // A mask never contains a token without text, but `validate_tokens` accepts such tokens.
        let env = self.matcher.tok_env().map_err(matcher_error)?;
        let trie = env.tok_trie();
        if tokens
            .iter()
            .any(|token| *token as usize >= trie.vocab_size() || trie.token(*token).is_empty())
        {
            return Ok(false);
        }
        let allowed = self.matcher.validate_tokens(&tokens).map_err(matcher_error)?;
        Ok(allowed == tokens.len())
    }

    /// Accepts a text that precedes the tokens, in any tokenization. Returns false if the grammar
    /// does not allow it; the state is undefined then.
    pub fn begin_with(&mut self, text: &str) -> Result<bool> {
        let env = self.matcher.tok_env().map_err(matcher_error)?;
        let tokens = env.tok_trie().greedy_tokenize(text.as_bytes());
        // Bytes that no token contains are left out.
        if env.tok_trie().decode_raw(&tokens) != text.as_bytes() {
            return Ok(false);
        }
        let accepted = self.matcher.try_consume_tokens(&tokens).map_err(matcher_error)?;
        Ok(accepted == tokens.len())
    }

    /// Accepts a token. The grammar must allow it.
    pub fn accept(&mut self, token: i32) -> Result<()> {
        let id = TokenId::try_from(token).map_err(matcher_error)?;
        self.matcher.consume_token(id).map_err(matcher_error)?;
        if !self.calls.is_empty() {
            let env = self.matcher.tok_env().map_err(matcher_error)?;
            self.calls.accept(token, env.tok_trie().token(id));
        }
        Ok(())
    }

    /// Whether this token may come next. Costs much less than a mask: draw a token first, and
    /// compute the mask only if that token is refused.
    pub fn validate(&mut self, token: i32) -> Result<bool> {
        let token = TokenId::try_from(token).map_err(matcher_error)?;
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            let env = self.matcher.tok_env().map_err(matcher_error)?;
            return Ok(env.tok_trie().eos_tokens().contains(&token));
        }
        Ok(self.matcher.validate_tokens(&[token]).map_err(matcher_error)? == 1)
    }

    /// Whether the text so far is complete.
    pub fn may_end(&mut self) -> Result<bool> {
        Ok(self.is_finished() || self.matcher.is_accepting().map_err(matcher_error)?)
    }

    /// Whether nothing more can follow. After an error the text is not known to be complete.
    pub fn is_finished(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }
}

/// Ends the generation, so that a text that violates the grammar is never returned.
fn matcher_error(error: impl Display) -> Error {
    let problem =
        format!("the grammar failed while sampling, use a simpler one: {}", reason(&error));
    Error::new(Code::InferenceFailed, problem).with("kind", "grammar_failed")
}

/// The first line of an error. The other lines are the state of llguidance's parser, which includes
/// generated text. A line may quote the whole grammar, so it is shortened.
fn reason(error: &impl Display) -> String {
    const MAX_CHARS: usize = 300;
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    // llguidance reports its own failed assertions with this prefix.
    let line = line.strip_prefix("panic: ").unwrap_or(line);
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
