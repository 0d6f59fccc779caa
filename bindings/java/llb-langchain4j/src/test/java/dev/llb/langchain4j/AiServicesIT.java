package dev.llb.langchain4j;

import dev.langchain4j.data.image.Image;
import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.response.ChatResponseMetadata;
import dev.langchain4j.model.output.TokenUsage;
import dev.langchain4j.service.common.AbstractAiServiceIT;
import dev.langchain4j.service.common.AbstractAiServiceWithJsonSchemaIT;
import dev.langchain4j.service.common.AbstractAiServiceWithToolsIT;
import dev.langchain4j.service.common.AbstractStreamingAiServiceIT;
import java.util.List;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.extension.ExtendWith;

/** Runs LangChain4j's tests of AI services on a scripted model. */
class AiServicesIT {

    @Nested
    @ExtendWith(Scripts.class)
    class Services extends AbstractAiServiceIT {

        @Override
        protected List<ChatModel> models() {
            return List.of(Scripts.chatModel(null));
        }

        @Override
        protected Class<? extends TokenUsage> tokenUsageType(ChatModel model) {
            return LlbTokenUsage.class;
        }
    }

    @Nested
    @ExtendWith(Scripts.class)
    class StreamingServices extends AbstractStreamingAiServiceIT {

        @Override
        protected List<StreamingChatModel> models() {
            return List.of(Scripts.streamingChatModel(null));
        }

        @Override
        protected Class<? extends ChatResponseMetadata> chatResponseMetadataType(
                StreamingChatModel model) {
            return LlbChatResponseMetadata.class;
        }

        @Override
        protected Class<? extends TokenUsage> tokenUsageType(StreamingChatModel model) {
            return LlbTokenUsage.class;
        }
    }

    @Nested
    @ExtendWith(Scripts.class)
    class WithTools extends AbstractAiServiceWithToolsIT {

        @Override
        protected List<ChatModel> models() {
            return List.of(Scripts.chatModel(null));
        }

        @Override
        protected boolean supportsRecursion() {
            return true;
        }

        /**
         * The suite would download a file. The model has no projector, so any image is refused.
         */
        @Override
        protected Image catImage() {
            return Image.builder().base64Data("AAAA").mimeType("image/png").build();
        }
    }

    @Nested
    @ExtendWith(Scripts.class)
    class WithJsonSchema extends AbstractAiServiceWithJsonSchemaIT {

        @Override
        protected List<ChatModel> models() {
            return List.of(Scripts.chatModel(null));
        }

        @Override
        protected boolean supportsRecursion() {
            return true;
        }
    }
}
