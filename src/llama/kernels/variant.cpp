// The part of a file of kernels that is not ggml-cpu: its entry, its identity, and its calls into
// the library. scripts/kernels.py compiles it with LLB_KERNELS_IDENTITY and LLB_KERNELS_VARIANT.

#include "kernels.h"

extern "C" {
#define LLB_DECLARE(name) void name();
LLB_KERNEL_FUNCTIONS(LLB_DECLARE)
#undef LLB_DECLARE
}

namespace {

enum : size_t {
#define LLB_INDEX(name) index_##name,
    LLB_BASE_FUNCTIONS(LLB_INDEX)
#undef LLB_INDEX
    n_base
};

const llb_kernels kernels = {
#define LLB_ADDRESS(name) name,
    LLB_KERNEL_FUNCTIONS(LLB_ADDRESS)
#undef LLB_ADDRESS
};

} // namespace

// A jump to the library for each of its functions. Arguments and results stay where they are, so
// the types do not matter.
#if defined(__x86_64__)
#define LLB_JUMP_TO(pointer) "    jmp *" #pointer "(%rip)\n"
#elif defined(__aarch64__)
// x16 is free for jumps between functions.
#define LLB_JUMP_TO(pointer) \
    "    adrp x16, " #pointer "\n" \
    "    ldr x16, [x16, :lo12:" #pointer "]\n" \
    "    br x16\n"
#else
#error "write the jump for this processor"
#endif
#define LLB_JUMP(name) \
    extern "C" __attribute__((visibility("hidden"))) llb_function llb_base_##name; \
    llb_function llb_base_##name = nullptr; \
    asm(".pushsection .text\n" \
        ".globl " #name "\n" \
        ".hidden " #name "\n" \
        ".type " #name ", %function\n" \
        #name ":\n" \
        LLB_JUMP_TO(llb_base_##name) \
        ".size " #name ", . - " #name "\n" \
        ".popsection\n");
LLB_BASE_FUNCTIONS(LLB_JUMP)
#undef LLB_JUMP

extern "C" __attribute__((visibility("default"))) const llb_kernels * llb_kernels_open(
    const llb_function * base, size_t count) {
    if (count != n_base) {
        return nullptr;
    }
#define LLB_COPY(name) llb_base_##name = base[index_##name];
    LLB_BASE_FUNCTIONS(LLB_COPY)
#undef LLB_COPY
    return &kernels;
}

// Read from the file before anything of it runs: "VARIANT IDENTITY".
#define LLB_NOTE LLB_KERNELS_VARIANT " " LLB_KERNELS_IDENTITY
extern "C" {
extern const struct llb_note {
    unsigned name_size, text_size, type;
    char name[4];
    char text[(sizeof(LLB_NOTE) + 3) & ~size_t(3)];
} llb_kernels_note;
__attribute__((section(".note.llb"), used, aligned(4))) const llb_note llb_kernels_note = {
    4, sizeof(LLB_NOTE) - 1, 1, {'l', 'l', 'b', 0}, LLB_NOTE};
}
