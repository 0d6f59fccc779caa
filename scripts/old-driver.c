/*
 * Stands in for the libcuda.so.1 of NVIDIA's driver for CUDA 12.4, which programs for CUDA 13 refuse.
 * NVIDIA's runtime looks its functions up by cuGetProcAddress, asks for the version, and uses no more.
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

/* What the file for CUDA is linked with, and a table of functions that the runtime can do without. */
#define FAILS(name) \
    int name(void) { return NOT_FOUND; }
FAILS(cuDeviceGet)
FAILS(cuDeviceGetAttribute)
FAILS(cuDeviceGetCount)
FAILS(cuMemAddressFree)
FAILS(cuMemAddressReserve)
FAILS(cuMemCreate)
FAILS(cuMemGetAllocationGranularity)
FAILS(cuMemMap)
FAILS(cuMemRelease)
FAILS(cuMemSetAccess)
FAILS(cuMemUnmap)
FAILS(cuGetExportTable)

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    (void) version, (void) flags, (void) status;
    void *own = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    *function = own ? dlsym(own, name) : NULL;
    return *function ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
