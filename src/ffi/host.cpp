// The boundary to the host's code where Rust cannot guard it: exceptions of callbacks, and the
// state of the host's thread. The declarations are in host.rs.

#include <cfenv>
#include <cstdio>
#include <exception>

#include <pthread.h>
#include <unistd.h>

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#include <dlfcn.h>
#endif

namespace {

// The saved state of a thread while it is inside the library. host.rs reserves the space.
struct ThreadState {
    int cancellation;
    bool has_floats;
    std::fenv_t floats;
};
static_assert(sizeof(ThreadState) <= 64 && alignof(ThreadState) <= 16, "host.rs has room for it");

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

#if defined(__GLIBCXX__)

// A thread's exception counts (Itanium C++ ABI, 2.2.2).
struct ExceptionGlobals {
    void * caught;
    unsigned int uncaught;
};

// The library has its own C++ runtime, which has caught an exception that the host's runtime threw.
// Each runtime keeps a count, so the host's is corrected: otherwise it would see an uncaught
// exception forever.
void count_in_host() {
    using GetGlobals = ExceptionGlobals * (*)();
    const auto host = reinterpret_cast<GetGlobals>(dlsym(RTLD_DEFAULT, "__cxa_get_globals"));
    const auto own = reinterpret_cast<ExceptionGlobals *>(abi::__cxa_get_globals());
    if (host && host() != own && host()->uncaught > 0) {
        host()->uncaught -= 1;
        own->uncaught += 1;
    }
}

#else
void count_in_host() {}
#endif

// Sets the state of a thread inside the library, even if a callback has changed it.
void mask() {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    if (!has_default_floats()) {
        std::fesetenv(FE_DFL_ENV);
    }
}

struct MaskAfter {
    ~MaskAfter() { mask(); }
};

} // namespace

extern "C" {

// Masks cancellation and gives the thread the default floating-point environment.
void llb_host_enter(ThreadState * state) {
    state->has_floats = !has_default_floats();
    if (state->has_floats) {
        std::fegetenv(&state->floats);
        std::fesetenv(FE_DFL_ENV);
    }
    // Fails only for an invalid argument.
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state->cancellation);
}

// Undoes `llb_host_enter`.
void llb_host_leave(const ThreadState * state) {
    if (state->has_floats) {
        std::fesetenv(&state->floats);
    }
    pthread_setcancelstate(state->cancellation, nullptr);
}

// Calls a callback. Returns false if it threw an exception; `message` is then its text.
bool llb_host_call(
    void (*callback)(const char *, void *), const char * text, void * user_data,
    void (*on_thread_exit)(), char * message, size_t size
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
        count_in_host();
        std::snprintf(message, size, "%s", exception.what());
    } catch (...) {
        count_in_host();
        std::snprintf(message, size, "not a std::exception");
    }
    return false;
}

} // extern "C"
