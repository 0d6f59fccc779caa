package dev.llb.langchain4j;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import dev.langchain4j.data.embedding.Embedding;
import dev.langchain4j.data.segment.TextSegment;
import dev.langchain4j.exception.LangChain4jException;
import dev.langchain4j.model.output.Response;
import dev.llb.LlbEmbedder;
import dev.llb.scripted.TestModels;
import java.util.List;
import org.assertj.core.data.Offset;
import org.junit.jupiter.api.Test;

/** Tests vectors of a scripted model. */
class EmbeddingModelTest {

    @Test
    void segmentsHaveVectors() {
        try (LlbEmbedder embedder = LlbEmbedder.open(TestModels.scripted("embedding.gguf"))) {
            LlbEmbeddingModel model = new LlbEmbeddingModel(embedder);
            Response<List<Embedding>> reply = model.embedAll(
                    List.of(TextSegment.from("the cat sits"), TextSegment.from("a1 dog")));
            assertThat(reply.content()).hasSize(2);
            assertThat(reply.content().get(0).vector())
                    .containsExactly(embedder.embed("the cat sits"), Offset.offset(1e-4f));
            assertThat(reply.tokenUsage().inputTokenCount()).isPositive();
            assertThat(model.dimension()).isEqualTo(32);
            assertThat(model.modelName()).isEqualTo("embedding");
            assertThat(model.embedAll(List.of()).content()).isEmpty();
            float[] prefixed =
                    new LlbEmbeddingModel(embedder, "the ").embed("cat sits").content().vector();
            assertThat(prefixed)
                    .containsExactly(embedder.embed("the cat sits"), Offset.offset(1e-4f));
        }
    }

    /** The scores are in the order of the segments, whichever is best. */
    @Test
    void segmentsHaveScores() {
        try (LlbEmbedder reranker = LlbEmbedder.open(TestModels.scripted("reranker.gguf"))) {
            LlbScoringModel model = new LlbScoringModel(reranker);
            List<TextSegment> segments = List.of(
                    TextSegment.from("document"), TextSegment.from("a1 dog"),
                    TextSegment.from("the cat"));
            List<Double> scores = model.scoreAll(segments, "query").content();
            assertThat(scores).hasSize(3);
            for (int i = 0; i < scores.size(); i++) {
                assertThat(model.score(segments.get(i), "query").content())
                        .isCloseTo(scores.get(i), Offset.offset(1e-3));
            }
            assertThat(scores.get(0)).isCloseTo(-0.4214628, Offset.offset(2e-3));
            assertThat(model.scoreAll(List.of(), "query").content()).isEmpty();
        }
    }

    @Test
    void failuresAreThoseOfLangChain4j() {
        LlbEmbedder embedder = LlbEmbedder.open(TestModels.scripted("embedding.gguf"));
        embedder.close();
        assertThatThrownBy(() -> new LlbEmbeddingModel(embedder).embed("a1 dog"))
                .isInstanceOf(LangChain4jException.class)
                .hasMessageContaining("ENGINE_CLOSED");
    }
}
