package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * What a model answered.
 *
 * @param type {@code assistant_text} or {@code tool_call}
 * @param text the visible text; empty when there is none
 * @param reasoningContent what the model thought first, or null
 * @param toolCalls the calls it asks for; empty for none
 * @param finishReason {@code stop}, {@code length}, {@code tool_calls} or {@code cancelled}
 * @param message the same as a message, to be added to the conversation
 * @param usage tokens
 * @param timings times
 * @param polyfillsApplied what was done to the request because the model's template cannot carry it
 * @param diagnostics remarks on the output, as the library gives them
 * @param ignoredKeys keys of the request that the library does not know
 * @param raw the whole reply
 */
public record ChatReply(
        String type,
        String text,
        String reasoningContent,
        List<ToolCall> toolCalls,
        String finishReason,
        Message message,
        Usage usage,
        Timings timings,
        List<String> polyfillsApplied,
        List<Object> diagnostics,
        List<String> ignoredKeys,
        Map<String, Object> raw) {

    /** True when the model waits for tools to be called. */
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
                Message.of(Json.object(reply.get("message"))),
                Usage.of(Json.object(reply.get("usage"))),
                Timings.of(Json.object(reply.get("timings"))),
                Json.strings(reply.get("polyfills_applied")),
                Json.list(reply.get("diagnostics")),
                Json.strings(reply.get("ignored_keys")),
                reply);
    }
}
