package dev.llb.langchain4j.boot;

import dev.langchain4j.model.TokenCountEstimator;
import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.llb.ChatOptions;
import dev.llb.FetchRequest;
import dev.llb.Llb;
import dev.llb.LlbModel;
import dev.llb.langchain4j.LlbChatModel;
import dev.llb.langchain4j.LlbStreamingChatModel;
import dev.llb.langchain4j.LlbTokenCountEstimator;
import dev.llb.langchain4j.ModelBuilder;
import java.nio.file.Path;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;

/**
 * Opens the model of {@code langchain4j.llb.model}, unless the program has a bean {@link LlbModel},
 * and makes LangChain4j's models of it.
 */
@AutoConfiguration(afterName = "dev.llb.springai.boot.LlbAutoConfiguration")
@EnableConfigurationProperties(LlbProperties.class)
public class LlbAutoConfiguration {

    private static final String HUB = "hf:";

    /** The model with its pool of chats. {@link LlbShutdown} waits for its requests. */
    @Bean(destroyMethod = "close")
    @ConditionalOnProperty("langchain4j.llb.model")
    @ConditionalOnMissingBean
    LlbModel llbModel(LlbProperties properties) {
        return LlbModel.open(options(properties));
    }

    @Bean
    @ConditionalOnBean(LlbModel.class)
    @ConditionalOnMissingBean
    LlbChatModel llbLangChain4jChatModel(
            LlbModel model,
            LlbProperties properties,
            ObjectProvider<ChatModelListener> listeners) {
        return configured(LlbChatModel.builder(), model, properties, listeners).build();
    }

    @Bean
    @ConditionalOnBean(LlbModel.class)
    @ConditionalOnMissingBean
    LlbStreamingChatModel llbLangChain4jStreamingChatModel(
            LlbModel model,
            LlbProperties properties,
            ObjectProvider<ChatModelListener> listeners) {
        return configured(LlbStreamingChatModel.builder(), model, properties, listeners).build();
    }

    @Bean
    @ConditionalOnBean(LlbModel.class)
    @ConditionalOnMissingBean(TokenCountEstimator.class)
    LlbTokenCountEstimator llbTokenCountEstimator(LlbModel model) {
        return new LlbTokenCountEstimator(model);
    }

    @Bean
    @ConditionalOnBean(LlbModel.class)
    LlbShutdown llbLangChain4jShutdown(LlbModel model, LlbProperties properties) {
        return new LlbShutdown(model, properties.shutdownGrace());
    }

    private static <B extends ModelBuilder<B>> B configured(
            B builder,
            LlbModel model,
            LlbProperties properties,
            ObjectProvider<ChatModelListener> listeners) {
        LlbProperties.ChatModel defaults = properties.chatModel();
        builder.model(model)
                .temperature(defaults.temperature())
                .topP(defaults.topP())
                .topK(defaults.topK())
                .maxOutputTokens(defaults.maxOutputTokens())
                .logRequests(defaults.logRequests())
                .logResponses(defaults.logResponses())
                .listeners(listeners.orderedStream().toList());
        setIfPresent(builder::seed, defaults.seed());
        setIfPresent(builder::stop, defaults.stop());
        setIfPresent(builder::timeout, defaults.timeout());
        return builder;
    }

    private static ChatOptions options(LlbProperties properties) {
        ChatOptions.Builder options = ChatOptions.builder(file(properties));
        setIfPresent(options::parallel, properties.parallel());
        setIfPresent(options::contextLength, properties.contextLength());
        setIfPresent(options::threads, properties.threads());
        setIfPresent(options::gpuLayers, properties.gpuLayers());
        setIfPresent(options::toolPolicy, properties.toolPolicy());
        return options.build();
    }

    private static Path file(LlbProperties properties) {
        String model = properties.model();
        if (!model.startsWith(HUB)) {
            return Path.of(model);
        }
        String policy = properties.toolPolicy();
        return Llb.fetch(FetchRequest.builder(model.substring(HUB.length()))
                        .requireTools(policy == null || policy.equals("native"))
                        .build())
                .path();
    }

    private static <T> void setIfPresent(Function<T, ?> set, @Nullable T value) {
        if (value != null) {
            set.apply(value);
        }
    }
}
