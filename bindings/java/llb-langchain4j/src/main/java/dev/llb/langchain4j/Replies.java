package dev.llb.langchain4j;

import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.data.message.AiMessage;
import dev.langchain4j.exception.AuthenticationException;
import dev.langchain4j.exception.InternalServerException;
import dev.langchain4j.exception.InvalidRequestException;
import dev.langchain4j.exception.LangChain4jException;
import dev.langchain4j.exception.ModelNotFoundException;
import dev.langchain4j.exception.UnsupportedFeatureException;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.output.FinishReason;
import dev.llb.ChatReply;
import dev.llb.ErrorCodes;
import dev.llb.LlbException;
import dev.llb.ToolCall;
import dev.llb.Usage;
import java.util.List;
import java.util.UUID;

/** Converts replies and failures of llb to LangChain4j's types. */
final class Replies {

    private Replies() {}

    static ChatResponse convert(ChatReply reply, String modelName) {
        List<ToolExecutionRequest> calls = reply.toolCalls().stream().map(Replies::call).toList();
        AiMessage message = AiMessage.builder()
                .text(reply.text().isEmpty() ? null : reply.text())
                .thinking(reply.reasoningContent())
                .toolExecutionRequests(calls)
                .build();
        return ChatResponse.builder()
                .aiMessage(message)
                .metadata(LlbChatResponseMetadata.builder()
                        .id("chatcmpl-" + UUID.randomUUID())
                        .modelName(modelName)
                        .tokenUsage(usage(reply.usage()))
                        .finishReason(finishReason(reply.finishReason()))
                        .diagnostics(reply.diagnostics())
                        .ignoredKeys(reply.ignoredKeys())
                        .timings(reply.timings())
                        .build())
                .build();
    }

    static ToolExecutionRequest call(ToolCall call) {
        return ToolExecutionRequest.builder()
                .id(call.id())
                .name(call.name())
                .arguments(call.arguments())
                .build();
    }

    private static LlbTokenUsage usage(Usage usage) {
        return new LlbTokenUsage(
                usage.promptTokens(),
                usage.completionTokens(),
                usage.totalTokens(),
                usage.cachedTokens());
    }

    private static FinishReason finishReason(dev.llb.FinishReason reason) {
        return switch (reason) {
            case STOP -> FinishReason.STOP;
            case LENGTH -> FinishReason.LENGTH;
            case TOOL_CALLS -> FinishReason.TOOL_EXECUTION;
            default -> FinishReason.OTHER;
        };
    }

    /** The cause is the {@link LlbException}, with its code and details. */
    static LangChain4jException failure(LlbException e) {
        // Such as an image where the projector "auto" has found no file.
        if ("unsupported_content_part".equals(e.details().get("kind"))) {
            String message = "this content is not supported: " + e.getMessage();
            LangChain4jException unsupported = new UnsupportedFeatureException(message);
            unsupported.initCause(e);
            return unsupported;
        }
        return switch (e.code()) {
            case ErrorCodes.INVALID_REQUEST,
                    ErrorCodes.CONTEXT_OVERFLOW,
                    ErrorCodes.SCHEMA_UNSUPPORTED,
                    ErrorCodes.TEMPLATE_ERROR,
                    ErrorCodes.TEMPLATE_LIMIT -> new InvalidRequestException(e.getMessage(), e);
            case ErrorCodes.MODEL_NOT_FOUND, ErrorCodes.HUB_NOT_FOUND ->
                new ModelNotFoundException(e.getMessage(), e);
            case ErrorCodes.HUB_GATED, ErrorCodes.HUB_UNAUTHORIZED, ErrorCodes.HUB_FORBIDDEN ->
                new AuthenticationException(e.getMessage(), e);
            case ErrorCodes.INFERENCE_FAILED,
                    ErrorCodes.INTERNAL_BRIDGE_ERROR,
                    ErrorCodes.OUT_OF_MEMORY ->
                new InternalServerException(e.getMessage(), e);
            default -> new LangChain4jException(e.getMessage(), e);
        };
    }
}
