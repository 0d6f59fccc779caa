package dev.llb.langchain4j;

import dev.langchain4j.data.embedding.Embedding;
import dev.langchain4j.data.segment.TextSegment;
import dev.langchain4j.model.embedding.DimensionAwareEmbeddingModel;
import dev.langchain4j.model.output.Response;
import dev.llb.EmbedRequest;
import dev.llb.Embeddings;
import dev.llb.LlbEmbedder;
import dev.llb.LlbException;
import java.util.List;
import java.util.Objects;

/**
 * Computes vectors of texts for LangChain4j. The owner of the {@link LlbEmbedder} must close it.
 * Failures are LangChain4j's exceptions with an {@link LlbException} as cause.
 *
 * <p>Many models are trained with a prefix that differs between questions and passages. For these,
 * create two objects that share an embedder.
 */
public final class LlbEmbeddingModel extends DimensionAwareEmbeddingModel {

    private final LlbEmbedder embedder;
    private final String prefix;

    /** Computes vectors of the texts without a prefix. */
    public LlbEmbeddingModel(LlbEmbedder embedder) {
        this(embedder, "");
    }

    /** Computes vectors of the texts after a prefix, such as {@code "query: "}. */
    public LlbEmbeddingModel(LlbEmbedder embedder, String prefix) {
        this.embedder = Objects.requireNonNull(embedder, "embedder");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
    }

    @Override
    public Response<List<Embedding>> embedAll(List<TextSegment> segments) {
        if (segments.isEmpty()) {
            return Response.from(List.of(), new LlbTokenUsage(0, 0, 0, 0));
        }
        EmbedRequest request =
                EmbedRequest.builder(segments.stream().map(TextSegment::text).toList())
                .prefix(prefix)
                .build();
        try {
            Embeddings reply = embedder.embed(request);
            int tokens = reply.promptTokens();
            return Response.from(
                    reply.vectors().stream().map(Embedding::from).toList(),
                    new LlbTokenUsage(tokens, 0, tokens, 0));
        } catch (LlbException e) {
            throw Replies.failure(e);
        }
    }

    @Override
    public String modelName() {
        return embedder.name();
    }
}
