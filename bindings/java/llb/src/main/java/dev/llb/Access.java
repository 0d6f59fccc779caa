package dev.llb;

import java.util.List;

/**
 * A way into the library: JNI or Panama. Text is UTF-8 in byte arrays, without a NUL, and a chat is
 * the handle of the library as a number.
 *
 * <p>{@code onEvent} and {@code onPiece} are ids of {@link Callback#register}. Callbacks come on
 * the thread of the call.
 */
interface Access {

    /** The functions from text to text. The shim of JNI has them in the same order. */
    List<String> TEXT_FUNCTIONS = List.of(
            "llb_model_info",
            "llb_template_info",
            "llb_template_render",
            "llb_template_parse",
            "llb_template_compose");

    /** Returns the name of this way: {@code jni} or {@code panama}. */
    String name();

    byte[] version();

    int abiVersion();

    /** Calls the function at this index of {@link #TEXT_FUNCTIONS}. */
    byte[] callWithText(int function, byte[] text);

    /**
     * Stores the new chat in {@code handle[0]} and returns null, or returns the JSON of
     * {@code llb_last_error}.
     */
    byte[] chatCreate(byte[] optionsJson, long onEvent, long[] handle);

    byte[] chatInfer(long chat, byte[] requestJson);

    byte[] chatInferStream(long chat, byte[] requestJson, long onPiece);

    byte[] chatExplain(long chat, byte[] requestJson);

    void chatCancel(long chat);

    void chatDestroy(long chat);

    byte[] modelFetch(byte[] requestJson, long onEvent);

    void modelFetchCancel(byte[] id);
}
