package dev.llb.springai;

import dev.llb.ChatChunk;
import dev.llb.ChatReply;
import dev.llb.Usage;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import org.jspecify.annotations.Nullable;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.metadata.ChatGenerationMetadata;
import org.springframework.ai.chat.metadata.ChatResponseMetadata;
import org.springframework.ai.chat.metadata.DefaultUsage;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.model.Generation;

/** Converts replies of llb to Spring AI's types. */
final class Responses {

    /** The name of the reasoning in a message's metadata, as in Spring AI's own models. */
    static final String REASONING = "reasoningContent";

    private Responses() {}

    static ChatResponse convert(ChatReply reply, String modelName) {
        return whole(reply, reply.text(), id(), modelName);
    }

    private static String id() {
        return "chatcmpl-" + UUID.randomUUID();
    }

    private static ChatResponse whole(
            ChatReply reply, String text, String id, String modelName) {
        List<AssistantMessage.ToolCall> calls = reply.toolCalls().stream()
                .map(call -> new AssistantMessage.ToolCall(
                        call.id(), "function", call.name(), call.arguments()))
                .toList();
        ChatGenerationMetadata metadata =
                ChatGenerationMetadata.builder()
                        .finishReason(reply.finishReason().toString())
                        .build();
        Generation generation =
                generation(text, reply.reasoningContent(), calls, metadata);
        return new ChatResponse(
                List.of(generation),
                ChatResponseMetadata.builder()
                        .id(id)
                        .model(modelName)
                        .usage(usage(reply.usage()))
                        .keyValue("timings", reply.timings())
                        .keyValue("diagnostics", reply.diagnostics())
                        .keyValue("ignoredKeys", reply.ignoredKeys())
                        .build());
    }

    private static Generation generation(
            String text,
            @Nullable String reasoning,
            List<AssistantMessage.ToolCall> calls,
            ChatGenerationMetadata metadata) {
        AssistantMessage message = AssistantMessage.builder()
                .content(text)
                .properties(reasoning == null ? Map.of() : Map.of(REASONING, reasoning))
                .toolCalls(calls)
                .build();
        return new Generation(message, metadata);
    }

    private static DefaultUsage usage(Usage usage) {
        return new DefaultUsage(
                usage.promptTokens(),
                usage.completionTokens(),
                usage.totalTokens(),
                usage,
                (long) usage.cachedTokens(),
                null);
    }

    /** The responses of one stream. */
    static final class Chunks {

        private final String id = id();
        private final String modelName;

        Chunks(String modelName) {
            this.modelName = modelName;
        }

        /** A chunk without output, such as the one with the usage, is not converted. */
        Optional<ChatResponse> convert(ChatChunk chunk) {
            boolean reasons = !chunk.reasoningContent().isEmpty();
            boolean calls = !chunk.toolCalls().isEmpty();
            if (chunk.text().isEmpty() && !reasons && !calls) {
                return Optional.empty();
            }
            ChatGenerationMetadata.Builder metadata = ChatGenerationMetadata.builder();
            if (reasons) {
                metadata.metadata("reasoningDelta", chunk.reasoningContent());
            }
            if (calls) {
                metadata.metadata("toolCallDeltas", chunk.toolCalls());
            }
            Generation generation = generation(chunk.text(), null, List.of(), metadata.build());
            return Optional.of(new ChatResponse(
                    List.of(generation),
                    ChatResponseMetadata.builder().id(id).model(modelName).build()));
        }

        /** The text has already been streamed, so this response has none. */
        ChatResponse last(ChatReply reply) {
            return whole(reply, "", id, modelName);
        }
    }
}
