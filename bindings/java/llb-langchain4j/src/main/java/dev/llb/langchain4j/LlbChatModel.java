package dev.llb.langchain4j;

import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.llb.LlbException;

/**
 * A local model for LangChain4j. Must be closed, unless its {@link dev.llb.LlbModel} was given.
 *
 * <p>May be used by any number of threads; {@link dev.llb.LlbModel} says how many requests run
 * together. Failures are LangChain4j's exceptions with an {@link LlbException} as cause. A part of
 * a request that llb cannot carry, such as an image, is an {@code UnsupportedFeatureException}.
 */
public final class LlbChatModel extends LocalModel implements ChatModel {

    private LlbChatModel(Builder builder) {
        super(builder);
    }

    /** Returns an empty builder. */
    public static Builder builder() {
        return new Builder();
    }

    @Override
    public ChatResponse doChat(ChatRequest request) {
        dev.llb.ChatRequest converted = open.convert(request);
        try {
            return Replies.convert(open.model().infer(converted), open.name());
        } catch (LlbException e) {
            throw Replies.failure(e);
        }
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
