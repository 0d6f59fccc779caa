/* Preloaded into a test: every Vulkan device has as many bytes of memory, all of them free, as the
 * file $LLB_TEST_MEMORY says. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAPS = 16, TYPES = 32, BUDGET = 1000237000 };

/* A structure of Vulkan, VkPhysicalDeviceMemoryBudgetPropertiesEXT if its type is BUDGET. */
struct next {
    int32_t type;
    struct next *next;
    uint64_t budgets[HEAPS];
    uint64_t usages[HEAPS];
};

/* VkPhysicalDeviceMemoryProperties2 */
struct properties {
    int32_t type;
    struct next *next;
    uint32_t type_count;
    uint32_t types[TYPES][2];
    uint32_t heap_count;
    struct {
        uint64_t size;
        uint32_t flags;
    } heaps[HEAPS];
};

typedef void (*function)(void);
typedef function (*get_proc_addr)(void *instance, const char *name);

static void (*memory_properties)(void *, struct properties *);

static void small_memory_properties(void *device, struct properties *properties) {
    memory_properties(device, properties);
    unsigned long long size = 0;
    FILE *file = fopen(getenv("LLB_TEST_MEMORY"), "r");
    if (!file || fscanf(file, "%llu", &size) != 1) {
        abort();
    }
    fclose(file);
    for (uint32_t heap = 0; heap < properties->heap_count; heap++) {
        properties->heaps[heap].size = size;
    }
    for (struct next *next = properties->next; next; next = next->next) {
        for (int heap = 0; next->type == BUDGET && heap < HEAPS; heap++) {
            next->budgets[heap] = size;
            next->usages[heap] = 0;
        }
    }
}

/* Found before the function of the Vulkan loader. */
function vkGetInstanceProcAddr(void *instance, const char *name) {
    static get_proc_addr loader;
    if (!loader) {
        void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
        loader = (get_proc_addr) dlsym(library, "vkGetInstanceProcAddr");
    }
    function found = loader(instance, name);
    if (found && strncmp(name, "vkGetPhysicalDeviceMemoryProperties2", 36) == 0) {
        memory_properties = (__typeof__(memory_properties)) found;
        return (function) small_memory_properties;
    }
    return found;
}
