// The threads of one of ggml's pools, called workers. This file checks that they can be started,
// handles failed assertions on them, and ends them when they wait for a thread that has left the
// graph.
//
// All threads that compute a graph wait for each other in `ggml_barrier`, which loops until all
// have arrived. If a failed assertion makes one thread leave the graph, the others would loop
// forever.
//
// - The calling thread leaves by an exception (shim.cpp). Before that, `llb_workers_end` ends the
//   others from outside: in that loop they hold no lock and own no resources. They use data on the
//   stack of the calling thread, so all must have ended before it unwinds.
// - A worker must not leave, or the calling thread would wait forever. It stays in the barrier with
//   the others, and computes nothing. llama.cpp's abort check reads `llb_workers_failure` after
//   each operation, so the calling thread soon ends the graph. The worker is then ended.

#include <cstddef>

#include "../kernels/kernels.h"
#include "../raw/faults.h"
#include "../raw/system_thread.h"

struct llb_workers;

extern "C" {
struct ggml_threadpool;
struct ggml_tensor;

// From kernels.cpp.
const llb_kernels * llb_kernels_used(void);

bool llb_workers_end(llb_workers * all);
}

#ifdef LLB_HAS_SYSTEM_THREADS

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <new>
#include <vector>

namespace {

// A worker is ended once it has used this much processor time since the call failed. By then it
// has finished its part of the operation and waits in the barrier.
const int64_t GRACE_MS = 1000;
const int64_t STEP_NS = 2000000;

struct Worker {
    llb_workers * all = nullptr;
    SystemThread thread;
    int64_t start_ms = 0;
    bool runs = false;
    // Set once the worker stays in the barrier after a failed assertion.
    bool waits = false;
    bool is_told_to_end = false;
    // Faults on the worker jump here and are handled as failed assertions.
    llb_landing landing;
};

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
    SystemThread thread;
    std::mutex * gate = nullptr;
    std::atomic<long> task{0};
};

void * run_trial(void * data) {
    Trial & trial = *static_cast<Trial *>(data);
    trial.task = SystemThread::own_task();
    const std::lock_guard<std::mutex> lock(*trial.gate);
    return nullptr;
}

// A joined thread still counts against the limit for a moment.
void wait_until_gone(const Trial & trial) {
#if defined(__linux__)
    for (int i = 0; i < 500 && syscall(SYS_tgkill, getpid(), trial.task.load(), 0) == 0; i++) {
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
            if (!trial.thread.start(run_trial, &trial)) {
                break;
            }
            started++;
        }
    }
    for (size_t i = 0; i < started; i++) {
        trials[i].thread.join();
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
    worker.runs = true;
    own = ending.worker = &worker;
    llb_faults_set_landing(&worker.landing);
    worker.thread.become_current();
}

// A worker's thread number on Linux; 0 for the calling thread and on other systems.
long llb_workers_task(llb_workers * all, size_t index) {
    const std::lock_guard<std::mutex> lock(all->mutex);
    return all->list.at(index).thread.task;
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
// ended meanwhile.
bool llb_workers_end(llb_workers * all) {
    if (all->ended) {
        return true;
    }
    SystemThread freeing;
    if (!freeing.start(free_pool, all->pool)) {
        return false;
    }
    {
        const std::lock_guard<std::mutex> lock(all->mutex);
        for (Worker & worker : all->list) {
            worker.start_ms = worker.runs ? worker.thread.used_ms() : 0;
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
            if (!worker.is_told_to_end &&
                (worker.waits || worker.thread.used_ms() - worker.start_ms >= GRACE_MS)) {
                worker.is_told_to_end = true;
                worker.runs = !worker.thread.end();
            }
        }
    }
    freeing.join();
    all->ended = true;
    return true;
}

// Called after the pool was freed.
void llb_workers_free(llb_workers * all) {
    for (Worker & worker : all->list) {
        worker.thread.close();
    }
    delete all;
}

} // extern "C"

#else // Threads cannot be ended here, so nothing is done.

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
