//! The families: how the models we know write reasoning, text and calls. One small file of data each.
//!
//! Where two spellings differ by blanks alone, readers need only one; there are two where the model is to write one of them.

mod apertus;
mod apriel;
mod bare_array;
mod bare_array_id;
mod cohere_action;
mod command_r_plus;
mod deepseek_r1;
mod deepseek_v3;
mod deepseek_v31;
mod dsml;
mod dsml_v4;
mod exaone4;
mod firefunction;
mod functionary_v22;
mod functionary_v31;
mod functionary_v32;
mod gemma4;
mod gigachat3;
mod gigachat31;
mod glm_kv;
mod glm_kv_compact;
mod granite33;
mod harmony;
mod harmony_spaced;
mod hermes;
mod hermes_reversed;
mod hunyuan_a13b;
mod hy3;
mod internlm2;
mod kimi_k2;
mod kimi_k3;
mod lfm2;
mod ling;
mod llama3;
mod llama4;
mod minicpm5;
mod minimax_m1;
mod minimax_m2;
mod minimax_m3;
mod mistral_args;
mod mistral_array;
mod mistral_id;
mod muse;
mod olmo;
mod phi4_mini;
mod polyfill;
mod pythonic;
mod qwen_xml;
mod seed_oss;
mod solar;
#[cfg(test)]
mod table;
mod toolcall_array;

use std::sync::OnceLock;

use super::format::{Calls, Format, Reasoning, Source, Text};

/// Every family a template can be found to write, in the order in which detection tries them: longer markers first where
/// two can be told apart by nothing else, and those without a marker last.
pub fn all() -> Vec<Format> {
    vec![
        hermes::format(),
        exaone4::format(),
        hermes_reversed::format(),
        llama3::format(),
        llama4::format(),
        mistral_array::format(),
        mistral_id::format(),
        mistral_args::format(),
        deepseek_r1::format(),
        deepseek_v31::format(),
        deepseek_v3::format(),
        dsml::format(),
        dsml_v4::format(),
        cohere_action::format(),
        command_r_plus::format(),
        functionary_v31::format(),
        functionary_v32::format(),
        functionary_v22::format(),
        firefunction::format(),
        harmony::format(),
        harmony_spaced::format(),
        kimi_k2::format(),
        kimi_k3::format(),
        minimax_m1::format(),
        minimax_m2::format(),
        minimax_m3::format(),
        qwen_xml::format(),
        seed_oss::format(),
        glm_kv::format(),
        glm_kv_compact::format(),
        ling::format(),
        hy3::format(),
        hunyuan_a13b::format(),
        gemma4::format(),
        toolcall_array::format(),
        apertus::format(),
        lfm2::format(),
        olmo::format(),
        pythonic::format(),
        apriel::format(),
        gigachat3::format(),
        gigachat31::format(),
        minicpm5::format(),
        muse::format(),
        solar::format(),
        granite33::format(),
        phi4_mini::format(),
        internlm2::format(),
        bare_array_id::format(),
        bare_array::format(),
    ]
}

/// What our polyfill teaches. Never found by detection.
pub(crate) fn polyfilled() -> Format {
    polyfill::format()
}

/// How calls are written in every family, for readers that take one family's calls for another's.
pub(crate) fn calls() -> &'static [(Text, Calls)] {
    static CALLS: OnceLock<Vec<(Text, Calls)>> = OnceLock::new();
    CALLS.get_or_init(|| {
        let alone = all().into_iter().filter(|format| format.channels.is_none());
        alone.filter_map(|format| Some((format.family, format.calls?))).collect()
    })
}

/// How a family writes calls.
pub(super) fn calls_of(family: &str) -> Option<&'static Calls> {
    calls().iter().find(|(name, _)| name == family).map(|(_, calls)| calls)
}

/// The families whose calls begin with a tag that is known.
pub(super) fn evident(is_known: &dyn Fn(&str) -> bool) -> Vec<Text> {
    let evident = calls().iter().filter(|(_, calls)| calls.tag().is_some_and(is_known));
    evident.map(|(family, _)| family.clone()).collect()
}

fn text(text: &'static str) -> Text {
    Text::Borrowed(text)
}

/// A format that writes nothing yet.
fn bare() -> Format {
    Format {
        family: text(""),
        source: Source::Family,
        verified: false,
        reasoning: None,
        wrappers: Vec::new(),
        channels: None,
        calls: None,
        ends: Vec::new(),
        fenced_calls: false,
        envelope: false,
        untagged: false,
        also: Vec::new(),
    }
}

/// The usual tags: a call in reasoning that is still open belongs to it, and the end alone says nothing.
fn reasoning(open: &'static str, close: &'static str) -> Option<Reasoning> {
    Some(Reasoning { open: text(open), close: text(close), ends_at_call: false, end_alone: false })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::output::format::{IdForm, Part};

    #[test]
    fn the_table_is_the_files() {
        assert_eq!(table::all(), all());
        assert_eq!(table::polyfilled(), polyfilled());
        assert_eq!(table::calls(), calls());
    }

    #[test]
    fn names_are_unique() {
        let formats = all();
        let names: BTreeSet<_> = formats.iter().map(|format| &format.family).collect();
        assert_eq!(names.len(), formats.len());
        assert!(formats.iter().all(|format| format.source == Source::Family && !format.verified && !format.family.is_empty()));
    }

    #[test]
    fn a_call_names_its_function_and_has_arguments_once() {
        for format in all().into_iter().chain([polyfilled()]) {
            let call = format.calls.unwrap().call;
            let arguments = call.iter().filter(|part| matches!(part, Part::Arguments(_))).count();
            let named = call.iter().any(|part| matches!(part, Part::Name | Part::Id(IdForm::Named { .. })));
            assert!(arguments == 1 && named, "{}", format.family);
            let texts: Vec<&Text> =
                call.iter().filter_map(|part| if let Part::Text(text) = part { Some(text) } else { None }).collect();
            assert!(texts.iter().all(|text| !text.is_empty()), "{}", format.family);
        }
    }

    #[test]
    fn tags_have_no_blanks_around_them() {
        for format in all() {
            let reasoning = format.reasoning.iter().flat_map(|tags| [&tags.open, &tags.close]);
            let wrappers = format.wrappers.iter().flat_map(|tags| [&tags.open, &tags.close]);
            for tag in reasoning.chain(wrappers).chain(&format.ends) {
                assert_eq!(tag.trim(), &**tag, "{}", format.family);
            }
        }
    }
}
