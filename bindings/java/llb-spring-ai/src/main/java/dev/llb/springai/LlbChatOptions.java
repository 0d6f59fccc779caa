package dev.llb.springai;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.springframework.ai.chat.prompt.ChatOptions;
import org.springframework.ai.model.tool.DefaultToolCallingChatOptions;
import org.springframework.ai.model.tool.StructuredOutputChatOptions;
import org.springframework.ai.model.tool.ToolCallingChatOptions;

/** Spring AI's portable options, plus all options of llb under the library's names. */
public class LlbChatOptions extends DefaultToolCallingChatOptions
        implements StructuredOutputChatOptions {

    private final @Nullable String outputSchema;
    private final Map<String, Object> options;

    private LlbChatOptions(Builder builder, ToolCallingChatOptions portable) {
        super(
                portable.getToolCallbacks(),
                portable.getToolContext(),
                portable.getModel(),
                portable.getFrequencyPenalty(),
                portable.getMaxTokens(),
                portable.getPresencePenalty(),
                portable.getStopSequences(),
                portable.getTemperature(),
                portable.getTopK(),
                portable.getTopP());
        outputSchema = builder.outputSchema;
        options = Collections.unmodifiableMap(new LinkedHashMap<>(builder.options));
    }

    /** Returns an empty builder. */
    public static Builder builder() {
        return new Builder();
    }

    /** The JSON schema of the text, as JSON, or null. */
    @Override
    public @Nullable String getOutputSchema() {
        return outputSchema;
    }

    /** Members of the request by the library's names, such as {@code min_p}; may be empty. */
    public Map<String, Object> getOptions() {
        return options;
    }

    @Override
    public Builder mutate() {
        return builder().set(this);
    }

    /** These options, replaced by those that are set in {@code that}. */
    LlbChatOptions overriddenBy(ChatOptions that) {
        return mutate().set(that).build();
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return super.equals(other)
                && other instanceof LlbChatOptions that
                && Objects.equals(outputSchema, that.outputSchema)
                && options.equals(that.options);
    }

    @Override
    public int hashCode() {
        return Objects.hash(super.hashCode(), outputSchema, options);
    }

    /** Builds {@link LlbChatOptions}. Not thread-safe. */
    public static final class Builder extends DefaultToolCallingChatOptions.Builder<Builder>
            implements StructuredOutputChatOptions.Builder<Builder> {

        private @Nullable String outputSchema;
        private Map<String, Object> options = new LinkedHashMap<>();

        private Builder() {}

        /** Sets any member of the request by the library's name. */
        public Builder option(String name, Object value) {
            options.put(Objects.requireNonNull(name, "name"), value);
            return this;
        }

        /** The seed of the sampler, 0 to 4294967295. Default: random. */
        public Builder seed(long seed) {
            return option("seed", seed);
        }

        /** Drops tokens less likely than {@code p} times the most likely one. */
        public Builder minP(double p) {
            return option("min_p", p);
        }

        /**
         * {@code auto}, {@code none} or {@code required}. A forced call holds until the conversation
         * has the results of a tool after its last user message, so that a tool loop ends.
         */
        public Builder toolChoice(String choice) {
            return option("tool_choice", choice);
        }

        /** Whether a reply may have more than one tool call. Default: true. */
        public Builder parallelToolCalls(boolean allowed) {
            return option("parallel_tool_calls", allowed);
        }

        /** Switches reasoning on or off, if the template supports it. */
        public Builder enableThinking(boolean thinking) {
            return option("enable_thinking", thinking);
        }

        /** The maximum number of tokens in each reasoning block. -1 is no limit. */
        public Builder reasoningBudget(int tokens) {
            return option("reasoning_budget", tokens);
        }

        /** Constrains the text to JSON that satisfies this JSON schema. */
        @Override
        public Builder outputSchema(@Nullable String schema) {
            outputSchema = schema;
            return this;
        }

        @Override
        public Builder clone() {
            Builder copy = super.clone();
            copy.options = new LinkedHashMap<>(options);
            return copy;
        }

        @Override
        public Builder combineWith(ChatOptions.Builder<?> other) {
            super.combineWith(other);
            setOwn(other.build());
            return this;
        }

        /**
         * Copies the options that are set in {@code that}. Unlike {@link #combineWith}, replaces
         * lists instead of appending to them.
         */
        private Builder set(ChatOptions that) {
            model = that.getModel() != null ? that.getModel() : model;
            frequencyPenalty = that.getFrequencyPenalty() != null
                    ? that.getFrequencyPenalty()
                    : frequencyPenalty;
            maxTokens = that.getMaxTokens() != null ? that.getMaxTokens() : maxTokens;
            presencePenalty = that.getPresencePenalty() != null
                    ? that.getPresencePenalty()
                    : presencePenalty;
            if (that.getStopSequences() != null) {
                stopSequences(that.getStopSequences());
            }
            temperature = that.getTemperature() != null ? that.getTemperature() : temperature;
            topK = that.getTopK() != null ? that.getTopK() : topK;
            topP = that.getTopP() != null ? that.getTopP() : topP;
            if (that instanceof ToolCallingChatOptions tools) {
                if (tools.getToolCallbacks() != null) {
                    toolCallbacks(tools.getToolCallbacks());
                }
                if (tools.getToolContext() != null) {
                    toolContext(tools.getToolContext());
                }
            }
            setOwn(that);
            return this;
        }

        private void setOwn(ChatOptions that) {
            if (that instanceof StructuredOutputChatOptions structured
                    && structured.getOutputSchema() != null) {
                outputSchema = structured.getOutputSchema();
            }
            if (that instanceof LlbChatOptions own) {
                options.putAll(own.options);
            }
        }

        @Override
        public LlbChatOptions build() {
            return new LlbChatOptions(this, super.build());
        }
    }
}
