// Faults of llama.cpp that the system reports by a signal, and that are turned into failed calls.
// For Linux; faults_windows.cpp is for Windows.
//
// Three kinds are handled, and only on a thread that is inside a guarded call or computes for one:
//
// - SIGSEGV at an address below 64 KiB, where nothing is mapped: a tensor or a kernel that the file
//   lacks, as a null pointer. The access had no effect.
// - SIGFPE for an integer division by zero. It had no effect either.
// - SIGBUS inside a mapped model file: the file was cut, or its disk cannot be read. Zeros are
//   mapped there, the range is marked as lost, and the thread continues. The model is not used
//   again.
//
// The first two are handled only where the code of this library or of its kernels faulted, or a
// function that it has called and that has done nothing else, such as `memset`: other functions of
// the C library may hold one of its locks. The handler changes where the thread
// continues, and returns. The thread then leaves the call on its own stack, outside of any handler:
// by a jump, past the destructors of llama.cpp's frames. What they own is leaked, like the
// context. A fault at any other address may follow from damaged memory. It goes to the previous
// handler, as do all faults of the host.
//
// Handlers are shared with the host:
// - They are installed while a model is loaded, and removed after the last one was freed, unless
//   the host has installed others since: these may call ours.
// - What is not handled here goes to the previous handler, with the signal's own information and
//   the mask that it asked for. The default action runs on the faulting instruction.
// - A handler that the host installs later gets the signals first.
// - They use the alternate stack of a thread that has one, and only functions that are safe in a
//   signal handler. `pthread_getspecific` and `mmap` are not in POSIX's list, but are safe on
//   Linux.

#include "faults.h"

#include <cstddef>
#include <cstdint>

extern "C" {
struct llb_range;
}

#if defined(LLB_HAS_FAULTS) && !defined(_WIN32)

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <new>

#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

// A part of a mapped file. Never freed, so that a handler can always read the list.
struct llb_range {
    std::atomic<uintptr_t> start{0};
    // 0 while the range is not in use.
    std::atomic<uintptr_t> end{0};
    std::atomic<bool> is_lost{false};
    llb_range * next = nullptr;
};

namespace {

// The lowest address that a process can usually map (vm.mmap_min_addr).
const uintptr_t NULL_PAGES = 64 * 1024;

const int SIGNALS[] = {SIGSEGV, SIGFPE, SIGBUS};

pthread_key_t landing_key;
std::atomic<bool> has_key{false};
struct sigaction previous[3];
bool is_installed[3];
uintptr_t page_size = 4096;
// The code of an image that is never unloaded.
struct Code {
    std::atomic<uintptr_t> start{0};
    std::atomic<uintptr_t> end{0};
};
// The code of this image, which llama.cpp is linked into, and the code of a file of kernels.
Code codes[2];

std::mutex ranges_mutex;
std::atomic<llb_range *> ranges{nullptr};

size_t index_of(int signal) {
    return signal == SIGSEGV ? 0 : signal == SIGFPE ? 1 : 2;
}

struct CodeSearch {
    uintptr_t known;
    Code & found;
};

int find_code(dl_phdr_info * image, size_t, void * data) {
    auto & search = *static_cast<CodeSearch *>(data);
    const uintptr_t known = search.known;
    for (int i = 0; i < image->dlpi_phnum; i++) {
        const auto & segment = image->dlpi_phdr[i];
        const uintptr_t start = image->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD && known >= start && known - start < segment.p_memsz) {
            search.found.start = start;
            search.found.end = start + segment.p_memsz;
            return 1;
        }
    }
    return 0;
}

bool is_own_code(uintptr_t at) {
    for (const Code & code : codes) {
        if (at >= code.start && at < code.end) {
            return true;
        }
    }
    return false;
}

// Maps zeros over a lost page and the rest of its range.
bool replace_lost(uintptr_t address) {
    uintptr_t lost_end = 0;
    // Several models may have mapped the same file.
    for (llb_range * range = ranges; range; range = range->next) {
        const uintptr_t end = range->end;
        if (address >= range->start && address < end) {
            range->is_lost = true;
            lost_end = end;
        }
    }
    if (lost_end == 0) {
        return false;
    }
    const uintptr_t page = address & ~(page_size - 1);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    void * const at = reinterpret_cast<void *>(page);
    return mmap(at, lost_end - page, PROT_READ, flags, -1, 0) != MAP_FAILED;
}

uintptr_t instruction(const ucontext_t & thread) {
#if defined(__x86_64__)
    return static_cast<uintptr_t>(thread.uc_mcontext.gregs[REG_RIP]);
#else
    return thread.uc_mcontext.pc;
#endif
}

// Makes a thread call `function` instead of the instruction that faulted.
void call_instead(ucontext_t & thread, void (*function)()) {
    const auto target = reinterpret_cast<uintptr_t>(function);
    // A function may use this much memory below its stack pointer without moving it.
    const uintptr_t red_zone = 128;
#if defined(__x86_64__)
    auto & registers = thread.uc_mcontext.gregs;
    uintptr_t stack = static_cast<uintptr_t>(registers[REG_RSP]) - red_zone;
    // Set up as after a call instruction. There is no return address, so a stack trace ends here.
    stack = (stack & ~uintptr_t(15)) - sizeof(uintptr_t);
    *reinterpret_cast<uintptr_t *>(stack) = 0;
    registers[REG_RSP] = static_cast<greg_t>(stack);
    registers[REG_RBP] = 0;
    registers[REG_RIP] = static_cast<greg_t>(target);
    const greg_t direction = 0x400;
    registers[REG_EFL] &= ~direction;
#else
    auto & registers = thread.uc_mcontext;
    registers.sp = (registers.sp - red_zone) & ~uintptr_t(15);
    registers.pc = target;
    registers.regs[29] = 0;
    registers.regs[30] = 0;
    // The type of the last branch. The target would have to permit it.
    const unsigned long long branch = 0xC00;
    registers.pstate &= ~branch;
#endif
}

// Whether the code that faulted is a function that was called by this library or its kernels, and
// that has called nothing and keeps nothing on the stack.
bool is_called_by_own_code(const ucontext_t & thread) {
#if defined(__x86_64__)
    // The return address is then at the top of the stack.
    const auto stack = static_cast<uintptr_t>(thread.uc_mcontext.gregs[REG_RSP]);
    return is_own_code(*reinterpret_cast<const uintptr_t *>(stack));
#else
    return is_own_code(thread.uc_mcontext.regs[30]);
#endif
}

// The message for a fault. NULL if the fault may have changed memory, or if it occurred while
// holding a lock.
const char * explain(int signal, const siginfo_t & info, const ucontext_t & thread) {
    const uintptr_t at = instruction(thread);
    const auto address = reinterpret_cast<uintptr_t>(info.si_addr);
    const bool is_own = is_own_code(at);
    if (signal == SIGFPE && info.si_code == FPE_INTDIV && is_own) {
        return "the model made llama.cpp divide by zero (SIGFPE)";
    }
    // A general protection fault has the address 0 too, but another code.
    const bool unmapped = info.si_code == SEGV_MAPERR || info.si_code == SEGV_ACCERR;
    const bool is_null_call = at < NULL_PAGES;
    if (signal == SIGSEGV && unmapped && address < NULL_PAGES &&
        (is_own || is_null_call || is_called_by_own_code(thread))) {
        return "the model made llama.cpp use a null pointer (SIGSEGV)";
    }
    return nullptr;
}

// Does what would happen if the previous handler were still installed.
void pass_on(int signal, siginfo_t * info, void * context) {
    struct sigaction & slot = previous[index_of(signal)];
    const struct sigaction before = slot;
    const bool was_sent = info->si_code <= 0;
    const bool is_ignored = before.sa_handler == SIG_IGN;
    if (is_ignored && was_sent) {
        return;
    }
    // A fault cannot be ignored.
    if (is_ignored || before.sa_handler == SIG_DFL) {
        struct sigaction action = {};
        action.sa_handler = SIG_DFL;
        sigaction(signal, &action, nullptr);
        if (was_sent) {
            // Not by `raise`: that of musl uses a call that a sandbox refuses (sandbox.rs).
            syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
        }
        return; // The instruction faults again.
    }
    if (before.sa_flags & SA_RESETHAND) {
        slot.sa_handler = SIG_DFL;
        slot.sa_flags = 0;
    }
    sigset_t blocked = before.sa_mask;
    if (!(before.sa_flags & SA_NODEFER)) {
        sigaddset(&blocked, signal);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr); // Undone when the handler returns.
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
    } else {
        before.sa_handler(signal);
    }
}

void on_fault(int signal, siginfo_t * info, void * context) {
    const int error = errno;
    auto & thread = *static_cast<ucontext_t *>(context);
    llb_landing * const landing = llb_faults_landing();
    const bool is_replaced = landing && signal == SIGBUS && info->si_code == BUS_ADRERR &&
        replace_lost(reinterpret_cast<uintptr_t>(info->si_addr));
    if (!is_replaced) {
        const char * const fault = landing ? explain(signal, *info, thread) : nullptr;
        if (fault) {
            landing->fault = fault;
            call_instead(thread, llb_faults_leave_call);
        } else {
            pass_on(signal, info, context);
        }
    }
    errno = error;
}

bool is_ours(const struct sigaction & action) {
    return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_fault;
}

} // namespace

extern "C" {

llb_landing * llb_faults_landing(void) {
    return has_key ? static_cast<llb_landing *>(pthread_getspecific(landing_key)) : nullptr;
}

void llb_faults_set_landing(llb_landing * landing) {
    if (has_key) {
        pthread_setspecific(landing_key, landing);
    }
}

// Called before the first model is loaded. Not thread-safe, neither against itself nor
// `llb_faults_remove`.
void llb_faults_install(void) {
    if (!has_key) {
        if (pthread_key_create(&landing_key, nullptr) != 0) {
            return;
        }
        page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        CodeSearch search{reinterpret_cast<uintptr_t>(&find_code), codes[0]};
        dl_iterate_phdr(find_code, &search);
        has_key = true;
    }
    for (const int signal : SIGNALS) {
        const size_t i = index_of(signal);
        // A handler that the host installed after ours may call ours. Ours must then not be
        // installed again in front of it.
        if (is_installed[i]) {
            continue;
        }
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        // SA_NODEFER: `pass_on` blocks what the previous handler wants blocked.
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
        // Stored before installing, so that a fault on another thread always finds the previous
        // handler.
        sigaction(signal, nullptr, &previous[i]);
        is_installed[i] = sigaction(signal, &action, &previous[i]) == 0;
    }
}

// Adds the image that has code at this address. Called once, before any model is loaded.
void llb_faults_add_code(uintptr_t address) {
    CodeSearch search{address, codes[1]};
    dl_iterate_phdr(find_code, &search);
}

// Called after the last model was freed.
void llb_faults_remove(void) {
    for (const int signal : SIGNALS) {
        const size_t i = index_of(signal);
        struct sigaction now = {};
        if (is_installed[i] && sigaction(signal, nullptr, &now) == 0 && is_ours(now)) {
            is_installed[i] = sigaction(signal, &previous[i], nullptr) != 0;
        }
    }
}

// Watches [start, end), which stays mapped until `llb_range_remove`. Returns NULL if out of memory.
llb_range * llb_range_add(uintptr_t start, uintptr_t end) {
    const std::lock_guard<std::mutex> lock(ranges_mutex);
    llb_range * range = ranges;
    while (range && range->end != 0) {
        range = range->next;
    }
    if (!range) {
        range = new (std::nothrow) llb_range;
        if (!range) {
            return nullptr;
        }
        range->next = ranges;
        ranges = range;
    }
    range->is_lost = false;
    range->start = start;
    range->end = end;
    return range;
}

void llb_range_remove(llb_range * range) {
    const std::lock_guard<std::mutex> lock(ranges_mutex);
    range->end = 0;
}

// Whether a page of the range could not be read.
bool llb_range_is_lost(const llb_range * range) {
    return range->is_lost.load(std::memory_order_relaxed);
}

} // extern "C"

#elif !defined(LLB_HAS_FAULTS) // nothing is handled

extern "C" {

llb_landing * llb_faults_landing(void) { return nullptr; }
void llb_faults_set_landing(llb_landing *) {}
void llb_faults_install(void) {}
void llb_faults_remove(void) {}
void llb_faults_add_code(uintptr_t) {}
llb_range * llb_range_add(uintptr_t, uintptr_t) { return nullptr; }
void llb_range_remove(llb_range *) {}
bool llb_range_is_lost(const llb_range *) { return false; }

} // extern "C"

#endif
