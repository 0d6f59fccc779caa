package dev.llb;

import org.jspecify.annotations.Nullable;

/** How a chat template carries tools. */
public enum ToolSupport {
    /** The template has a place for tools. */
    NATIVE("native"),
    /** Polyfills put them into messages. */
    POLYFILLED("polyfilled"),
    /** It cannot carry tools. */
    NONE("none"),
    /** A value of a later library, which is in the {@code raw} map. */
    UNKNOWN("unknown");

    private final String name;

    ToolSupport(String name) {
        this.name = name;
    }

    static ToolSupport of(@Nullable String name) {
        return Json.constant(values(), name, UNKNOWN);
    }

    /** The name in JSON. */
    @Override
    public String toString() {
        return name;
    }
}
