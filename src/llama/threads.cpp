// The threads of one of ggml's pools, called workers. This file checks that they can be started,
// handles failed assertions on them, and ends them when they wait for a thread that has left the
// graph.
//
// All threads that compute a graph wait for each other in `ggml_barrier`, which loops until all
// have arrived. If a failed assertion makes one thread leave the graph, the others would loop
// forever.
//
// - The calling thread leaves by an exception (shim.cpp). Before that, `llb_workers_end` ends the
//   others by asynchronous cancellation: in that loop they hold no lock and own no resources. They
//   use data on the stack of the calling thread, so all must have ended before it unwinds.
// - A worker must not leave, or the calling thread would wait forever. It stays in the barrier with
//   the others, and computes nothing. llama.cpp's abort check reads `llb_workers_failure` after
//   each operation, so the calling thread soon ends the graph. The worker is then cancelled.

#include <cstddef>

#include "faults.h"
#include "kernels/kernels.h"

struct llb_workers;

extern "C" {
struct ggml_threadpool;
struct ggml_tensor;

// From kernels.cpp.
const llb_kernels * llb_kernels_used(void);

bool llb_workers_end(llb_workers * all);
}

#if !defined(_WIN32) && !defined(__ANDROID__)

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <new>
#include <vector>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

namespace {

// A worker is cancelled once it has used this much processor time since the call failed. By then it
// has finished its part of the operation and waits in the barrier.
const int64_t GRACE_MS = 1000;
const int64_t STEP_NS = 2000000;

struct Worker {
    llb_workers * all = nullptr;
    pthread_t thread{};
    // The thread's number on Linux, 0 elsewhere.
    long task = 0;
    int64_t start_ms = 0;
    bool runs = false;
    // Set once the worker stays in the barrier after a failed assertion.
    bool waits = false;
    bool cancelled = false;
    // Faults on the worker jump here and are handled as failed assertions.
    llb_landing landing;
};

int64_t milliseconds(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

// The processor time of a running thread, or the wall-clock time where the system does not report
// it.
int64_t used_ms(pthread_t thread) {
#if defined(_POSIX_THREAD_CPUTIME) && _POSIX_THREAD_CPUTIME >= 0
    clockid_t clock;
    if (pthread_getcpuclockid(thread, &clock) == 0) {
        return milliseconds(clock);
    }
#endif
    (void) thread;
    return milliseconds(CLOCK_MONOTONIC);
}

long own_task() {
#if defined(__linux__)
    return syscall(SYS_gettid);
#else
    return 0;
#endif
}

// Ends a worker by asynchronous cancellation.
void cancel(const Worker & worker) {
    const bool sent = pthread_cancel(worker.thread) == 0;
#if defined(__linux__) && !defined(__GLIBC__)
    // musl sends its signal 33 by `tkill`. A sandbox refuses that call, because it reaches threads
    // of other processes (sandbox.rs).
    if (!sent) {
        syscall(SYS_tgkill, getpid(), worker.task, 33);
    }
#endif
    (void) sent;
}

void pause_ns(int64_t ns) {
    const timespec time = {0, static_cast<long>(ns)};
    nanosleep(&time, nullptr);
}

} // namespace

struct llb_workers {
    ggml_threadpool * pool;
    // Sorted by their index in the pool. Guarded by `mutex`.
    std::vector<Worker> list;
    std::mutex mutex;
    // Set once, after the message was stored.
    std::atomic<bool> failed{false};
    char message[512] = {};
    bool ended = false;
};

namespace {

// The current thread's entry if it is a worker.
thread_local Worker * own = nullptr;
// The workers that this thread computes with, if it is not a worker itself.
thread_local llb_workers * helping = nullptr;

// Records the end of a worker. Its handle is invalid from then on.
struct Ending {
    Worker * worker = nullptr;
    ~Ending() {
        if (worker) {
            const std::lock_guard<std::mutex> lock(worker->all->mutex);
            worker->runs = false;
        }
    }
};
thread_local Ending ending;

void note_failure(llb_workers & all, Worker & worker, const char * message) {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (!all.failed) {
        std::snprintf(all.message, sizeof(all.message), "%s", message);
        all.failed = true;
    }
    worker.waits = true;
}

typedef void (*pool_function)(ggml_threadpool * pool);

void wait_forever(ggml_threadpool * pool) {
    const auto barrier = reinterpret_cast<pool_function>(llb_kernels_used()->ggml_barrier);
    for (;;) {
        barrier(pool);
    }
}

void * free_pool(void * pool) {
    const auto free = reinterpret_cast<pool_function>(llb_kernels_used()->ggml_threadpool_free);
    free(static_cast<ggml_threadpool *>(pool));
    return nullptr;
}

// A thread that `llb_threads_can_start` starts to find out whether it can.
struct Trial {
    pthread_t thread{};
    std::mutex * gate = nullptr;
    std::atomic<long> id{0};
};

void * run_trial(void * data) {
    Trial & trial = *static_cast<Trial *>(data);
    trial.id = own_task();
    const std::lock_guard<std::mutex> lock(*trial.gate);
    return nullptr;
}

// A joined thread still counts against the limit for a moment.
void wait_until_gone(const Trial & trial) {
#if defined(__linux__)
    for (int i = 0; i < 500 && syscall(SYS_tgkill, getpid(), trial.id.load(), 0) == 0; i++) {
        pause_ns(STEP_NS / 20);
    }
#else
    (void) trial;
#endif
}

} // namespace

extern "C" {

// Whether `count` more threads can run at the same time. ggml asserts that its own threads can be
// started.
bool llb_threads_can_start(size_t count) {
    std::mutex gate;
    std::vector<Trial> trials(count);
    size_t started = 0;
    {
        const std::lock_guard<std::mutex> lock(gate);
        for (Trial & trial : trials) {
            trial.gate = &gate;
            if (pthread_create(&trial.thread, nullptr, run_trial, &trial) != 0) {
                break;
            }
            started++;
        }
    }
    for (size_t i = 0; i < started; i++) {
        pthread_join(trials[i].thread, nullptr);
    }
    for (size_t i = 0; i < started; i++) {
        wait_until_gone(trials[i]);
    }
    return started == count;
}

llb_workers * llb_workers_new(ggml_threadpool * pool, size_t count) {
    auto * all = new llb_workers;
    all->pool = pool;
    all->list.resize(count);
    return all;
}

// The operation of a graph that runs once on each thread of the pool. Thread 0 is the calling
// thread.
void llb_workers_enter(ggml_tensor *, const ggml_tensor *, int index, int, void * data) {
    auto & all = *static_cast<llb_workers *>(data);
    if (index == 0) {
        return;
    }
    const std::lock_guard<std::mutex> lock(all.mutex);
    Worker & worker = all.list.at(index);
    worker.all = &all;
    worker.thread = pthread_self();
    worker.task = own_task();
    worker.runs = true;
    own = ending.worker = &worker;
    llb_faults_set_landing(&worker.landing);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
}

// A worker's thread number on Linux; 0 for the calling thread and on other systems.
long llb_workers_task(llb_workers * all, size_t index) {
    const std::lock_guard<std::mutex> lock(all->mutex);
    return all->list.at(index).task;
}

// Sets the workers that the calling thread computes with, until the next call. NULL for none.
void llb_workers_help(llb_workers * all) {
    helping = all;
}

// Called when an assertion fails, or after a fault. Does not return on a worker.
void llb_workers_on_abort(const char * message) {
    if (own) {
        note_failure(*own->all, *own, message);
        wait_forever(own->all->pool);
    }
    if (helping) {
        llb_workers_end(helping);
        helping = nullptr;
    }
}

// The message of the first assertion that failed on a worker; NULL if none failed.
const char * llb_workers_failure(const llb_workers * all) {
    return all->failed ? all->message : nullptr;
}

// Ends all workers and frees the pool. Returns false, and changes nothing, if that is not possible.
// May be called again after the pool was freed.
//
// Freeing the pool ends the workers that wait for work, and joins all workers. The rest are
// cancelled meanwhile.
bool llb_workers_end(llb_workers * all) {
    if (all->ended) {
        return true;
    }
    pthread_t freeing;
    if (pthread_create(&freeing, nullptr, free_pool, all->pool) != 0) {
        return false;
    }
    {
        const std::lock_guard<std::mutex> lock(all->mutex);
        for (Worker & worker : all->list) {
            worker.start_ms = worker.runs ? used_ms(worker.thread) : 0;
        }
    }
    for (bool some = true; some; pause_ns(STEP_NS)) {
        const std::lock_guard<std::mutex> lock(all->mutex);
        some = false;
        for (Worker & worker : all->list) {
            if (!worker.runs) {
                continue;
            }
            some = true;
            if (!worker.cancelled &&
                (worker.waits || used_ms(worker.thread) - worker.start_ms >= GRACE_MS)) {
                worker.cancelled = true;
                cancel(worker);
            }
        }
    }
    pthread_join(freeing, nullptr);
    all->ended = true;
    return true;
}

// Called after the pool was freed.
void llb_workers_free(llb_workers * all) {
    delete all;
}

} // extern "C"

#else // Threads cannot be cancelled here, so nothing is done.

extern "C" {

bool llb_threads_can_start(size_t) { return true; }
llb_workers * llb_workers_new(ggml_threadpool *, size_t) { return nullptr; }
void llb_workers_enter(ggml_tensor *, const ggml_tensor *, int, int, void *) {}
void llb_workers_help(llb_workers *) {}
void llb_workers_on_abort(const char *) {}
long llb_workers_task(llb_workers *, size_t) { return 0; }
const char * llb_workers_failure(const llb_workers *) { return nullptr; }
bool llb_workers_end(llb_workers *) { return false; }
void llb_workers_free(llb_workers *) {}

} // extern "C"

#endif
