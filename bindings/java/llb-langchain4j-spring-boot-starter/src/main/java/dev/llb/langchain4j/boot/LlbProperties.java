package dev.llb.langchain4j.boot;

import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code langchain4j.llb}. A program that needs other options of the model defines
 * the bean {@link dev.llb.LlbModel} itself.
 *
 * @param model Path of a GGUF file, or hf:org/name or hf:org/name:quant for a model of the Hugging
 *     Face hub. No model if it is not set.
 * @param parallel Number of chats in the pool, which are decoded together. Default: 4.
 * @param contextLength Context size in tokens. Default: that of the model, at most 8192.
 * @param threads Number of threads. Default: up to one for each physical core.
 * @param gpuLayers Number of layers on a GPU, in a build with GPU support.
 * @param toolPolicy Models to accept: native, polyfill or any. Default: native.
 * @param shutdownGrace How long a shutdown waits for running requests before it cancels them.
 * @param chatModel Default parameters of requests, and logs.
 */
@ConfigurationProperties("langchain4j.llb")
public record LlbProperties(
        @Nullable String model,
        @Nullable Integer parallel,
        @Nullable Integer contextLength,
        @Nullable Integer threads,
        @Nullable Integer gpuLayers,
        @Nullable String toolPolicy,
        @DefaultValue("20s") Duration shutdownGrace,
        @DefaultValue ChatModel chatModel) {

    /**
     * Default parameters of requests, and logs.
     *
     * @param temperature Sampling temperature. 0 is greedy.
     * @param topP Samples from the most likely tokens with this total probability.
     * @param topK Samples from this many of the most likely tokens.
     * @param seed Seed of the sampler. Default: random.
     * @param maxOutputTokens Maximum number of tokens to generate. Default: what fits the context.
     * @param stop Texts that end a reply.
     * @param timeout Time after which a request ends. The reply has the output so far.
     * @param logRequests Whether requests are logged, with the whole conversation.
     * @param logResponses Whether responses and failures are logged.
     */
    public record ChatModel(
            @Nullable Double temperature,
            @Nullable Double topP,
            @Nullable Integer topK,
            @Nullable Long seed,
            @Nullable Integer maxOutputTokens,
            @Nullable List<String> stop,
            @Nullable Duration timeout,
            @DefaultValue("false") boolean logRequests,
            @DefaultValue("false") boolean logResponses) {}
}
