// Faults of llama.cpp on 64-bit Windows, turned into failed calls. faults.cpp is for Linux, and says
// which faults are handled and why.
//
// These differ on Windows:
//
// - A vectored exception handler gets them, before the frames of the thread do. It handles what is
//   described in faults.cpp, and leaves all else to the handlers of the host.
// - A mapped file cannot be cut. Where its disk or network fails, the call is left too
//   (EXCEPTION_IN_PAGE_ERROR), so no ranges are watched.

#if defined(_WIN32)

#include "faults.h"

#ifdef LLB_HAS_FAULTS

#include <cstdint>

#include <windows.h>

extern "C" {
struct llb_range;
}

namespace {

// Nothing can be mapped below this address.
const uintptr_t NULL_PAGES = 64 * 1024;

DWORD landing_index = TLS_OUT_OF_INDEXES;
void * handler = nullptr;

// The code of an image: this one, which llama.cpp is linked into.
struct Code {
    uintptr_t start = 0;
    uintptr_t end = 0;
};
Code code;

Code image_at(const void * address) {
    HMODULE image = nullptr;
    const DWORD flags =
        GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    if (!GetModuleHandleExW(flags, static_cast<LPCWSTR>(address), &image)) {
        return {};
    }
    const auto start = reinterpret_cast<uintptr_t>(image);
    const auto * const dos = reinterpret_cast<const IMAGE_DOS_HEADER *>(start);
    const auto * const header = reinterpret_cast<const IMAGE_NT_HEADERS *>(start + dos->e_lfanew);
    return {start, start + header->OptionalHeader.SizeOfImage};
}

bool is_own_code(uintptr_t at) {
    return at >= code.start && at < code.end;
}

// Whether the code that faulted is of this image, or a function that was called by it and that has
// called nothing and keeps nothing on the stack: its return address is then at the top.
bool holds_no_lock(const CONTEXT & thread) {
    return is_own_code(thread.Rip) ||
        is_own_code(*reinterpret_cast<const uintptr_t *>(thread.Rsp));
}

// The message for a fault. NULL if the fault may have changed memory, or if it occurred while
// holding a lock.
const char * explain(const EXCEPTION_RECORD & record, const CONTEXT & thread) {
    const uintptr_t at = thread.Rip;
    const uintptr_t address = record.NumberParameters >= 2 ? record.ExceptionInformation[1] : 0;
    switch (record.ExceptionCode) {
    case EXCEPTION_INT_DIVIDE_BY_ZERO:
        return is_own_code(at) ? "the model made llama.cpp divide by zero" : nullptr;
    case EXCEPTION_ACCESS_VIOLATION:
        return address < NULL_PAGES && (at < NULL_PAGES || holds_no_lock(thread))
            ? "the model made llama.cpp use a null pointer"
            : nullptr;
    case EXCEPTION_IN_PAGE_ERROR:
        return holds_no_lock(thread) ? "the model's file can no longer be read" : nullptr;
    default:
        return nullptr;
    }
}

// Makes a thread call `function` instead of the instruction that faulted.
void call_instead(CONTEXT & thread, void (*function)()) {
    // The x64 calling convention lets a function use the 32 bytes above its return address. That is
    // set to 0, so a stack trace ends here.
    const uintptr_t home = 32;
    uintptr_t stack = (thread.Rsp - 128) & ~uintptr_t(15);
    stack -= home + sizeof(uintptr_t);
    *reinterpret_cast<uintptr_t *>(stack) = 0;
    thread.Rsp = stack;
    thread.Rbp = 0;
    thread.Rip = reinterpret_cast<uintptr_t>(function);
    const DWORD direction = 0x400;
    thread.EFlags &= ~direction;
}

LONG CALLBACK on_fault(EXCEPTION_POINTERS * fault) {
    // Exceptions of C++ pass here too. Handlers must not change the last error.
    const DWORD error = GetLastError();
    llb_landing * const landing = llb_faults_landing();
    const char * const text =
        landing ? explain(*fault->ExceptionRecord, *fault->ContextRecord) : nullptr;
    if (text) {
        landing->fault = text;
        call_instead(*fault->ContextRecord, llb_faults_leave_call);
    }
    SetLastError(error);
    return text ? EXCEPTION_CONTINUE_EXECUTION : EXCEPTION_CONTINUE_SEARCH;
}

} // namespace

extern "C" {

llb_landing * llb_faults_landing(void) {
    return static_cast<llb_landing *>(TlsGetValue(landing_index));
}

void llb_faults_set_landing(llb_landing * landing) {
    TlsSetValue(landing_index, landing);
}

// Called before the first model is loaded. Not thread-safe, neither against itself nor
// `llb_faults_remove`.
void llb_faults_install(void) {
    if (landing_index == TLS_OUT_OF_INDEXES) {
        landing_index = TlsAlloc();
        code = image_at(reinterpret_cast<const void *>(&image_at));
        // FreeLibrary must not unload code that threads run.
        HMODULE pinned = nullptr;
        GetModuleHandleExW(
            GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
            reinterpret_cast<LPCWSTR>(&image_at), &pinned);
    }
    const ULONG is_first = 1;
    handler = AddVectoredExceptionHandler(is_first, on_fault);
}

// Called after the last model was freed.
void llb_faults_remove(void) {
    if (handler) {
        RemoveVectoredExceptionHandler(handler);
        handler = nullptr;
    }
}

// There are no files of kernels.
void llb_faults_add_code(uintptr_t) {}

llb_range * llb_range_add(uintptr_t, uintptr_t) { return nullptr; }
void llb_range_remove(llb_range *) {}
bool llb_range_is_lost(const llb_range *) { return false; }

} // extern "C"

#endif

#endif
