//! Makes models with one fault each, or with several, from a valid model.

use std::fmt;
use std::sync::LazyLock;

use llb::gguf::{GgufValue, ValueType};

use crate::crafted;
use crate::model_file::{Content, ModelFile, TYPES};
use crate::numbers::Numbers;
use crate::vocabularies::{self, Vocabulary};

/// The part of a model that a mutant changes. Each kind has the same share of the sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Key,
    Type,
    Shape,
    Missing,
    Vocabulary,
    Crafted,
    /// The numbers in tensors.
    Data,
    /// Two or three faults of the other kinds.
    Several,
}

pub const KINDS: [Kind; 8] = [
    Kind::Key,
    Kind::Type,
    Kind::Shape,
    Kind::Missing,
    Kind::Vocabulary,
    Kind::Crafted,
    Kind::Data,
    Kind::Several,
];

/// The number of combinations of several faults for each architecture.
const COMBINATIONS: usize = 1000;

/// The names of all mutants of a model. The names are unique.
pub fn names(good: &ModelFile, kind: Kind) -> Vec<String> {
    if kind == Kind::Several {
        return (0..COMBINATIONS).map(|number| format!("several faults, {number}")).collect();
    }
    let mut names = Vec::new();
    each(good, kind, &mut |name, _| names.push(name.to_string()));
    names
}

/// The number of mutants of a model.
pub fn count(good: &ModelFile, kind: Kind) -> usize {
    if kind == Kind::Several {
        return COMBINATIONS;
    }
    let mut count = 0;
    each(good, kind, &mut |_, _| count += 1);
    count
}

/// Makes the mutant with this number, which is below the [`count`]. Also returns its name.
pub fn make(good: &ModelFile, kind: Kind, wanted: usize) -> (String, ModelFile) {
    if kind == Kind::Several {
        return several(good, wanted);
    }
    let (mut number, mut made) = (0, None);
    each(good, kind, &mut |name, change| {
        if number == wanted {
            let mut model = good.clone();
            change(&mut model);
            made = Some((name.to_string(), model));
        }
        number += 1;
    });
    made.expect("the number is below the count")
}

/// A model with several faults. A later fault may undo an earlier one.
fn several(good: &ModelFile, wanted: usize) -> (String, ModelFile) {
    // Architectures with the same faults get other combinations.
    let seed = good.name.bytes().fold(wanted as u64, |hash, byte| {
        hash.wrapping_mul(0x0100_0000_01B3).wrapping_add(u64::from(byte))
    });
    let mut numbers = Numbers(seed);
    let (mut faults, mut model) = (Vec::new(), good.clone());
    for _ in 0..2 + numbers.below(2) {
        // Every kind but the last, which is this one.
        let kind = KINDS[numbers.below(KINDS.len() - 1)];
        let count = count(&model, kind);
        if count == 0 {
            continue;
        }
        let (fault, changed) = make(&model, kind, numbers.below(count));
        model = changed;
        faults.push(fault);
    }
    (format!("several faults, {wanted}: {}", faults.join("; ")), model)
}

/// Called with the name of a fault and its change. Few names are needed, so they are written late.
pub type Visit<'a> = dyn FnMut(fmt::Arguments, &dyn Fn(&mut ModelFile)) + 'a;

fn each(good: &ModelFile, kind: Kind, visit: &mut Visit) {
    match kind {
        Kind::Key => keys(good, visit),
        Kind::Type => {
            for (index, tensor) in good.tensors.iter().enumerate() {
                for tensor_type in TYPES {
                    visit(format_args!("{} of type {}", tensor.name, tensor_type.0), &|it| {
                        it.tensors[index].tensor_type = tensor_type;
                    });
                }
            }
            for tensor_type in TYPES {
                visit(format_args!("all matrices of type {}", tensor_type.0), &|it| {
                    for tensor in it.tensors.iter_mut().filter(|tensor| tensor.shape.len() > 1) {
                        tensor.tensor_type = tensor_type;
                    }
                });
                visit(format_args!("all tensors of type {}", tensor_type.0), &|it| {
                    it.tensors.iter_mut().for_each(|tensor| tensor.tensor_type = tensor_type);
                });
            }
        }
        Kind::Shape => shapes(good, visit),
        Kind::Missing => missing(good, visit),
        Kind::Crafted => crafted::each(good, visit),
        Kind::Data => data(good, visit),
        Kind::Several => unreachable!("`names` and `make` handle it"),
        Kind::Vocabulary => {
            static FAULTS: LazyLock<Vec<(String, Vocabulary)>> =
                LazyLock::new(|| Vocabulary::all().iter().flat_map(vocabularies::faults).collect());
            for (name, broken) in FAULTS.iter() {
                visit(format_args!("{name}"), &|it| it.vocabulary = broken.clone());
            }
        }
    }
}

fn keys(good: &ModelFile, visit: &mut Visit) {
    let prefix = format!("{}.", good.architecture);
    let present = good.keys.iter().map(|(key, value)| (key.clone(), Some(value)));
    let optional = good.optional_keys.iter().map(|key| (key.clone(), None));
    for (key, value) in present.chain(optional) {
        let short = key.strip_prefix(&prefix).unwrap_or(&key).to_owned();
        if value.is_some() {
            visit(format_args!("{short} missing"), &|it| it.keys.retain(|(name, _)| *name != key));
        }
        for other in values(value, good.n_layers()) {
            visit(format_args!("{short} = {other:?}"), &|it| {
                it.keys.retain(|(name, _)| *name != key);
                it.keys.push((key.clone(), other.clone()));
            });
        }
    }
}

/// Values for a key: some of its own type, lists with an element for each layer, and one of each
/// other type.
fn values(value: Option<&GgufValue>, layers: usize) -> Vec<GgufValue> {
    let integers = [
        0_u32,
        1,
        2,
        3,
        5,
        7,
        8,
        16,
        31,
        33,
        64,
        65,
        127,
        128,
        255,
        256,
        1000,
        65_535,
        1 << 20,
        i32::MAX as u32,
        1 << 31,
        u32::MAX,
    ];
    let floats = [
        0.0_f32,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1e-30,
        1e-6,
        1e10,
        1e30,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let mut values: Vec<GgufValue> = Vec::new();
    let unknown = value.is_none();
    if unknown || matches!(value, Some(GgufValue::U32(_) | GgufValue::Array(ValueType::U32, _))) {
        values.extend(integers.map(GgufValue::from));
        for list in
            [[0_u32, 0], [1, 0], [0, 1], [2, 1], [3, 2], [65, 64], [u32::MAX, 1], [1, 1 << 31]]
        {
            values.push(of_layers(list, layers));
        }
        values.push(vec![7_u32; layers + 1].into());
        values.push(vec![2_u32; 600].into());
    }
    if unknown || matches!(value, Some(GgufValue::F32(_) | GgufValue::Array(ValueType::F32, _))) {
        values.extend(floats.map(GgufValue::from));
        for list in [[f32::NAN, 1.0], [1.0, f32::INFINITY], [-1.0, 0.0], [1e30, 1e-30]] {
            values.push(of_layers(list, layers));
        }
        values.push(vec![1.0_f32; layers + 1].into());
    }
    if unknown || matches!(value, Some(GgufValue::Bool(_) | GgufValue::Array(ValueType::Bool, _))) {
        values.extend([true.into(), false.into()]);
        for list in [[true, true], [false, false], [true, false], [false, true]] {
            values.push(of_layers(list, layers));
        }
        values.push(vec![true; layers + 1].into());
    }
    if unknown || matches!(value, Some(GgufValue::Array(ValueType::I32, _))) {
        for sections in [
            [0_i32, 0, 0, 0],
            [-1, -1, -1, -1],
            [16, 0, 0, 0],
            [64, 64, 64, 64],
            [1, 1, 1, 1],
            [0, 0, 0, 16],
            [i32::MAX, 1, 1, 1],
            [5, 5, 5, 1],
        ] {
            values.push(sections.to_vec().into());
        }
        for list in [[1_i32, 1], [0, 1], [1, 0], [-1, 1], [1, i32::MAX], [i32::MIN, 0]] {
            values.push(of_layers(list, layers));
        }
        values.push(vec![1_i32; 5].into());
    }
    if unknown || matches!(value, Some(GgufValue::Array(ValueType::U64, _))) {
        for list in [[0_u64, 0], [1, 2], [1 << 40, u64::MAX]] {
            values.push(GgufValue::Array(ValueType::U64, list.map(GgufValue::from).to_vec()));
        }
    }
    if unknown || matches!(value, Some(GgufValue::String(_))) {
        for text in ["none", "linear", "yarn", "longrope", "x", ""] {
            values.push(text.into());
        }
    }
    let of_each_type: [GgufValue; 10] = [
        1_u8.into(),
        (-1_i8).into(),
        1_u16.into(),
        (-1_i32).into(),
        1_u64.into(),
        1.0_f64.into(),
        true.into(),
        "1".into(),
        1.0_f32.into(),
        1_u32.into(),
    ];
    for other in of_each_type {
        if !values.contains(&other) {
            values.push(other);
        }
    }
    for element in [ValueType::U32, ValueType::F32, ValueType::String] {
        values.push(GgufValue::Array(element, Vec::new()));
    }
    values
}

/// A list with an element for each layer, the two given ones in turn.
fn of_layers<T: Copy>(elements: [T; 2], layers: usize) -> GgufValue
where
    GgufValue: From<Vec<T>>,
{
    (0..layers).map(|layer| elements[layer % 2]).collect::<Vec<_>>().into()
}

fn shapes(good: &ModelFile, visit: &mut Visit) {
    for (index, tensor) in good.tensors.iter().enumerate() {
        let shape = &tensor.shape;
        let mut others: Vec<Vec<u64>> = Vec::new();
        for axis in 0..shape.len() {
            for extent in [
                0,
                1,
                shape[axis] / 2,
                shape[axis].saturating_sub(1),
                shape[axis] + 1,
                2 * shape[axis],
            ] {
                let mut other = shape.clone();
                other[axis] = extent;
                others.push(other);
            }
        }
        others.push(shape.iter().rev().copied().collect());
        others.push([shape.as_slice(), &[2]].concat());
        others.push(vec![shape.iter().product()]);
        for other in others.into_iter().filter(|other| other != shape && other.len() <= 4) {
            visit(format_args!("{} of shape {other:?}", tensor.name), &|it| {
                it.tensors[index].shape = other.clone()
            });
        }
    }
}

/// So many experts that choosing among them takes more than llama.cpp's shortest sort.
const MANY_EXPERTS: u32 = 256;

fn data(good: &ModelFile, visit: &mut Visit) {
    let contents = [
        Content::Repeated(f32::NAN, f32::NAN),
        Content::Repeated(f32::NAN, 1.0),
        Content::Repeated(f32::INFINITY, f32::NEG_INFINITY),
        Content::Repeated(f32::MAX, f32::MIN),
        Content::Repeated(0.0, -0.0),
        Content::Random,
    ];
    let key = format!("{}.expert_count", good.architecture);
    let experts = good.keys.iter().find(|(name, _)| *name == key).and_then(|(_, n)| n.as_u64());
    for content in contents {
        visit(format_args!("every tensor: {content:?}"), &|it| {
            it.tensors.iter_mut().for_each(|tensor| tensor.content = content.clone());
        });
        for (index, tensor) in good.tensors.iter().enumerate() {
            visit(format_args!("{}: {content:?}", tensor.name), &|it| {
                it.tensors[index].content = content.clone();
            });
            if let Some(n) = experts.filter(|n| tensor.shape.last() == Some(n)) {
                visit(
                    format_args!("{}: {content:?}, {MANY_EXPERTS} experts", tensor.name),
                    &|it| {
                        it.keys.retain(|(name, _)| *name != key);
                        it.keys.push((key.clone(), MANY_EXPERTS.into()));
                        let of_experts =
                            |name: &str| name.contains("exp") || name.contains("gate_inp");
                        for tensor in it.tensors.iter_mut().filter(|it| of_experts(&it.name)) {
                            if let Some(last) = tensor.shape.last_mut().filter(|last| **last == n) {
                                *last = MANY_EXPERTS.into();
                            }
                        }
                        it.tensors[index].content = content.clone();
                    },
                );
            }
        }
    }
    for tensor_type in TYPES {
        visit(format_args!("all matrices of type {}: Random", tensor_type.0), &|it| {
            for tensor in it.tensors.iter_mut().filter(|tensor| tensor.shape.len() > 1) {
                (tensor.tensor_type, tensor.content) = (tensor_type, Content::Random);
            }
        });
    }
}

fn missing(good: &ModelFile, visit: &mut Visit) {
    let suffix = |name: &str| name.splitn(3, '.').nth(2).unwrap_or(name).to_owned();
    let mut seen = Vec::new();
    for tensor in &good.tensors {
        visit(format_args!("{} missing", tensor.name), &|it| {
            it.tensors.retain(|other| other.name != tensor.name)
        });
        let kind = suffix(&tensor.name);
        if tensor.name.starts_with("blk.") && !seen.contains(&kind) {
            visit(format_args!("blk.*.{kind} missing"), &|it| {
                it.tensors
                    .retain(|other| !other.name.starts_with("blk.") || suffix(&other.name) != kind);
            });
            seen.push(kind);
        }
    }
    for first in &seen {
        for second in seen.iter().filter(|second| *second > first) {
            let same = |name: &str| name.rsplit_once('.').map(|(stem, _)| stem.to_owned());
            // The two keys are related.
            if first[..first.len().min(4)] == second[..second.len().min(4)]
                || same(first) == same(second)
            {
                visit(format_args!("blk.*.{first} and blk.*.{second} missing"), &|it| {
                    it.tensors.retain(|other| {
                        !other.name.starts_with("blk.")
                            || suffix(&other.name) != *first && suffix(&other.name) != *second
                    });
                });
            }
        }
    }
}
