/* Preloaded into a test: once the file $LLB_TEST_LOST exists, a kernel fails on the first CUDA
 * device. From then on every call of this process that needs the device fails. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static const char kernel[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry fails() { trap; ret; }\n";

static void *library;

static int call0(const char *name, unsigned argument) {
    return ((int (*)(unsigned)) dlsym(library, name))(argument);
}

static int call1(const char *name, void *argument) {
    return ((int (*)(void *)) dlsym(library, name))(argument);
}

static int call2(const char *name, void *first, const void *second) {
    return ((int (*)(void *, const void *)) dlsym(library, name))(first, second);
}

static void wait_a_moment(void) {
    usleep(200);
}

static void *lose(void *unused) {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library || call0("cuInit", 0)) {
        return unused;
    }
    int (*state)(int, unsigned *, int *) =
        (int (*)(int, unsigned *, int *)) dlsym(library, "cuDevicePrimaryCtxGetState");
    unsigned flags = 0;
    int is_active = 0;
    while (!state(0, &flags, &is_active) && !is_active) {
        wait_a_moment();
    }
    void *context = NULL, *module = NULL, *function = NULL;
    ((int (*)(void **, int)) dlsym(library, "cuDevicePrimaryCtxRetain"))(&context, 0);
    call1("cuCtxSetCurrent", context);
    if (call2("cuModuleLoadData", &module, kernel)) {
        return unused;
    }
    ((int (*)(void **, void *, const char *)) dlsym(library, "cuModuleGetFunction"))(
        &function, module, "fails");
    while (access(getenv("LLB_TEST_LOST"), F_OK)) {
        wait_a_moment();
    }
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
        void *, void **, void **) = (__typeof__(launch)) dlsym(library, "cuLaunchKernel");
    launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return unused;
}

__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    if (getenv("LLB_TEST_LOST") && !pthread_create(&thread, NULL, lose, NULL)) {
        pthread_detach(thread);
    }
}
