/* The functions that libllb.so uses from a glibc newer than 2.28, if an older one has no
 * replacement. scripts/release-lib.py links this file. */

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Since 2.36. libstdc++'s std::random_device calls it. */
HIDDEN uint32_t arc4random(void) {
    uint32_t value;
    if (getentropy(&value, sizeof value) != 0) {
        /* As glibc does. */
        abort();
    }
    return value;
}

/* Since 2.32. While it is not zero, libstdc++ counts references without atomic instructions. */
HIDDEN char __libc_single_threaded = 0;

/* Since 2.29. ggml calls it. */
HIDDEN int getcpu(unsigned * cpu, unsigned * node) {
    return (int) syscall(SYS_getcpu, cpu, node, NULL);
}
