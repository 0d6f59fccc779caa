//! Tests the choice of threads on a model of a machine, without a clock.
//!
//! The model follows measurements (`docs/performance.md`): runnable threads get equal parts of the
//! processors, and threads that wait for each other lose much more than their missing part.

use super::level::{Level, StepCost};

/// A simulated machine, and the decodes of a model on it.
#[derive(Clone)]
struct Machine {
    processors: usize,
    /// The number of busy threads of other programs.
    competitors: usize,
    /// The time of a decode with one thread, in seconds.
    one: f64,
    /// The share of that time that only one thread can work.
    serial: f64,
    /// Whether the other threads take over the work of a waiting thread.
    coarse: bool,
    /// Whether the machine reports how long threads waited.
    reports: bool,
    noise: u64,
}

impl Machine {
    fn new(processors: usize, one: f64) -> Machine {
        let (serial, coarse, reports) = (0.02, false, true);
        Machine { processors, competitors: 0, one, serial, coarse, reports, noise: 1 }
    }

    /// The time of a decode in seconds, without noise, and the share of it for which the threads
    /// have processors.
    fn decode(&self, threads: usize) -> (f64, f64) {
        let calm = self.one * (self.serial + (1.0 - self.serial) / threads as f64);
        let all = (threads + self.competitors) as f64;
        let share = (self.processors as f64 / all).min(1.0);
        let exponent = if self.coarse { 1 } else { (2 * threads - 1).min(5) };
        (calm / share.powi(exponent as i32), share)
    }

    fn next_noise(&mut self) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        0.97 + 0.06 * (self.noise >> 40) as f64 / f64::from(1 << 24)
    }

    /// Decodes per second with the best fixed number of threads.
    fn best(&self) -> f64 {
        (1..=self.processors).map(|threads| 1.0 / self.decode(threads).0).fold(0.0, f64::max)
    }
}

/// How late a decode notices that it was given up, in seconds.
const LATE: f64 = 0.02;

/// A level, a machine, and its time.
struct Run {
    machine: Machine,
    level: Level,
    now: f64,
    /// The number of decodes that were given up.
    given_up: usize,
    threads: usize,
}

impl Run {
    fn new(machine: Machine) -> Run {
        let level = Level::new(machine.processors, machine.processors, machine.coarse);
        Run { machine, level, now: 0.0, given_up: 0, threads: 0 }
    }

    /// Decodes per second over this many seconds.
    fn speed(&mut self, seconds: f64) -> f64 {
        self.speed_with(seconds, self.machine.processors)
    }

    fn speed_with(&mut self, seconds: f64, allowed: usize) -> f64 {
        let start = self.now;
        let mut decodes = 0;
        while self.now < start + seconds {
            let plan = self.level.next(1.0, allowed, self.now);
            let (wall, share) = self.machine.decode(plan.threads);
            let wall = wall * self.machine.next_noise();
            let given_up = plan.patience.is_some_and(|patience| wall > patience);
            // The decode notices it after the current operation, when all threads have had a
            // processor.
            let wall = plan.patience.map_or(wall, |patience| wall.min(patience + LATE));
            let waited = wall * plan.threads as f64 * (1.0 - share);
            let waited = self.machine.reports.then_some(waited);
            self.now += wall;
            self.level.record(plan, StepCost { wall, waited, given_up }, self.now);
            decodes += usize::from(!given_up);
            self.given_up += usize::from(given_up);
            self.threads = plan.threads;
        }
        f64::from(decodes as u32) / (self.now - start)
    }
}

/// Runs a sequence of changes of the competitors. A second or some decodes after each change, the
/// speed must be near the best. Returns the changes where it is not.
fn failures(machine: &Machine, competitors: &[usize]) -> Vec<String> {
    let mut run = Run::new(machine.clone());
    let mut failures = Vec::new();
    for &competitors in competitors {
        run.machine.competitors = competitors;
        // The cost of a failed trial, which is unknown before the trial.
        let blind = if machine.reports { 0.0 } else { 5.0 };
        run.speed(1.0_f64.max(24.0 * machine.one) + blind);
        let speed = run.speed(4.0_f64.max(100.0 * machine.one));
        let best = run.machine.best();
        // Without waiting times, one thread too many may look like a longer context.
        let least = if machine.reports { 0.9 } else { 0.75 };
        if speed < least * best {
            failures.push(format!(
                "{} processors, {competitors} competitors, {} ms: {speed:.2} of {best:.2} decodes a second, {} threads",
                machine.processors,
                machine.one * 1e3,
                run.threads,
            ));
        }
    }
    failures
}

const CHANGES: &[usize] = &[0, 1, 0, 2, 0, 4, 0, 4, 2, 1, 0, 2, 1, 4];

#[test]
fn the_number_of_threads_follows_the_load() {
    let mut all = Vec::new();
    for processors in [2, 3, 4, 8, 16] {
        for one in [0.004, 0.036, 0.08, 0.3] {
            all.extend(failures(&Machine::new(processors, one), CHANGES));
            // The processors are busy from the start.
            all.extend(failures(&Machine::new(processors, one), &[4, 0, 1]));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn the_time_alone_is_enough() {
    let mut all = Vec::new();
    for processors in [2, 3, 4, 8] {
        for one in [0.036, 0.08] {
            let machine = Machine { reports: false, ..Machine::new(processors, one) };
            all.extend(failures(&machine, CHANGES));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn a_quiet_machine_loses_nothing() {
    for processors in [1, 2, 4, 8, 16, 64] {
        for serial in [0.0, 0.02, 0.1] {
            let mut run = Run::new(Machine { serial, ..Machine::new(processors, 0.08) });
            let speed = run.speed(20.0);
            assert!(speed >= 0.99 * run.machine.best(), "{processors} processors, {serial}");
            assert_eq!(run.given_up, 0);
        }
    }
}

#[test]
fn coarse_decodes_keep_their_threads() {
    for (before, competitors) in [(0, 0), (0, 1), (0, 2), (0, 4), (0, 8), (4, 4)] {
        let machine = Machine { coarse: true, competitors: before, ..Machine::new(2, 6.0) };
        let mut run = Run::new(machine);
        run.speed(20.0);
        run.machine.competitors = competitors;
        let speed = run.speed(100.0);
        let best = run.machine.best();
        assert!(speed >= 0.9 * best, "{competitors} competitors: {speed:.3} of {best:.3}");
        assert_eq!(run.given_up, 0, "long decodes are not thrown away");
    }
}

#[test]
fn a_decode_that_stalls_is_given_up() {
    let mut run = Run::new(Machine::new(2, 0.036));
    run.speed(2.0);
    run.machine.competitors = 4;
    // A decode takes 27 times as long.
    assert!(run.machine.decode(2).0 > 0.4);
    run.speed(0.01);
    assert_eq!((run.given_up, run.threads), (1, 2));
    assert!(run.now < 2.3, "after three times the usual time: {}", run.now);
    run.speed(0.01);
    assert_eq!((run.given_up, run.threads), (1, 1));
    // While no processor is free, there are hardly any trials.
    run.speed(10.0);
    assert!(run.given_up <= 5, "{}", run.given_up);
}

#[test]
fn a_longer_decode_is_not_taken_for_a_stall() {
    let mut run = Run::new(Machine::new(4, 0.036));
    run.speed(2.0);
    // Another chat of the same model, with a long context.
    run.machine.one = 0.3;
    run.speed(0.01);
    assert_eq!(run.given_up, 1, "it is not known yet");
    let speed = run.speed(3.0);
    assert!(speed >= 0.99 * run.machine.best() && run.given_up == 1 && run.threads == 4);
}

#[test]
fn another_engine_takes_its_part_at_once() {
    let mut run = Run::new(Machine::new(8, 0.036));
    run.speed(1.0);
    assert_eq!(run.threads, 8);
    run.speed_with(0.001, 4);
    assert_eq!(run.threads, 4);
    run.speed_with(1.0, 4);
    assert_eq!(run.threads, 4);
    run.speed_with(0.05, 8);
    assert_eq!(run.threads, 8, "and gives it back");
}
