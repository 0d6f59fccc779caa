package dev.llb.springai;

import dev.llb.EmbedRequest;
import dev.llb.Embeddings;
import dev.llb.LlbEmbedder;
import io.micrometer.observation.ObservationRegistry;
import java.util.List;
import java.util.Objects;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import org.springframework.ai.chat.metadata.DefaultUsage;
import org.springframework.ai.document.Document;
import org.springframework.ai.embedding.Embedding;
import org.springframework.ai.embedding.EmbeddingModel;
import org.springframework.ai.embedding.EmbeddingOptions;
import org.springframework.ai.embedding.EmbeddingRequest;
import org.springframework.ai.embedding.EmbeddingResponse;
import org.springframework.ai.embedding.EmbeddingResponseMetadata;
import org.springframework.ai.embedding.observation.DefaultEmbeddingModelObservationConvention;
import org.springframework.ai.embedding.observation.EmbeddingModelObservationContext;
import org.springframework.ai.embedding.observation.EmbeddingModelObservationDocumentation;

/**
 * Computes vectors of texts for Spring AI. The owner of the {@link LlbEmbedder} must close it.
 * Failures are {@link dev.llb.LlbException}.
 */
public final class LlbEmbeddingModel implements EmbeddingModel {

    private static final DefaultEmbeddingModelObservationConvention CONVENTION =
            new DefaultEmbeddingModelObservationConvention();

    private final LlbEmbedder embedder;
    private final String prefix;
    private final ObservationRegistry registry;

    /** Computes vectors of the texts without a prefix. */
    public LlbEmbeddingModel(LlbEmbedder embedder) {
        this(embedder, "", ObservationRegistry.NOOP);
    }

    /**
     * Computes vectors of the texts after a prefix, such as {@code "query: "}, and observes each
     * request.
     */
    public LlbEmbeddingModel(LlbEmbedder embedder, String prefix, ObservationRegistry registry) {
        this.embedder = Objects.requireNonNull(embedder, "embedder");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
        this.registry = Objects.requireNonNull(registry, "registry");
    }

    @Override
    public EmbeddingResponse call(EmbeddingRequest request) {
        EmbeddingOptions options = request.getOptions();
        EmbedRequest.Builder converted =
                EmbedRequest.builder(request.getInstructions()).prefix(prefix);
        EmbeddingOptions.Builder observed = EmbeddingOptions.builder().model(embedder.name());
        if (options != null) {
            requireModelName(options.getModel());
            if (options.getDimensions() != null) {
                converted.dimensions(options.getDimensions());
                observed.dimensions(options.getDimensions());
            }
        }
        EmbeddingModelObservationContext context = EmbeddingModelObservationContext.builder()
                .embeddingRequest(
                        new EmbeddingRequest(request.getInstructions(), observed.build()))
                .provider(LlbChatModel.PROVIDER)
                .build();
        return EmbeddingModelObservationDocumentation.EMBEDDING_MODEL_OPERATION
                .observation(CONVENTION, CONVENTION, () -> context, registry)
                .observe(() -> {
                    EmbeddingResponse response = convert(embedder.embed(converted.build()));
                    context.setResponse(response);
                    return response;
                });
    }

    /** Fails unless the name is the model's own. */
    private void requireModelName(@Nullable String asked) {
        if (asked != null && !asked.equals(embedder.name())) {
            throw new IllegalArgumentException("model: \"" + asked + "\" is not the open model \""
                    + embedder.name() + "\"; open a model for each file");
        }
    }

    private EmbeddingResponse convert(Embeddings reply) {
        List<Embedding> vectors = IntStream.range(0, reply.vectors().size())
                .mapToObj(index -> new Embedding(reply.vectors().get(index), index))
                .toList();
        int tokens = reply.promptTokens();
        return new EmbeddingResponse(vectors, new EmbeddingResponseMetadata(
                embedder.name(), new DefaultUsage(tokens, 0, tokens)));
    }

    @Override
    public float[] embed(Document document) {
        return embed(getEmbeddingContent(document));
    }
}
