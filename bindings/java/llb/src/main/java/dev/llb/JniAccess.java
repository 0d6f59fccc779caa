package dev.llb;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Access to the library through JNI, for Java 17 and later. The native methods are in the shim
 * {@code llb_jni.c}, which is a separate library.
 */
final class JniAccess implements Access {

    private JniAccess() {}

    /**
     * Loads the shim, and the library through it.
     *
     * @throws LlbException with {@code LIBRARY_NOT_FOUND} or {@code LIBRARY_INCOMPATIBLE}
     */
    static Access load(NativeLibrary.Found library) {
        loadShim(NativeLibrary.findShim(library));
        byte[] problem = open(Native.utf8(library.path().toAbsolutePath().toString()));
        if (problem != null) {
            throw NativeLibrary.notLoaded(library, Native.text(problem), null);
        }
        byte[] missing = bind();
        JniAccess access = new JniAccess();
        Native.requireAbi(library, access.abiVersion());
        if (missing != null) {
            throw NativeLibrary.incompatible(library, "has no function " + Native.text(missing));
        }
        return access;
    }

    /**
     * The JVM loads a file for only one class loader. A second class loader, such as that of a
     * restarted web application, loads a copy.
     */
    private static void loadShim(NativeLibrary.Found shim) {
        try {
            System.load(shim.path().toAbsolutePath().toString());
        } catch (UnsatisfiedLinkError e) {
            String message = String.valueOf(e.getMessage());
            if (!message.contains("already loaded in another classloader")) {
                throw NativeLibrary.notLoaded(shim, message, e);
            }
            loadCopy(shim);
        }
    }

    /** The copy is beside the shim, or else in the folder of temporary files, and is deleted. */
    private static void loadCopy(NativeLibrary.Found shim) {
        Path copy = null;
        try {
            copy = emptyFile(shim.path().toAbsolutePath().getParent());
            Files.write(copy, Files.readAllBytes(shim.path()));
            System.load(copy.toString());
        } catch (IOException | UnsatisfiedLinkError e) {
            throw NativeLibrary.notLoaded(shim, "cannot load a copy for this class loader", e);
        } finally {
            if (copy != null) {
                // The loaded file stays mapped after its name is deleted.
                copy.toFile().delete();
            }
        }
    }

    private static Path emptyFile(Path folder) throws IOException {
        try {
            return Files.createTempFile(folder, "libllb-jni", ".part");
        } catch (IOException notWritable) {
            return Files.createTempFile("libllb-jni", ".so");
        }
    }

    @Override
    public String name() {
        return "jni";
    }

    /** Opens the library. Returns null, or the message of the loader. */
    private static native byte[] open(byte[] path);

    /** Looks up the functions. Returns null, or the name of one that the library lacks. */
    private static native byte[] bind();

    @Override
    public native byte[] version();

    @Override
    public native int abiVersion();

    @Override
    public native byte[] backends();

    @Override
    public native void setTrimThreshold(int bytes);

    @Override
    public native byte[] callWithText(int function, byte[] text);

    @Override
    public native byte[] chatCreate(byte[] optionsJson, long onEvent, long[] handle);

    @Override
    public native byte[] chatInfer(long chat, byte[] requestJson);

    @Override
    public native byte[] chatInferStream(long chat, byte[] requestJson, long onPiece);

    @Override
    public native byte[] chatExplain(long chat, byte[] requestJson);

    @Override
    public native void chatCancel(long chat);

    @Override
    public native void chatEndReasoning(long chat);

    @Override
    public native void chatDestroy(long chat);

    @Override
    public native byte[] embedCreate(byte[] optionsJson, long[] handle);

    @Override
    public native byte[] embed(long embedder, byte[] requestJson);

    @Override
    public native byte[] rank(long embedder, byte[] requestJson);

    @Override
    public native void embedCancel(long embedder);

    @Override
    public native void embedDestroy(long embedder);

    @Override
    public native byte[] modelFetch(byte[] requestJson, long onEvent);

    @Override
    public native void modelFetchCancel(byte[] id);
}
