package dev.llb.langchain4j;

import dev.langchain4j.model.chat.response.ChatResponseMetadata;
import dev.llb.Timings;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The metadata of a reply, with what the library says about it and its request. */
public class LlbChatResponseMetadata extends ChatResponseMetadata {

    private final List<Object> diagnostics;
    private final List<String> ignoredKeys;
    private final @Nullable Timings timings;

    private LlbChatResponseMetadata(Builder builder) {
        super(builder);
        diagnostics = builder.diagnostics;
        ignoredKeys = builder.ignoredKeys;
        timings = builder.timings;
    }

    /** Returns a builder without values. */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * What the library says about the reply, for example that text looks like a tool call and is
     * none. Each is a map with {@code code} and {@code message}.
     */
    public List<Object> diagnostics() {
        return diagnostics;
    }

    /** The members of the request that the library does not know, such as a misspelt option. */
    public List<String> ignoredKeys() {
        return ignoredKeys;
    }

    /** How long the reply took; null only if metadata is built without it. */
    public @Nullable Timings timings() {
        return timings;
    }

    @Override
    public Builder toBuilder() {
        return (Builder) super.toBuilder(
                builder().diagnostics(diagnostics).ignoredKeys(ignoredKeys).timings(timings));
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return super.equals(other)
                && other instanceof LlbChatResponseMetadata that
                && diagnostics.equals(that.diagnostics)
                && ignoredKeys.equals(that.ignoredKeys)
                && Objects.equals(timings, that.timings);
    }

    @Override
    public int hashCode() {
        return Objects.hash(super.hashCode(), diagnostics, ignoredKeys, timings);
    }

    @Override
    public String toString() {
        return super.toString() + " with diagnostics " + diagnostics + ", ignored keys "
                + ignoredKeys + ", " + timings;
    }

    /** Builds the metadata of a reply. */
    public static class Builder extends ChatResponseMetadata.Builder<Builder> {

        private List<Object> diagnostics = List.of();
        private List<String> ignoredKeys = List.of();
        private @Nullable Timings timings;

        /** Sets the diagnostics of the reply. */
        public Builder diagnostics(List<Object> diagnostics) {
            this.diagnostics = List.copyOf(diagnostics);
            return this;
        }

        /** Sets the unknown members of the request. */
        public Builder ignoredKeys(List<String> keys) {
            ignoredKeys = List.copyOf(keys);
            return this;
        }

        /** Sets the durations. */
        public Builder timings(@Nullable Timings timings) {
            this.timings = timings;
            return this;
        }

        @Override
        public LlbChatResponseMetadata build() {
            return new LlbChatResponseMetadata(this);
        }
    }
}
