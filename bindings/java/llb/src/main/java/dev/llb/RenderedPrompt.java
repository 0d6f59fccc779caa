package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;

/** The prompt that a {@link Template} makes of a request. */
public final class RenderedPrompt extends JsonReply {

    RenderedPrompt(Map<String, Object> raw) {
        super(raw);
    }

    /** The text that the model would get. */
    public String prompt() {
        return Objects.requireNonNullElse(Json.string(raw.get("prompt")), "");
    }

    /** The polyfills applied because the template lacks a capability. */
    public List<String> polyfillsApplied() {
        return Json.strings(raw.get("polyfills_applied"));
    }
}
