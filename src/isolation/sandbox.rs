//! What the worker process gives up before it reads the model: files, network, new processes, and
//! the capabilities of root.
//!
//! Landlock limits which files can be opened, seccomp which system calls can be made. If the kernel
//! lacks one of them, the other still applies and the host logs it. All of this applies to the
//! calling thread and all threads that it starts, so it runs before any other thread starts. A
//! limit of the kernel bounds the file that the host passes for the state.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde::{Deserialize, Serialize};

/// The newest rules that are requested. An older kernel applies the rules that it supports.
const LANDLOCK: ABI = ABI::V6;

/// Files in which the system describes memory, processors and control groups. The engine chooses
/// thread counts and sizes from them.
const SYSTEM_FILES: [&str; 9] = [
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/proc/self/limits",
    "/proc/self/status",
    "/proc/self/maps",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
];

/// The restrictions that apply to this process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Restrictions {
    pub(super) landlock: bool,
    pub(super) seccomp: bool,
    /// Why a restriction is missing.
    pub(super) problem: Option<String>,
}

/// Restricts this process to reading these files, and to files of this size where the host passes
/// one for writing. A write beyond it ends the process by SIGXFSZ.
pub(super) fn restrict(files: &[String], most_file_bytes: u64) -> Restrictions {
    // A limit that was lower before stays. Lowering one cannot fail.
    let before = getrlimit(Resource::Fsize);
    let most = [Some(most_file_bytes), before.current, before.maximum].into_iter().flatten().min();
    let _ = setrlimit(Resource::Fsize, Rlimit { current: most, maximum: most });
    drop_capabilities(files);
    let (landlock, seccomp) = (restrict_files(files), restrict_calls());
    let problems: Vec<String> = [&landlock, &seccomp]
        .into_iter()
        .filter_map(|restricted| restricted.as_ref().err().cloned())
        .collect();
    Restrictions {
        landlock: landlock.is_ok(),
        seccomp: seccomp.is_ok(),
        problem: (!problems.is_empty()).then(|| problems.join("; ")),
    }
}

/// Drops all capabilities, if the process has any. It keeps the one to read the files of other users
/// if one of these files cannot be read without it. Dropping a capability cannot fail.
fn drop_capabilities(files: &[String]) {
    let Ok(before) = capabilities(None) else { return };
    if before.permitted.contains(CapabilitySet::SYS_RESOURCE) {
        // Without a capability, `use_mlock` may lock only so much.
        let unlimited = Rlimit { current: None, maximum: None };
        let _ = setrlimit(Resource::Memlock, unlimited);
    }
    for capability in CapabilitySet::all().iter() {
        let _ = remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    let _ = set_capabilities(None, CapabilitySets { effective: none, inheritable: none, ..before });
    let is_refused = |path: &String| {
        File::open(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    let kept = match files.iter().any(is_refused) {
        true => before.permitted & CapabilitySet::DAC_READ_SEARCH,
        false => none,
    };
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: none };
    let _ = set_capabilities(None, sets);
}

fn restrict_files(files: &[String]) -> Result<(), String> {
    let named = |error: &dyn std::fmt::Display| format!("Landlock: {error}");
    let paths = files.iter().map(String::as_str).chain(SYSTEM_FILES);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(LANDLOCK)))
        .and_then(|rules| rules.scope(Scope::from_all(LANDLOCK)))
        .and_then(Ruleset::create)
        // Paths that do not exist are skipped: opening one fails anyway.
        .and_then(|rules| {
            let access = AccessFs::ReadFile | AccessFs::ReadDir;
            rules.add_rules(path_beneath_rules(paths, access))
        })
        .and_then(|rules| rules.restrict_self())
        .map_err(|error| named(&error))?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(named(&"the kernel does not have it or refuses it")),
        _ => Ok(()),
    }
}

fn restrict_calls() -> Result<(), String> {
    let named = |error: &dyn std::fmt::Display| format!("seccomp: {error}");
    let rules = rules().map_err(|error| named(&error))?;
    let arch = std::env::consts::ARCH.try_into().map_err(|_| named(&"unknown processor"))?;
    // ENOSYS looks like an old kernel, so libraries fall back to an older call.
    let refuse = SeccompAction::Errno(libc::ENOSYS as u32);
    let program: BpfProgram = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch)
        .and_then(BpfProgram::try_from)
        .map_err(|error| named(&error))?;
    seccompiler::apply_filter(&program).map_err(|error| named(&error))
}

/// The allowed system calls and their arguments. An empty list allows any arguments.
fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // A rule for an argument: `argument & mask == value`.
    let masked = |index: u8, mask: i64, value: i64| {
        let operator = SeccompCmpOp::MaskedEq(mask as u64);
        let condition =
            SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value as u64)?;
        SeccompRule::new(vec![condition])
    };
    let writes = i64::from(libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC);
    rules.insert(libc::SYS_openat, vec![masked(2, writes, i64::from(libc::O_RDONLY))?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![masked(1, writes, i64::from(libc::O_RDONLY))?]);
    // New threads, but no new processes. seccomp cannot see the flags of clone3, so it is refused.
    let thread = i64::from(libc::CLONE_THREAD);
    rules.insert(libc::SYS_clone, vec![masked(0, thread, thread)?]);
    // Memory never becomes executable.
    let exec = i64::from(libc::PROT_EXEC);
    rules.insert(libc::SYS_mmap, vec![masked(2, exec, 0)?]);
    rules.insert(libc::SYS_mprotect, vec![masked(2, exec, 0)?]);
    // Signals to this process only; `abort` sends one. musl uses `tkill`, which names no process, so
    // its `abort` ends by SIGSEGV. threads.cpp cancels threads without it.
    let all = i64::from(u32::MAX);
    let own = i64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![masked(0, all, own)?]);
    // Reads this process's own limits. Process id 0 means the caller. A process with the rights of
    // root could raise them, so no new limit is accepted.
    let no_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    let own_limits = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![own_limits, no_limit])?]);
    // Only the calling thread: the host's threads would be held on one processor.
    rules.insert(libc::SYS_sched_setaffinity, vec![masked(0, all, 0)?]);
    // No locks, and no signals: a socket can send its owner any signal, and F_SETOWN names the owner.
    let commands = [
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
    ];
    let commands = commands.map(|command| masked(1, all, i64::from(command)));
    rules.insert(libc::SYS_fcntl, commands.into_iter().collect::<Result<_, _>>()?);
    // Naming threads and memory.
    let names = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];
    let names = names.map(|name| masked(0, all, i64::from(name)));
    rules.insert(libc::SYS_prctl, names.into_iter().collect::<Result<_, _>>()?);
    Ok(rules)
}

const ALLOWED: &[i64] = &[
    // Reading, and writing to descriptors that the host passed.
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_dup,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    // The host's connections. New sockets cannot be created.
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    // Threads.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    // Time, and information about this process.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getrlimit,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    /// Set for the restricted child process of the test: the folder it works in.
    const FOLDER: &str = "LLB_TEST_SANDBOX";
    /// The limit of a file.
    const MAX_BYTES: u64 = 1 << 20;

    #[test]
    fn a_restricted_process_can_only_read_its_files() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["allowed", "other"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let child = run(folder.path(), "a_child_tries");
        let printed = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{printed}{}", String::from_utf8_lossy(&child.stderr));
    }

    #[test]
    fn a_restricted_process_cannot_fill_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let child = run(folder.path(), "a_child_writes_too_much");
        let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
        assert_eq!(signal, Some(libc::SIGXFSZ), "{}", String::from_utf8_lossy(&child.stdout));
        assert_eq!(folder.path().join("given").metadata().unwrap().len(), MAX_BYTES);
    }

    /// Runs a test of this module in a child process.
    fn run(folder: &std::path::Path, test: &str) -> std::process::Output {
        Command::new(std::env::current_exe().unwrap())
            .args([&format!("isolation::sandbox::tests::{test}"), "--exact", "--nocapture"])
            .env(FOLDER, folder)
            .output()
            .unwrap()
    }

    #[test]
    fn a_child_writes_too_much() {
        let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else { return };
        let mut open = File::create(folder.join("given")).unwrap();
        restrict(&[], MAX_BYTES);
        let _ = std::io::copy(&mut std::io::repeat(1), &mut open);
    }

    #[test]
    fn a_child_tries() {
        let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else { return };
        let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut open = File::create(file("given")).unwrap();
        let restrictions = restrict(&[file("allowed"), file("missing")], MAX_BYTES);
        assert!(restrictions.landlock && restrictions.seccomp, "{:?}", restrictions.problem);
        assert_eq!(std::fs::read_to_string(file("allowed")).unwrap(), "x");
        assert!(std::fs::read_to_string("/proc/meminfo").is_ok());
        let missing = File::open(file("missing")).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        for path in [file("other"), "/etc/passwd".to_owned(), "/proc/1/status".to_owned()] {
            assert!(File::open(&path).is_err(), "{path}");
        }
        assert!(std::fs::read_dir("/").is_err());
        assert!(File::create(file("new")).is_err());
        assert!(File::options().append(true).open(file("allowed")).is_err());
        assert!(std::fs::remove_file(file("allowed")).is_err());
        assert!(std::fs::rename(file("allowed"), file("new")).is_err());
        assert!(std::fs::create_dir(file("folder")).is_err());
        assert!(std::io::Write::write_all(&mut open, b"given").is_ok());
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        assert!(rustix::fs::fcntl_lock(&open, lock).is_err() && open.try_clone().is_ok());
        let unlimited = Rlimit { current: None, maximum: None };
        assert!(setrlimit(Resource::Fsize, unlimited).is_err());
        assert_eq!(getrlimit(Resource::Fsize).maximum, Some(MAX_BYTES));
        assert!(TcpStream::connect(address).is_err() && TcpListener::bind("127.0.0.1:0").is_err());
        assert!(UdpSocket::bind("127.0.0.1:0").is_err() && UnixStream::pair().is_err());
        assert!(Command::new("/bin/true").status().is_err());
        assert!(
            rustix::process::kill_process(
                rustix::process::getppid().unwrap(),
                rustix::process::Signal::TERM
            )
            .is_err()
        );
        // Threads and large allocations still work.
        assert_eq!(std::thread::spawn(|| vec![1u8; 64 << 20].len()).join().unwrap(), 64 << 20);
    }
}
