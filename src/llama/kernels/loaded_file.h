// The part that all files beside the library have (libllb-cpu-*.so, libllb-cuda.so and others): their
// identity, and their calls into the library. The one source of a file with an entry includes it.
// The script that compiles it defines LLB_FILE_IDENTITY and LLB_FILE_NAME.

#ifndef LLB_LOADED_FILE_H
#define LLB_LOADED_FILE_H

#include "kernels.h"

namespace {

enum : size_t {
#define LLB_INDEX(name) index_##name,
    LLB_BASE_FUNCTIONS(LLB_INDEX)
#undef LLB_INDEX
    n_base
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

namespace {

// Takes the functions of ggml-base from the library. False if it has another number of them.
bool take_base(const llb_function * base, size_t count) {
    if (count != n_base) {
        return false;
    }
#define LLB_COPY(name) llb_base_##name = base[index_##name];
    LLB_BASE_FUNCTIONS(LLB_COPY)
#undef LLB_COPY
    return true;
}

} // namespace

// The static objects of the file are never destroyed: at exit, threads may still use them, and a
// driver's own may be gone. The handlers that destroy them are registered by this function.
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(
    void (*)(void *), void *, void *) {
    return 0;
}

// Read from the file before anything of it runs: "NAME IDENTITY".
#define LLB_NOTE LLB_FILE_NAME " " LLB_FILE_IDENTITY
extern "C" {
extern const struct llb_note {
    unsigned name_size, text_size, type;
    char name[4];
    char text[(sizeof(LLB_NOTE) + 3) & ~size_t(3)];
} llb_file_note;
__attribute__((section(".note.llb"), used, aligned(4))) const llb_note llb_file_note = {
    4, sizeof(LLB_NOTE) - 1, 1, {'l', 'l', 'b', 0}, LLB_NOTE};
}

#endif
