package dev.llb;

import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;

/**
 * The functions of {@code llb.h} with Java strings, over the {@link Access} that this JVM has:
 * Panama on Java 22 and later, otherwise JNI. The system property {@code dev.llb.access} forces
 * one.
 *
 * <p>This class does not parse JSON.
 */
final class Native {

    static final String ACCESS = "dev.llb.access";

    /** The oldest ABI version that this binding supports. Later versions only add functions. */
    private static final int OLDEST_ABI = 1;

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
                    "INVALID_REQUEST", ACCESS + ": \"" + forced + "\" is neither jni nor panama");
        }
        NativeLibrary.Found library = NativeLibrary.find();
        Access access = forced.equals("jni") ? null : panama(library);
        if (access == null && forced.equals("panama")) {
            throw new LlbException(
                    "LIBRARY_INCOMPATIBLE",
                    ACCESS + ": panama needs Java 22 or later, and this is Java "
                            + Runtime.version().feature() + "; set it to jni");
        }
        if (access == null) {
            access = JniAccess.load(library);
        }
        int abi = access.abiVersion();
        if (Integer.compareUnsigned(abi, OLDEST_ABI) < 0) {
            throw NativeLibrary.incompatible(
                    library,
                    "has ABI version " + abi + ", this binding needs " + OLDEST_ABI + " or later");
        }
        return new Native(access);
    }

    /** The jar has {@code PanamaAccess} for Java 22 and later. Returns null where it has none. */
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
        byte[] error = access.chatCreate(utf8(optionsJson), onEvent, handle);
        return new Created(handle[0], error == null ? null : text(error));
    }

    String chatInfer(long chat, String requestJson) {
        return text(access.chatInfer(chat, utf8(requestJson)));
    }

    String chatInferStream(long chat, String requestJson, Callback onPiece) {
        byte[] request = utf8(requestJson);
        long id = onPiece.register();
        try {
            return text(access.chatInferStream(chat, request, id));
        } finally {
            Callback.remove(id);
        }
    }

    String chatExplain(long chat, String requestJson) {
        return text(access.chatExplain(chat, utf8(requestJson)));
    }

    void chatCancel(long chat) {
        access.chatCancel(chat);
    }

    void chatDestroy(long chat) {
        access.chatDestroy(chat);
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

    private String callWithText(String function, String input) {
        int index = Access.TEXT_FUNCTIONS.indexOf(function);
        return text(access.callWithText(index, utf8(input)));
    }

    String modelFetch(String requestJson, Callback onEvent) {
        byte[] request = utf8(requestJson);
        long id = onEvent.register();
        try {
            return text(access.modelFetch(request, id));
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

    // Strings

    private static byte[] utf8(String text) {
        int nul = text.indexOf('\0');
        if (nul >= 0) {
            throw new LlbException("INVALID_REQUEST", "NUL character in a string at index " + nul);
        }
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] utf8) {
        return new String(utf8, StandardCharsets.UTF_8);
    }
}
