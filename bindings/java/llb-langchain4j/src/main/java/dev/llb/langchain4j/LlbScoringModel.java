package dev.llb.langchain4j;

import dev.langchain4j.data.segment.TextSegment;
import dev.langchain4j.model.output.Response;
import dev.langchain4j.model.scoring.ScoringModel;
import dev.llb.LlbEmbedder;
import dev.llb.LlbException;
import dev.llb.Ranking;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/**
 * Scores texts for a query, for LangChain4j. The {@link LlbEmbedder} must have a model made for
 * scores. Its owner closes it.
 */
public final class LlbScoringModel implements ScoringModel {

    private final LlbEmbedder embedder;

    public LlbScoringModel(LlbEmbedder embedder) {
        this.embedder = Objects.requireNonNull(embedder, "embedder");
    }

    @Override
    public Response<List<Double>> scoreAll(List<TextSegment> segments, String query) {
        if (segments.isEmpty()) {
            return Response.from(List.of(), new LlbTokenUsage(0, 0, 0, 0));
        }
        try {
            Ranking reply =
                    embedder.rank(query, segments.stream().map(TextSegment::text).toList());
            Double[] scores = new Double[segments.size()];
            reply.results().forEach(result -> scores[result.index()] = result.score());
            int tokens = reply.promptTokens();
            return Response.from(
                    Arrays.asList(scores), new LlbTokenUsage(tokens, 0, tokens, 0));
        } catch (LlbException e) {
            throw Replies.failure(e);
        }
    }
}
