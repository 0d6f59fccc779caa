// The kernels that compute: this library's own, or those of a file (libllb-cpu-*.so). Also opens
// files of devices (libllb-cuda.so and others).
//
// In: the path of a file, which kernel_file.rs has checked. Out: its functions or its registration.

#include "kernels.h"

#include <cstdio>

#if defined(__unix__)
#include <dlfcn.h>
#endif

extern "C" {
#define LLB_DECLARE(name) void name();
LLB_KERNEL_FUNCTIONS(LLB_DECLARE)
LLB_BASE_FUNCTIONS(LLB_DECLARE)
#undef LLB_DECLARE

// Where the linker redirects it, ggml's registry calls `__wrap_...` when it starts, and `__real_...`
// is the function itself. build.rs tells the linker, and so do cli/build.rs and what
// `pkg-config --static` prints. A program that contains llb and is linked without that has no
// `__real_...`, and the registry calls the function.
void * __wrap_ggml_backend_cpu_reg();
__attribute__((weak)) void * __real_ggml_backend_cpu_reg();
}

namespace {

const llb_kernels built_in = {
#define LLB_ADDRESS(name) name,
    LLB_KERNEL_FUNCTIONS(LLB_ADDRESS)
#undef LLB_ADDRESS
};

const llb_function base[] = {
#define LLB_ADDRESS(name) name,
    LLB_BASE_FUNCTIONS(LLB_ADDRESS)
#undef LLB_ADDRESS
};

const llb_kernels * used = &built_in;
bool can_run_built_in = true;

// Loads a file, with local symbol visibility, and never unloads it. Returns its function of this
// name, or NULL and the reason, which is valid until the next failure on this thread.
void * load(const char * path, const char * name, const char ** reason) {
#if defined(__unix__)
    // The path is absolute, so dlopen searches no folders.
    void * const file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void * const function = file ? dlsym(file, name) : nullptr;
    if (!function) {
        const char * const error = dlerror();
        *reason = error ? error : "it has no entry";
    }
    return function;
#else
    (void) path;
    (void) name;
    *reason = "this system has no such files";
    return nullptr;
#endif
}

} // namespace

extern "C" {

// Called before ggml's registry starts. Sets whether the CPU can run the built-in kernels.
void llb_kernels_set_built_in(bool can_run) {
    can_run_built_in = can_run;
}

// The registration of the built-in kernels, which runs some of them. NULL, which ggml's registry
// leaves out, if the processor cannot.
void * __wrap_ggml_backend_cpu_reg() {
    return can_run_built_in && __real_ggml_backend_cpu_reg ? __real_ggml_backend_cpu_reg() : nullptr;
}

// Whether ggml's registry can start on a processor that cannot run the built-in kernels.
bool llb_kernels_redirected(void) {
    return __real_ggml_backend_cpu_reg != nullptr;
}

const llb_kernels * llb_kernels_built_in(void) {
    return &built_in;
}

// Loads a file of kernels. On failure returns NULL and the reason, which is valid until the next
// failure on this thread.
const llb_kernels * llb_kernels_load(const char * path, const char ** reason) {
    *reason = "it refused this library";
    void * const open = load(path, "llb_kernels_open", reason);
    if (!open) {
        return nullptr;
    }
    return reinterpret_cast<llb_kernels_open_t>(open)(base, sizeof(base) / sizeof(*base));
}

// Loads a file of devices and starts its driver. Returns its registration, or NULL and the reason.
void * llb_device_load(const char * path, char * problem, size_t size) {
    const char * reason = "";
    void * const open = load(path, "llb_device_open", &reason);
    if (!open) {
        std::snprintf(problem, size, "%s", reason);
        return nullptr;
    }
    return reinterpret_cast<llb_device_open_t>(open)(
        base, sizeof(base) / sizeof(*base), problem, size);
}

// Sets the kernels that `threads.cpp` uses. Called before anything computes.
void llb_kernels_use(const llb_kernels * kernels) {
    used = kernels;
}

// The kernels that compute.
const llb_kernels * llb_kernels_used(void) {
    return used;
}

} // extern "C"
