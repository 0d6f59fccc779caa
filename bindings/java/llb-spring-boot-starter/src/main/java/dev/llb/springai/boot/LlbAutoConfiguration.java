package dev.llb.springai.boot;

import dev.llb.ChatOptions;
import dev.llb.LlbModel;
import dev.llb.springai.LlbChatModel;
import dev.llb.springai.LlbChatOptions;
import io.micrometer.observation.ObservationRegistry;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.springframework.ai.chat.observation.ChatModelObservationConvention;
import org.springframework.ai.model.SpringAIModelProperties;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;

/** Opens the model of {@code spring.ai.llb.model} and makes it a {@code ChatModel}. */
@AutoConfiguration(
        beforeName =
                "org.springframework.ai.model.chat.client.autoconfigure.ChatClientAutoConfiguration")
@ConditionalOnProperty(
        name = SpringAIModelProperties.CHAT_MODEL,
        havingValue = "llb",
        matchIfMissing = true)
@EnableConfigurationProperties(LlbProperties.class)
public class LlbAutoConfiguration {

    /** The model with its pool of chats. {@link LlbShutdown} closes it earlier. */
    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean
    LlbModel llbModel(LlbProperties properties) {
        return LlbModel.open(options(properties));
    }

    @Bean
    @ConditionalOnMissingBean
    LlbChatModel llbChatModel(
            LlbModel model,
            LlbProperties properties,
            ObjectProvider<ObservationRegistry> registry,
            ObjectProvider<ChatModelObservationConvention> convention) {
        LlbChatModel.Builder builder =
                LlbChatModel.builder(model).options(chatOptions(properties.chat()));
        registry.ifUnique(builder::observationRegistry);
        convention.ifUnique(builder::observationConvention);
        return builder.build();
    }

    @Bean
    LlbShutdown llbShutdown(LlbModel model, LlbProperties properties) {
        return new LlbShutdown(model, properties.shutdownGrace());
    }

    private static ChatOptions options(LlbProperties properties) {
        Map<String, Object> values = LlbProperties.typed(properties.options());
        if (properties.model() != null && !properties.model().isBlank()) {
            values.put("model", ModelFile.find(properties.model(), properties).toString());
        } else if (!values.containsKey("engine")) {
            throw new IllegalStateException("spring.ai.llb.model is not set: it must be the path of"
                    + " a GGUF file, or hf:org/name for a model of the Hugging Face hub");
        }
        put(values, "n_parallel", properties.parallel());
        put(values, "n_ctx", properties.contextLength());
        put(values, "n_threads", properties.threads());
        put(values, "n_gpu_layers", properties.gpuLayers());
        put(values, "backend", properties.backend());
        put(values, "tool_policy", properties.toolPolicy());
        ChatOptions.Builder options =
                ChatOptions.builder().strictRequests(properties.strictRequests());
        values.forEach(options::set);
        return options.build();
    }

    private static void put(Map<String, Object> values, String name, @Nullable Object value) {
        if (value != null) {
            values.put(name, value);
        }
    }

    private static LlbChatOptions chatOptions(LlbProperties.Chat chat) {
        LlbChatOptions.Builder builder = LlbChatOptions.builder()
                .temperature(chat.temperature())
                .topP(chat.topP())
                .topK(chat.topK())
                .frequencyPenalty(chat.frequencyPenalty())
                .presencePenalty(chat.presencePenalty())
                .maxTokens(chat.maxTokens())
                .stopSequences(chat.stopSequences());
        LlbProperties.typed(chat.options()).forEach(builder::option);
        option(builder, "min_p", chat.minP());
        option(builder, "seed", chat.seed());
        option(builder, "enable_thinking", chat.enableThinking());
        option(builder, "reasoning_budget", chat.reasoningBudget());
        option(builder, "parallel_tool_calls", chat.parallelToolCalls());
        return builder.build();
    }

    private static void option(
            LlbChatOptions.Builder builder, String name, @Nullable Object value) {
        if (value != null) {
            builder.option(name, value);
        }
    }
}
