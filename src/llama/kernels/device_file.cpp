// The part of a file of devices (libllb-cuda.so and others) that is not ggml's backend: its entry,
// what it does with text that the backend prints, and with exceptions where none may leave.
// scripts/devices.py compiles it with LLB_DEVICE_REGISTRATION, the backend's function.

#include "loaded_file.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <mutex>
#include <streambuf>

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

extern "C" ggml_backend_reg_t LLB_DEVICE_REGISTRATION();

#ifdef LLB_DEVICE_START
// The backend's start, which its registration calls, and whose exceptions that hides.
void LLB_DEVICE_START();
#endif

namespace {

// Sends what the backend prints to ggml's log, line by line.
class LogBuffer : public std::streambuf {
  protected:
    int_type overflow(int_type c) override {
        if (!traits_type::eq_int_type(c, traits_type::eof())) {
            const char one = traits_type::to_char_type(c);
            xsputn(&one, 1);
        }
        return traits_type::not_eof(c);
    }

    std::streamsize xsputn(const char * text, std::streamsize size) override {
        const std::lock_guard<std::mutex> lock(mutex);
        for (std::streamsize i = 0; i < size; i++) {
            const bool is_end = text[i] == '\n';
            if (!is_end) {
                line[used++] = text[i];
            }
            if (is_end || used + 1 == sizeof(line)) {
                line[used] = 0;
                used = 0;
                ggml_log_internal(GGML_LOG_LEVEL_WARN, "%s\n", line);
            }
        }
        return size;
    }

  private:
    std::mutex mutex;
    char line[512];
    size_t used = 0;
};

// Devices have the functions of their backend, but for the three below.
ggml_backend_t (*init_of_backend)(ggml_backend_dev_t device, const char * params) = nullptr;
ggml_status (*compute_of_backend)(ggml_backend_t backend, ggml_cgraph * graph) = nullptr;
void (*free_of_backend)(ggml_backend_t backend) = nullptr;

// Whether a computation has failed.
std::atomic<bool> has_failed{false};

ggml_status compute(ggml_backend_t backend, ggml_cgraph * graph) {
    try {
        return compute_of_backend(backend, graph);
    } catch (...) {
        has_failed = true;
        throw;
    }
}

// llama.cpp frees a backend in a destructor, where an exception would end the process. A lost
// device throws here too. The backend is then leaked. After a failed computation all are: CUDA's
// would wait for the end of a graph capture, which the exception has left.
void free_without_exception(ggml_backend_t backend) {
    if (has_failed) {
        return;
    }
    try {
        free_of_backend(backend);
    } catch (...) {
        ggml_log_internal(GGML_LOG_LEVEL_WARN, "a device could not be released\n");
    }
}

ggml_backend_t init(ggml_backend_dev_t device, const char * params) {
    ggml_backend_t const backend = init_of_backend(device, params);
    if (backend && backend->iface.free != free_without_exception) {
        free_of_backend = backend->iface.free;
        backend->iface.free = free_without_exception;
        compute_of_backend = backend->iface.graph_compute;
        backend->iface.graph_compute = compute;
    }
    return backend;
}

void register_devices(ggml_backend_reg_t registration) {
    for (size_t i = 0; i < registration->iface.get_device_count(registration); i++) {
        ggml_backend_dev_t const device = registration->iface.get_device(registration, i);
        init_of_backend = device->iface.init_backend;
        device->iface.init_backend = init;
    }
}

} // namespace

extern "C" __attribute__((visibility("default"))) void * llb_device_open(
    const llb_function * base, size_t count, char * problem, size_t size) {
    if (!take_base(base, count)) {
        std::snprintf(problem, size, "it refused this library");
        return nullptr;
    }
    // Never destroyed, like the streams.
    static LogBuffer & log = *new LogBuffer;
    std::cerr.rdbuf(&log);
    std::cout.rdbuf(&log);
    try {
#ifdef LLB_DEVICE_START
        LLB_DEVICE_START();
#endif
        ggml_backend_reg_t const registration = LLB_DEVICE_REGISTRATION();
        if (!registration) {
            std::snprintf(problem, size, "its driver cannot be used");
            return nullptr;
        }
        register_devices(registration);
        return registration;
    } catch (const std::exception & exception) {
        std::snprintf(problem, size, "%s", exception.what());
    } catch (...) {
        std::snprintf(problem, size, "its driver failed");
    }
    return nullptr;
}
