// What libllb-cuda.so has beside ggml's backend and device_file.cpp: the start of CUDA, and what
// happens to its errors. The linker redirects the calls of the functions named `__wrap_...`
// (scripts/devices.py).

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

extern "C" [[noreturn]] void __real_ggml_abort(const char * file, int line, const char * format, ...);

namespace {

// Exists for exactly the devices that the backend's kernels were compiled for.
__global__ void no_work() {}

[[noreturn]] void fail(const std::string & what, cudaError_t error) {
    throw std::runtime_error(what + cudaGetErrorString(error));
}

} // namespace

// Starts the driver and all devices: the driver's threads then inherit the blocked signals of the
// thread that loads the file. Throws if one of the devices cannot be used, which ggml would find
// out in the middle of a reply.
void llb_cuda_start() {
    int count = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count)) {
        fail("", error);
    }
    for (int i = 0; i < count; i++) {
        cudaDeviceProp about;
        cudaFuncAttributes attributes;
        cudaError_t error = cudaGetDeviceProperties(&about, i);
        if (error) {
            fail("CUDA" + std::to_string(i) + ": ", error);
        }
        error = cudaSetDevice(i);
        if (!error) {
            error = cudaFuncGetAttributes(&attributes, no_work);
        }
        if (error) {
            (void)cudaGetLastError();
            fail("CUDA" + std::to_string(i) + " (" + about.name + ", compute capability " +
                    std::to_string(about.major) + "." + std::to_string(about.minor) + "): ",
                error);
        }
    }
}

extern "C" {

// ggml reports an error of CUDA as a failed assertion without a reason. This adds the reason, and
// whether the device still answers: after some errors no call of this process succeeds any more.
// src/llama/raw/shim.rs has the text.
[[noreturn]] void __wrap_ggml_abort(const char * file, int line, const char * format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (std::strcmp(text, "CUDA error") != 0) {
        __real_ggml_abort(file, line, "%s", text);
    }
    const cudaError_t error = cudaGetLastError();
    size_t free = 0;
    size_t total = 0;
    const bool is_lost = cudaMemGetInfo(&free, &total) != cudaSuccess;
    __real_ggml_abort(file, line, "%s: %s%s", text,
        error ? cudaGetErrorString(error) : "a function failed",
        is_lost ? " (CUDA device lost)" : "");
}

// Functions that release something never fail: ggml calls them in destructors, where an exception
// would end the process. They fail when the device is lost, and then there is nothing to release.
#define LLB_RELEASE(name, parameters, arguments, type, success) \
    type __real_##name parameters; \
    type __wrap_##name parameters { \
        (void)__real_##name arguments; \
        return success; \
    }

LLB_RELEASE(cudaFree, (void * memory), (memory), cudaError_t, cudaSuccess)
LLB_RELEASE(cudaFreeHost, (void * memory), (memory), cudaError_t, cudaSuccess)
LLB_RELEASE(cudaEventDestroy, (cudaEvent_t event), (event), cudaError_t, cudaSuccess)
LLB_RELEASE(cudaStreamDestroy, (cudaStream_t stream), (stream), cudaError_t, cudaSuccess)
LLB_RELEASE(cudaGraphDestroy, (cudaGraph_t graph), (graph), cudaError_t, cudaSuccess)
LLB_RELEASE(cudaGraphExecDestroy, (cudaGraphExec_t graph), (graph), cudaError_t, cudaSuccess)
LLB_RELEASE(cublasDestroy_v2, (cublasHandle_t handle), (handle), cublasStatus_t, CUBLAS_STATUS_SUCCESS)
LLB_RELEASE(cuMemUnmap, (CUdeviceptr memory, size_t size), (memory, size), CUresult, CUDA_SUCCESS)
LLB_RELEASE(cuMemAddressFree, (CUdeviceptr memory, size_t size), (memory, size), CUresult, CUDA_SUCCESS)

} // extern "C"
