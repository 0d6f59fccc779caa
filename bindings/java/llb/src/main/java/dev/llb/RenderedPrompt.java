package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;

/** The prompt that a {@link Template} makes of a request. */
public final class RenderedPrompt extends JsonReply {

    private final String prompt;
    private final List<String> polyfillsApplied;

    private RenderedPrompt(Map<String, Object> reply) {
        super(reply);
        prompt = Objects.requireNonNullElse(Json.string(reply.get("prompt")), "");
        polyfillsApplied = Json.strings(reply.get("polyfills_applied"));
    }

    static RenderedPrompt of(Map<String, Object> reply) {
        return new RenderedPrompt(reply);
    }

    /** The text that the model would get. */
    public String prompt() {
        return prompt;
    }

    /** The polyfills applied because the template lacks a capability. */
    public List<String> polyfillsApplied() {
        return polyfillsApplied;
    }
}
