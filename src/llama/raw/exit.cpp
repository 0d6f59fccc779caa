// Keeps the library's exit handler (exit.rs) before the destructors of llama.cpp's static objects.
//
// The exit runs handlers and destructors in the reverse order of their registration. llama.cpp
// creates many static objects on first use, so whenever one is registered, the library's handler is
// registered once more. Only its first run has an effect.
//
// The linker redirects `__cxa_atexit`, which registers destructors, to this file (build.rs,
// cli/build.rs, `pkg-config --static`). Without that, an exit during the first load can destroy
// objects that the load uses.

#if defined(__linux__)

#include <atomic>

extern "C" {
int __wrap___cxa_atexit(void (*)(void *), void *, void *);
__attribute__((weak)) int __real___cxa_atexit(void (*)(void *), void *, void *);
void llb_exit_set_handler(void (*)());
}

namespace {

std::atomic<void (*)()> exit_handler{nullptr};

void call_exit_handler(void *) {
    if (void (*const handler)() = exit_handler.load()) {
        handler();
    }
}

} // namespace

// Registers a destructor of a static object in `library`. Returns 0 if that succeeds.
int __wrap___cxa_atexit(void (*destroy)(void *), void * object, void * library) {
    const int failed = __real___cxa_atexit(destroy, object, library);
    if (exit_handler.load()) {
        __real___cxa_atexit(call_exit_handler, nullptr, library);
    }
    return failed;
}

// Sets the handler. It may run several times.
void llb_exit_set_handler(void (*handler)()) {
    exit_handler.store(handler);
}

#endif
