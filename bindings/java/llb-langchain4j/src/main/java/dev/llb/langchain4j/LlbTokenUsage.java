package dev.llb.langchain4j;

import dev.langchain4j.model.output.TokenUsage;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The number of tokens, and how many of the input came from the KV cache. */
public class LlbTokenUsage extends TokenUsage {

    private final @Nullable Integer cachedTokens;

    /** {@code cachedTokens} is a part of {@code inputTokens}; each may be null. */
    public LlbTokenUsage(
            @Nullable Integer inputTokens,
            @Nullable Integer outputTokens,
            @Nullable Integer totalTokens,
            @Nullable Integer cachedTokens) {
        super(inputTokens, outputTokens, totalTokens);
        this.cachedTokens = cachedTokens;
    }

    /** The tokens of the input that were taken from the KV cache, or null. */
    public @Nullable Integer cachedTokens() {
        return cachedTokens;
    }

    @Override
    public LlbTokenUsage add(@Nullable TokenUsage that) {
        if (that == null) {
            return this;
        }
        Integer cached = that instanceof LlbTokenUsage usage ? usage.cachedTokens : null;
        return new LlbTokenUsage(
                sum(inputTokenCount(), that.inputTokenCount()),
                sum(outputTokenCount(), that.outputTokenCount()),
                sum(totalTokenCount(), that.totalTokenCount()),
                sum(cachedTokens, cached));
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return super.equals(other)
                && other instanceof LlbTokenUsage that
                && Objects.equals(cachedTokens, that.cachedTokens);
    }

    @Override
    public int hashCode() {
        return 31 * super.hashCode() + Objects.hashCode(cachedTokens);
    }

    @Override
    public String toString() {
        return "LlbTokenUsage{inputTokenCount=" + inputTokenCount()
                + ", outputTokenCount=" + outputTokenCount()
                + ", totalTokenCount=" + totalTokenCount()
                + ", cachedTokens=" + cachedTokens + "}";
    }
}
