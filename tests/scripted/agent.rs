//! A model that does a task for a coding agent: it reads a file, edits it, runs a command, and says
//! that it is done. Each step but the last is some reasoning and a call of the agent's own tools.
//!
//! The template knows the agent by its tools, and the step by the number of replies so far. It ends
//! the prompt with the control token of the step that comes next. Without tools the reply is the
//! last step, except for aider, which is known by its instructions and edits by the text of a reply.

use super::{Model, TOOLS_TEMPLATE};

/// The last step.
pub const DONE: &str = "The task is done.";

/// The end of the template: the generation prompt.
const PROMPT: &str = include_str!("agent.jinja").trim_ascii_end();
/// The same of [`TOOLS_TEMPLATE`].
const PLAIN_PROMPT: &str =
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}";

/// What the model thinks before each call.
const REASONING: &str = "The notes are in this folder, so this is the next step.";

/// For each agent the tool and the arguments of its steps. `notes.txt` is in its folder, and has a
/// line "beta".
const CALLS: [(&str, [(&str, &str); 3]); 5] = [
    (
        "claude",
        [
            ("Read", r#"{"file_path": "notes.txt"}"#),
            ("Edit", r#"{"file_path": "notes.txt", "old_string": "beta", "new_string": "gamma"}"#),
            ("Bash", r#"{"command": "cp notes.txt copy.txt", "description": "Copies the notes"}"#),
        ],
    ),
    (
        "opencode",
        [
            ("read", r#"{"filePath": "notes.txt"}"#),
            ("edit", r#"{"filePath": "notes.txt", "oldString": "beta", "newString": "gamma"}"#),
            ("bash", r#"{"command": "cp notes.txt copy.txt"}"#),
        ],
    ),
    (
        "codex",
        [
            ("exec_command", r#"{"cmd": "cat notes.txt"}"#),
            ("exec_command", r#"{"cmd": "sed -i s/beta/gamma/ notes.txt"}"#),
            ("exec_command", r#"{"cmd": "cp notes.txt copy.txt"}"#),
        ],
    ),
    (
        "cline",
        [
            ("read_files", r#"{"files": [{"path": "notes.txt"}]}"#),
            ("editor", r#"{"path": "notes.txt", "old_text": "beta", "new_text": "gamma"}"#),
            ("run_commands", r#"{"commands": ["cp notes.txt copy.txt"]}"#),
        ],
    ),
    (
        "continue",
        [
            ("Read", r#"{"filepath": "notes.txt"}"#),
            // The same text as a step of Claude Code could not follow both.
            (
                "Edit",
                r#"{"file_path": "notes.txt", "old_string": "beta\n", "new_string": "gamma\n"}"#,
            ),
            ("Bash", r#"{"command": "cp notes.txt copy.txt"}"#),
        ],
    ),
];

/// The only step of aider: the file as it is after the edit.
const LISTING: &str = "notes.txt\n```\nalpha\ngamma\n```\n";

/// `agent.gguf`.
pub fn agent() -> Vec<u8> {
    let mut pieces = vec![DONE.to_owned()];
    let mut controls = Vec::new();
    for (agent, calls) in CALLS {
        for (step, (name, arguments)) in calls.into_iter().enumerate() {
            let control = format!("<|{agent}-{step}|>");
            controls.push(control.clone());
            pieces.push(control);
            pieces.push(format!(
                "<think>\n{REASONING}\n</think>\n\n<tool_call>\n{{\"name\": \"{name}\", \
                 \"arguments\": {arguments}}}\n</tool_call>"
            ));
        }
    }
    let control = "<|aider-0|>".to_owned();
    controls.push(control.clone());
    pieces.extend([control, LISTING.to_owned()]);
    let template = TOOLS_TEMPLATE.strip_suffix(PLAIN_PROMPT).expect("the template has this end");
    let model = Model::new("Scripted agent", &pieces, Some(&format!("{template}{PROMPT}")));
    let ends = (0..pieces.len()).step_by(2).collect();
    Model { ends, controls, n_ctx: 1 << 18, ..model }.to_bytes()
}
