//! Lets the n-th allocation of C or C++ fail, in a create and in a request.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::abi::{Chat, ask};
use crate::libc_functions::{arm, disarm};
use crate::scripted::random::{Memory, random};
use crate::{answers, child_setting, run_child, scripted, seconds};

/// The number of allocations that a child tries.
const SHARE: u64 = 40;
/// How many allocations fail in a row: one, or so many that a second attempt fails too.
const FAILURES: [u64; 2] = [1, 100];
/// The number of allocations that are tried in each phase, without `LLB_FAULTS_SECONDS`.
const SAMPLE: u64 = 5;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Create,
    Request,
}

/// The files of two models: one with a known reply, on which failures are tried, and one with a
/// state.
struct Files {
    folder: tempfile::TempDir,
    text: Vec<u8>,
    state: Vec<u8>,
}

impl Files {
    fn new() -> Files {
        let text = scripted::text_model().to_bytes();
        Files { folder: tempfile::tempdir().unwrap(), text, state: random(Memory::Both) }
    }

    /// Writes a new file, which no earlier result is cached for.
    fn write(&self, number: u64) -> String {
        let path = self.folder.path().join(format!("{number}.gguf"));
        let is_text = number.is_multiple_of(2);
        std::fs::write(&path, if is_text { &self.text } else { &self.state }).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Runs a phase in which allocations fail from `number` on. Returns the outcome, and the counts of
/// `disarm`.
fn attempt(files: &Files, phase: Phase, number: u64, failures: u64) -> (String, (u64, u64)) {
    let path = files.write(number);
    let options = json!({ "model": path, "n_ctx": 256, "n_threads": 2, "tool_policy": "any" });
    if phase == Phase::Create {
        arm(number, failures);
    }
    let chat = Chat::open_with(&options);
    let created = disarm();
    let outcome = match chat {
        Err(refused) => (refused.code().to_owned(), created),
        Ok(chat) if phase == Phase::Create => {
            let reply = chat.infer(&ask(json!({ "max_tokens": 2 })));
            (said(&reply), created)
        }
        Ok(chat) => {
            arm(number, failures);
            let reply = chat.infer(&ask(json!({ "max_tokens": 4, "logprobs": true })));
            let counts = disarm();
            (said(&reply), counts)
        }
    };
    std::fs::remove_file(path).unwrap();
    outcome
}

fn said(reply: &Value) -> String {
    reply["error"]["code"].as_str().unwrap_or("answered").to_owned()
}

/// The main function of a child: tries `SHARE` allocations from a number on, and prints the outcome
/// of each.
fn child(setting: &str) {
    let mut words = setting.split(' ');
    let phase = if words.next() == Some("create") { Phase::Create } else { Phase::Request };
    let [first, step, failures] = [(); 3].map(|()| words.next().unwrap().parse::<u64>().unwrap());
    let files = Files::new();
    // Creates everything that exists once per process.
    attempt(&files, phase, u64::from(u32::MAX), 0);
    attempt(&files, phase, u64::from(u32::MAX) - 1, 0);
    for number in (first..).step_by(step as usize).take(SHARE as usize) {
        println!("trying {number}");
        let (outcome, (_, failed)) = attempt(&files, phase, number, failures);
        println!("outcome {outcome} {failed}");
        if failed == 0 {
            break;
        }
        let sound = files.write(1_000_000);
        answers(&sound);
    }
    println!("end");
}

/// The number of allocations in a phase.
fn count(phase: Phase) -> u64 {
    let files = Files::new();
    attempt(&files, phase, 0, 0);
    (0..2).map(|number| attempt(&files, phase, number, 0).1.0).max().unwrap()
}

#[test]
fn a_failed_allocation_of_llama_cpp_is_an_error() {
    if let Some(setting) = child_setting() {
        if setting == "count" {
            println!("counts {} {}", count(Phase::Create), count(Phase::Request));
        } else {
            child(&setting);
        }
        return;
    }
    let name = "allocations::a_failed_allocation_of_llama_cpp_is_an_error";
    let (_, counted) = run_child(name, "count");
    let line = counted.lines().find_map(|line| line.split_once("counts ")).expect(&counted).1;
    let counts: Vec<u64> = line.split(' ').map(|count| count.parse().unwrap()).collect();
    let end = Instant::now() + Duration::from_secs(seconds().unwrap_or(3600));
    let mut table: BTreeMap<String, u64> = BTreeMap::new();
    let (mut faults, mut problems) = (0, Vec::new());
    for (phase, most) in [("create", counts[0]), ("request", counts[1])] {
        assert!(most > 10, "{phase}: only {most} allocations were seen");
        for failures in FAILURES {
            // A sample is spread over the phase. A search tries every allocation, until its time is
            // used up.
            let step = if seconds().is_some() { 1 } else { most.div_ceil(SAMPLE) };
            let mut first = 0;
            while first < most && Instant::now() < end {
                let (status, text) = run_child(name, &format!("{phase} {first} {step} {failures}"));
                let mut tried = 0;
                for outcome in text.lines().filter_map(|line| line.split_once("outcome ")) {
                    tried += 1;
                    faults += 1;
                    let code = outcome.1.split(' ').next().unwrap_or_default();
                    *table.entry(format!("{phase}: {code}")).or_default() += 1;
                }
                if !status.success() || !text.contains("\nend") {
                    let last = text.lines().rev().find(|line| line.contains("trying "));
                    let tail: Vec<&str> = text.lines().rev().take(12).collect();
                    problems.push(format!(
                        "{phase}, {failures} failures: {status}, {last:?}: {tail:?}"
                    ));
                    faults += 1;
                }
                first += step * SHARE.min(tried + 1);
                if tried < SHARE {
                    // The child ended early: it reached the last allocation, or it crashed.
                    if status.success() {
                        break;
                    }
                }
            }
        }
    }
    for (outcome, count) in &table {
        println!("{count:7} {outcome}");
    }
    println!("harden: inputs=2 faults={faults} crashes={}", problems.len());
    let answered = table.iter().filter(|(outcome, _)| outcome.ends_with(": answered"));
    let answered: u64 = answered.map(|(_, count)| count).sum();
    assert!(answered < faults, "no allocation that failed made an error");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
