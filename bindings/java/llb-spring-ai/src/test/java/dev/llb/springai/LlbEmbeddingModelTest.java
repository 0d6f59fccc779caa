package dev.llb.springai;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import dev.llb.LlbEmbedder;
import dev.llb.scripted.TestModels;
import io.micrometer.observation.tck.TestObservationRegistry;
import io.micrometer.observation.tck.TestObservationRegistryAssert;
import java.util.List;
import org.assertj.core.data.Offset;
import org.junit.jupiter.api.Test;
import org.springframework.ai.document.Document;
import org.springframework.ai.embedding.EmbeddingOptions;
import org.springframework.ai.embedding.EmbeddingRequest;
import org.springframework.ai.embedding.EmbeddingResponse;

/** Tests vectors of a scripted model. */
class LlbEmbeddingModelTest {

    @Test
    void textsHaveVectors() {
        try (LlbEmbedder embedder = LlbEmbedder.open(TestModels.scripted("embedding.gguf"))) {
            TestObservationRegistry registry = TestObservationRegistry.create();
            LlbEmbeddingModel model = new LlbEmbeddingModel(embedder, "the ", registry);
            EmbeddingResponse response = model.call(new EmbeddingRequest(
                    List.of("cat sits", "dog"), EmbeddingOptions.builder().dimensions(8).build()));
            assertThat(response.getResults()).hasSize(2);
            assertThat(response.getResults().get(1).getIndex()).isEqualTo(1);
            assertThat(response.getResults().get(0).getOutput()).hasSize(8);
            assertThat(response.getMetadata().getUsage().getPromptTokens()).isPositive();
            assertThat(response.getMetadata().getModel()).isEqualTo("embedding");
            assertThat(model.dimensions()).isEqualTo(32);
            assertThat(model.embed(new Document("cat sits"))).containsExactly(
                    embedder.embed("the cat sits"), Offset.offset(1e-4f));
            TestObservationRegistryAssert.assertThat(registry)
                    .hasObservationWithNameEqualTo("gen_ai.client.operation")
                    .that()
                    .hasLowCardinalityKeyValue("gen_ai.operation.name", "embedding")
                    .hasLowCardinalityKeyValue("gen_ai.request.model", "embedding")
                    .hasHighCardinalityKeyValue("gen_ai.request.embedding.dimensions", "8");
            assertThatThrownBy(() -> model.call(new EmbeddingRequest(
                    List.of("a"), EmbeddingOptions.builder().model("other").build())))
                    .isInstanceOf(IllegalArgumentException.class);
        }
    }
}
