package dev.llb.springai.boot;

import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code spring.ai.llb}.
 *
 * @param model Path of a GGUF file, or hf:org/name or hf:org/name:quant for a model of the Hugging
 *     Face hub.
 * @param pullStrategy When a model of the hub is downloaded.
 * @param revision Branch, tag or commit on the hub. Default: main.
 * @param cacheDir Folder for models of the hub. Default: that of huggingface_hub.
 * @param parallel Number of chats in the pool, which are decoded together. Default: 4.
 * @param contextLength Context size in tokens. Default: that of the model, at most 8192.
 * @param threads Number of threads. Default: up to one for each physical core.
 * @param gpuLayers Number of layers on a GPU, in a build with GPU support.
 * @param backend Variant of the kernels, such as haswell. Default: the fastest found.
 * @param toolPolicy Models to accept: native, polyfill or any. Default: native.
 * @param strictRequests Whether a request with an unknown option fails.
 * @param options Other options of the model, by the library's names.
 * @param shutdownGrace How long a shutdown waits for running requests before it cancels them.
 * @param chat Default options of requests.
 * @param embedding The model for vectors of texts.
 */
@ConfigurationProperties("spring.ai.llb")
public record LlbProperties(
        @Nullable String model,
        @DefaultValue("when-missing") PullStrategy pullStrategy,
        @Nullable String revision,
        @Nullable Path cacheDir,
        @Nullable Integer parallel,
        @Nullable Integer contextLength,
        @Nullable Integer threads,
        @Nullable Integer gpuLayers,
        @Nullable String backend,
        @Nullable String toolPolicy,
        @DefaultValue("false") boolean strictRequests,
        @Nullable Map<String, Object> options,
        @DefaultValue("20s") Duration shutdownGrace,
        @DefaultValue Chat chat,
        @DefaultValue Embedding embedding) {

    /** When a model of the hub is downloaded. */
    public enum PullStrategy {

        /** At each start, if the hub has a newer revision than the cache. */
        ALWAYS,

        /** If it is not in the cache. */
        WHEN_MISSING,

        /** Never. A model that is not in the cache is an error. */
        NEVER
    }

    /**
     * Default options of requests.
     *
     * @param temperature Sampling temperature. 0 is greedy.
     * @param topP Samples from the most likely tokens with this total probability.
     * @param topK Samples from this many of the most likely tokens.
     * @param minP Drops tokens less likely than this times the most likely one.
     * @param frequencyPenalty Penalty that grows with each occurrence of a token.
     * @param presencePenalty Penalty of tokens that occur.
     * @param maxTokens Maximum number of tokens to generate. Default: what fits the context.
     * @param stopSequences Texts that end a reply.
     * @param seed Seed of the sampler. Default: random.
     * @param enableThinking Whether the model reasons, if its template supports the choice.
     * @param reasoningBudget Maximum number of tokens in each reasoning block. -1 is no limit.
     * @param parallelToolCalls Whether a reply may have more than one tool call. Default: true.
     * @param options Other members of requests, by the library's names.
     */
    public record Chat(
            @Nullable Double temperature,
            @Nullable Double topP,
            @Nullable Integer topK,
            @Nullable Double minP,
            @Nullable Double frequencyPenalty,
            @Nullable Double presencePenalty,
            @Nullable Integer maxTokens,
            @Nullable List<String> stopSequences,
            @Nullable Long seed,
            @Nullable Boolean enableThinking,
            @Nullable Integer reasoningBudget,
            @Nullable Boolean parallelToolCalls,
            @Nullable Map<String, Object> options) {}

    /**
     * The model for vectors of texts.
     *
     * @param model Path of a GGUF file, or hf:org/name. No vectors if it is not set.
     * @param prefix Text before each text, such as "query: ".
     * @param pooling How the vectors of tokens become one: mean, cls or last. Default: the file's.
     * @param contextLength The most tokens of a text. Default: that of the model, at most 8192.
     * @param options Other options of the model, by the library's names.
     */
    public record Embedding(
            @Nullable String model,
            @DefaultValue("") String prefix,
            @Nullable String pooling,
            @Nullable Integer contextLength,
            @Nullable Map<String, Object> options) {}

    /**
     * Converts the options to the types that the library expects. The values of properties are
     * text, where the library expects numbers and booleans. The names of properties have hyphens,
     * where the library's names have underscores.
     */
    static Map<String, Object> typed(@Nullable Map<?, ?> values) {
        Map<String, Object> typed = new LinkedHashMap<>();
        if (values != null) {
            values.forEach((name, value) ->
                    typed.put(String.valueOf(name).replace('-', '_'), typed(value)));
        }
        return typed;
    }

    private static Object typed(Object value) {
        if (value instanceof Map<?, ?> map) {
            return list(typed(map));
        }
        if (!(value instanceof String text)) {
            return value;
        }
        if (text.equals("true") || text.equals("false")) {
            return Boolean.valueOf(text);
        }
        if (text.matches("-?\\d{1,18}")) {
            return Long.valueOf(text);
        }
        return text.matches("-?\\d+(\\.\\d+)?([eE][-+]?\\d+)?") ? Double.valueOf(text) : value;
    }

    /** A list is bound to a map from "0", "1" and so on. */
    private static Object list(Map<String, Object> map) {
        int index = 0;
        for (String name : map.keySet()) {
            if (!name.equals(String.valueOf(index++))) {
                return map;
            }
        }
        return map.isEmpty() ? map : List.copyOf(map.values());
    }
}
