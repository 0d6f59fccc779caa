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
// The landing of the current thread; NULL outside of all calls.
llb_landing * llb_faults_landing(void);
void llb_faults_set_landing(llb_landing * landing);
}

#endif
