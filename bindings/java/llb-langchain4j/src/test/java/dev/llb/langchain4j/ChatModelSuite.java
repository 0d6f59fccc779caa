package dev.llb.langchain4j;

import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.common.AbstractChatModelIT;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.langchain4j.model.chat.response.ChatResponseMetadata;
import dev.langchain4j.model.output.TokenUsage;
import java.util.List;

/** LangChain4j's suite of chat models, with what it has to know of llb. */
abstract class ChatModelSuite extends AbstractChatModelIT {

    /** The model under test. {@code parameters} are its defaults, or null. */
    abstract ChatModel open(ChatRequestParameters parameters);

    @Override
    protected List<ChatModel> models() {
        return List.of(open(null));
    }

    @Override
    protected ChatModel createModelWith(ChatRequestParameters parameters) {
        return open(parameters);
    }

    @Override
    protected ChatRequestParameters createIntegrationSpecificParameters(int maxOutputTokens) {
        return LlbChatRequestParameters.builder().maxOutputTokens(maxOutputTokens).build();
    }

    /**
     * A model is a single file, so its name cannot be changed. The suite checks that this is
     * refused.
     */
    @Override
    protected boolean supportsModelNameParameter() {
        return false;
    }

    /** The models of the suite have no projector. The suite checks that images are refused. */
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
    protected Class<? extends ChatResponseMetadata> chatResponseMetadataType(ChatModel model) {
        return LlbChatResponseMetadata.class;
    }

    @Override
    protected Class<? extends TokenUsage> tokenUsageType(ChatModel model) {
        return LlbTokenUsage.class;
    }
}
