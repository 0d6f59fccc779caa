package dev.llb.langchain4j;

import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import java.util.Objects;
import java.util.concurrent.Executor;
import org.jspecify.annotations.Nullable;

/**
 * Like {@link LlbChatModel}, but passes on pieces of the reply as they are generated: text,
 * thinking and tool calls.
 *
 * <p>{@code chat} returns at once. The handler is called on another thread, one for each request.
 * The generation waits while the handler runs. A handler's {@code StreamingHandle} cancels; after
 * that the handler is not called again.
 */
public final class LlbStreamingChatModel extends LocalModel implements StreamingChatModel {

    private final @Nullable Executor executor;

    private LlbStreamingChatModel(Builder builder) {
        super(builder);
        executor = builder.executor;
    }

    /** Returns an empty builder. */
    public static Builder builder() {
        return new Builder();
    }

    @Override
    public void doChat(ChatRequest request, StreamingChatResponseHandler handler) {
        dev.llb.ChatRequest converted = open.convert(request);
        new StreamingCall(open, converted, handler).start(executor);
    }

    /** Builds {@link LlbStreamingChatModel}. Not thread-safe. */
    public static final class Builder extends ModelBuilder<Builder> {

        private @Nullable Executor executor;

        private Builder() {}

        @Override
        Builder self() {
            return this;
        }

        /**
         * Runs the requests, each on one thread, which also waits for a free chat. Default: a new
         * daemon thread for each one that runs; one that waits holds no thread.
         */
        public Builder executor(Executor executor) {
            this.executor = Objects.requireNonNull(executor, "executor");
            return this;
        }

        /** Opens the model. Blocks until it is loaded. */
        public LlbStreamingChatModel build() {
            return new LlbStreamingChatModel(this);
        }
    }
}
