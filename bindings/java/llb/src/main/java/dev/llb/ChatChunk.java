package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A piece of a reply, as it is generated: an OpenAI {@code chat.completion.chunk}.
 *
 * @param text the visible text of this piece; may be empty
 * @param reasoningContent the reasoning of this piece; may be empty
 * @param toolCalls the pieces of tool calls; may be empty
 * @param finishReason why the reply ended, in the last chunk; otherwise null
 * @param usage the number of tokens, in the last chunk; otherwise null
 * @param raw the whole chunk
 */
public record ChatChunk(
        String text,
        String reasoningContent,
        List<ToolCallDelta> toolCalls,
        @Nullable FinishReason finishReason,
        @Nullable Usage usage,
        Map<String, Object> raw) {

    /**
     * A piece of a tool call. The first one of a call has its id and name.
     *
     * @param index the position of the call in the reply, from 0
     * @param id the id of the call, or null
     * @param name the name of the tool, or null
     * @param arguments a fragment of the arguments; may be empty
     */
    public record ToolCallDelta(
            int index, @Nullable String id, @Nullable String name, String arguments) {

        static ToolCallDelta of(Map<String, Object> call) {
            Map<String, Object> function = Json.object(call.get("function"));
            return new ToolCallDelta(
                    (int) Json.integer(call.get("index")),
                    Json.string(call.get("id")),
                    Json.string(function.get("name")),
                    Objects.requireNonNullElse(Json.string(function.get("arguments")), ""));
        }
    }

    static ChatChunk of(Map<String, Object> chunk) {
        List<Map<String, Object>> choices = Json.objects(chunk.get("choices"));
        Map<String, Object> choice = choices.isEmpty() ? Map.of() : choices.get(0);
        Map<String, Object> delta = Json.object(choice.get("delta"));
        String reason = Json.string(choice.get("finish_reason"));
        return new ChatChunk(
                Objects.requireNonNullElse(Json.string(delta.get("content")), ""),
                Objects.requireNonNullElse(Json.string(delta.get("reasoning_content")), ""),
                Json.objects(delta.get("tool_calls")).stream().map(ToolCallDelta::of).toList(),
                reason == null ? null : FinishReason.of(reason),
                chunk.get("usage") instanceof Map<?, ?> usage ? Usage.of(Json.object(usage)) : null,
                chunk);
    }
}
