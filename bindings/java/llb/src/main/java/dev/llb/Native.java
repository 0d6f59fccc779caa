package dev.llb;

import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.function.BiFunction;
import java.util.function.UnaryOperator;

/**
 * The functions of {@code llb.h} with Java strings, called through Panama on Java 22 and later,
 * otherwise through JNI ({@link Access}). The system property {@code dev.llb.access} selects one of
 * them.
 *
 * <p>A call that waits is a {@link PlatformCall}. This class does not parse JSON.
 */
final class Native {

    static final String ACCESS = "dev.llb.access";

    /** The oldest ABI version that this binding supports. Later versions only add functions. */
    private static final int OLDEST_ABI = 2;

    private static volatile Native instance;

    private final Access access;

    private Native(Access access) {
        this.access = access;
    }

    /** Returns the library, loaded on the first call. A failure is not cached. */
    static Native get() {
        Native found = instance;
        if (found == null) {
            synchronized (Native.class) {
                found = instance;
                if (found == null) {
                    found = load();
                    instance = found;
                }
            }
        }
        return found;
    }

    private static Native load() {
        String forced = System.getProperty(ACCESS, "");
        if (!forced.isEmpty() && !forced.equals("jni") && !forced.equals("panama")) {
            throw new LlbException(
                    ErrorCodes.INVALID_REQUEST,
                    ACCESS + ": \"" + forced + "\" is neither jni nor panama");
        }
        NativeLibrary.Found library = NativeLibrary.find();
        Access access;
        try {
            access = load(library, forced);
        } catch (IllegalCallerException e) {
            Module module = Native.class.getModule();
            throw NativeLibrary.notLoaded(
                    library,
                    "this JVM denies native access; add the option --enable-native-access="
                            + (module.isNamed() ? module.getName() : "ALL-UNNAMED"),
                    e);
        }
        FreedMemory.trim(access, System.getenv());
        return new Native(access);
    }

    /** Refuses an older library. Called before other functions are looked up. */
    static void requireAbi(NativeLibrary.Found library, int abi) {
        if (Integer.compareUnsigned(abi, OLDEST_ABI) < 0) {
            throw NativeLibrary.incompatible(
                    library,
                    "has ABI version " + abi + ", this binding needs " + OLDEST_ABI
                            + " or later: use the library of this version of llb");
        }
    }

    private static Access load(NativeLibrary.Found library, String forced) {
        Access access = forced.equals("jni") ? null : panama(library);
        if (access == null && forced.equals("panama")) {
            throw new LlbException(
                    ErrorCodes.LIBRARY_INCOMPATIBLE,
                    ACCESS + ": panama needs Java 22 or later, and this is Java "
                            + Runtime.version().feature() + "; set it to jni");
        }
        return access == null ? JniAccess.load(library) : access;
    }

    /**
     * Returns null if the jar does not contain {@code PanamaAccess}, which it has for Java 22 and
     * later.
     */
    private static Access panama(NativeLibrary.Found library) {
        try {
            return (Access) Class.forName("dev.llb.PanamaAccess")
                    .getDeclaredMethod("load", NativeLibrary.Found.class)
                    .invoke(null, library);
        } catch (ClassNotFoundException e) {
            return null;
        } catch (InvocationTargetException e) {
            throw Callback.<RuntimeException>unchecked(e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new AssertionError("PanamaAccess is a class of this jar", e);
        }
    }

    /** Returns {@code jni} or {@code panama}. */
    String accessName() {
        return access.name();
    }

    /** The result of a create: a handle, or the JSON of {@code llb_last_error}. */
    record Created(long handle, String error) {}

    // Chats

    Created chatCreate(String optionsJson, long onEvent) {
        return created(
                optionsJson, (options, handle) -> access.chatCreate(options, onEvent, handle));
    }

    String chatInfer(long chat, String requestJson) {
        return call(requestJson, request -> access.chatInfer(chat, request));
    }

    String chatInferStream(long chat, String requestJson, Callback onPiece) {
        return call(
                requestJson, onPiece, (request, id) -> access.chatInferStream(chat, request, id));
    }

    String chatExplain(long chat, String requestJson) {
        return call(requestJson, request -> access.chatExplain(chat, request));
    }

    void chatCancel(long chat) {
        access.chatCancel(chat);
    }

    void chatEndReasoning(long chat) {
        access.chatEndReasoning(chat);
    }

    void chatDestroy(long chat) {
        PlatformCall.run(() -> {
            access.chatDestroy(chat);
            return null;
        });
    }

    // Vectors

    Created embedCreate(String optionsJson) {
        return created(optionsJson, access::embedCreate);
    }

    String embed(long embedder, String requestJson) {
        return call(requestJson, request -> access.embed(embedder, request));
    }

    String rank(long embedder, String requestJson) {
        return call(requestJson, request -> access.rank(embedder, request));
    }

    void embedCancel(long embedder) {
        access.embedCancel(embedder);
    }

    void embedDestroy(long embedder) {
        PlatformCall.run(() -> {
            access.embedDestroy(embedder);
            return null;
        });
    }

    // Models, templates, versions

    /** Calls one of {@link Access#TEXT_FUNCTIONS}. */
    String callWithText(String function, String input) {
        int index = Access.TEXT_FUNCTIONS.indexOf(function);
        return call(input, text -> access.callWithText(index, text));
    }

    String modelFetch(String requestJson, Callback onEvent) {
        return call(requestJson, onEvent, access::modelFetch);
    }

    void modelFetchCancel(String id) {
        access.modelFetchCancel(utf8(id));
    }

    String version() {
        return text(access.version());
    }

    int abiVersion() {
        return access.abiVersion();
    }

    String backends() {
        return text(access.backends());
    }

    // Calls that wait

    private static Created created(String options, BiFunction<byte[], long[], byte[]> create) {
        long[] handle = new long[1];
        byte[] text = utf8(options);
        byte[] error = PlatformCall.run(() -> create.apply(text, handle));
        return new Created(handle[0], error == null ? null : text(error));
    }

    private static String call(String input, UnaryOperator<byte[]> function) {
        byte[] text = utf8(input);
        return text(PlatformCall.run(() -> function.apply(text)));
    }

    private static String call(
            String input, Callback callback, BiFunction<byte[], Long, byte[]> function) {
        byte[] text = utf8(input);
        long id = callback.register();
        try {
            return text(PlatformCall.run(() -> function.apply(text, id)));
        } finally {
            Callback.remove(id);
        }
    }

    // Strings

    static byte[] utf8(String text) {
        int nul = text.indexOf('\0');
        if (nul >= 0) {
            throw new LlbException(
                    ErrorCodes.INVALID_REQUEST, "NUL character in a string at index " + nul);
        }
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] utf8) {
        return new String(utf8, StandardCharsets.UTF_8);
    }
}
