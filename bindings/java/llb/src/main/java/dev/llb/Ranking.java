package dev.llb;

import java.util.List;
import java.util.Map;

/**
 * Documents by their scores for a query.
 *
 * @param results the documents, the best first
 * @param promptTokens the number of tokens of all pairs
 * @param raw the whole reply
 */
public record Ranking(List<Result> results, int promptTokens, Map<String, Object> raw) {

    /**
     * A document.
     *
     * @param index its place in the request, from 0
     * @param score the model's own: any number, or a probability
     */
    public record Result(int index, double score) {}

    static Ranking of(Map<String, Object> reply) {
        List<Result> results = Json.objects(reply.get("results")).stream()
                .map(result -> new Result(
                        (int) Json.integer(result.get("index")),
                        Json.decimal(result.get("relevance_score"))))
                .toList();
        int tokens = (int) Json.integer(Json.object(reply.get("usage")).get("prompt_tokens"));
        return new Ranking(results, tokens, reply);
    }
}
