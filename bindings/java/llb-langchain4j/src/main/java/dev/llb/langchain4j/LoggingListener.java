package dev.llb.langchain4j;

import dev.langchain4j.model.chat.listener.ChatModelErrorContext;
import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.langchain4j.model.chat.listener.ChatModelRequestContext;
import dev.langchain4j.model.chat.listener.ChatModelResponseContext;

/** Logs whole requests and responses, if the program asks for that. */
final class LoggingListener implements ChatModelListener {

    private static final System.Logger LOGGER = System.getLogger("dev.llb.langchain4j");

    private final boolean requests;
    private final boolean responses;

    LoggingListener(boolean requests, boolean responses) {
        this.requests = requests;
        this.responses = responses;
    }

    @Override
    public void onRequest(ChatModelRequestContext context) {
        if (requests) {
            LOGGER.log(System.Logger.Level.INFO, "request: " + context.chatRequest());
        }
    }

    @Override
    public void onResponse(ChatModelResponseContext context) {
        if (responses) {
            LOGGER.log(System.Logger.Level.INFO, "response: " + context.chatResponse());
        }
    }

    @Override
    public void onError(ChatModelErrorContext context) {
        if (responses) {
            LOGGER.log(System.Logger.Level.INFO, "failure: " + context.error());
        }
    }
}
