package dev.llb.langchain4j;

import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import org.junit.jupiter.api.extension.ExtendWith;

/** Runs LangChain4j's tests of chat models on a scripted model. */
@ExtendWith(Scripts.class)
class LlbChatModelIT extends ChatModelSuite {

    @Override
    ChatModel open(ChatRequestParameters parameters) {
        return Scripts.chatModel(parameters);
    }
}
