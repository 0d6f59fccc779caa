package dev.llb.langchain4j;

import dev.langchain4j.model.ModelProvider;
import dev.langchain4j.model.chat.Capability;
import dev.langchain4j.model.chat.listener.ChatModelListener;
import java.util.List;
import java.util.Set;

/** What both chat models tell of themselves. */
abstract sealed class LocalModel implements AutoCloseable
        permits LlbChatModel, LlbStreamingChatModel {

    final ModelBuilder.OpenModel open;

    LocalModel(ModelBuilder<?> builder) {
        open = builder.open();
    }

    /** The parameters of requests that leave them out. */
    public LlbChatRequestParameters defaultRequestParameters() {
        return open.defaults();
    }

    /** The listeners of requests, responses and errors. */
    public List<ChatModelListener> listeners() {
        return open.listeners();
    }

    /** Other: LangChain4j does not list llb. */
    public ModelProvider provider() {
        return ModelProvider.OTHER;
    }

    /** A JSON schema is enforced while the reply is generated. */
    public Set<Capability> supportedCapabilities() {
        return Set.of(Capability.RESPONSE_FORMAT_JSON_SCHEMA);
    }

    /**
     * Cancels the running requests and closes the model, if it was opened by the builder.
     * Idempotent.
     */
    @Override
    public void close() {
        open.close();
    }
}
