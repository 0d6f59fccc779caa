package dev.llb;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/**
 * Finds the shared library and the shim of JNI. Searches, in this order: the path in the system
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

    /** A library file, and its origin for error messages. */
    record Found(Path path, String origin) {}

    static Found find() {
        for (String property : new String[] {PROPERTY, OLD_PROPERTY}) {
            String path = System.getProperty(property, "");
            if (!path.isBlank()) {
                return checked(Path.of(path), "the system property " + property);
            }
        }
        String variable = System.getenv(VARIABLE);
        if (variable != null && !variable.isBlank()) {
            return checked(Path.of(variable), "the environment variable " + VARIABLE);
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

    /** Finds the shim of JNI: beside the library, in the jar, or on the library path. */
    static Found findShim(Found library) {
        Path beside = library.path().toAbsolutePath()
                .resolveSibling(System.mapLibraryName("llb-jni"));
        if (Files.isRegularFile(beside)) {
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
        URL bundled = resource(platform() + "/" + file);
        if (bundled != null) {
            return checked(extract(bundled, file, checksum(file), cacheFolder()), "the jar");
        }
        String folders = System.getProperty("java.library.path", "");
        for (String folder : folders.split(File.pathSeparator)) {
            Path path = Path.of(folder, file);
            if (!folder.isEmpty() && Files.isRegularFile(path)) {
                return checked(path, "java.library.path");
            }
        }
        return null;
    }

    private static Found checked(Path path, String source) {
        Found found = new Found(path, path + " (from " + source + ")");
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

    private static URL resource(String name) {
        String path = "dev/llb/natives/" + name;
        URL inModule = NativeLibrary.class.getResource("/" + path);
        ClassLoader loader = NativeLibrary.class.getClassLoader();
        return inModule != null || loader == null ? inModule : loader.getResource(path);
    }

    /** Reads the SHA-256 of a library in the jar. */
    private static String checksum(String file) {
        String name = platform() + "/" + file + ".sha256";
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
     * Copies a library of the jar to {@code cache/<sha256>/<file>}, unless an intact copy exists,
     * and returns its path. The rename at the end is atomic, so concurrent processes never see a
     * partial file. Where the cache cannot be written, or others can write to it, a folder for
     * this process is used.
     */
    static Path extract(URL library, String file, String sha256, Path cache) {
        if (!sha256.matches("[0-9a-f]{64}")) {
            throw notFound("not a SHA-256: \"" + sha256 + "\"", null);
        }
        try {
            try {
                Path folder = cache.resolve(sha256);
                Files.createDirectories(folder);
                if (makePrivate(folder)) {
                    return copy(library, sha256, folder.resolve(file));
                }
            } catch (IOException notWritable) {
                // The folder of this process is tried instead.
            }
            Path folder = Files.createTempDirectory("llb");
            folder.toFile().deleteOnExit();
            folder.resolve(file).toFile().deleteOnExit();
            return copy(library, sha256, folder.resolve(file));
        } catch (IOException e) {
            throw notFound("cannot copy " + file + " from the jar to " + cache, e);
        }
    }

    /** Lets only this user write to the folder. Returns false if it is another user's. */
    private static boolean makePrivate(Path folder) throws IOException {
        if (!folder.getFileSystem().supportedFileAttributeViews().contains("posix")) {
            return true;
        }
        Set<PosixFilePermission> expected = PosixFilePermissions.fromString("rwx------");
        if (!Files.getPosixFilePermissions(folder).equals(expected)) {
            Files.setPosixFilePermissions(folder, expected);
        }
        Path probe = Files.createTempFile(folder, "owner", ".part");
        try {
            return Files.getOwner(probe).equals(Files.getOwner(folder));
        } finally {
            Files.deleteIfExists(probe);
        }
    }

    private static Path copy(URL library, String sha256, Path file) throws IOException {
        if (Files.isRegularFile(file) && sha256.equals(digest(file))) {
            return file;
        }
        Path part = Files.createTempFile(file.getParent(), file.getFileName().toString(), ".part");
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

    static LlbException notLoaded(Found library, String problem, Throwable cause) {
        String message = "cannot load " + library.origin() + ": " + problem;
        return new LlbException("LIBRARY_NOT_FOUND", message, cause);
    }

    static LlbException incompatible(Found library, String problem) {
        return new LlbException("LIBRARY_INCOMPATIBLE", library.origin() + " " + problem);
    }
}
