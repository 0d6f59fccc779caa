package dev.llb;

/**
 * The values of {@link LlbException#code}. A later library may have further ones.
 */
public final class ErrorCodes {

    /** The caller's input is not valid. */
    public static final String INVALID_REQUEST = "INVALID_REQUEST";

    /** The handle was destroyed, never created, or closed by an earlier fault. */
    public static final String ENGINE_CLOSED = "ENGINE_CLOSED";

    /** llama.cpp or a server failed to generate. */
    public static final String INFERENCE_FAILED = "INFERENCE_FAILED";

    /** A fault inside llb, such as a caught panic. */
    public static final String INTERNAL_BRIDGE_ERROR = "INTERNAL_BRIDGE_ERROR";

    /** The function was called from a callback of the same chat. */
    public static final String BUSY = "BUSY";

    /**
     * The call was ended by {@code llb_model_fetch_cancel}, by {@code llb_embed_cancel}, by the
     * time-out of an embedding call, or by an exception that a callback threw. A chat request that
     * is cancelled or times out has a reply instead.
     */
    public static final String CANCELLED = "CANCELLED";

    /** The model file does not exist. */
    public static final String MODEL_NOT_FOUND = "MODEL_NOT_FOUND";

    /** The model file cannot be used. */
    public static final String MODEL_INVALID = "MODEL_INVALID";

    /** The tool-capability check refused the model: its chat template does not support tools. */
    public static final String MODEL_NOT_TOOL_CAPABLE = "MODEL_NOT_TOOL_CAPABLE";

    /** There is not enough memory. */
    public static final String OUT_OF_MEMORY = "OUT_OF_MEMORY";

    /** The chat template failed, or refused the messages. */
    public static final String TEMPLATE_ERROR = "TEMPLATE_ERROR";

    /** The chat template exceeded its limits. */
    public static final String TEMPLATE_LIMIT = "TEMPLATE_LIMIT";

    /** The prompt does not fit the context. */
    public static final String CONTEXT_OVERFLOW = "CONTEXT_OVERFLOW";

    /** A schema, grammar or tool choice cannot be enforced. */
    public static final String SCHEMA_UNSUPPORTED = "SCHEMA_UNSUPPORTED";

    /** The hub does not have the model, revision or file. */
    public static final String HUB_NOT_FOUND = "HUB_NOT_FOUND";

    /** The model requires the token of a user who has accepted its licence on its page. */
    public static final String HUB_GATED = "HUB_GATED";

    /** The hub requires a token, or rejects the one it received. */
    public static final String HUB_UNAUTHORIZED = "HUB_UNAUTHORIZED";

    /** The token is valid but may not read the model. */
    public static final String HUB_FORBIDDEN = "HUB_FORBIDDEN";

    /** The hub is unreachable, or its response is not valid. */
    public static final String HUB_NETWORK = "HUB_NETWORK";

    /** The download does not match the hub's size or hash. */
    public static final String HUB_VERIFY = "HUB_VERIFY";

    /** Several files match the request. */
    public static final String HUB_AMBIGUOUS = "HUB_AMBIGUOUS";

    /** Only the cache may be used, and it does not contain the model. */
    public static final String OFFLINE = "OFFLINE";

    /** No library was found, or it cannot be loaded. */
    public static final String LIBRARY_NOT_FOUND = "LIBRARY_NOT_FOUND";

    /** The library is too old, incomplete, or built for another processor. */
    public static final String LIBRARY_INCOMPATIBLE = "LIBRARY_INCOMPATIBLE";

    /** A reply is no value of the record that was asked for. */
    public static final String REPLY_INVALID = "REPLY_INVALID";

    private ErrorCodes() {}
}
