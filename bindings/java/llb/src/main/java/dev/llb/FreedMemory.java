package dev.llb;

import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Has glibc return freed memory to the system.
 *
 * <p>glibc keeps freed memory at the end of each arena up to a threshold, which grows to 64 MiB when
 * large blocks are freed. A JVM has many threads, thus many arenas, and a model that is opened again
 * fills another one. A threshold that was set once no longer grows.
 */
final class FreedMemory {

    /** The value that glibc starts with. */
    private static final int TRIM_THRESHOLD = 128 * 1024;

    /** What sets a threshold of glibc: names of its tunables, and in capitals of variables. */
    private static final List<String> SETTINGS =
            List.of("trim_threshold", "mmap_threshold", "mmap_max", "top_pad");

    private FreedMemory() {}

    /** Sets the threshold, unless the environment sets one. */
    static void trim(Access access, Map<String, String> environment) {
        if (!isConfigured(environment)) {
            access.setTrimThreshold(TRIM_THRESHOLD);
        }
    }

    static boolean isConfigured(Map<String, String> environment) {
        String tunables = environment.getOrDefault("GLIBC_TUNABLES", "");
        return SETTINGS.stream().anyMatch(name ->
                environment.containsKey("MALLOC_" + name.toUpperCase(Locale.ROOT) + "_")
                        || tunables.contains("glibc.malloc." + name + "="));
    }
}
