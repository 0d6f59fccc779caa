package dev.llb;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

@SuppressWarnings("restricted")
class FreedMemoryTest {

    private static final Linker LINKER = Linker.nativeLinker();

    private static MethodHandle function(String name, FunctionDescriptor type) {
        return LINKER.downcallHandle(LINKER.defaultLookup().find(name).orElseThrow(), type);
    }

    /**
     * Freeing a mapped block raises a threshold that was not set: the next smaller block would come
     * from an arena, which keeps it. A mapped block begins 16 bytes after the start of a page
     * (glibc's {@code malloc.c}).
     */
    @Test
    void largeBlocksStayMapped() throws Throwable {
        Assumptions.assumeTrue(
                LINKER.defaultLookup().find("gnu_get_libc_version").isPresent(), "not glibc");
        Assumptions.assumeFalse(FreedMemory.isConfigured(System.getenv()), "set by the environment");
        TestFiles.library();
        MethodHandle malloc = function("malloc", FunctionDescriptor.of(ADDRESS, JAVA_LONG));
        MethodHandle free = function("free", FunctionDescriptor.ofVoid(ADDRESS));
        // Blocks of an arena that other tests have freed: they are given first, and kept here.
        List<MemorySegment> reused = new ArrayList<>();
        // The threshold grows to 32 MiB.
        for (int mebibytes = 31; mebibytes > 24; mebibytes--) {
            MemorySegment block = (MemorySegment) malloc.invokeExact((long) mebibytes << 20);
            while (block.address() % 4096 != 16) {
                reused.add(block);
                assertTrue(reused.size() < 50, mebibytes + " MiB");
                block = (MemorySegment) malloc.invokeExact((long) mebibytes << 20);
            }
            free.invokeExact(block);
        }
        for (MemorySegment block : reused) {
            free.invokeExact(block);
        }
    }

    @Test
    void theEnvironmentDecides() {
        assertTrue(FreedMemory.isConfigured(Map.of("MALLOC_TRIM_THRESHOLD_", "0")));
        assertTrue(FreedMemory.isConfigured(
                Map.of("GLIBC_TUNABLES", "glibc.rtld.nns=2:glibc.malloc.top_pad=4096")));
        assertFalse(FreedMemory.isConfigured(Map.of(
                "MALLOC_ARENA_MAX", "2", "GLIBC_TUNABLES", "glibc.malloc.arena_max=2")));
    }
}
