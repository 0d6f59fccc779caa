package dev.llb;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;

/**
 * Finds the shared library and the JNI shim. Searches, in this order: the path in the system
 * property {@code dev.llb.library} (or {@code llb.library}), the path in the environment variable
 * {@code LLB_LIBRARY}, the artifact {@code llb-natives}, and {@code java.library.path}.
 *
 * <p>If a path is set, only that path is tried.
 */
final class NativeLibrary {

    static final String PROPERTY = "dev.llb.library";
    /** The earlier name of {@link #PROPERTY}. */
    static final String OLD_PROPERTY = "llb.library";
    static final String VARIABLE = "LLB_LIBRARY";

    /** The numbers of processors in ELF headers (ELF specification, {@code e_machine}). */
    private static final Map<Integer, String> ELF_MACHINES =
            Map.of(3, "x86", 40, "arm", 62, "x86_64", 183, "aarch64", 243, "riscv64");

    private NativeLibrary() {}

    private static final String JAR = "the jar";

    /** A library file, and the setting that its path comes from. */
    record Found(Path path, String source) {

        /** For error messages. */
        String origin() {
            return path + " (from " + source + ")";
        }
    }

    static Found find() {
        for (String property : new String[] {PROPERTY, OLD_PROPERTY}) {
            String path = System.getProperty(property, "");
            if (!path.isBlank()) {
                return checked(path, "the system property " + property);
            }
        }
        String variable = System.getenv(VARIABLE);
        if (variable != null && !variable.isBlank()) {
            return checked(variable, "the environment variable " + VARIABLE);
        }
        Found found = inJarOrLibraryPath("llb");
        if (found == null) {
            throw notFound(
                    "no llb library for " + platform() + ": add the artifact dev.llb:llb-natives"
                            + " with the classifier " + platform() + ", or set the path of the"
                            + " library in the system property " + PROPERTY
                            + " or the environment variable " + VARIABLE,
                    null);
        }
        return found;
    }

    /**
     * Finds the JNI shim: beside the library, in the jar, or on the library path. If the library
     * comes from the jar, so does the shim.
     */
    static Found findShim(Found library) {
        Path beside = library.path().toAbsolutePath()
                .resolveSibling(System.mapLibraryName("llb-jni"));
        if (!library.source().equals(JAR) && Files.isRegularFile(beside)) {
            return checked(beside, "beside the library");
        }
        Found found = inJarOrLibraryPath("llb-jni");
        if (found == null) {
            throw notFound(
                    "no " + System.mapLibraryName("llb-jni") + " for " + platform()
                            + ", which Java " + Runtime.version().feature()
                            + " needs: add the artifact dev.llb:llb-natives, put the file beside "
                            + library.path() + ", or use Java 22 or later",
                    null);
        }
        return found;
    }

    private static Found inJarOrLibraryPath(String name) {
        String file = System.mapLibraryName(name);
        NativeArtifact artifact = NativeArtifact.find(platform());
        if (artifact != null && artifact.has(file)) {
            return checked(artifact.unpack(file, cacheFolder()), JAR);
        }
        String folders = System.getProperty("java.library.path", "");
        for (String folder : folders.split(File.pathSeparator)) {
            Path path = pathOf(folder);
            if (path != null && Files.isRegularFile(path.resolve(file))) {
                return checked(path.resolve(file), "java.library.path");
            }
        }
        return null;
    }

    /** Null if it is empty, or has characters that the locale of this process does not have. */
    private static Path pathOf(String path) {
        try {
            return path.isBlank() ? null : Path.of(path);
        } catch (InvalidPathException e) {
            return null;
        }
    }

    private static Found checked(String path, String source) {
        try {
            return checked(Path.of(path), source);
        } catch (InvalidPathException e) {
            throw notFound("no file " + path + " (from " + source + "): " + e.getReason(), e);
        }
    }

    private static Found checked(Path path, String source) {
        Found found = new Found(path, source);
        if (!Files.isRegularFile(path)) {
            throw notFound("no file " + found.origin(), null);
        }
        String machine = machine(path);
        if (machine != null && !platform().endsWith("-" + machine)) {
            throw incompatible(
                    found, "is built for " + machine + ", and this JVM is " + platform());
        }
        return found;
    }

    /** Returns the processor that an ELF file is built for, or null for any other file. */
    private static String machine(Path path) {
        try (InputStream in = Files.newInputStream(path)) {
            byte[] header = in.readNBytes(20);
            boolean elf = header.length == 20
                    && new String(header, 0, 4, StandardCharsets.ISO_8859_1).equals("\u007fELF");
            if (!elf) {
                return null;
            }
            boolean bigEndian = header[5] == 2;
            int low = header[bigEndian ? 19 : 18] & 0xff;
            int high = header[bigEndian ? 18 : 19] & 0xff;
            int machine = high << 8 | low;
            return ELF_MACHINES.getOrDefault(machine, "processor " + machine + " of ELF");
        } catch (IOException e) {
            return null;
        }
    }

    /** The folder in the jar for this platform, such as {@code linux-x86_64}. */
    static String platform() {
        String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String arch = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
        return (os.startsWith("mac") ? "macos" : os.startsWith("windows") ? "windows" : os)
                + "-"
                + (arch.equals("amd64") ? "x86_64" : arch.equals("arm64") ? "aarch64" : arch);
    }

    /** The cache of the user: {@code $XDG_CACHE_HOME/llb} or {@code ~/.cache/llb}, or null. */
    private static Path cacheFolder() {
        String xdg = System.getenv("XDG_CACHE_HOME");
        boolean set = xdg != null && !xdg.isBlank();
        Path caches = pathOf(set ? xdg : System.getProperty("user.home"));
        return caches == null ? null : caches.resolve(set ? "llb" : ".cache/llb");
    }

    static LlbException notFound(String message, Throwable cause) {
        return new LlbException(ErrorCodes.LIBRARY_NOT_FOUND, message, cause);
    }

    static LlbException notLoaded(Found library, String problem, Throwable cause) {
        String message = "cannot load " + library.origin() + ": " + problem;
        return new LlbException(ErrorCodes.LIBRARY_NOT_FOUND, message, cause);
    }

    static LlbException incompatible(Found library, String problem) {
        return new LlbException(ErrorCodes.LIBRARY_INCOMPATIBLE, library.origin() + " " + problem);
    }
}
