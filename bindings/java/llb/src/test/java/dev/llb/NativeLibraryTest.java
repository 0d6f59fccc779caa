package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The search for the library, and its extraction from a jar. */
class NativeLibraryTest {

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
        check(NativeLibrary.extract(inJar, sha256, cache));
    }

    @Test
    void extractsOnce() throws Exception {
        Path file = NativeLibrary.extract(inJar, sha256, cache);
        FileTime longAgo = FileTime.fromMillis(1000);
        Files.setLastModifiedTime(file, longAgo);
        assertEquals(file, NativeLibrary.extract(inJar, sha256, cache));
        assertEquals(longAgo, Files.getLastModifiedTime(file));
    }

    @Test
    void aDamagedCopyIsReplaced() throws Exception {
        Path file = NativeLibrary.extract(inJar, sha256, cache);
        Files.write(file, new byte[] {1, 2, 3});
        check(NativeLibrary.extract(inJar, sha256, cache));
    }

    @Test
    void aDamagedJarIsRefused() throws Exception {
        String other = sha256.replace(sha256.charAt(0), sha256.charAt(0) == '0' ? '1' : '0');
        LlbException e =
                assertThrows(LlbException.class, () -> NativeLibrary.extract(inJar, other, cache));
        assertEquals("LIBRARY_NOT_FOUND", e.code());
        try (var left = Files.list(cache.resolve(other))) {
            assertEquals(0, left.count());
        }
    }

    @Test
    void aChecksumCannotNameAnotherFolder() {
        assertThrows(LlbException.class, () -> NativeLibrary.extract(inJar, "../../elsewhere", cache));
    }

    @Test
    void withoutACacheAFallbackFolderIsUsed() throws Exception {
        Path noFolder = Files.writeString(folder.resolve("file"), "not a folder");
        check(NativeLibrary.extract(inJar, sha256, noFolder));
    }

    @Test
    void concurrentExtractions() throws Exception {
        try (ExecutorService threads = Executors.newFixedThreadPool(8)) {
            List<Future<Path>> files = new ArrayList<>();
            for (int i = 0; i < 32; i++) {
                files.add(threads.submit(() -> NativeLibrary.extract(inJar, sha256, cache)));
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
    void anErrorNamesTheSourceOfAWrongPath() {
        String missing = folder.resolve("no.so").toString();
        String before = System.getProperty(NativeLibrary.PROPERTY, "");
        System.setProperty(NativeLibrary.PROPERTY, missing);
        try {
            LlbException e = assertThrows(LlbException.class, NativeLibrary::load);
            assertEquals("LIBRARY_NOT_FOUND", e.code());
            assertTrue(e.getMessage().contains(missing), e.getMessage());
            assertTrue(e.getMessage().contains("llb.library"), e.getMessage());
        } finally {
            System.setProperty(NativeLibrary.PROPERTY, before);
        }
    }

    @Test
    void thePlatformIsAFolderNameButNotAPackageName() {
        assertTrue(NativeLibrary.platform().matches("[a-z0-9_]+-[a-z0-9_]+"), NativeLibrary.platform());
        assertFalse(NativeLibrary.platform().contains("amd64"));
    }
}
