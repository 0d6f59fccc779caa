package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Future;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The search for the library, and its extraction from a jar. */
class NativeLibraryTest {

    private static final String FILE = "libtest.so";

    @TempDir
    Path folder;

    private byte[] content;
    private String sha256;
    private URL inJar;
    private Path cache;

    @BeforeEach
    void aLibraryInAJar() throws Exception {
        content = new byte[300_000];
        for (int i = 0; i < content.length; i++) {
            content[i] = (byte) (i * 31);
        }
        sha256 = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(content));
        inJar = Files.write(folder.resolve("in-jar"), content).toUri().toURL();
        cache = folder.resolve("cache");
    }

    @Test
    void extractsTheLibrary() throws Exception {
        check(NativeLibrary.extract(inJar, FILE, sha256, cache));
    }

    @Test
    void extractsOnce() throws Exception {
        Path file = NativeLibrary.extract(inJar, FILE, sha256, cache);
        FileTime longAgo = FileTime.fromMillis(1000);
        Files.setLastModifiedTime(file, longAgo);
        assertEquals(file, NativeLibrary.extract(inJar, FILE, sha256, cache));
        assertEquals(longAgo, Files.getLastModifiedTime(file));
    }

    @Test
    void aDamagedCopyIsReplaced() throws Exception {
        Path file = NativeLibrary.extract(inJar, FILE, sha256, cache);
        Files.write(file, new byte[] {1, 2, 3});
        check(NativeLibrary.extract(inJar, FILE, sha256, cache));
    }

    @Test
    void aDamagedJarIsRefused() throws Exception {
        String other = sha256.replace(sha256.charAt(0), sha256.charAt(0) == '0' ? '1' : '0');
        LlbException e =
                assertThrows(LlbException.class, () -> NativeLibrary.extract(inJar, FILE, other, cache));
        assertEquals("LIBRARY_NOT_FOUND", e.code());
        try (var left = Files.list(cache.resolve(other))) {
            assertEquals(0, left.count());
        }
    }

    @Test
    void aChecksumCannotNameAnotherFolder() {
        assertThrows(LlbException.class, () -> NativeLibrary.extract(inJar, FILE, "../../elsewhere", cache));
    }

    @Test
    void withoutACacheAFallbackFolderIsUsed() throws Exception {
        Path noFolder = Files.writeString(folder.resolve("file"), "not a folder");
        check(NativeLibrary.extract(inJar, FILE, sha256, noFolder));
    }

    @Test
    void concurrentExtractions() throws Exception {
        try (Pool threads = Pool.of(8)) {
            List<Future<Path>> files = new ArrayList<>();
            for (int i = 0; i < 32; i++) {
                files.add(threads.submit(() -> NativeLibrary.extract(inJar, FILE, sha256, cache)));
            }
            for (Future<Path> file : files) {
                check(file.get());
            }
        }
        try (var left = Files.list(cache.resolve(sha256))) {
            assertEquals(1, left.count());
        }
    }

    private void check(Path file) throws Exception {
        assertEquals(-1, Files.mismatch(Path.of(inJar.toURI()), file));
        assertEquals(content.length, Files.size(file));
    }

    @Test
    void theFolderIsPrivate() throws Exception {
        Files.createDirectories(cache.resolve(sha256));
        Files.setPosixFilePermissions(
                cache.resolve(sha256), PosixFilePermissions.fromString("rwxrwxrwx"));
        Path file = NativeLibrary.extract(inJar, FILE, sha256, cache);
        assertEquals(cache.resolve(sha256).resolve(FILE), file);
        Set<PosixFilePermission> found = Files.getPosixFilePermissions(file.getParent());
        assertEquals("rwx------", PosixFilePermissions.toString(found));
    }

    @Test
    void theArtifactHasTheLibraryAndItsShim() {
        TestFiles.library();
        withProperty(NativeLibrary.OLD_PROPERTY, "", () -> withProperty(NativeLibrary.PROPERTY, "", () -> {
            // The environment variable precedes the jar.
            NativeLibrary.Found library = NativeLibrary.find();
            NativeLibrary.Found shim = NativeLibrary.findShim(
                    new NativeLibrary.Found(folder.resolve("elsewhere.so"), "elsewhere"));
            assertTrue(Files.isRegularFile(library.path()), library.origin());
            assertTrue(shim.origin().endsWith("(from the jar)"), shim.origin());
            assertEquals("libllb-jni.so", shim.path().getFileName().toString());
        }));
    }

    @Test
    void anErrorNamesTheSourceOfAWrongPath() {
        String missing = folder.resolve("no.so").toString();
        for (String property : List.of("dev.llb.library", "llb.library")) {
            LlbException e = findWith(property, missing);
            assertEquals("LIBRARY_NOT_FOUND", e.code());
            assertTrue(e.getMessage().contains(missing), e.getMessage());
            assertTrue(e.getMessage().contains(property), e.getMessage());
        }
    }

    @Test
    void aLibraryForAnotherProcessorIsRefused() throws Exception {
        byte[] header = new byte[64];
        System.arraycopy(new byte[] {0x7f, 'E', 'L', 'F', 2, 1, 1}, 0, header, 0, 7);
        boolean aarch64 = NativeLibrary.platform().endsWith("-aarch64");
        header[18] = (byte) (aarch64 ? 62 : 183);
        Path file = Files.write(folder.resolve("other.so"), header);
        LlbException e = findWith("dev.llb.library", file.toString());
        assertEquals("LIBRARY_INCOMPATIBLE", e.code());
        String needed = "is built for " + (aarch64 ? "x86_64" : "aarch64") + ", and this JVM is "
                + NativeLibrary.platform();
        assertTrue(e.getMessage().contains(needed), e.getMessage());
    }

    private static LlbException findWith(String property, String path) {
        LlbException[] thrown = new LlbException[1];
        withProperty("dev.llb.library", "", () -> withProperty("llb.library", "", () ->
                withProperty(property, path, () ->
                        thrown[0] = assertThrows(LlbException.class, NativeLibrary::find))));
        return thrown[0];
    }

    private static void withProperty(String name, String value, Runnable run) {
        String before = System.getProperty(name, "");
        System.setProperty(name, value);
        try {
            run.run();
        } finally {
            System.setProperty(name, before);
        }
    }

    @Test
    void thePlatformIsAFolderNameButNotAPackageName() {
        assertTrue(NativeLibrary.platform().matches("[a-z0-9_]+-[a-z0-9_]+"), NativeLibrary.platform());
        assertFalse(NativeLibrary.platform().contains("amd64"));
    }
}
