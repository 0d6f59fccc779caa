// Threads of llama.cpp that the system refuses to start.
//
// The spectra of a sound are computed by four threads (mtmd-audio.cpp). If one of the last two
// cannot be started, the exception destroys a `std::thread` that still runs, which ends the
// process. So while `llb_refused_threads_run` is set, the calling thread does the work of such a
// thread itself. The work must then not wait for anything that the caller does later.
//
// The linker redirects the two functions of `std::thread` to this file (build.rs, cli/build.rs,
// `pkg-config --static`). Without that, or with another C++ library than GCC's, nothing changes.

#if defined(LLB_MEDIA) && defined(__linux__)

#include <thread>

#endif

#if defined(LLB_MEDIA) && defined(__linux__) && defined(__GLIBCXX__)

#include <cstring>
#include <memory>
#include <system_error>

#define LLB_START(prefix) \
    prefix##_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE

using State = std::unique_ptr<std::thread::_State>;

extern "C" {
// Arguments of this type are passed by their address.
void LLB_START(__wrap_)(std::thread *, State *, void (*)());
__attribute__((weak)) void LLB_START(__real_)(std::thread *, State *, void (*)());
void __wrap__ZNSt6thread4joinEv(std::thread *);
__attribute__((weak)) void __real__ZNSt6thread4joinEv(std::thread *);
void llb_refused_threads_run(bool value);
}

namespace {

thread_local bool runs_refused = false;

using Id = std::thread::native_handle_type;
static_assert(sizeof(std::thread) == sizeof(Id), "a thread is its id");

// The address of a static object is the id of no thread.
char no_thread;

Id id_of_none() {
    return (Id)&no_thread;
}

void set_id(std::thread * thread, Id id) {
    std::memcpy(static_cast<void *>(thread), &id, sizeof(id));
}

} // namespace

void LLB_START(__wrap_)(std::thread * thread, State * state, void (*depends)()) {
    try {
        LLB_START(__real_)(thread, state, depends);
    } catch (const std::system_error &) {
        if (!runs_refused) {
            throw;
        }
        (*state)->_M_run();
        // It is joined, or its destructor ends the process, as for a thread that has been started.
        set_id(thread, id_of_none());
    }
}

void __wrap__ZNSt6thread4joinEv(std::thread * thread) {
    if (thread->native_handle() == id_of_none()) {
        set_id(thread, Id());
    } else {
        __real__ZNSt6thread4joinEv(thread);
    }
}

// Whether this thread does the work of threads that cannot be started.
void llb_refused_threads_run(bool value) {
    runs_refused = value;
}

#elif defined(LLB_MEDIA)

extern "C" void llb_refused_threads_run(bool) {}

#endif
