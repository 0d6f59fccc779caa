package dev.llb;

import java.util.List;

/**
 * The interface through which Java calls the library, by JNI or Panama. Text is UTF-8 in byte
 * arrays, without a NUL. Chats and embedders are the library's handles as numbers.
 *
 * <p>{@code onEvent} and {@code onPiece} are ids of {@link Callback#register}. Callbacks run on the
 * thread of the call.
 */
interface Access {

    /** The functions that map text to text. The JNI shim lists them in the same order. */
    List<String> TEXT_FUNCTIONS = List.of(
            "llb_model_info",
            "llb_template_info",
            "llb_template_render",
            "llb_template_parse",
            "llb_template_compose",
            "llb_tokenize",
            "llb_detokenize",
            "llb_count",
            "llb_memory",
            "llb_model_unload");

    /** Returns the name of this access: {@code jni} or {@code panama}. */
    String name();

    byte[] version();

    int abiVersion();

    byte[] backends();

    /** Calls glibc's {@code mallopt}. Does nothing with another C library. */
    void setTrimThreshold(int bytes);

    /** Calls the function at this index of {@link #TEXT_FUNCTIONS}. */
    byte[] callWithText(int function, byte[] text);

    /**
     * Creates a chat. Stores it in {@code handle[0]} and returns null, or returns the JSON of
     * {@code llb_last_error}.
     */
    byte[] chatCreate(byte[] optionsJson, long onEvent, long[] handle);

    byte[] chatInfer(long chat, byte[] requestJson);

    byte[] chatInferStream(long chat, byte[] requestJson, long onPiece);

    byte[] chatExplain(long chat, byte[] requestJson);

    void chatCancel(long chat);

    void chatEndReasoning(long chat);

    void chatDestroy(long chat);

    /** Like {@link #chatCreate}, without events. */
    byte[] embedCreate(byte[] optionsJson, long[] handle);

    byte[] embed(long embedder, byte[] requestJson);

    byte[] rank(long embedder, byte[] requestJson);

    void embedCancel(long embedder);

    void embedDestroy(long embedder);

    byte[] modelFetch(byte[] requestJson, long onEvent);

    void modelFetchCancel(byte[] id);
}
