/*
 * Stands in for the libcuda.so.1 of NVIDIA's driver for CUDA 12.4, which programs for CUDA 13 refuse.
 * They find functions by cuGetProcAddress and ask for the version; nothing else is ever called.
 */
#include <dlfcn.h>
#include <stddef.h>

enum { SUCCESS = 0, NOT_FOUND = 500 };

int cuInit(unsigned flags) {
    (void) flags;
    return SUCCESS;
}

int cuDriverGetVersion(int *version) {
    *version = 12040;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    (void) error;
    *text = "not found";
    return SUCCESS;
}

/* What the file for CUDA is linked with, and what the runtime asks for by name. */
#define NEVER_CALLED(name) \
    int name(void) { return NOT_FOUND; }
NEVER_CALLED(cuDeviceGet)
NEVER_CALLED(cuDeviceGetAttribute)
NEVER_CALLED(cuDeviceGetCount)
NEVER_CALLED(cuMemAddressFree)
NEVER_CALLED(cuMemAddressReserve)
NEVER_CALLED(cuMemCreate)
NEVER_CALLED(cuMemGetAllocationGranularity)
NEVER_CALLED(cuMemMap)
NEVER_CALLED(cuMemRelease)
NEVER_CALLED(cuMemSetAccess)
NEVER_CALLED(cuMemUnmap)
NEVER_CALLED(cuGetExportTable)

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    (void) version, (void) flags, (void) status;
    void *own = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    *function = own ? dlsym(own, name) : NULL;
    return *function ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
