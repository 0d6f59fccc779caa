// Starts the helper process of isolated models, and is the first code that runs in it. The
// declarations are in helper.rs. docs/isolation.md has a figure.
//
//   host --clone, exec--> monitor --fork--> worker
//
// The monitor waits for its worker and reports to the host how it ended. It is not a child of the
// host, so the host gets no SIGCHLD, and finds no unknown process when it waits for any child.

#include <cerrno>
#include <cstdint>
#include <cstring>

#ifdef LLB_ISOLATION

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __GLIBC__
// Knows where the dynamic loader is. Static programs do not have it.
extern struct r_debug _r_debug __attribute__((weak));
#endif

extern "C" {

// Defined in helper.rs: serves the host on this descriptor.
void llb_helper_serve(int listener);

// The numbers of the descriptors in a monitor and its worker. HOST comes last: it may be missing.
enum { CONTROL = 3, LISTENER = 4, LIFE = 5, HOST = 6 };
constexpr int DESCRIPTORS = 4;

// The start of this image, defined by the linker.
extern const char __ehdr_start[] __attribute__((visibility("hidden"), weak));

// The entry point below.
extern const char llb_helper_entry[] __attribute__((visibility("hidden")));

// What contains this code. helper.rs declares the same numbers.
enum { PROGRAM = 0, LIBRARY = 1, OTHER_LIBRARY = 2 };

// The parameters of a start, then its results. helper.rs declares the same struct.
struct HelperStart {
    const char * program;
    char * const * arguments;
    char * const * environment;
    // The descriptors for CONTROL, LISTENER, LIFE and HOST; HOST may be -1.
    int descriptors[4];
    // The results.
    int pidfd;
    int pid;
    int error;
};

} // extern "C"

namespace {

constexpr size_t STACK = 64 << 10;

// Moves the descriptors to their numbers and closes all others. Makes only system calls, because
// the memory belongs to the host, whose thread waits.
bool arrange_descriptors(const HelperStart * start) {
    const int none = open("/dev/null", O_RDWR | O_CLOEXEC);
    int moved[DESCRIPTORS];
    for (int i = 0; i < DESCRIPTORS; ++i) {
        // Uses numbers above those that are overwritten below.
        moved[i] = start->descriptors[i] < 0 ? -1 : fcntl(start->descriptors[i], F_DUPFD_CLOEXEC, 16);
    }
    if (none < 0 || moved[0] < 0 || moved[1] < 0 || moved[2] < 0) {
        return false;
    }
    for (int fd = 0; fd < 3; ++fd) {
        if (dup2(none, fd) < 0) {
            return false;
        }
        // If both numbers are the same, dup2 changes nothing and leaves the close-on-exec flag set.
        fcntl(fd, F_SETFD, 0);
    }
    for (int i = 0; i < DESCRIPTORS; ++i) {
        if (moved[i] < 0) {
            close(CONTROL + i);
        } else if (dup2(moved[i], CONTROL + i) < 0) {
            return false;
        }
    }
    if (syscall(SYS_close_range, HOST + 1, ~0u, 0) != 0) {
        rlimit limit{};
        const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
        const long most = known && limit.rlim_cur < (1 << 20) ? long(limit.rlim_cur) : 1 << 20;
        for (long fd = HOST + 1; fd < most; ++fd) {
            close(int(fd));
        }
    }
    return true;
}

int exec_monitor(void * data) {
    auto * start = static_cast<HelperStart *>(data);
    // The helper must not inherit signals that the host ignores or handles.
    struct sigaction by_default{};
    by_default.sa_handler = SIG_DFL;
    for (int signal = 1; signal < NSIG; ++signal) {
        sigaction(signal, &by_default, nullptr);
    }
    sigset_t none;
    sigemptyset(&none);
    if (arrange_descriptors(start)) {
        // Signals of the terminal are meant for the host.
        setsid();
        sigprocmask(SIG_SETMASK, &none, nullptr);
        execve(start->program, start->arguments, start->environment);
    }
    start->error = errno;
    _exit(127);
}

// Runs between the host and the monitor, so that the monitor is not a child of the host. Shares the
// host's memory and descriptors, and ends at once.
int clone_monitor(void * data) {
    auto * start = static_cast<HelperStart *>(data);
    void * stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        start->error = errno;
        _exit(1);
    }
    char * top = static_cast<char *>(stack) + STACK;
    const int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    start->pid = clone(exec_monitor, top, flags | CLONE_PIDFD, start, &start->pidfd);
    if (start->pid < 0 && errno == EINVAL) {
        start->pidfd = -1;
        start->pid = clone(exec_monitor, top, flags, start);
    }
    if (start->pid < 0) {
        start->error = errno;
    }
    munmap(stack, STACK);
    _exit(0);
}

// The last step of the monitor: kills the worker, waits for it, and reports to the host how it
// ended.
[[noreturn]] void report_end(pid_t worker) {
    kill(worker, SIGKILL);
    int status = 0;
    while (waitpid(worker, &status, 0) < 0 && errno == EINTR) {
    }
    (void) send(CONTROL, &status, sizeof status, MSG_NOSIGNAL);
    _exit(0);
}

// Waits until the worker ends, until the host ends, or until the host closes its side to end the
// helper. `alive` is a pipe that only the worker can write to.
[[noreturn]] void monitor(pid_t worker, int alive) {
    const int32_t pid = worker;
    (void) send(CONTROL, &pid, sizeof pid, MSG_NOSIGNAL);
    for (;;) {
        pollfd waits[3] = {{CONTROL, POLLIN, 0}, {alive, POLLIN, 0}, {HOST, POLLIN, 0}};
        if (poll(waits, fcntl(HOST, F_GETFD) < 0 ? 2 : 3, -1) > 0) {
            report_end(worker);
        }
    }
}

// Makes the kernel kill this process group, which is the monitor and its worker, when the host ends
// or shuts its side of LIFE down. It does so even if both are stopped. Nothing is ever sent there.
void die_with_host() {
    const pid_t own = getpid();
    // Without a group of its own, this would kill the host.
    if (getpgrp() != own) {
        return;
    }
    fcntl(LIFE, F_SETOWN, -own);
    // If the kernel refuses this, the signal would be SIGIO. It ends the monitor, and the monitor's
    // end kills the worker.
    fcntl(LIFE, F_SETSIG, SIGKILL);
    fcntl(LIFE, F_SETFL, O_ASYNC);
    // The host may have ended before.
    pollfd ended = {LIFE, POLLIN, 0};
    if (poll(&ended, 1, 0) > 0) {
        _exit(123);
    }
}

void close_quietly(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

// The address of the program's headers. If the dynamic loader was started, musl does not correct
// what the kernel says. It lists the image of the program first.
uintptr_t program_headers() {
#ifdef __GLIBC__
    return getauxval(AT_PHDR);
#else
    uintptr_t found = 0;
    const auto take = [](dl_phdr_info * image, size_t, void * found) {
        *static_cast<uintptr_t *>(found) = reinterpret_cast<uintptr_t>(image->dlpi_phdr);
        return 1;
    };
    dl_iterate_phdr(take, &found);
    return found;
#endif
}

using Initializer = void (*)(int, char **, char **);

struct Initializers {
    const Initializer * first;
    size_t count;
};

// Whether the initializers of this image have started to run.
bool initialized = false;

// The initializers of this shared library.
Initializers of_library() {
    const auto base = reinterpret_cast<uintptr_t>(__ehdr_start);
    const auto * header = reinterpret_cast<const ElfW(Ehdr) *>(base);
    const auto * segment = reinterpret_cast<const ElfW(Phdr) *>(base + header->e_phoff);
    // Every shared library has such a segment.
    while (segment->p_type != PT_DYNAMIC) {
        ++segment;
    }
    Initializers found = {nullptr, 0};
    const auto * entry = reinterpret_cast<const ElfW(Dyn) *>(base + segment->p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_INIT_ARRAY) {
            found.first = reinterpret_cast<const Initializer *>(base + entry->d_un.d_ptr);
        } else if (entry->d_tag == DT_INIT_ARRAYSZ) {
            found.count = entry->d_un.d_val / sizeof *found.first;
        }
    }
    return found;
}

// Calls the initializers of a shared library that runs as a program. Before 2.34, glibc left that
// to code that the linker adds only to programs.
void initialize(int argc, char ** argv, char ** environment) {
    const Initializers all = of_library();
    for (size_t i = 0; i < all.count; ++i) {
        all.first[i](argc, argv, environment);
    }
}

} // namespace

extern "C" {

// Starts a monitor. On failure returns false and sets `error` to an errno.
bool llb_helper_start(HelperStart * start) {
    void * stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        start->error = errno;
        return false;
    }
    start->pid = -1;
    start->pidfd = -1;
    start->error = 0;
    // Handlers of the host must not run in its memory on behalf of another process.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    // There is no exit signal, so the host gets no SIGCHLD, and only a wait with __WCLONE finds the
    // child.
    const int flags = CLONE_VM | CLONE_VFORK | CLONE_FILES;
    const pid_t between = clone(clone_monitor, static_cast<char *>(stack) + STACK, flags, start);
    if (between < 0) {
        start->error = errno;
    } else {
        while (waitpid(between, nullptr, __WCLONE) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    munmap(stack, STACK);
    if (start->error != 0 || start->pid < 0) {
        close_quietly(start->pidfd);
        start->pidfd = -1;
        return false;
    }
    return true;
}

// Whether this code is in the program itself, in libllb.so, or in another shared library.
int llb_helper_place() {
    const auto base = reinterpret_cast<uintptr_t>(__ehdr_start);
    const auto * header = reinterpret_cast<const ElfW(Ehdr) *>(base);
    if (header && program_headers() == base + header->e_phoff) {
        return PROGRAM;
    }
    const bool is_own = header && base + header->e_entry == reinterpret_cast<uintptr_t>(llb_helper_entry);
    return is_own ? LIBRARY : OTHER_LIBRARY;
}

// Whether the dynamic loader was the program that was started: `ld.so PROGRAM`.
bool llb_helper_by_loader() {
#ifdef __GLIBC__
    return getauxval(AT_BASE) == 0 && &_r_debug && _r_debug.r_ldbase != 0;
#else
    return getauxval(AT_BASE) == 0 && getauxval(AT_PHDR) != program_headers();
#endif
}

// An address in the dynamic loader. Not called in a static program.
uintptr_t llb_helper_interpreter() {
#ifdef __GLIBC__
    return llb_helper_by_loader() ? _r_debug.r_ldbase : getauxval(AT_BASE);
#else
    // musl's loader is its C library.
    return reinterpret_cast<uintptr_t>(&getauxval);
#endif
}

// Runs the monitor and its worker until they end.
[[noreturn]] int llb_helper_main() {
    int alive[2];
    if (pipe2(alive, O_CLOEXEC) != 0) {
        _exit(126);
    }
    prctl(PR_SET_NAME, "llb-monitor");
    const pid_t own = getpid();
    die_with_host();
    const pid_t worker = fork();
    if (worker < 0) {
        const int32_t failed = -errno;
        (void) send(CONTROL, &failed, sizeof failed, MSG_NOSIGNAL);
        _exit(125);
    }
    if (worker > 0) {
        close(alive[1]);
        close(LISTENER);
        monitor(worker, alive[0]);
    }
    prctl(PR_SET_NAME, "llb-helper");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != own) {
        _exit(124);
    }
    close(alive[0]);
    close(CONTROL);
    close(LIFE);
    close(HOST);
    // A core file would contain prompts.
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    // If memory runs out, the kernel should kill the helper rather than the host.
    const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0) {
        (void) !write(score, "500", 3);
        close(score);
    }
    llb_helper_serve(LISTENER);
    _exit(0);
}

// The entry point when the shared library runs as a program: `ld.so libllb.so`. The loader has set
// up the stack as for any program.
__attribute__((visibility("hidden"), used))
int llb_helper_libc_main(int argc, char ** argv, char ** environment) {
    if (!initialized) {
        initialize(argc, argv, environment);
    }
    llb_helper_main();
}

#if defined(__x86_64__)
__asm__(
    ".text\n"
    ".globl llb_helper_entry\n"
    ".hidden llb_helper_entry\n"
    ".type llb_helper_entry, @function\n"
    "llb_helper_entry:\n"
    "    xorl %ebp, %ebp\n"
    "    movq %rdx, %r9\n"       // the loader's exit function
    "    popq %rsi\n"            // argc
    "    movq %rsp, %rdx\n"      // argv
    "    andq $-16, %rsp\n"
    "    pushq %rax\n"
    "    pushq %rsp\n"           // the end of the stack
    "    xorl %r8d, %r8d\n"
    "    xorl %ecx, %ecx\n"
    "    leaq llb_helper_libc_main(%rip), %rdi\n"
    "    call *__libc_start_main@GOTPCREL(%rip)\n"
    "    hlt\n"
    ".size llb_helper_entry, .-llb_helper_entry\n"
);
#elif defined(__aarch64__)
__asm__(
    ".text\n"
    ".globl llb_helper_entry\n"
    ".hidden llb_helper_entry\n"
    ".type llb_helper_entry, %function\n"
    "llb_helper_entry:\n"
    "    mov x29, #0\n"
    "    mov x30, #0\n"
    "    mov x5, x0\n"           // the loader's exit function
    "    ldr x1, [sp]\n"         // argc
    "    add x2, sp, #8\n"       // argv
    "    mov x6, sp\n"           // the end of the stack
    "    adrp x0, llb_helper_libc_main\n"
    "    add x0, x0, :lo12:llb_helper_libc_main\n"
    "    mov x3, #0\n"
    "    mov x4, #0\n"
    "    bl __libc_start_main\n"
    "    brk #0\n"
    ".size llb_helper_entry, .-llb_helper_entry\n"
);
#endif

} // extern "C"

namespace {

extern "C" {
// The initializers of the program, defined by the linker. A shared library may have none.
extern Initializer __init_array_start[] __attribute__((visibility("hidden"), weak));
extern Initializer __init_array_end[] __attribute__((visibility("hidden"), weak));
}

// A program that contains this library is its own helper. It is started again, and ends here, before
// its `main`. Another shared library that contains this one is loaded before a program that has
// no code. Initializers that would run later are called first, because the library depends on its
// own.
__attribute__((constructor)) void become_helper(int argc, char ** argv, char ** environment) {
    initialized = true;
#ifndef __GLIBC__
    // musl passes nothing. Only a helper has the variable and the name that are compared below.
    char * name[] = {program_invocation_name, nullptr};
    argc = 1;
    argv = name;
    environment = environ;
#endif
    if (argc != 1 || !argv || !argv[0] || !environment || !environment[0]) {
        return;
    }
    const int place = llb_helper_place();
    const char * mark = place == PROGRAM ? "LLB_HELPER=program" : "LLB_HELPER=preloaded";
    // The loader passes the program's path instead of the name.
    const bool is_named = strcmp(argv[0], "llb-helper") == 0 || llb_helper_by_loader();
    if (place == LIBRARY || strcmp(environment[0], mark) != 0 || !is_named) {
        return;
    }
    const Initializers all = place == PROGRAM
        ? Initializers{__init_array_start, size_t(__init_array_end - __init_array_start)}
        : of_library();
    bool later = false;
    for (size_t i = 0; i < all.count; ++i) {
        if (later && all.first[i]) {
            all.first[i](argc, argv, environment);
        }
        later = later || all.first[i] == become_helper;
    }
    llb_helper_main();
}

} // namespace

#endif
