// The part of a file of kernels that is not ggml-cpu: its entry. scripts/kernels.py compiles it.

#include "loaded_file.h"

extern "C" {
#define LLB_DECLARE(name) void name();
LLB_KERNEL_FUNCTIONS(LLB_DECLARE)
#undef LLB_DECLARE
}

namespace {

const llb_kernels kernels = {
#define LLB_ADDRESS(name) name,
    LLB_KERNEL_FUNCTIONS(LLB_ADDRESS)
#undef LLB_ADDRESS
};

} // namespace

extern "C" __attribute__((visibility("default"))) const llb_kernels * llb_kernels_open(
    const llb_function * base, size_t count) {
    return take_base(base, count) ? &kernels : nullptr;
}
