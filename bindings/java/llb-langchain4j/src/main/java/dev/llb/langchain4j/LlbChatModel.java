package dev.llb.langchain4j;

import dev.langchain4j.model.ModelProvider;
import dev.langchain4j.model.chat.Capability;
import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.llb.LlbException;
import java.util.List;
import java.util.Set;

/**
 * A local model for LangChain4j. Must be closed, unless its {@link dev.llb.LlbModel} was given.
 *
 * <p>May be used by any number of threads; {@link dev.llb.LlbModel} says how many requests run
 * together. Failures are LangChain4j's exceptions with an {@link LlbException} as cause. A part of
 * a request that llb cannot carry, such as an image, is an {@code UnsupportedFeatureException}.
 */
public final class LlbChatModel implements ChatModel, AutoCloseable {

    private final ModelBuilder.OpenModel open;

    private LlbChatModel(Builder builder) {
        open = builder.open();
    }

    /** Returns an empty builder. */
    public static Builder builder() {
        return new Builder();
    }

    @Override
    public ChatResponse doChat(ChatRequest request) {
        dev.llb.ChatRequest converted = Requests.convert(request, open.name());
        try {
            return Replies.convert(open.model().infer(converted), open.name());
        } catch (LlbException e) {
            throw Replies.failure(e);
        }
    }

    @Override
    public LlbChatRequestParameters defaultRequestParameters() {
        return open.defaults();
    }

    @Override
    public List<ChatModelListener> listeners() {
        return open.listeners();
    }

    @Override
    public ModelProvider provider() {
        return ModelProvider.OTHER;
    }

    /** A JSON schema is enforced while the reply is generated. */
    @Override
    public Set<Capability> supportedCapabilities() {
        return Set.of(Capability.RESPONSE_FORMAT_JSON_SCHEMA);
    }

    /** Closes the model if it was opened by the builder. Idempotent. */
    @Override
    public void close() {
        open.close();
    }

    /** Builds {@link LlbChatModel}. Not thread-safe. */
    public static final class Builder extends ModelBuilder<Builder> {

        private Builder() {}

        @Override
        Builder self() {
            return this;
        }

        /** Opens the model. Blocks until it is loaded. */
        public LlbChatModel build() {
            return new LlbChatModel(this);
        }
    }
}
