// The boundary to the host's code where Rust cannot guard it: exceptions of callbacks, and the
// state of the host's thread. The declarations are in host.rs.

#include <cfenv>
#include <cstdio>
#include <exception>

#if !defined(_WIN32)
#include <pthread.h>
#include <unistd.h>
#endif

#if defined(_WIN32)
#include <limits>

// Of the Itanium C++ ABI (2.2.2). LLVM's header does not declare it.
extern "C" void * __cxa_get_globals();
#elif defined(__GLIBCXX__)
#include <cxxabi.h>
#include <dlfcn.h>
#elif defined(__linux__) && !defined(__ANDROID__) && defined(__x86_64__)
// musl. The library has LLVM's C++ runtime and unwinder, the host usually has GCC's.
#define LLB_OWN_UNWINDER 1
#include <csetjmp>
#include <cstdint>
#include <dlfcn.h>
#include <unwind.h>
#endif

namespace {

// The saved state of a thread while it is inside the library. host.rs reserves the space.
struct ThreadState {
    int cancellation;
    bool has_floats;
    std::fenv_t floats;
};
static_assert(sizeof(ThreadState) <= 64 && alignof(ThreadState) <= 16, "host.rs has room for it");

#if defined(_WIN32)
// Windows has no cancellation.
int disable_cancellation() { return 0; }
void restore_cancellation(int) {}
#else
// Returns the state before. Fails only for an invalid argument.
int disable_cancellation() {
    int before = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

void restore_cancellation(int before) {
    pthread_setcancelstate(before, nullptr);
}
#endif

// Whether no floating-point exception traps, results are rounded to nearest, and subnormal numbers
// are not flushed to zero. Checking this is cheaper than setting it.
bool has_default_floats() {
#if defined(__x86_64__)
    unsigned short x87 = 0;
    unsigned sse = 0;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    __asm__ volatile("stmxcsr %0" : "=m"(sse));
    return (sse & 0xFFC0u) == 0x1F80u && (x87 & 0x0F3Fu) == 0x033Fu;
#elif defined(__aarch64__)
    unsigned long control = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control == 0;
#else
    return false;
#endif
}

// A thread's exception counts (Itanium C++ ABI, 2.2.2).
struct ExceptionGlobals {
    void * caught;
    unsigned int uncaught;
};

#if defined(__GLIBCXX__)

// The library has its own C++ runtime, which has caught an exception that the host's runtime threw.
// Each runtime keeps a count, so the host's is corrected: otherwise it would see an uncaught
// exception forever.
void correct_counts() {
    using GetGlobals = ExceptionGlobals * (*)();
    const auto host = reinterpret_cast<GetGlobals>(dlsym(RTLD_DEFAULT, "__cxa_get_globals"));
    const auto own = reinterpret_cast<ExceptionGlobals *>(abi::__cxa_get_globals());
    if (host && host() != own && host()->uncaught > 0) {
        host()->uncaught -= 1;
        own->uncaught += 1;
    }
}

#elif defined(_WIN32)

// The library's own runtime has caught an exception that it has not counted when it was thrown: the
// host has another runtime, and its count cannot be reached from here.
void correct_counts() {
    auto * const own = static_cast<ExceptionGlobals *>(__cxa_get_globals());
    if (own->uncaught > std::numeric_limits<unsigned>::max() / 2) {
        own->uncaught = 0;
    }
}

#elif !defined(LLB_OWN_UNWINDER)
void correct_counts() {}
#endif

// Sets the state of a thread inside the library, even if a callback has changed it.
void mask() {
    disable_cancellation();
    if (!has_default_floats()) {
        std::fesetenv(FE_DFL_ENV);
    }
}

struct MaskAfter {
    ~MaskAfter() { mask(); }
};

} // namespace

#ifdef LLB_OWN_UNWINDER

// A `catch` here would pass the state of the host's unwinder to functions of ours, which cannot read
// it. So exceptions end in `llb_host_invoke`, which has a personality of its own: once the callback's
// frames are cleaned up, that leaves the host's unwinder by a jump.

namespace {

// A callback that runs.
struct Running {
    std::jmp_buf point;
    _Unwind_Exception * thrown;
    void (*on_thread_exit)();
};

// The innermost one of this thread.
thread_local Running * running = nullptr;

// Called when a thread ends. If a callback has ended it, the frame that called it still exists. If a
// callback has left the library by `longjmp`, it does not. Stacks grow down.
void on_thread_end(void *) {
    const char here = 0;
    if (running && reinterpret_cast<uintptr_t>(&here) < reinterpret_cast<uintptr_t>(running)) {
        running->on_thread_exit();
        for (;;) {
            pause();
        }
    }
}

// musl ends a thread without unwinding it, but calls the destructors of its keys.
void watch_thread_end() {
    static pthread_key_t key;
    static const bool is_created = pthread_key_create(&key, on_thread_end) == 0;
    if (is_created) {
        pthread_setspecific(key, &key);
    }
}

template <typename F> F of_host(const char * name) {
    return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}

// Frees an exception of the host. If it was thrown by a shared libstdc++, writes its text.
void catch_in_host(_Unwind_Exception * thrown, char * message, size_t size) {
    std::snprintf(message, size, "of a type that is not known to llb");
    const auto globals = of_host<ExceptionGlobals * (*)()>("__cxa_get_globals");
    const auto begin = of_host<void * (*)(void *)>("__cxa_begin_catch");
    const auto end = of_host<void (*)()>("__cxa_end_catch");
    // "GNUCC++" and 0, or 1 for an exception that `std::rethrow_exception` has thrown.
    const uint64_t gcc = 0x474e5543432b2b00;
    const uint64_t kind = thrown->exception_class;
    if ((kind | 1) != (gcc | 1) || !globals || !begin || !end || globals()->uncaught == 0) {
        _Unwind_DeleteException(thrown);
        return;
    }
    begin(thrown);
    const auto type = of_host<void * (*)()>("__cxa_current_exception_type");
    // `std::type_info::__do_catch` of classes.
    const auto is_a = of_host<bool (*)(const void *, const void *, void **, unsigned)>(
        "_ZNK10__cxxabiv117__class_type_info10__do_catchEPKSt9type_infoPPvj");
    const auto exception = of_host<const void *>("_ZTISt9exception");
    if (kind == gcc && type && is_a && exception) {
        void * object = thrown + 1;
        const bool is_exception = is_a(exception, type(), &object, 1);
        const char * const text =
            is_exception ? static_cast<std::exception *>(object)->what() : "not a std::exception";
        std::snprintf(message, size, "%s", text);
    }
    end();
}

} // namespace

extern "C" {

// callback(text, user_data)
void llb_host_invoke(void (*callback)(const char *, void *), const char * text, void * user_data);

__attribute__((visibility("hidden"), used))
_Unwind_Reason_Code llb_host_personality(
    int, _Unwind_Action actions, uint64_t, _Unwind_Exception * thrown, _Unwind_Context *
) {
    if (actions & _UA_SEARCH_PHASE) {
        return _URC_HANDLER_FOUND;
    }
    if (actions & _UA_FORCE_UNWIND) {
        on_thread_end(nullptr);
    }
    running->thrown = thrown;
    std::longjmp(running->point, 1);
}

__asm__(
    ".text\n"
    ".globl llb_host_invoke\n"
    ".hidden llb_host_invoke\n"
    ".type llb_host_invoke, @function\n"
    "llb_host_invoke:\n"
    "    .cfi_startproc\n"
    "    .cfi_personality 0x1b, llb_host_personality\n" // relative to its own address, 4 bytes
    "    subq $8, %rsp\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    movq %rdi, %rax\n"
    "    movq %rsi, %rdi\n"
    "    movq %rdx, %rsi\n"
    "    call *%rax\n"
    "    addq $8, %rsp\n"
    "    .cfi_adjust_cfa_offset -8\n"
    "    ret\n"
    "    .cfi_endproc\n"
    ".size llb_host_invoke, .-llb_host_invoke\n"
);

bool llb_host_call(
    void (*callback)(const char *, void *), const char * text, void * user_data,
    void (*on_thread_exit)(), char * message, size_t size
) {
    const MaskAfter mask_after;
    Running here;
    here.on_thread_exit = on_thread_exit;
    Running * const outer = running;
    running = &here;
    watch_thread_end();
    // No variable that changes between here and a jump back is used after it.
    const bool returned = setjmp(here.point) == 0;
    if (returned) {
        llb_host_invoke(callback, text, user_data);
    }
    running = outer;
    if (!returned) {
        catch_in_host(here.thrown, message, size);
    }
    return returned;
}

} // extern "C"

#endif

extern "C" {

// Masks cancellation and gives the thread the default floating-point environment.
void llb_host_enter(ThreadState * state) {
    state->has_floats = !has_default_floats();
    if (state->has_floats) {
        std::fegetenv(&state->floats);
        std::fesetenv(FE_DFL_ENV);
    }
    state->cancellation = disable_cancellation();
}

// Undoes `llb_host_enter`.
void llb_host_leave(const ThreadState * state) {
    if (state->has_floats) {
        std::fesetenv(&state->floats);
    }
    restore_cancellation(state->cancellation);
}

#ifndef LLB_OWN_UNWINDER

// Calls a callback. Returns false if it threw an exception; `message` is then its text.
bool llb_host_call(
    void (*callback)(const char *, void *), const char * text, void * user_data,
    [[maybe_unused]] void (*on_thread_exit)(), char * message, size_t size
) {
    const MaskAfter mask_after;
    try {
        callback(text, user_data);
        return true;
#if defined(__GLIBCXX__)
    } catch (const abi::__forced_unwind &) {
        // The thread wants to end, but Rust's frames cannot be unwound. Its calls are given up, and
        // the thread pauses here forever.
        on_thread_exit();
        for (;;) {
            pause();
        }
#endif
    } catch (const std::exception & exception) {
        correct_counts();
        std::snprintf(message, size, "%s", exception.what());
    } catch (...) {
        correct_counts();
        std::snprintf(message, size, "not a std::exception");
    }
    return false;
}

#endif

} // extern "C"
