/* Preloaded into a test: once the file $LLB_TEST_LOST exists, every submission to a Vulkan device
 * and every wait for one reports that the device is lost. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICE_LOST = -4 };

typedef void (*function)(void);
typedef function (*get_proc_addr)(void *instance, const char *name);

static int (*submit)(void *, uint32_t, const void *, void *);
static int (*wait_for_fences)(void *, uint32_t, const void *, uint32_t, uint64_t);
static int (*fence_status)(void *, void *);

static int is_lost(void) {
    return access(getenv("LLB_TEST_LOST"), F_OK) == 0;
}

static int lost_submit(void *queue, uint32_t count, const void *submits, void *fence) {
    return is_lost() ? DEVICE_LOST : submit(queue, count, submits, fence);
}

static int lost_wait(void *device, uint32_t count, const void *fences, uint32_t all, uint64_t ns) {
    return is_lost() ? DEVICE_LOST : wait_for_fences(device, count, fences, all, ns);
}

static int lost_status(void *device, void *fence) {
    return is_lost() ? DEVICE_LOST : fence_status(device, fence);
}

/* Found before the function of the Vulkan loader. */
function vkGetInstanceProcAddr(void *instance, const char *name) {
    static get_proc_addr loader;
    if (!loader) {
        void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
        loader = (get_proc_addr) dlsym(library, "vkGetInstanceProcAddr");
    }
    function found = loader(instance, name);
    if (strcmp(name, "vkQueueSubmit") == 0) {
        submit = (__typeof__(submit)) found;
        return (function) lost_submit;
    }
    if (strcmp(name, "vkWaitForFences") == 0) {
        wait_for_fences = (__typeof__(wait_for_fences)) found;
        return (function) lost_wait;
    }
    if (strcmp(name, "vkGetFenceStatus") == 0) {
        fence_status = (__typeof__(fence_status)) found;
        return (function) lost_status;
    }
    return found;
}
