package dev.llb.langchain4j;

import dev.langchain4j.exception.InvalidRequestException;
import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.common.AbstractChatModelListenerIT;
import dev.langchain4j.model.chat.common.AbstractStreamingChatModelListenerIT;
import dev.langchain4j.model.chat.listener.ChatModelListener;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.extension.ExtendWith;

/** Runs LangChain4j's tests of listeners on a scripted model. */
class ListenersIT {

    private static LlbChatRequestParameters parameters() {
        return LlbChatRequestParameters.builder()
                .temperature(0.7)
                .topP(1.0)
                .maxOutputTokens(7)
                .build();
    }

    /** A request that the library refuses. */
    private static LlbChatRequestParameters failing() {
        return LlbChatRequestParameters.builder().topP(-5.0).build();
    }

    @Nested
    @ExtendWith(Scripts.class)
    class OfChatModel extends AbstractChatModelListenerIT {

        @Override
        protected ChatModel createModel(ChatModelListener listener) {
            return Scripts.chatModel(parameters(), listener);
        }

        @Override
        protected String modelName() {
            return "scripted";
        }

        @Override
        protected ChatModel createFailingModel(ChatModelListener listener) {
            return Scripts.chatModel(failing(), listener);
        }

        @Override
        protected Class<? extends Exception> expectedExceptionClass() {
            return InvalidRequestException.class;
        }
    }

    @Nested
    @ExtendWith(Scripts.class)
    class OfStreamingChatModel extends AbstractStreamingChatModelListenerIT {

        @Override
        protected StreamingChatModel createModel(ChatModelListener listener) {
            return Scripts.streamingChatModel(parameters(), listener);
        }

        @Override
        protected String modelName() {
            return "scripted";
        }

        @Override
        protected StreamingChatModel createFailingModel(ChatModelListener listener) {
            return Scripts.streamingChatModel(failing(), listener);
        }

        @Override
        protected Class<? extends Exception> expectedExceptionClass() {
            return InvalidRequestException.class;
        }
    }
}
