package dev.llb.langchain4j;

import dev.langchain4j.model.ModelProvider;
import dev.langchain4j.model.chat.Capability;
import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Executor;

/**
 * As {@link LlbChatModel}, but passes pieces of the reply as they are generated: text, thinking and
 * tool calls.
 *
 * <p>{@code chat} returns at once. The handler is called on another thread, one for each request,
 * and slows the generation while it works. A handler's {@code StreamingHandle} cancels; after that
 * the handler is not called again.
 */
public final class LlbStreamingChatModel implements StreamingChatModel, AutoCloseable {

    private final ModelBuilder.OpenModel open;
    private final Executor executor;

    private LlbStreamingChatModel(Builder builder) {
        open = builder.open();
        executor = builder.executor;
    }

    /** Returns an empty builder. */
    public static Builder builder() {
        return new Builder();
    }

    @Override
    public void doChat(ChatRequest request, StreamingChatResponseHandler handler) {
        dev.llb.ChatRequest converted = Requests.convert(request, open.name());
        executor.execute(new StreamingCall(open, converted, handler));
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

    /** Cancels the running requests, and closes the model if it was opened by the builder. */
    @Override
    public void close() {
        open.close();
    }

    /** Builds {@link LlbStreamingChatModel}. Not thread-safe. */
    public static final class Builder extends ModelBuilder<Builder> {

        private Executor executor = task -> {
            Thread thread = new Thread(task, "llb-stream");
            thread.setDaemon(true);
            thread.start();
        };

        private Builder() {}

        @Override
        Builder self() {
            return this;
        }

        /** Runs the requests, each on one thread. Default: a new daemon thread for each. */
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
