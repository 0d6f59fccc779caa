//! Which tensors of a model live elsewhere than their layer: those that `override_tensor` selects,
//! and the experts of layers.
//!
//! In: the names and sizes of the tensors in the headers, and the options. Out: rules for llama.cpp,
//! and the bytes that each rule moves. Patterns are matched here, in linear time; llama.cpp gets
//! only expressions that are written here.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;

use regex_automata::nfa::thompson::pikevm::PikeVM;

use crate::api::{PlacementChoice, TensorOverride};
use crate::error::{Error, Result};
use crate::gguf::{ModelHeader, block_of};
use crate::llama::context::TensorRule;
use crate::llama::devices::{self, DeviceSelection};

/// The most bytes of all rules. llama.cpp compiles each of them for each tensor.
const MAX_RULE_BYTES: usize = 8192;
/// The most kinds of tensors that an error lists.
const MAX_LISTED: usize = 64;
/// The parts of a name that mark the experts of a layer (llama.cpp, `LLM_FFN_EXPS_REGEX`).
const EXPERTS: [&str; 4] = ["up", "down", "gate", "gate_up"];

/// Where the tensors of a model live, if not with their layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TensorPlaces {
    /// The rules of `override_tensor`.
    pub(crate) rules: Vec<TensorRule>,
    /// The size of the experts of each block that no rule moves, in bytes, by block number.
    experts: BTreeMap<u32, u64>,
    /// The size of the tensors that rules move out of each block.
    moved: BTreeMap<u32, u64>,
    /// The same for the tensors after the last block.
    moved_output: u64,
    /// The size of the tensors that rules move onto each device, by its name.
    on_devices: BTreeMap<String, u64>,
    /// Whether a rule moves a tensor of a block into main memory.
    uses_main_memory: bool,
}

impl TensorPlaces {
    /// The places by these options. `INVALID_REQUEST` for a pattern that is invalid or matches
    /// nothing, and for a device that the model may not use; the error lists those that there are.
    pub(crate) fn of(
        choice: &PlacementChoice,
        header: &ModelHeader,
        selection: &DeviceSelection,
        is_of_tensors: bool,
    ) -> Result<TensorPlaces> {
        let pairs = choice.override_tensor.iter().enumerate();
        let patterns = pairs
            .clone()
            .map(|(index, pair)| compiled(&pair.pattern).map_err(|problem| at(index, 0, &problem)))
            .collect::<Result<Vec<PikeVM>>>()?;
        let devices = pairs
            .map(|(index, pair)| {
                let found = found_device(pair, selection, is_of_tensors);
                found.map_err(|error| error.at(index))
            })
            .collect::<Result<Vec<FoundDevice>>>()?;
        let mut places = TensorPlaces::default();
        let mut chosen: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
        let mut matched = vec![false; patterns.len()];
        let mut caches: Vec<_> = patterns.iter().map(PikeVM::create_cache).collect();
        let has_output = header.tensor_sizes().any(|(name, _)| name == "output.weight");
        for (name, bytes) in header.tensor_sizes() {
            let block = block_of(name);
            let mut first = None;
            for (index, (pattern, cache)) in patterns.iter().zip(&mut caches).enumerate() {
                if pattern.is_match(cache, name) {
                    matched[index] = true;
                    first = first.or(Some(index));
                }
            }
            let Some(found) = first.map(|index| &devices[index]) else {
                if let Some((block, _)) = block.filter(|(_, rest)| is_expert(rest)) {
                    *places.experts.entry(block).or_default() += bytes;
                }
                continue;
            };
            let place = match found {
                FoundDevice::MainMemory => None,
                FoundDevice::Named(device) => Some(device.as_str()),
                FoundDevice::Lost => continue,
            };
            chosen.entry(place).or_default().push(name);
            match block {
                Some((block, _)) => {
                    *places.moved.entry(block).or_default() += bytes;
                    places.uses_main_memory |= place.is_none();
                }
                None if name.starts_with("output") => places.moved_output += bytes,
                None if name.starts_with("token_embd.") && !has_output => {
                    places.moved_output += bytes;
                }
                None => {}
            }
            if let Some(device) = place {
                *places.on_devices.entry(device.to_owned()).or_default() += bytes;
            }
        }
        if let Some(index) = matched.iter().position(|matched| !matched) {
            return Err(matches_nothing(index, &choice.override_tensor[index].pattern, header));
        }
        for (device, names) in chosen {
            places.rules.extend(
                expressions(&names)
                    .into_iter()
                    .map(|pattern| TensorRule { pattern, device: device.map(str::to_owned) }),
            );
        }
        let bytes: usize = places.rules.iter().map(|rule| rule.pattern.len()).sum();
        if bytes > MAX_RULE_BYTES {
            let problem = "the patterns select tensors of too many kinds; use fewer and wider ones";
            return Err(Error::invalid("override_tensor", problem));
        }
        Ok(places)
    }

    /// The places of a model without rules.
    pub(crate) fn of_experts(header: &ModelHeader) -> TensorPlaces {
        let mut experts: BTreeMap<u32, u64> = BTreeMap::new();
        for (name, bytes) in header.tensor_sizes() {
            if let Some((block, _)) = block_of(name).filter(|(_, rest)| is_expert(rest)) {
                *experts.entry(block).or_default() += bytes;
            }
        }
        TensorPlaces { experts, ..TensorPlaces::default() }
    }

    /// The size of the experts of a block that no rule moves.
    pub(crate) fn experts(&self, block: usize) -> u64 {
        self.experts.get(&(block as u32)).copied().unwrap_or(0)
    }

    /// The size of the tensors that rules move out of a block.
    pub(crate) fn moved(&self, block: usize) -> u64 {
        self.moved.get(&(block as u32)).copied().unwrap_or(0)
    }

    /// The size of the output weights that rules move.
    pub(crate) fn moved_output(&self) -> u64 {
        self.moved_output
    }

    /// The size of the tensors that rules move onto devices, by their names.
    pub(crate) fn on_devices(&self) -> &BTreeMap<String, u64> {
        &self.on_devices
    }

    /// Whether a rule moves a tensor of a block into main memory.
    pub(crate) fn uses_main_memory(&self) -> bool {
        self.uses_main_memory
    }
}

/// The rule that keeps the experts of the first `count` blocks in main memory.
pub(crate) fn expert_rule(count: u32) -> TensorRule {
    let (blocks, kinds) = (numbers_below(count), EXPERTS.join("|"));
    let pattern = format!(r"^blk\.(?:{blocks})\.ffn_(?:{kinds})_(?:ch)?exps");
    TensorRule { pattern, device: None }
}

/// Whether this is the name of experts, after the number of the block.
fn is_expert(name: &str) -> bool {
    let Some((kind, rest)) = name.strip_prefix("ffn_").and_then(|rest| rest.rsplit_once('_'))
    else {
        return false;
    };
    EXPERTS.contains(&kind) && rest.strip_prefix("ch").unwrap_or(rest).starts_with("exps")
}

/// What a device in `override_tensor` stands for.
enum FoundDevice {
    MainMemory,
    Named(String),
    /// A device that was lost: its tensors stay with their layers.
    Lost,
}

/// Why a device cannot be used.
struct UnknownDevice {
    problem: String,
    names: Vec<String>,
}

impl UnknownDevice {
    fn at(self, index: usize) -> Error {
        at(index, 1, &self.problem).with("devices", self.names)
    }
}

fn at(index: usize, part: usize, problem: &str) -> Error {
    Error::invalid(format!("override_tensor[{index}][{part}]"), problem)
}

fn found_device(
    pair: &TensorOverride,
    selection: &DeviceSelection,
    is_of_tensors: bool,
) -> std::result::Result<FoundDevice, UnknownDevice> {
    let wanted = &pair.device;
    if wanted == PlacementChoice::MAIN_MEMORY {
        return Ok(FoundDevice::MainMemory);
    }
    // With parts of each tensor on all devices, none of them has a whole one.
    let usable = if is_of_tensors { Vec::new() } else { selection.names() };
    if usable.contains(wanted) {
        return Ok(FoundDevice::Named(wanted.clone()));
    }
    if devices::is_lost(wanted) {
        return Ok(FoundDevice::Lost);
    }
    let main = PlacementChoice::MAIN_MEMORY.to_owned();
    let names: Vec<String> = std::iter::once(main).chain(usable).collect();
    let list: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    let problem =
        format!("the model may not use a device {wanted:?}; there is {}", list.join(", "));
    Err(UnknownDevice { problem, names })
}

fn compiled(pattern: &str) -> std::result::Result<PikeVM, String> {
    PikeVM::new(pattern).map_err(|error| {
        // The description of a syntax error has several lines; the last one says what is wrong.
        let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let reason = last.trim().trim_start_matches("error: ");
        format!("{pattern:?} is not a regular expression that llb can use: {reason}")
    })
}

fn matches_nothing(index: usize, pattern: &str, header: &ModelHeader) -> Error {
    let kind = |name: &str| match block_of(name) {
        Some((_, rest)) => format!("blk.N.{rest}"),
        None => name.to_owned(),
    };
    let kinds: BTreeSet<String> = header.tensor_sizes().map(|(name, _)| kind(name)).collect();
    let more = kinds.len().saturating_sub(MAX_LISTED);
    let kinds: Vec<String> = kinds.into_iter().take(MAX_LISTED).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let list = kinds.join(", ");
    let problem = format!("{pattern:?} matches no tensor; the file has {list}{more}");
    at(index, 0, &problem).with("tensors", kinds)
}

/// Expressions that match exactly these names, as llama.cpp searches for them.
fn expressions(names: &[&str]) -> Vec<String> {
    // The blocks of each kind of tensor, and the kinds with the same blocks.
    let mut blocks: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let mut others = Vec::new();
    for name in names {
        match block_of(name) {
            // A number that is written in another way, such as 007.
            Some((block, rest)) if *name == format!("blk.{block}.{rest}") => {
                blocks.entry(rest).or_default().insert(block);
            }
            _ => others.push(escaped(name)),
        }
    }
    let mut kinds: BTreeMap<BTreeSet<u32>, Vec<String>> = BTreeMap::new();
    for (kind, blocks) in blocks {
        kinds.entry(blocks).or_default().push(escaped(kind));
    }
    let numbers = |blocks: &BTreeSet<u32>| {
        let count = blocks.len() as u32;
        if blocks.last() == count.checked_sub(1).as_ref() {
            return numbers_below(count);
        }
        blocks.iter().map(u32::to_string).collect::<Vec<_>>().join("|")
    };
    let of_blocks = kinds
        .iter()
        .map(|(blocks, kinds)| format!(r"^blk\.(?:{})\.(?:{})$", numbers(blocks), kinds.join("|")));
    let others = (!others.is_empty()).then(|| format!("^(?:{})$", others.join("|")));
    of_blocks.chain(others).collect()
}

/// The text as an expression that matches it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if character.is_ascii() && !character.is_ascii_alphanumeric() && character != '_' {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// An expression for the numbers from 0 to `count` - 1, without leading zeros. `count` is above 0.
fn numbers_below(count: u32) -> String {
    let text = count.to_string();
    let digits = |count: usize| "[0-9]".repeat(count);
    let shorter = (1..text.len()).map(|length| match length {
        1 => digits(1),
        _ => format!("[1-9]{}", digits(length - 1)),
    });
    // Those that have the first digits of `count`, and then a smaller one.
    let as_long = text.char_indices().filter_map(|(index, digit)| {
        let least = if index == 0 && text.len() > 1 { '1' } else { '0' };
        let most =
            char::from_u32(u32::from(digit).checked_sub(1)?).filter(|most| *most >= least)?;
        Some(format!("{}[{least}-{most}]{}", &text[..index], digits(text.len() - index - 1)))
    });
    shorter.chain(as_long).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Cursor;

    use super::*;
    use crate::gguf::gguf_writer::GgufWriter;

    /// Three blocks with attention, the last two with experts of 64 bytes.
    fn header() -> ModelHeader {
        let mut writer = GgufWriter::new()
            .metadata("general.architecture", "x")
            .metadata("x.block_count", 3_u32)
            .tensor("token_embd.weight", &[8], &[0.0; 8])
            .tensor("output_norm.weight", &[4], &[0.0; 4]);
        for block in 0..3 {
            let name = |rest: &str| format!("blk.{block}.{rest}");
            writer = writer.tensor(name("attn_q.weight"), &[2], &[0.0; 2]);
            if block > 0 {
                writer = writer.tensor(name("ffn_up_exps.weight"), &[12], &[0.0; 12]);
                writer = writer.tensor(name("ffn_down_chexps.weight"), &[4], &[0.0; 4]);
                writer = writer.tensor(name("ffn_up_shexp.weight"), &[1], &[0.0; 1]);
            }
        }
        let bytes = writer.to_bytes();
        let size = bytes.len() as u64;
        ModelHeader::read(Cursor::new(bytes), size).unwrap()
    }

    fn places(pairs: &[(&str, &str)]) -> Result<TensorPlaces> {
        let pair = |(pattern, device): &(&str, &str)| TensorOverride {
            pattern: (*pattern).to_owned(),
            device: (*device).to_owned(),
        };
        let choice = PlacementChoice {
            override_tensor: pairs.iter().map(pair).collect(),
            ..PlacementChoice::default()
        };
        TensorPlaces::of(&choice, &header(), &DeviceSelection::Processor, false)
    }

    #[test]
    fn experts_are_counted_unless_a_rule_moves_them() {
        let all = places(&[]).unwrap();
        assert_eq!([0, 1, 2, 3].map(|block| all.experts(block)), [0, 64, 64, 0]);
        assert!(all.rules.is_empty() && !all.uses_main_memory());
        let some = places(&[(r"^blk\.1\..*_exps", "CPU"), ("^token", "CPU")]).unwrap();
        assert_eq!([1, 2].map(|block| some.experts(block)), [16, 64]);
        assert_eq!([1, 2].map(|block| some.moved(block)), [48, 0]);
        // Without output weights, the embedding is the output.
        assert_eq!((some.moved_output(), some.uses_main_memory()), (32, true));
        let patterns: Vec<&str> = some.rules.iter().map(|rule| rule.pattern.as_str()).collect();
        assert_eq!(
            patterns,
            [r"^blk\.(?:1)\.(?:ffn_up_exps\.weight)$", r"^(?:token_embd\.weight)$"]
        );
    }

    #[test]
    fn problems_list_what_there_is() {
        let refused =
            |pairs: &[(&str, &str)]| places(pairs).expect_err("refused").message().to_owned();
        assert_eq!(
            refused(&[("attn", "CPU"), ("ffn_gate", "CPU")]),
            "override_tensor[1][0]: \"ffn_gate\" matches no tensor; the file has \
             blk.N.attn_q.weight, blk.N.ffn_down_chexps.weight, blk.N.ffn_up_exps.weight, \
             blk.N.ffn_up_shexp.weight, output_norm.weight, token_embd.weight"
        );
        assert_eq!(
            refused(&[("attn", "CUDA0")]),
            "override_tensor[0][1]: the model may not use a device \"CUDA0\"; there is \"CPU\""
        );
        assert_eq!(
            refused(&[("(attn", "CPU")]),
            "override_tensor[0][0]: \"(attn\" is not a regular expression that llb can use: \
             unclosed group"
        );
        let ahead = refused(&[("attn(?!_k)", "CPU")]);
        assert!(ahead.contains("look-around"), "{ahead}");
    }

    /// Whether an expression matches a part of a text, as for llama.cpp.
    fn finds(expression: &str, text: &str) -> bool {
        let pattern = PikeVM::new(expression).unwrap();
        let mut cache = pattern.create_cache();
        pattern.is_match(&mut cache, text)
    }

    #[test]
    fn numbers_are_those_below() {
        for count in [1, 2, 9, 10, 11, 19, 20, 48, 99, 100, 101, 110, 128, 999, 1000, 1234] {
            let expression = format!("^(?:{})$", numbers_below(count));
            let found: Vec<u32> =
                (0..1300).filter(|number| finds(&expression, &number.to_string())).collect();
            assert_eq!(found, (0..count).collect::<Vec<_>>(), "{expression}");
            assert!(!finds(&expression, "00"), "{expression}");
        }
    }

    #[test]
    fn the_rule_of_experts_matches_them_alone() {
        let rule = expert_rule(12).pattern;
        for name in ["ffn_up_exps.weight", "ffn_gate_up_exps.weight", "ffn_down_chexps.scale"] {
            assert!(is_expert(name) && finds(&rule, &format!("blk.11.{name}")), "{name}");
            assert!(!finds(&rule, &format!("blk.12.{name}")), "{name}");
        }
        for name in
            ["ffn_up_shexp.weight", "ffn_up.weight", "attn_up_exps.weight", "ffn_gate_inp.weight"]
        {
            assert!(!is_expert(name) && !finds(&rule, &format!("blk.3.{name}")), "{name}");
        }
    }

    #[test]
    fn expressions_match_exactly_these_names() {
        let names = [
            "blk.0.a.weight",
            "blk.2.a.weight",
            "blk.0.b",
            "blk.2.b",
            "blk.0.c",
            "blk.1.c",
            "blk.07.d",
            "x+y",
        ];
        let expressions = expressions(&names);
        assert_eq!(expressions.len(), 3, "{expressions:?}");
        let matches = |name: &str| expressions.iter().filter(|it| finds(it, name)).count();
        assert!(names.iter().all(|name| matches(name) == 1), "{expressions:?}");
        for other in ["blk.1.a.weight", "blk.0.a_weight", "blk.0.a.weight.x", "xxy", "blk.7.d"] {
            assert_eq!(matches(other), 0, "{other}: {expressions:?}");
        }
    }
}
