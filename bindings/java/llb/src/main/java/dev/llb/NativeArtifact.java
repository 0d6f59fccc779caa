package dev.llb;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.MalformedURLException;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * The files of the artifact {@code llb-natives} for one platform: the library, the JNI shim, and
 * the kernels for other processors, which the library finds in its own folder. A jar with the
 * classifier of a device adds a file of that device, in a folder with a list of its own.
 *
 * <p>They are copied to {@code cache/<sha256>/}, named by the SHA-256 of the lists of their hashes.
 * Files are placed atomically, so processes can share the folder. A copy is used only if it is
 * intact and no other user can change it ({@link PrivateFolder}). If that is impossible, the files
 * go to a temporary folder of this process, which is deleted when the process ends.
 */
final class NativeArtifact {

    /** The format is that of {@code sha256sum}. */
    static final String LIST = "SHA256SUMS";

    private static final Pattern LINE = Pattern.compile("([0-9a-f]{64})  ([A-Za-z0-9_.-]+)");

    /** The folders of devices, and the classifiers of their jars after the platform. */
    static final List<String> DEVICES = List.of("cuda", "vulkan");

    /** A file in a jar, and the hash that it must have. */
    private record Packed(URL folder, String sha256) {}

    private final String sha256;
    private final Map<String, Packed> files = new LinkedHashMap<>();

    private NativeArtifact(List<URL> lists) throws IOException {
        MessageDigest all = sha256();
        for (URL list : lists) {
            try (InputStream in = list.openStream()) {
                byte[] content = in.readAllBytes();
                all.update(content);
                add(list, new String(content, StandardCharsets.US_ASCII));
            }
        }
        sha256 = hex(all.digest());
    }

    /** Returns the artifact for a platform, or null if the program does not have it. */
    static NativeArtifact find(String platform) {
        String folder = "dev/llb/natives/" + platform + "/";
        URL list = resource(folder + LIST);
        if (list == null) {
            return null;
        }
        Stream<URL> devices = DEVICES.stream().map(name -> resource(folder + name + "/" + LIST));
        return of(Stream.concat(Stream.of(list), devices.filter(Objects::nonNull)).toList());
    }

    private static URL resource(String path) {
        URL inModule = NativeArtifact.class.getResource("/" + path);
        ClassLoader loader = NativeArtifact.class.getClassLoader();
        return inModule != null || loader == null ? inModule : loader.getResource(path);
    }

    /** The artifact with these lists. The files of a list are in its folder. */
    static NativeArtifact of(List<URL> lists) {
        try {
            return new NativeArtifact(lists);
        } catch (IOException e) {
            throw NativeLibrary.notFound("cannot read " + lists, e);
        }
    }

    private void add(URL folder, String list) {
        list.lines().forEach(line -> {
            Matcher matcher = LINE.matcher(line);
            if (!matcher.matches() || matcher.group(2).startsWith(".")) {
                throw NativeLibrary.notFound(LIST + ": not a checksum: \"" + line + "\"", null);
            }
            files.putIfAbsent(matcher.group(2), new Packed(folder, matcher.group(1)));
        });
    }

    boolean has(String file) {
        return files.containsKey(file);
    }

    /**
     * Unpacks all files except the shims that this access does not use. Returns the path of {@code
     * file}. {@code cache} may be null.
     */
    Path unpack(String file, Path cache) {
        try {
            Path shared = cache == null ? null : cache.resolve(sha256);
            if (shared != null && PrivateFolder.make(cache, shared)) {
                return copy(file, shared);
            }
        } catch (IOException notWritable) {
            // The folder of this process is tried instead.
        }
        Path temporary = Path.of(System.getProperty("java.io.tmpdir"));
        try {
            Path own = Files.createTempDirectory("llb");
            own.toFile().deleteOnExit();
            files.keySet().forEach(name -> own.resolve(name).toFile().deleteOnExit());
            if (!PrivateFolder.canExecute(own)) {
                throw new FileSystemException(
                        own.toString(), null, "no file there can be executed");
            }
            return copy(file, own);
        } catch (IOException e) {
            throw NativeLibrary.notFound(
                    "cannot unpack " + file + " to " + (cache == null ? "" : cache + " or ")
                            + temporary + " (" + e + "): set XDG_CACHE_HOME to a folder of yours"
                            + " that can be written, in which files can be executed",
                    e);
        }
    }

    /**
     * Kernels and devices are copied first, so that they are present when the library appears.
     */
    private Path copy(String file, Path target) throws IOException {
        if (file.equals(System.mapLibraryName("llb"))) {
            String shim = System.mapLibraryName("llb-jni");
            for (String name : files.keySet()) {
                if (!name.equals(file) && !name.equals(shim)) {
                    copyOne(name, target.resolve(name));
                }
            }
        }
        copyOne(file, target.resolve(file));
        return target.resolve(file);
    }

    private void copyOne(String name, Path file) throws IOException {
        Packed packed = files.get(name);
        String expected = packed.sha256();
        if (isIntact(file, expected)) {
            return;
        }
        Path part = Files.createTempFile(file.getParent(), name, ".part");
        try {
            // Written in place, because a newly created file would get its permissions from the
            // umask.
            try (InputStream in = url(packed.folder(), name).openStream();
                    OutputStream out = Files.newOutputStream(part)) {
                in.transferTo(out);
            }
            String found = digest(part);
            if (!expected.equals(found)) {
                throw NativeLibrary.notFound(
                        name + " in the jar is damaged: its SHA-256 is " + found
                                + ", not " + expected,
                        null);
            }
            place(part, file, expected);
        } finally {
            Files.deleteIfExists(part);
        }
    }

    /**
     * Keeps a file that another process has placed meanwhile, because its library may be reading
     * it.
     */
    private static void place(Path part, Path file, String sha256) throws IOException {
        try {
            Files.createLink(file, part);
            return;
        } catch (FileAlreadyExistsException e) {
            if (isIntact(file, sha256)) {
                return;
            }
        } catch (UnsupportedOperationException | FileSystemException noHardLinks) {
            // The file is moved instead.
        }
        Files.move(
                part,
                file,
                StandardCopyOption.ATOMIC_MOVE,
                StandardCopyOption.REPLACE_EXISTING);
    }

    private static boolean isIntact(Path file, String sha256) throws IOException {
        return Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS)
                && PrivateFolder.isOfOwnerOf(file, file.getParent())
                && sha256.equals(digest(file));
    }

    private static URL url(URL folder, String name) throws MalformedURLException {
        @SuppressWarnings("deprecation") // Its successor is in Java 20 and later.
        URL url = new URL(folder, name);
        return url;
    }

    private static String digest(Path file) throws IOException {
        MessageDigest sha256 = sha256();
        try (InputStream in = Files.newInputStream(file)) {
            byte[] buffer = new byte[1 << 16];
            for (int n; (n = in.read(buffer)) > 0; ) {
                sha256.update(buffer, 0, n);
            }
        }
        return hex(sha256.digest());
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every Java platform provides SHA-256", e);
        }
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
