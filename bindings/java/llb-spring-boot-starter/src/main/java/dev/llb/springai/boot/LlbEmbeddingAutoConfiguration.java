package dev.llb.springai.boot;

import dev.llb.LlbEmbedder;
import dev.llb.springai.LlbEmbeddingModel;
import io.micrometer.observation.ObservationRegistry;
import org.springframework.ai.model.SpringAIModelProperties;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;

/** Opens the model of {@code spring.ai.llb.embedding.model}, if there is one. */
@AutoConfiguration
@ConditionalOnProperty("spring.ai.llb.embedding.model")
@ConditionalOnProperty(
        name = SpringAIModelProperties.EMBEDDING_MODEL,
        havingValue = "llb",
        matchIfMissing = true)
@EnableConfigurationProperties(LlbProperties.class)
public class LlbEmbeddingAutoConfiguration {

    @Bean
    @ConditionalOnMissingBean
    LlbEmbedder llbEmbedder(LlbProperties properties) {
        LlbProperties.Embedding embedding = properties.embedding();
        LlbEmbedder.Builder builder =
                LlbEmbedder.builder(ModelFile.find(embedding.model(), properties, "any"));
        LlbProperties.typed(embedding.options()).forEach(builder::set);
        if (embedding.pooling() != null) {
            builder.pooling(embedding.pooling());
        }
        if (embedding.contextLength() != null) {
            builder.contextLength(embedding.contextLength());
        }
        return builder.open();
    }

    @Bean
    @ConditionalOnMissingBean
    LlbEmbeddingModel llbEmbeddingModel(
            LlbEmbedder embedder,
            LlbProperties properties,
            ObjectProvider<ObservationRegistry> registry) {
        return new LlbEmbeddingModel(
                embedder,
                properties.embedding().prefix(),
                registry.getIfUnique(() -> ObservationRegistry.NOOP));
    }
}
