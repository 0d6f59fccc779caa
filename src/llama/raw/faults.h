// The landing of a guarded call: the place where a fault of llama.cpp on this thread ends. shim.cpp
// creates one for every call, threads.cpp one for every worker. faults.cpp and faults_windows.cpp
// jump to them.

#ifndef LLB_FAULTS_H
#define LLB_FAULTS_H

#if defined(__linux__) && !defined(__ANDROID__) && (defined(__x86_64__) || defined(__aarch64__))
#define LLB_HAS_FAULTS 1
#include <csetjmp>
typedef sigjmp_buf llb_point;
#define LLB_SET_POINT(point) sigsetjmp(point, 0)
#define LLB_GO_TO(point) siglongjmp(point, 1)
#elif defined(_WIN32) && defined(__x86_64__)
#define LLB_HAS_FAULTS 1
// A jump then calls no handlers of the frames that it leaves.
#define __USE_MINGW_SETJMP_NON_SEH
#include <csetjmp>
typedef jmp_buf llb_point;
#define LLB_SET_POINT(point) setjmp(point)
#define LLB_GO_TO(point) longjmp(point, 1)
#endif

struct llb_landing {
#ifdef LLB_HAS_FAULTS
    // Not used on a worker, because a worker never leaves its graph.
    llb_point point;
#endif
    // Why the call did not return: a static string.
    const char * fault = nullptr;
};

extern "C" {
// From threads.cpp: called when an assertion fails, or after a fault. Does not return on a worker,
// and ends the workers that compute with this thread.
void llb_workers_on_abort(const char * message);

// The landing of the current thread; NULL outside of all calls.
llb_landing * llb_faults_landing(void);
void llb_faults_set_landing(llb_landing * landing);
}

#ifdef LLB_HAS_FAULTS
// Ends the call that faulted, on its own stack. Not called from a handler.
[[noreturn]] inline void llb_faults_leave_call() {
    llb_landing * const landing = llb_faults_landing();
    // A second fault from here on is not handled.
    llb_faults_set_landing(nullptr);
    llb_workers_on_abort(landing->fault);
    LLB_GO_TO(landing->point);
}
#endif

#endif
