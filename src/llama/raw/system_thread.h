// A thread of the system: started and joined, measured, and ended from outside. For POSIX systems
// with asynchronous cancellation, and for Windows.

#ifndef LLB_SYSTEM_THREAD_H
#define LLB_SYSTEM_THREAD_H

#if !defined(__ANDROID__)
#define LLB_HAS_SYSTEM_THREADS 1

#include <cstdint>
#include <ctime>

#ifdef _WIN32

#include <windows.h>

class SystemThread {
  public:
    // False if the system refuses to start a thread.
    bool start(void * (*run)(void *), void * data) {
        begin = {run, data};
        handle = CreateThread(nullptr, 0, run_started, &begin, 0, nullptr);
        return handle != nullptr;
    }

    void join() {
        WaitForSingleObject(handle, INFINITE);
        close();
    }

    // Becomes the calling thread, which need not have been started by this class.
    void become_current() {
        close();
        const HANDLE process = GetCurrentProcess();
        DuplicateHandle(process, GetCurrentThread(), process, &handle, 0, FALSE, DUPLICATE_SAME_ACCESS);
    }

    // The processor time that a running thread has used.
    int64_t used_ms() const {
        FILETIME created, exited, kernel, user;
        if (!GetThreadTimes(handle, &created, &exited, &kernel, &user)) {
            return int64_t(GetTickCount64());
        }
        return (number(kernel) + number(user)) / 10000;
    }

    // Ends the thread. Returns true: it has ended, without calling any destructor.
    bool end() {
        TerminateThread(handle, 0);
        WaitForSingleObject(handle, INFINITE);
        return true;
    }

    void close() {
        if (handle) {
            CloseHandle(handle);
        }
        handle = nullptr;
    }

    // A number that only Linux has.
    static long own_task() {
        return 0;
    }

    long task = 0;

  private:
    struct Start {
        void * (*run)(void *) = nullptr;
        void * data = nullptr;
    };

    static DWORD WINAPI run_started(void * data) {
        const Start start = *static_cast<Start *>(data);
        start.run(start.data);
        return 0;
    }

    // In units of 100 ns.
    static int64_t number(const FILETIME & time) {
        return int64_t(time.dwHighDateTime) << 32 | time.dwLowDateTime;
    }

    // Read by the thread when it starts, so the object must not move before it is joined.
    Start begin;
    HANDLE handle = nullptr;
};

inline void pause_ns(int64_t ns) {
    Sleep(static_cast<DWORD>(ns / 1000000 + 1));
}

#else

#include <pthread.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

class SystemThread {
  public:
    // False if the system refuses to start a thread.
    bool start(void * (*run)(void *), void * data) {
        return pthread_create(&thread, nullptr, run, data) == 0;
    }

    void join() {
        pthread_join(thread, nullptr);
    }

    // Becomes the calling thread, which need not have been started by this class. It can be ended
    // at any instruction from now on.
    void become_current() {
        thread = pthread_self();
        task = own_task();
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
    }

    // The processor time of a running thread, or the wall-clock time where the system does not
    // report it.
    int64_t used_ms() const {
#if defined(_POSIX_THREAD_CPUTIME) && _POSIX_THREAD_CPUTIME >= 0
        clockid_t clock;
        if (pthread_getcpuclockid(thread, &clock) == 0) {
            return milliseconds(clock);
        }
#endif
        return milliseconds(CLOCK_MONOTONIC);
    }

    // Ends the thread by asynchronous cancellation. Returns false: it will call the destructors of
    // its thread-locals.
    bool end() {
        const bool sent = pthread_cancel(thread) == 0;
#if defined(__linux__) && !defined(__GLIBC__)
        // musl sends its signal 33 by `tkill`. A sandbox refuses that call, because it reaches
        // threads of other processes (sandbox.rs).
        if (!sent) {
            syscall(SYS_tgkill, getpid(), task, 33);
        }
#endif
        (void) sent;
        return false;
    }

    void close() {}

    // The number of the calling thread on Linux, 0 elsewhere.
    static long own_task() {
#if defined(__linux__)
        return syscall(SYS_gettid);
#else
        return 0;
#endif
    }

    // The thread's number on Linux, after `become_current`; 0 elsewhere.
    long task = 0;

  private:
    static int64_t milliseconds(clockid_t clock) {
        timespec now{};
        clock_gettime(clock, &now);
        return int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
    }

    pthread_t thread{};
};

inline void pause_ns(int64_t ns) {
    const timespec time = {0, static_cast<long>(ns)};
    nanosleep(&time, nullptr);
}

#endif

#endif

#endif
