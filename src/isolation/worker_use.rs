//! What the threads of a worker do, as /proc shows it.

use std::fs;
use std::time::Duration;

/// What a process does at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerState {
    /// A thread computes or waits for a processor, or nothing is known.
    Runs,
    /// No thread runs, and one waits for a disk.
    WaitsForDisk,
    /// All threads sleep or are stopped.
    Sleeps,
}

/// The processor time that all threads have used; `None` if there is no such process or no /proc.
pub(super) fn processor_time(process: i32) -> Option<Duration> {
    /// The clock ticks of /proc/PID/stat: USER_HZ, which is 100 on every architecture.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = after_name(&stat)?.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok();
    Some(TICK * next()?.saturating_add(next()?))
}

/// What a process does now.
pub(super) fn state(process: i32) -> WorkerState {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return WorkerState::Runs;
    };
    let mut state = WorkerState::Sleeps;
    for thread in threads.flatten() {
        // A thread that has ended does nothing.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        match after_name(&stat).and_then(|rest| rest.chars().next()) {
            Some('R') => return WorkerState::Runs,
            Some('D') => state = WorkerState::WaitsForDisk,
            _ => {}
        }
    }
    state
}

/// The fields after the name, which is in parentheses and may contain any character.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ").map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_waits_sleeps_and_one_that_computes_runs() {
        let run = |program: &str| {
            let mut child = std::process::Command::new("/bin/sh");
            child.args(["-c", program]).spawn().expect("a process")
        };
        let id = |child: &std::process::Child| i32::try_from(child.id()).expect("a process id");
        let (mut sleeps, mut computes) = (run("exec sleep 100"), run("while :; do :; done"));
        while state(id(&sleeps)) != WorkerState::Sleeps {
            std::thread::yield_now();
        }
        while processor_time(id(&computes)).is_none_or(|time| time.is_zero()) {
            std::thread::yield_now();
        }
        assert_eq!(state(id(&computes)), WorkerState::Runs);
        for child in [&mut sleeps, &mut computes] {
            child.kill().and_then(|()| child.wait()).expect("ended");
        }
        assert_eq!(processor_time(0), None);
        assert_eq!(state(0), WorkerState::Runs);
    }
}
