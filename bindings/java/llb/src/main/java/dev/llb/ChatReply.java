package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The reply to a request.
 *
 * @param type {@code assistant_text} or {@code tool_call}
 * @param text the visible text; may be empty
 * @param reasoningContent the reasoning of the model, or null
 * @param toolCalls the tool calls; may be empty
 * @param finishReason {@code stop}, {@code length}, {@code tool_calls} or {@code cancelled}
 * @param stopSequence the stop string of the request that ended the reply, or null
 * @param message the reply as a message that can be added to the conversation
 * @param usage the number of tokens
 * @param timings the durations
 * @param polyfillsApplied the polyfills applied because the template lacks a capability
 * @param diagnostics the diagnostics of the library
 * @param ignoredKeys the keys of the request that the library does not know
 * @param raw the whole reply of the library
 */
public record ChatReply(
        String type,
        String text,
        @Nullable String reasoningContent,
        List<ToolCall> toolCalls,
        String finishReason,
        @Nullable String stopSequence,
        Message message,
        Usage usage,
        Timings timings,
        List<String> polyfillsApplied,
        List<Object> diagnostics,
        List<String> ignoredKeys,
        Map<String, Object> raw) {

    /** Whether the reply contains tool calls. */
    public boolean callsTools() {
        return !toolCalls.isEmpty();
    }

    static ChatReply of(Map<String, Object> reply) {
        return new ChatReply(
                Json.string(reply.get("type")),
                Objects.requireNonNullElse(Json.string(reply.get("text")), ""),
                Json.string(reply.get("reasoning_content")),
                Json.objects(reply.get("tool_calls")).stream().map(ToolCall::of).toList(),
                Json.string(reply.get("finish_reason")),
                Json.string(reply.get("stop_sequence")),
                Message.of(Json.object(reply.get("message"))),
                Usage.of(Json.object(reply.get("usage"))),
                Timings.of(Json.object(reply.get("timings"))),
                Json.strings(reply.get("polyfills_applied")),
                Json.list(reply.get("diagnostics")),
                Json.strings(reply.get("ignored_keys")),
                reply);
    }
}
