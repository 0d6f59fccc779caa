package dev.llb;

import java.util.Map;

/**
 * Tokens of one reply.
 *
 * @param promptTokens the prompt, all of it
 * @param completionTokens what was generated, without the token that ends it
 * @param totalTokens both
 * @param cachedTokens how many of the prompt's were taken from an earlier call
 */
public record Usage(int promptTokens, int completionTokens, int totalTokens, int cachedTokens) {

    static Usage of(Map<String, Object> usage) {
        return new Usage(
                (int) Json.whole(usage.get("prompt_tokens")),
                (int) Json.whole(usage.get("completion_tokens")),
                (int) Json.whole(usage.get("total_tokens")),
                (int) Json.whole(Json.object(usage.get("prompt_tokens_details")).get("cached_tokens")));
    }
}
