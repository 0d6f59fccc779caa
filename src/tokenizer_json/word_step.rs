//! A step that cuts a text into words: a pre-tokenizer of a tokenizer.json.
//!
//! `tokenizers` runs it, except for the search with a regular expression.

use serde_json::Value;
use tokenizers::pattern::Invert;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

use super::document::invalid;
use super::library_call::parsed;
use super::word_pattern::WordPattern;
use crate::engine::Interrupt;
use crate::error::Result;

/// The words of GPT-2's encoder.py, which `ByteLevel` has by default.
const GPT2_WORDS: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// A step.
pub(super) enum WordStep {
    Component(PreTokenizerWrapper),
    Pattern {
        pattern: WordPattern,
        behavior: SplitDelimiterBehavior,
        /// Whether the expression matches what is between the matches.
        inverted: bool,
    },
    /// A space before a text that does not begin with one.
    SpaceBefore,
}

impl WordStep {
    /// The steps of a component.
    pub(super) fn of(component: &Value) -> Result<Vec<WordStep>> {
        let member = "pre_tokenizer";
        if component["type"] == "ByteLevel" {
            let mut bytes: ByteLevel = parsed(member, component)?;
            let mut steps = Vec::new();
            if std::mem::take(&mut bytes.add_prefix_space) {
                steps.push(WordStep::SpaceBefore);
            }
            if std::mem::take(&mut bytes.use_regex) {
                let behavior = SplitDelimiterBehavior::Isolated;
                let pattern = compiled(GPT2_WORDS)?;
                steps.push(WordStep::Pattern { pattern, behavior, inverted: false });
            }
            steps.push(WordStep::Component(bytes.into()));
            return Ok(steps);
        }
        let Some(pattern) = component["pattern"]["Regex"].as_str() else {
            return Ok(vec![WordStep::Component(parsed(member, component)?)]);
        };
        Ok(vec![WordStep::Pattern {
            pattern: compiled(pattern)?,
            behavior: parsed(member, &component["behavior"])?,
            inverted: parsed(member, &component["invert"])?,
        }])
    }

    /// Cuts the words into smaller ones.
    pub(super) fn run(
        &self,
        words: &mut PreTokenizedString,
        interrupt: &Interrupt,
    ) -> tokenizers::Result<()> {
        match self {
            WordStep::Component(component) => component.pre_tokenize(words),
            WordStep::Pattern { pattern, behavior, inverted } => words.split(|_, text| {
                let search = pattern.interruptible(interrupt);
                if *inverted {
                    text.split(Invert(search), *behavior)
                } else {
                    text.split(search, *behavior)
                }
            }),
            WordStep::SpaceBefore => words.normalize(|text| {
                if !text.get().starts_with(' ') {
                    text.prepend(" ");
                }
                Ok(())
            }),
        }
    }
}

fn compiled(pattern: &str) -> Result<WordPattern> {
    WordPattern::new(pattern).map_err(|problem| {
        invalid(format_args!(
            "pre_tokenizer: llb does not run the expression {pattern:?}: {problem}; use a GGUF \
             file of the model"
        ))
    })
}
