package dev.llb.langchain4j;

import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.argThat;
import static org.mockito.Mockito.atLeast;

import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.common.AbstractStreamingChatModelIT;
import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.langchain4j.model.chat.response.ChatResponseMetadata;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.output.TokenUsage;
import java.util.List;
import org.junit.jupiter.api.extension.ExtendWith;
import org.mockito.InOrder;

/** Runs LangChain4j's tests of streaming chat models on a scripted model. */
@ExtendWith(Scripts.class)
class LlbStreamingChatModelIT extends AbstractStreamingChatModelIT {

    @Override
    protected List<StreamingChatModel> models() {
        return List.of(Scripts.streamingChatModel(null));
    }

    @Override
    protected StreamingChatModel createModelWith(ChatRequestParameters parameters) {
        return Scripts.streamingChatModel(parameters);
    }

    @Override
    public StreamingChatModel createModelWith(ChatModelListener listener) {
        return Scripts.streamingChatModel(null, listener);
    }

    @Override
    protected ChatRequestParameters createIntegrationSpecificParameters(int maxOutputTokens) {
        return LlbChatRequestParameters.builder().maxOutputTokens(maxOutputTokens).build();
    }

    /** See {@link ChatModelSuite}. */
    @Override
    protected boolean supportsModelNameParameter() {
        return false;
    }

    /** See {@link ChatModelSuite}. */
    @Override
    protected boolean supportsSingleImageInputAsBase64EncodedString() {
        return false;
    }

    /** See {@link ChatModelSuite}. */
    @Override
    protected boolean supportsSingleImageInputAsPublicURL() {
        return false;
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

    @Override
    protected void verifyToolCallbacks(StreamingChatResponseHandler handler, InOrder io,
            String id) {
        verifyCall(handler, io, 0, id);
    }

    @Override
    protected void verifyToolCallbacks(
            StreamingChatResponseHandler handler, InOrder io, String id1, String id2) {
        verifyCall(handler, io, 0, id1);
        verifyCall(handler, io, 1, id2);
    }

    /** A call is complete after its own pieces and before those of the next call. */
    private static void verifyCall(
            StreamingChatResponseHandler handler, InOrder io, int index, String id) {
        io.verify(handler, atLeast(1)).onPartialToolCall(
                argThat(call -> call.index() == index && id.equals(call.id())), any());
        io.verify(handler).onCompleteToolCall(argThat(call ->
                call.index() == index && id.equals(call.toolExecutionRequest().id())));
    }
}
