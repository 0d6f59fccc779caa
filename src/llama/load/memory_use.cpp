// The memory that llama.cpp's objects take, by device.
//
// In: a context. Out: bytes of its model, its caches and its compute buffers, a row for each type
// of buffer. llama.cpp's function returns a std::map, so it is called from C++.
//
// Its types are declared here: the crate that builds llama.cpp exports no headers. The declarations
// match src/llama-ext.h of the pinned version.

#include <cstddef>
#include <map>

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

extern "C" {

bool ggml_backend_buft_is_host(ggml_backend_buffer_type * type);
ggml_backend_device * ggml_backend_buft_get_device(ggml_backend_buffer_type * type);

struct llb_memory_row {
    // NULL is main memory.
    ggml_backend_device * device;
    size_t weights;
    size_t cache;
    size_t compute;
};

// Writes at most `most` rows and returns how many it wrote. May throw.
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

}
