package dev.llb;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Locale;

/**
 * Finds and loads the shared library. Searches, in this order: the path in the system property
 * {@code llb.library}, the path in the environment variable {@code LLB_LIBRARY}, the jar, and
 * {@code System.loadLibrary("llb")}.
 *
 * <p>If a path is set, only that path is tried.
 */
final class NativeLibrary {

    static final String PROPERTY = "llb.library";
    static final String VARIABLE = "LLB_LIBRARY";

    private NativeLibrary() {}

    /** The loaded library, and its origin for error messages. */
    record Loaded(SymbolLookup symbols, String origin) {}

    static Loaded load() {
        String property = System.getProperty(PROPERTY, "");
        if (!property.isBlank()) {
            return open(Path.of(property), "the system property " + PROPERTY);
        }
        String variable = System.getenv(VARIABLE);
        if (variable != null && !variable.isBlank()) {
            return open(Path.of(variable), "the environment variable " + VARIABLE);
        }
        URL bundled = resource(platform() + "/" + System.mapLibraryName("llb"));
        if (bundled != null) {
            return open(extract(bundled, checksum(), cacheFolder()), "the jar");
        }
        return onLibraryPath();
    }

    @SuppressWarnings("restricted")
    private static Loaded open(Path path, String source) {
        String origin = path + " (from " + source + ")";
        if (!Files.isRegularFile(path)) {
            throw notFound("no file " + origin, null);
        }
        try {
            Path absolute = path.toAbsolutePath();
            return new Loaded(SymbolLookup.libraryLookup(absolute, Arena.global()), origin);
        } catch (IllegalArgumentException e) {
            throw notFound("cannot load " + origin + "; is it built for " + platform() + "?", e);
        }
    }

    @SuppressWarnings("restricted")
    private static Loaded onLibraryPath() {
        try {
            System.loadLibrary("llb");
        } catch (UnsatisfiedLinkError e) {
            throw notFound(
                    "no llb library for " + platform() + ": set its path in the system property "
                            + PROPERTY + " or the environment variable " + VARIABLE
                            + ", use a jar that contains it, or extend java.library.path",
                    e);
        }
        String origin = System.mapLibraryName("llb") + " (from java.library.path)";
        return new Loaded(SymbolLookup.loaderLookup(), origin);
    }

    /** The folder in the jar for this platform, such as {@code linux-x86_64}. */
    static String platform() {
        String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String arch = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
        return (os.startsWith("mac") ? "macos" : os.startsWith("windows") ? "windows" : os)
                + "-"
                + (arch.equals("amd64") ? "x86_64" : arch.equals("arm64") ? "aarch64" : arch);
    }

    private static URL resource(String name) {
        String path = "dev/llb/natives/" + name;
        URL inModule = NativeLibrary.class.getResource("/" + path);
        ClassLoader loader = NativeLibrary.class.getClassLoader();
        return inModule != null || loader == null ? inModule : loader.getResource(path);
    }

    /** Reads the SHA-256 of the library in the jar. */
    private static String checksum() {
        String name = platform() + "/" + System.mapLibraryName("llb") + ".sha256";
        URL url = resource(name);
        if (url == null) {
            throw notFound("the jar has a library without its checksum " + name, null);
        }
        try (InputStream in = url.openStream()) {
            String checksum = new String(in.readAllBytes(), StandardCharsets.US_ASCII);
            return checksum.strip().toLowerCase(Locale.ROOT);
        } catch (IOException e) {
            throw notFound("cannot read " + name + " from the jar", e);
        }
    }

    /**
     * The cache of the user: {@code $XDG_CACHE_HOME/llb} or {@code ~/.cache/llb}. Only the user can
     * write to it.
     */
    private static Path cacheFolder() {
        String xdg = System.getenv("XDG_CACHE_HOME");
        Path caches = xdg != null && !xdg.isBlank()
                ? Path.of(xdg)
                : Path.of(System.getProperty("user.home"), ".cache");
        return caches.resolve("llb");
    }

    /**
     * Copies the library of the jar to {@code cache/<sha256>/}, unless an intact copy exists, and
     * returns its path. The rename at the end is atomic, so concurrent processes never see a
     * partial file.
     */
    static Path extract(URL library, String sha256, Path cache) {
        if (!sha256.matches("[0-9a-f]{64}")) {
            throw notFound("not a SHA-256: \"" + sha256 + "\"", null);
        }
        String name = System.mapLibraryName("llb");
        try {
            Path folder;
            try {
                folder = Files.createDirectories(cache.resolve(sha256));
            } catch (IOException readOnlyHome) {
                folder = Files.createTempDirectory("llb");
                folder.toFile().deleteOnExit();
                folder.resolve(name).toFile().deleteOnExit();
            }
            Path file = folder.resolve(name);
            if (Files.isRegularFile(file) && sha256.equals(digest(file))) {
                return file;
            }
            Path part = Files.createTempFile(folder, name, ".part");
            try {
                try (InputStream in = library.openStream()) {
                    Files.copy(in, part, StandardCopyOption.REPLACE_EXISTING);
                }
                String found = digest(part);
                if (!sha256.equals(found)) {
                    throw notFound(
                            "the library in the jar is damaged: its SHA-256 is " + found
                                    + ", not " + sha256,
                            null);
                }
                Files.move(
                        part,
                        file,
                        StandardCopyOption.ATOMIC_MOVE,
                        StandardCopyOption.REPLACE_EXISTING);
            } finally {
                Files.deleteIfExists(part);
            }
            return file;
        } catch (IOException e) {
            throw notFound("cannot copy the library from the jar to " + cache, e);
        }
    }

    private static String digest(Path file) throws IOException {
        try (InputStream in = Files.newInputStream(file)) {
            MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
            byte[] buffer = new byte[1 << 16];
            for (int n; (n = in.read(buffer)) > 0; ) {
                sha256.update(buffer, 0, n);
            }
            return HexFormat.of().formatHex(sha256.digest());
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every Java platform provides SHA-256", e);
        }
    }

    private static LlbException notFound(String message, Throwable cause) {
        return new LlbException("LIBRARY_NOT_FOUND", message, cause);
    }
}
