//! `llb completions` and `llb man`: generated from the declarations of the arguments. On a terminal
//! a man page is shown by the system's `man`, or else as help; in a pipe it is the page's source.

use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::failure::{Failure, Result};
use crate::input::print;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Shell to print completions for
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Command to describe, such as `chat` or `template check` [default: the main page]
    command: Vec<String>,
    /// Write the pages of all commands to this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    out: Option<PathBuf>,
}

pub(crate) fn completions(arguments: &CompletionsArguments, mut root: Command) {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut root, "llb", &mut script);
    print(&String::from_utf8_lossy(&script));
}

pub(crate) fn man(arguments: &ManArguments, mut root: Command) -> Result<()> {
    if let Some(folder) = &arguments.out {
        let written = std::fs::create_dir_all(folder);
        let written = written.and_then(|()| clap_mangen::generate_to(root, folder));
        return written.map_err(|error| Failure::new(format!("{}: {error}", folder.display())));
    }
    // Gives subcommands their full names: llb-template-check.
    root.build();
    let mut command = &root;
    for name in &arguments.command {
        command = command.find_subcommand(name).ok_or_else(|| {
            Failure::new(format!("{name}: no such command")).next("`llb --help` lists the commands")
        })?;
    }
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    if stdout().is_terminal() {
        if !is_shown(&page) {
            print(&format!("{}\n", command.clone().render_long_help()));
        }
    } else {
        print(&String::from_utf8_lossy(&page));
    }
    Ok(())
}

/// Shows a page by the system's `man`, if there is one that reads stdin.
fn is_shown(page: &[u8]) -> bool {
    let child =
        Process::new("man").args(["-l", "-"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else { return false };
    // A reader that quits early closes the pipe.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(page));
    child.wait().is_ok_and(|status| status.success())
}
