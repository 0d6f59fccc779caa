package dev.llb.langchain4j;

import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.langchain4j.model.chat.request.DefaultChatRequestParameters;
import java.time.Duration;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** LangChain4j's request parameters, plus all parameters of llb under the library's names. */
public class LlbChatRequestParameters extends DefaultChatRequestParameters {

    private final Map<String, Object> options;

    private LlbChatRequestParameters(Builder builder) {
        super(builder);
        options = Collections.unmodifiableMap(new LinkedHashMap<>(builder.options));
    }

    /** Returns an empty builder. */
    public static Builder builder() {
        return new Builder();
    }

    /** Members of the request by the library's names, such as {@code min_p}; may be empty. */
    public Map<String, Object> options() {
        return options;
    }

    @Override
    public LlbChatRequestParameters overrideWith(ChatRequestParameters that) {
        return builder().overrideWith(this).overrideWith(that).build();
    }

    @Override
    public LlbChatRequestParameters defaultedBy(ChatRequestParameters that) {
        return builder().overrideWith(that).overrideWith(this).build();
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return super.equals(other)
                && other instanceof LlbChatRequestParameters that
                && options.equals(that.options);
    }

    @Override
    public int hashCode() {
        return 31 * super.hashCode() + options.hashCode();
    }

    @Override
    public String toString() {
        return "LlbChatRequestParameters{" + super.toString() + ", options=" + options + "}";
    }

    /** Builds {@link LlbChatRequestParameters}. Not thread-safe. */
    public static class Builder extends DefaultChatRequestParameters.Builder<Builder> {

        private final Map<String, Object> options = new LinkedHashMap<>();

        private Builder() {}

        @Override
        public Builder overrideWith(ChatRequestParameters parameters) {
            super.overrideWith(parameters);
            if (parameters instanceof LlbChatRequestParameters that) {
                options.putAll(that.options);
            }
            return this;
        }

        /** Sets any member of the request by the library's name. */
        public Builder option(String name, Object value) {
            options.put(Objects.requireNonNull(name, "name"), value);
            return this;
        }

        /** The seed of the sampler, 0 to 4294967295. Default: random. */
        public Builder seed(long seed) {
            return option("seed", seed);
        }

        /** Ends the request after this time. The reply has the output so far. */
        public Builder timeout(Duration timeout) {
            return option("timeout_ms", timeout.toMillis());
        }

        /** Drops tokens less likely than {@code p} times the most likely one. */
        public Builder minP(double p) {
            return option("min_p", p);
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

        @Override
        public LlbChatRequestParameters build() {
            return new LlbChatRequestParameters(this);
        }
    }
}
