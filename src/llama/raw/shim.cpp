// Catches C++ exceptions of llama.cpp, because Rust cannot catch them.
//
// In: a Rust function that makes one call into llama.cpp. Out: a status, and the message of the
// exception or of the fault that ended the call (faults.cpp). The frames between here and llama.cpp
// are Rust functions with the ABI "C-unwind", which lets exceptions pass. A failed assertion
// becomes an exception too: ggml calls `on_abort` before it ends the process. If ggml_malloc or
// ggml_calloc gets no memory, `on_abort` leaves the call by a jump instead, as after a fault, where
// faults are handled. Destructors do not run then, because some objects cannot be destroyed in that
// state: ggml_backend_sched_split_graph, for example, frees its context and then allocates another.
//
// It also calls functions of llama.cpp that have no C declaration: those that return a std::map, which
// Rust cannot read, and those for the hidden states that layers for further tokens read.
//
// Functions and types are declared here: the crate that builds llama.cpp exports no headers. Those
// of the memory breakdown and of hidden states match src/llama-ext.h of the pinned version, and those
// of mtmd tools/mtmd/mtmd.h.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <stdexcept>

#include "faults.h"

struct llama_context;
struct ggml_backend_buffer_type;
struct ggml_backend_device;

struct llama_memory_breakdown_data {
    size_t model;
    size_t context;
    size_t compute;
};

using llama_memory_breakdown = std::map<ggml_backend_buffer_type *, llama_memory_breakdown_data>;

llama_memory_breakdown llama_get_memory_breakdown(const llama_context * ctx);
void llama_set_embeddings_nextn(llama_context * ctx, bool value, bool masked);
float * llama_get_embeddings_nextn(llama_context * ctx);
float * llama_get_embeddings_nextn_ith(llama_context * ctx, int32_t i);

#ifdef LLB_MEDIA
struct mtmd_context_params {
    bool use_gpu;
    ggml_backend_device * device;
    bool print_timings;
    int n_threads;
    const char * image_marker;
    const char * media_marker;
    int flash_attn_type;
    bool warmup;
    int image_min_tokens;
    int image_max_tokens;
    bool (*cb_eval)(struct ggml_tensor *, bool, void *);
    void * cb_eval_user_data;
    int32_t batch_max_tokens;
    bool (*progress_callback)(float, void *);
    void * progress_callback_user_data;
};

struct mtmd_memory_usage {
    std::map<ggml_backend_device *, size_t> backend_mem_usage;
    int image_max_tokens;
    bool use_non_causal;
};

mtmd_memory_usage mtmd_get_memory_usage(const char * path, mtmd_context_params params);
#endif

extern "C" {
bool ggml_backend_buft_is_host(ggml_backend_buffer_type * type);
ggml_backend_device * ggml_backend_buft_get_device(ggml_backend_buffer_type * type);
typedef void (*ggml_abort_callback_t)(const char * message);
ggml_abort_callback_t ggml_set_abort_callback(ggml_abort_callback_t callback);
}

namespace {

// How many calls of `llb_shim_call` are on this thread's stack.
thread_local int depth = 0;

struct Inside {
    Inside() { ++depth; }
    ~Inside() { --depth; }
};

// Faults of this thread jump here until the destructor runs.
struct Landing : llb_landing {
    llb_landing * const outer = llb_faults_landing();

    Landing() { llb_faults_set_landing(this); }
    ~Landing() { llb_faults_set_landing(outer); }
};

struct AssertionFailed {
    char message[512];
};

void copy(char * to, size_t size, const char * text) {
    std::snprintf(to, size, "%s", text);
}

#ifdef LLB_HAS_FAULTS
const char no_memory[] = "out of memory";

// Whether this is the message of `ggml_malloc` and `ggml_calloc`. Their file has no other one that
// a model can cause.
bool is_about_memory(const char * message) {
    const char * const file = std::strstr(message, "ggml.c:");
    return file && std::strstr(file, ": fatal error");
}
#endif

void on_abort(const char * message) {
    llb_workers_on_abort(message);
    if (depth == 0) {
        return; // An exception would not be caught, so ggml ends the process.
    }
#ifdef LLB_HAS_FAULTS
    if (llb_landing * const landing = is_about_memory(message) ? llb_faults_landing() : nullptr) {
        landing->fault = no_memory;
        LLB_GO_TO(landing->point);
    }
#endif
    AssertionFailed failed;
    copy(failed.message, sizeof(failed.message), message);
    throw failed;
}

} // namespace

extern "C" {

// The same values are in shim.rs.
enum { RETURNED = 0, ASSERTION_FAILED = 1, EXCEPTION = 2, OUT_OF_MEMORY = 3, FAULT = 4 };

void llb_shim_install(void) {
    ggml_set_abort_callback(on_abort);
}

bool llb_shim_is_inside(void) {
    return depth > 0;
}

// Calls `call(data)`. Writes a NUL-terminated message if it throws or faults.
int llb_shim_call(void (*call)(void *), void * data, char * message, size_t size) {
    const Inside inside;
    Landing landing;
#ifdef LLB_HAS_FAULTS
    // No variable that changes between here and the call is used after a jump back.
    if (LLB_SET_POINT(landing.point) != 0) {
        copy(message, size, landing.fault);
        return landing.fault == no_memory ? OUT_OF_MEMORY : FAULT;
    }
#endif
    try {
        call(data);
        return RETURNED;
    } catch (const AssertionFailed & failed) {
        copy(message, size, failed.message);
        return ASSERTION_FAILED;
    } catch (const std::bad_alloc &) {
        copy(message, size, "out of memory");
        return OUT_OF_MEMORY;
    } catch (const std::exception & exception) {
        copy(message, size, exception.what());
        return EXCEPTION;
    } catch (...) {
        copy(message, size, "an unknown C++ exception");
        return EXCEPTION;
    }
}

// The memory of one type of buffer, in bytes.
struct llb_memory_row {
    // NULL is main memory.
    ggml_backend_device * device;
    size_t weights;
    size_t cache;
    size_t compute;
};

// The memory of a context and its model, a row for each type of buffer. Writes at most `most` rows
// and returns how many it wrote. May throw.
size_t llb_memory_rows(const llama_context * context, llb_memory_row * rows, size_t most) {
    size_t count = 0;
    for (const auto & [type, data] : llama_get_memory_breakdown(context)) {
        if (count == most) {
            break;
        }
        auto * device = ggml_backend_buft_is_host(type) ? nullptr : ggml_backend_buft_get_device(type);
        rows[count++] = {device, data.model, data.context, data.compute};
    }
    return count;
}

// Keeps the hidden states of each decode: those of the entries with logits, or of all entries. May
// throw.
void llb_keep_hidden(llama_context * context, bool with_logits) {
    llama_set_embeddings_nextn(context, true, with_logits);
}

// The hidden states of all entries of the last decode, in their order. May throw.
const float * llb_hidden(llama_context * context) {
    return llama_get_embeddings_nextn(context);
}

// The hidden state of one entry of the last decode. NULL if it was not kept. May throw.
const float * llb_hidden_of(llama_context * context, int32_t entry) {
    return llama_get_embeddings_nextn_ith(context, entry);
}

#ifdef LLB_MEDIA
// The memory of a projector with its buffers, all in `compute`, a row for each device. `size` is that
// of the parameters for the caller. Writes at most `most` rows and returns how many it wrote. May
// throw.
size_t llb_projector_memory_rows(
    const char * path,
    const mtmd_context_params * params,
    size_t size,
    llb_memory_row * rows,
    size_t most
) {
    if (size != sizeof(*params)) {
        throw std::runtime_error("mtmd_context_params has another size");
    }
    size_t count = 0;
    for (const auto & [device, bytes] : mtmd_get_memory_usage(path, *params).backend_mem_usage) {
        if (count == most) {
            break;
        }
        rows[count++] = {device, 0, 0, bytes};
    }
    return count;
}
#endif

} // extern "C"
