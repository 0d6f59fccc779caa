package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * Describes what a request would do.
 *
 * @param prompt the rendered prompt
 * @param promptTokens the number of its tokens
 * @param cachedTokens the number of its tokens that are in the KV cache
 * @param polyfillsApplied the polyfills applied because the template lacks a capability
 * @param raw the whole explanation, with the grammar, the spans, the cache break and more
 */
public record Explanation(
        String prompt,
        int promptTokens,
        int cachedTokens,
        List<String> polyfillsApplied,
        Map<String, Object> raw) {

    static Explanation of(Map<String, Object> explanation) {
        return new Explanation(
                Objects.requireNonNullElse(Json.string(explanation.get("prompt")), ""),
                (int) Json.integer(explanation.get("prompt_tokens")),
                (int) Json.integer(explanation.get("cached_tokens")),
                Json.strings(explanation.get("polyfills_applied")),
                explanation);
    }
}
