package dev.llb.langchain4j;

import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.common.AbstractChatModelIT;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.langchain4j.model.output.TokenUsage;
import java.util.List;
import org.junit.jupiter.api.extension.ExtendWith;

/** LangChain4j's suite of chat models, on a scripted model. */
@ExtendWith(Scripts.class)
class LlbChatModelIT extends AbstractChatModelIT {

    @Override
    protected List<ChatModel> models() {
        return List.of(Scripts.chatModel(null));
    }

    @Override
    protected ChatModel createModelWith(ChatRequestParameters parameters) {
        return Scripts.chatModel(parameters);
    }

    @Override
    protected ChatRequestParameters createIntegrationSpecificParameters(int maxOutputTokens) {
        return LlbChatRequestParameters.builder().maxOutputTokens(maxOutputTokens).build();
    }

    /** A model is one file, so its name cannot be changed. The suite checks that it is refused. */
    @Override
    protected boolean supportsModelNameParameter() {
        return false;
    }

    /** llb has no images. The suite checks that they are refused. */
    @Override
    protected boolean supportsSingleImageInputAsBase64EncodedString() {
        return false;
    }

    /** As above. */
    @Override
    protected boolean supportsSingleImageInputAsPublicURL() {
        return false;
    }

    @Override
    protected Class<? extends TokenUsage> tokenUsageType(ChatModel model) {
        return LlbTokenUsage.class;
    }
}
