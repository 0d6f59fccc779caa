package dev.llb;

import org.jspecify.annotations.Nullable;

/** What a reply is. */
public enum ReplyType {
    /** A text. */
    ASSISTANT_TEXT("assistant_text"),
    /** Tool calls, and perhaps a text. */
    TOOL_CALL("tool_call"),
    /** A value of a later library, which is in the {@code raw} map. */
    UNKNOWN("unknown");

    private final String name;

    ReplyType(String name) {
        this.name = name;
    }

    static ReplyType of(@Nullable String name) {
        return Json.constant(values(), name, UNKNOWN);
    }

    /** The name in JSON. */
    @Override
    public String toString() {
        return name;
    }
}
