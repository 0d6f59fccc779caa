package dev.llb;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests how the files of {@code llb-natives} are unpacked. */
class NativeArtifactTest {

    private static final String LIBRARY = "libllb.so";
    private static final String KERNELS = "libllb-cpu-test.so";
    private static final String SHIM = "libllb-jni.so";

    @TempDir
    Path folder;

    private Path jar;
    private Path cache;
    private Path shared;

    @BeforeEach
    void anArtifact() throws Exception {
        jar = Files.createDirectory(folder.resolve("jar"));
        cache = folder.resolve("cache");
        StringBuilder list = new StringBuilder();
        for (String file : List.of(KERNELS, SHIM, LIBRARY)) {
            byte[] content = (file + "\n").repeat(10_000).getBytes();
            Files.write(jar.resolve(file), content);
            list.append(sha256(content)).append("  ").append(file).append('\n');
        }
        shared = cache.resolve(list(list.toString()));
    }

    private static String sha256(byte[] bytes) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    /** Writes the list. Returns its SHA-256. */
    private String list(String text) throws Exception {
        Files.writeString(jar.resolve(NativeArtifact.LIST), text);
        return sha256(text.getBytes());
    }

    private static URL listIn(Path folder) throws IOException {
        return folder.resolve(NativeArtifact.LIST).toUri().toURL();
    }

    private Path unpack() {
        return unpack(LIBRARY, cache);
    }

    private Path unpack(String file, Path to) {
        try {
            return NativeArtifact.of(List.of(listIn(jar))).unpack(file, to);
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    private void check(Path file) throws Exception {
        assertArrayEquals(
                Files.readAllBytes(jar.resolve(file.getFileName())), Files.readAllBytes(file));
        assertEquals(
                "rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
    }

    private static List<String> names(Path folder) throws IOException {
        try (var files = Files.list(folder)) {
            return files.map(file -> file.getFileName().toString())
                    .sorted()
                    .collect(Collectors.toList());
        }
    }

    @Test
    void theLibraryComesWithItsKernels() throws Exception {
        assertEquals(shared.resolve(LIBRARY), unpack());
        check(shared.resolve(LIBRARY));
        check(shared.resolve(KERNELS));
        assertEquals(List.of(KERNELS, LIBRARY), names(shared));
        assertEquals(shared.resolve(SHIM), unpack(SHIM, cache));
        check(shared.resolve(SHIM));
    }

    @Test
    void aDeviceComesFromAJarOfItsOwn() throws Exception {
        Path before = unpack();
        String device = "libllb-vulkan.so";
        byte[] content = "device".getBytes();
        Path other = Files.createDirectory(folder.resolve("other"));
        Files.write(other.resolve(device), content);
        Files.writeString(
                other.resolve(NativeArtifact.LIST), sha256(content) + "  " + device + "\n");
        Path library = NativeArtifact.of(List.of(listIn(jar), listIn(other))).unpack(LIBRARY, cache);
        assertEquals(List.of(KERNELS, device, LIBRARY), names(library.getParent()));
        assertArrayEquals(content, Files.readAllBytes(library.resolveSibling(device)));
        // A program without the device does not find it.
        assertNotEquals(before, library);
        assertEquals(before, unpack());
        assertEquals(List.of(KERNELS, LIBRARY), names(before.getParent()));
    }

    @Test
    void intactFilesStay() throws Exception {
        unpack();
        FileTime longAgo = FileTime.fromMillis(1000);
        for (String file : List.of(LIBRARY, KERNELS)) {
            Files.setLastModifiedTime(shared.resolve(file), longAgo);
        }
        unpack();
        assertEquals(longAgo, Files.getLastModifiedTime(shared.resolve(LIBRARY)));
        assertEquals(longAgo, Files.getLastModifiedTime(shared.resolve(KERNELS)));
    }

    @Test
    void damagedFilesAreReplaced() throws Exception {
        unpack();
        for (String file : List.of(LIBRARY, KERNELS)) {
            Files.write(shared.resolve(file), new byte[] {1, 2, 3});
        }
        unpack();
        check(shared.resolve(LIBRARY));
        check(shared.resolve(KERNELS));
    }

    @Test
    void aDamagedJarIsRefused() throws Exception {
        Files.writeString(jar.resolve(KERNELS), "other");
        LlbException e = assertThrows(LlbException.class, this::unpack);
        assertEquals("LIBRARY_NOT_FOUND", e.code());
        assertTrue(e.getMessage().contains(KERNELS + " in the jar is damaged"), e.getMessage());
        assertEquals(List.of(), names(shared));
    }

    @Test
    void aListNamesNoOtherFolder() throws Exception {
        for (String name : List.of("../" + LIBRARY, "/" + LIBRARY, "..", "")) {
            list("0".repeat(64) + "  " + name + "\n");
            assertThrows(LlbException.class, this::unpack);
        }
    }

    /** Another process may be reading the library. */
    @Test
    void aFilePlacedMeanwhileStays() throws Exception {
        try (Pool threads = Pool.of(8)) {
            List<Future<Object>> keys = new ArrayList<>();
            for (int i = 0; i < 16; i++) {
                keys.add(threads.submit(() -> Files.getAttribute(unpack(), "unix:ino")));
            }
            for (Future<Object> key : keys) {
                assertEquals(keys.get(0).get(), key.get());
            }
        }
    }

    @Test
    void concurrentProcesses() throws Exception {
        try (Pool threads = Pool.of(8)) {
            List<Future<Path>> files = new ArrayList<>();
            for (int i = 0; i < 32; i++) {
                files.add(threads.submit(() -> unpack()));
            }
            for (Future<Path> file : files) {
                assertEquals(shared.resolve(LIBRARY), file.get());
            }
        }
        assertEquals(List.of(KERNELS, LIBRARY), names(shared));
        check(shared.resolve(LIBRARY));
    }

    // Folders that cannot be used, or that others can change

    private void checkElsewhere(Path file) throws Exception {
        assertFalse(file.startsWith(cache), file.toString());
        check(file);
        check(file.resolveSibling(KERNELS));
        assertEquals("rwx------", PosixFilePermissions.toString(
                Files.getPosixFilePermissions(file.getParent())));
    }

    @Test
    void withoutACacheTheProcessHasAFolder() throws Exception {
        checkElsewhere(unpack(LIBRARY, Files.writeString(folder.resolve("file"), "no folder")));
    }

    @Test
    void anOpenFolderIsClosed() throws Exception {
        Files.createDirectories(shared);
        Files.setPosixFilePermissions(shared, PosixFilePermissions.fromString("rwxrwxrwx"));
        assertEquals(shared.resolve(LIBRARY), unpack());
        assertEquals("rwx------",
                PosixFilePermissions.toString(Files.getPosixFilePermissions(shared)));
    }

    @Test
    void aPlantedFileIsReplaced() throws Exception {
        Files.createDirectories(shared);
        for (String file : List.of(LIBRARY, KERNELS)) {
            // Its content is correct, but others could change it.
            Files.copy(jar.resolve(file), shared.resolve(file));
            Files.setPosixFilePermissions(
                    shared.resolve(file), PosixFilePermissions.fromString("rw-rw-rw-"));
        }
        unpack();
        check(shared.resolve(LIBRARY));
        check(shared.resolve(KERNELS));
    }

    @Test
    void aPlantedLinkIsReplaced() throws Exception {
        Files.createDirectories(shared);
        Files.createSymbolicLink(shared.resolve(LIBRARY), jar.resolve(LIBRARY));
        unpack();
        assertTrue(Files.isRegularFile(shared.resolve(LIBRARY), LinkOption.NOFOLLOW_LINKS));
        Files.delete(shared.resolve(LIBRARY));
        Files.delete(shared.resolve(KERNELS));
        Files.delete(shared);
        Path other = Files.createDirectory(folder.resolve("other"));
        Files.createSymbolicLink(shared, other);
        checkElsewhere(unpack());
        assertEquals(List.of(), names(other));
    }

    @Test
    void aCacheThatOthersCanWriteIsNotUsed() throws Exception {
        Files.createDirectories(cache);
        Files.setPosixFilePermissions(cache, PosixFilePermissions.fromString("rwxrwxrwx"));
        checkElsewhere(unpack());
    }

    /** Changes the owner of a file. Only root can do this. */
    private static void give(Path file) throws IOException {
        Assumptions.assumeTrue(System.getProperty("user.name").equals("root"), "not root");
        Files.setOwner(file, file.getFileSystem().getUserPrincipalLookupService()
                .lookupPrincipalByName("nobody"));
    }

    @Test
    void aFolderOfAnotherUserIsNotUsed() throws Exception {
        unpack();
        give(shared);
        checkElsewhere(unpack());
    }

    @Test
    void aCacheOfAnotherUserIsNotUsed() throws Exception {
        unpack();
        give(cache);
        checkElsewhere(unpack());
    }

    @Test
    void aFileOfAnotherUserIsReplaced() throws Exception {
        unpack();
        give(shared.resolve(KERNELS));
        unpack();
        assertNotEquals("nobody", Files.getOwner(shared.resolve(KERNELS)).getName());
        check(shared.resolve(KERNELS));
    }
}
