package dev.llb;

import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;

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
        long[] handle = new long[1];
        byte[] options = utf8(optionsJson);
        byte[] error = PlatformCall.run(() -> access.chatCreate(options, onEvent, handle));
        return new Created(handle[0], error == null ? null : text(error));
    }

    String chatInfer(long chat, String requestJson) {
        byte[] request = utf8(requestJson);
        return text(PlatformCall.run(() -> access.chatInfer(chat, request)));
    }

    String chatInferStream(long chat, String requestJson, Callback onPiece) {
        byte[] request = utf8(requestJson);
        long id = onPiece.register();
        try {
            return text(PlatformCall.run(() -> access.chatInferStream(chat, request, id)));
        } finally {
            Callback.remove(id);
        }
    }

    String chatExplain(long chat, String requestJson) {
        byte[] request = utf8(requestJson);
        return text(PlatformCall.run(() -> access.chatExplain(chat, request)));
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
        byte[] options = utf8(optionsJson);
        long[] handle = new long[1];
        byte[] error = PlatformCall.run(() -> access.embedCreate(options, handle));
        return new Created(handle[0], error == null ? null : text(error));
    }

    String embed(long embedder, String requestJson) {
        byte[] request = utf8(requestJson);
        return text(PlatformCall.run(() -> access.embed(embedder, request)));
    }

    String rank(long embedder, String requestJson) {
        byte[] request = utf8(requestJson);
        return text(PlatformCall.run(() -> access.rank(embedder, request)));
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

    String modelInfo(String path) {
        return callWithText("llb_model_info", path);
    }

    String templateInfo(String requestJson) {
        return callWithText("llb_template_info", requestJson);
    }

    String templateRender(String requestJson) {
        return callWithText("llb_template_render", requestJson);
    }

    String templateParse(String requestJson) {
        return callWithText("llb_template_parse", requestJson);
    }

    String templateCompose(String requestJson) {
        return callWithText("llb_template_compose", requestJson);
    }

    String tokenize(String requestJson) {
        return callWithText("llb_tokenize", requestJson);
    }

    String detokenize(String requestJson) {
        return callWithText("llb_detokenize", requestJson);
    }

    String count(String requestJson) {
        return callWithText("llb_count", requestJson);
    }

    String memory(String requestJson) {
        return callWithText("llb_memory", requestJson);
    }

    String modelUnload(String requestJson) {
        return callWithText("llb_model_unload", requestJson);
    }

    private String callWithText(String function, String input) {
        int index = Access.TEXT_FUNCTIONS.indexOf(function);
        byte[] text = utf8(input);
        return text(PlatformCall.run(() -> access.callWithText(index, text)));
    }

    String modelFetch(String requestJson, Callback onEvent) {
        byte[] request = utf8(requestJson);
        long id = onEvent.register();
        try {
            return text(PlatformCall.run(() -> access.modelFetch(request, id)));
        } finally {
            Callback.remove(id);
        }
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

    // Strings

    private static byte[] utf8(String text) {
        int nul = text.indexOf('\0');
        if (nul >= 0) {
            throw new LlbException(
                    ErrorCodes.INVALID_REQUEST, "NUL character in a string at index " + nul);
        }
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] utf8) {
        return new String(utf8, StandardCharsets.UTF_8);
    }
}
