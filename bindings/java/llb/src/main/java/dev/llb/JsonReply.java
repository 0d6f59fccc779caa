package dev.llb;

import java.util.Map;
import org.jspecify.annotations.Nullable;

/** A reply of the library with further members than those that have a method. */
abstract sealed class JsonReply
        permits ChatReply, Memory, ModelInfo, ParsedMessage, RenderedPrompt {

    final Map<String, Object> raw;

    JsonReply(Map<String, Object> raw) {
        this.raw = raw;
    }

    /** The whole reply of the library, also with members that have no method. */
    public Map<String, Object> raw() {
        return raw;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other != null
                && getClass() == other.getClass()
                && raw.equals(((JsonReply) other).raw);
    }

    @Override
    public int hashCode() {
        return raw.hashCode();
    }

    /** The JSON of the library, with all members. */
    @Override
    public String toString() {
        return Json.write(raw);
    }
}
