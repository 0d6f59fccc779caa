package dev.llb.langchain4j;

import dev.langchain4j.model.chat.response.ChatResponseMetadata;
import java.util.List;
import java.util.Objects;

/** The metadata of a reply, with the diagnostics of the library. */
public class LlbChatResponseMetadata extends ChatResponseMetadata {

    private final List<Object> diagnostics;

    private LlbChatResponseMetadata(Builder builder) {
        super(builder);
        this.diagnostics = builder.diagnostics;
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

    @Override
    public Builder toBuilder() {
        return (Builder) super.toBuilder(builder().diagnostics(diagnostics));
    }

    @Override
    public boolean equals(Object other) {
        return super.equals(other)
                && other instanceof LlbChatResponseMetadata that
                && diagnostics.equals(that.diagnostics);
    }

    @Override
    public int hashCode() {
        return Objects.hash(super.hashCode(), diagnostics);
    }

    @Override
    public String toString() {
        return super.toString() + " with diagnostics " + diagnostics;
    }

    /** Builds the metadata of a reply. */
    public static class Builder extends ChatResponseMetadata.Builder<Builder> {

        private List<Object> diagnostics = List.of();

        /** Sets the diagnostics of the reply. */
        public Builder diagnostics(List<Object> diagnostics) {
            this.diagnostics = List.copyOf(diagnostics);
            return this;
        }

        @Override
        public LlbChatResponseMetadata build() {
            return new LlbChatResponseMetadata(this);
        }
    }
}
