package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * What a request would do, without a token generated.
 *
 * @param prompt the text the model would read
 * @param promptTokens its length
 * @param cachedTokens how many of them would be taken from an earlier call
 * @param polyfillsApplied what was done to the request because the model's template cannot carry it
 * @param raw the whole explanation: grammar, spans, why the cache breaks where it does, and more
 */
public record Explanation(
        String prompt, int promptTokens, int cachedTokens, List<String> polyfillsApplied, Map<String, Object> raw) {

    static Explanation of(Map<String, Object> explanation) {
        return new Explanation(
                Objects.requireNonNullElse(Json.string(explanation.get("prompt")), ""),
                (int) Json.whole(explanation.get("prompt_tokens")),
                (int) Json.whole(explanation.get("cached_tokens")),
                Json.strings(explanation.get("polyfills_applied")),
                explanation);
    }
}
