//! Parses the command line. Before clap, spellings of llama.cpp and Ollama that clap cannot declare
//! become those of this program. After it, tips that would mislead are removed from its errors.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error, Parser};

/// The commands in which `-m` is a MODEL. In others it is a message.
const TAKE_MODEL: [&str; 7] = ["info", "show", "chat", "run", "parse", "serve", "bench"];
/// Options of llama.cpp with one dash and several letters.
const OPTIONS: [(&str, &str); 2] = [("-ngl", "--n-gpu-layers"), ("-np", "--parallel")];

/// The arguments of the program. Help and errors end it.
pub(crate) fn read<T: Parser>() -> T {
    T::try_parse_from(respelt(env::args_os())).unwrap_or_else(|error| advised(error).exit())
}

/// The arguments in the spelling of this program.
fn respelt(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let mut respelt: Vec<OsString> = arguments.by_ref().take(1).collect();
    let Some(command) = arguments.next() else { return respelt };
    let has_model = command.to_str().is_some_and(|name| TAKE_MODEL.contains(&name));
    if command == "rm" {
        respelt.extend(["models".into(), "remove".into()]);
    } else {
        respelt.push(command);
    }
    let model_place = respelt.len();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            respelt.push(argument);
            break;
        }
        let text = argument.to_str().unwrap_or_default();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text, None),
        };
        if let Some((_, option)) = OPTIONS.iter().find(|(spelling, _)| *spelling == name) {
            respelt.push(option.into());
            respelt.extend(value);
            continue;
        }
        let prefix = match name {
            "-m" | "--model" if has_model => "",
            "-hf" | "--hf-repo" if has_model => "hf:",
            _ => {
                respelt.push(argument);
                continue;
            }
        };
        match value.or_else(|| arguments.next()) {
            Some(value) => {
                let mut model = OsString::from(prefix);
                model.push(value);
                respelt.insert(model_place, model);
            }
            None => respelt.push(argument),
        }
    }
    respelt.extend(arguments);
    respelt
}

/// The option of any command of the program that sets a member with this name.
pub(crate) fn option_of(program: &Command, name: &str) -> Option<String> {
    // Options that set two members.
    let name = match name {
        "cache_type_k" | "cache_type_v" => "cache_type",
        "cache_dir" => "prefix_cache",
        "media_folders" => "media_folder",
        "response_format" => "json_schema",
        name => name,
    };
    let long = name.replace('_', "-");
    let mut commands = program.get_subcommands().flat_map(Command::get_arguments);
    commands.any(|argument| argument.get_long() == Some(&long)).then(|| format!("--{long}"))
}

/// The error with tips that fit this program.
fn advised(mut error: Error) -> Error {
    match error.kind() {
        // clap advises to pass an unknown option as a value, which is hardly ever meant.
        ErrorKind::UnknownArgument => {
            if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
                tips.retain(|tip| !tip.to_string().contains("as a value, use"));
                if !tips.is_empty() {
                    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
                }
            }
        }
        ErrorKind::InvalidSubcommand => {
            let name = match error.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(name)) => name.clone(),
                _ => return error,
            };
            if name.starts_with("hf:") || name.contains("://") || Path::new(&name).exists() {
                error.remove(ContextKind::SuggestedSubcommand);
                let tip = format!("to talk to this model, use 'llb chat {name}'");
                tell(&mut error, tip);
            }
        }
        ErrorKind::MissingRequiredArgument if misses_model(&error) => {
            let tip = "'llb models' lists the models on this machine, 'llb fetch ORG/NAME' \
                       downloads one";
            tell(&mut error, tip.to_owned());
        }
        _ => {}
    }
    error
}

fn misses_model(error: &Error) -> bool {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(names)) => names.iter().any(|name| name.starts_with("<MODEL")),
        _ => false,
    }
}

fn tell(error: &mut Error, tip: String) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_by_their_options() {
        let long = |name: &'static str| clap::Arg::new(name).long(name);
        let run = Command::new("run").arg(long("n-ctx")).arg(long("cache-type"));
        let program = Command::new("llb").subcommand(run);
        for (name, option) in
            [("n_ctx", Some("--n-ctx")), ("cache_type_v", Some("--cache-type")), ("messages", None)]
        {
            assert_eq!(option_of(&program, name).as_deref(), option);
        }
    }

    #[test]
    fn spellings_of_other_programs_are_understood() {
        for (typed, expected) in [
            ("", ""),
            ("rm a b", "models remove a b"),
            ("run -m a.gguf -p x -ngl 9", "run a.gguf -p x --n-gpu-layers 9"),
            ("run x --temp 0 --model=a.gguf y", "run a.gguf x --temp 0 y"),
            ("serve -hf org/name -np=2 -c 9", "serve hf:org/name --parallel 2 -c 9"),
            ("render a.gguf -m x", "render a.gguf -m x"),
            ("run a.gguf -- -m x -ngl", "run a.gguf -- -m x -ngl"),
            ("run -m", "run -m"),
        ] {
            let typed = ["llb"].into_iter().chain(typed.split_whitespace()).map(OsString::from);
            let expected: Vec<&str> =
                ["llb"].into_iter().chain(expected.split_whitespace()).collect();
            assert_eq!(respelt(typed), expected);
        }
    }
}
