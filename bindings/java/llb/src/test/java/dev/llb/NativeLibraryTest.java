package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests the search for the library. */
class NativeLibraryTest {

    @TempDir
    Path folder;

    @Test
    void theArtifactHasTheLibraryAndItsShim() {
        TestFiles.library();
        withProperty(NativeLibrary.OLD_PROPERTY, "", () ->
                withProperty(NativeLibrary.PROPERTY, "", () -> {
            // The environment variable takes precedence over the jar.
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
        assertTrue(NativeLibrary.platform().matches("[a-z0-9_]+-[a-z0-9_]+"),
                NativeLibrary.platform());
        assertFalse(NativeLibrary.platform().contains("amd64"));
    }
}
