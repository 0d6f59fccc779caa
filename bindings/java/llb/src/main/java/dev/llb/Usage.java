package dev.llb;

import java.util.Map;

/**
 * The number of tokens of one request.
 *
 * @param promptTokens the tokens of the whole prompt
 * @param completionTokens the generated tokens, without the end-of-generation token
 * @param totalTokens the sum of both
 * @param cachedTokens the prompt tokens taken from the KV cache
 */
public record Usage(int promptTokens, int completionTokens, int totalTokens, int cachedTokens) {

    static Usage of(Map<String, Object> usage) {
        Map<String, Object> promptDetails = Json.object(usage.get("prompt_tokens_details"));
        return new Usage(
                (int) Json.integer(usage.get("prompt_tokens")),
                (int) Json.integer(usage.get("completion_tokens")),
                (int) Json.integer(usage.get("total_tokens")),
                (int) Json.integer(promptDetails.get("cached_tokens")));
    }
}
