package dev.llb;

import org.jspecify.annotations.Nullable;

/** Why a reply ended. */
public enum FinishReason {
    /** The model ended it, or a stop string. */
    STOP("stop"),
    /** {@code max_tokens} or the end of the context. */
    LENGTH("length"),
    /** The reply has tool calls. */
    TOOL_CALLS("tool_calls"),
    /** A cancel, an interrupt or a timeout. */
    CANCELLED("cancelled"),
    /** A reason of a later library, which is in the {@code raw} map of the reply. */
    UNKNOWN("unknown");

    private final String name;

    FinishReason(String name) {
        this.name = name;
    }

    static FinishReason of(@Nullable String name) {
        return Json.constant(values(), name, UNKNOWN);
    }

    /** The name in JSON, such as {@code tool_calls}. */
    @Override
    public String toString() {
        return name;
    }
}
