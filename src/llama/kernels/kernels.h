// What the library exchanges with a file of kernels (libllb-cpu-*.so) or of devices (libllb-cuda.so,
// libllb-rpc.so, libllb-vulkan.so): addresses of functions.
//
// A file contains one backend of ggml alone. ggml-base stays in the library, so that there is one
// of each of its objects: buffer types, which llama.cpp compares by address, the lock of a fork,
// and the handlers of aborts and logs. The file's calls into it go through the table that it is
// opened with.

#ifndef LLB_KERNELS_H
#define LLB_KERNELS_H

#include <cstddef>

// The functions of ggml-cpu that the library calls. kernels/mod.rs has the same, in this order.
#define LLB_KERNEL_FUNCTIONS(X) \
    X(ggml_backend_cpu_reg) \
    X(ggml_graph_plan) \
    X(ggml_graph_compute) \
    X(ggml_threadpool_new) \
    X(ggml_threadpool_free) \
    X(ggml_barrier)

// The functions of ggml-base that the backends call. A file that needs another one is not linked.
#define LLB_BASE_FUNCTIONS(X) \
    X(ggml_abort) \
    X(ggml_aligned_free) \
    X(ggml_aligned_malloc) \
    X(ggml_are_same_shape) \
    X(ggml_are_same_stride) \
    X(ggml_backend_buffer_clear) \
    X(ggml_backend_buffer_copy_tensor) \
    X(ggml_backend_buffer_free) \
    X(ggml_backend_buffer_get_alloc_size) \
    X(ggml_backend_buffer_get_base) \
    X(ggml_backend_buffer_get_size) \
    X(ggml_backend_buffer_get_usage) \
    X(ggml_backend_buffer_init) \
    X(ggml_backend_buffer_is_host) \
    X(ggml_backend_buft_alloc_buffer) \
    X(ggml_backend_buft_get_alignment) \
    X(ggml_backend_buft_get_alloc_size) \
    X(ggml_backend_buft_get_max_size) \
    X(ggml_backend_buft_is_host) \
    X(ggml_backend_cpu_buffer_from_ptr) \
    X(ggml_backend_cpu_buffer_type) \
    X(ggml_backend_dev_backend_reg) \
    X(ggml_backend_dev_description) \
    X(ggml_backend_dev_init) \
    X(ggml_backend_dev_memory) \
    X(ggml_backend_dev_name) \
    X(ggml_backend_free) \
    X(ggml_backend_get_default_buffer_type) \
    X(ggml_backend_get_device) \
    X(ggml_backend_graph_compute) \
    X(ggml_backend_reg_dev_get) \
    X(ggml_backend_reg_get_proc_address) \
    X(ggml_backend_tensor_get) \
    X(ggml_backend_tensor_memset) \
    X(ggml_backend_tensor_set) \
    X(ggml_blck_size) \
    X(ggml_can_fuse_subgraph_ext) \
    X(ggml_can_repeat) \
    X(ggml_critical_section_end) \
    X(ggml_critical_section_start) \
    X(ggml_element_size) \
    X(ggml_fp16_to_fp32) \
    X(ggml_fp16_to_fp32_row) \
    X(ggml_free) \
    X(ggml_get_data_f32) \
    X(ggml_get_glu_op) \
    X(ggml_get_no_alloc) \
    X(ggml_get_type_traits) \
    X(ggml_get_unary_op) \
    X(ggml_glu_op_name) \
    X(ggml_graph_overhead_custom) \
    X(ggml_guid_matches) \
    X(ggml_init) \
    X(ggml_is_contiguous) \
    X(ggml_is_contiguous_1) \
    X(ggml_is_contiguous_2) \
    X(ggml_is_contiguous_channels) \
    X(ggml_is_contiguous_rows) \
    X(ggml_is_contiguous_to_3) \
    X(ggml_is_contiguously_allocated) \
    X(ggml_is_empty) \
    X(ggml_is_matrix) \
    X(ggml_is_permuted) \
    X(ggml_is_quantized) \
    X(ggml_is_scalar) \
    X(ggml_is_transposed) \
    X(ggml_log_internal) \
    X(ggml_n_dims) \
    X(ggml_nbytes) \
    X(ggml_nelements) \
    X(ggml_new_buffer) \
    X(ggml_new_graph_custom) \
    X(ggml_new_tensor_1d) \
    X(ggml_new_tensor_4d) \
    X(ggml_nrows) \
    X(ggml_op_alloc_size_may_expand) \
    X(ggml_op_desc) \
    X(ggml_op_name) \
    X(ggml_rope_yarn_corr_dims) \
    X(ggml_row_size) \
    X(ggml_set_name) \
    X(ggml_tensor_overhead) \
    X(ggml_threadpool_params_default) \
    X(ggml_time_us) \
    X(ggml_type_name) \
    X(ggml_type_size) \
    X(ggml_unary_op_name) \
    X(ggml_unravel_index) \
    X(quantize_iq4_xs) \
    X(quantize_row_iq4_nl_ref) \
    X(quantize_row_mxfp4_ref) \
    X(quantize_row_nvfp4_ref) \
    X(quantize_row_q1_0_ref) \
    X(quantize_row_q2_0_ref) \
    X(quantize_row_q2_K_ref) \
    X(quantize_row_q3_K_ref) \
    X(quantize_row_q4_0_ref) \
    X(quantize_row_q4_1_ref) \
    X(quantize_row_q4_K_ref) \
    X(quantize_row_q5_0_ref) \
    X(quantize_row_q5_1_ref) \
    X(quantize_row_q5_K_ref) \
    X(quantize_row_q6_K_ref) \
    X(quantize_row_q8_0_ref) \
    X(quantize_row_q8_1_ref) \
    X(quantize_row_q8_K_ref) \
    X(quantize_row_tq1_0_ref) \
    X(quantize_row_tq2_0_ref)

typedef void (*llb_function)();

struct llb_kernels {
#define LLB_MEMBER(name) llb_function name;
    LLB_KERNEL_FUNCTIONS(LLB_MEMBER)
#undef LLB_MEMBER
};

// The one function that a file of kernels exports. `base` has the functions of ggml-base, in the
// order above; they are copied. NULL if it has another number of them.
extern "C" typedef const llb_kernels * (*llb_kernels_open_t)(const llb_function * base, size_t count);

// The one function that a file of devices exports: starts its driver and returns a
// `ggml_backend_reg_t`. On failure returns NULL and writes the reason. Throws nothing of its own.
extern "C" typedef void * (*llb_device_open_t)(
    const llb_function * base, size_t count, char * problem, size_t size);

// What the registration of libllb-rpc.so has in place of devices: functions with the names of their
// types, without "_t". `stop` tells whether the process, or the server, is ending.

// Connects to a server, unless there is a connection that works. Returns the `ggml_backend_reg_t` of
// its devices. On failure returns NULL and writes the reason. `name` is that of the option;
// `address` is an IPv4 address and a port.
extern "C" typedef void * (*llb_rpc_connect_t)(
    const char * name, const char * address, bool (*stop)(), char * problem, size_t size);

// Serves devices of this process until `stop` returns true. Otherwise returns false and writes the
// reason. `on_line` gets what the server says. One server at a time. May throw.
extern "C" typedef bool (*llb_rpc_serve_t)(const char * address, const char * cache,
    size_t n_threads, void * const * devices, size_t n_devices, bool (*stop)(),
    void (*on_line)(const char * line, void * data), void * data, char * problem, size_t size);

#endif
