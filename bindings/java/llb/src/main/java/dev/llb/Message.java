package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One message of a conversation, in the shape of an OpenAI chat message.
 *
 * @param role {@code system}, {@code developer}, {@code user}, {@code assistant} or {@code tool}
 * @param content a {@link String}, a list of content parts, or null
 * @param reasoningContent the reasoning of an assistant message, or null
 * @param toolCalls the tool calls of an assistant message; may be empty
 * @param toolCallId the id of the call whose result a {@code tool} message has, or null
 * @param name the name of the tool or of the author, or null
 */
public record Message(
        String role,
        @Nullable Object content,
        @Nullable String reasoningContent,
        List<ToolCall> toolCalls,
        @Nullable String toolCallId,
        @Nullable String name) {

    public Message {
        Objects.requireNonNull(role, "role");
        if (content != null && !(content instanceof String) && !(content instanceof List<?>)) {
            throw new IllegalArgumentException(
                    "content: expected a String or a List of parts, not " + content.getClass());
        }
        if (content instanceof List<?> parts) {
            content = List.copyOf(parts);
        }
        toolCalls = toolCalls == null ? List.of() : List.copyOf(toolCalls);
    }

    /** Returns a system message. */
    public static Message system(String text) {
        return new Message("system", text, null, List.of(), null, null);
    }

    /** Returns a user message. */
    public static Message user(String text) {
        return new Message("user", text, null, List.of(), null, null);
    }

    /** Returns a user message with the parts of a {@link ContentPart}. */
    public static Message user(List<Map<String, Object>> parts) {
        return new Message("user", List.copyOf(parts), null, List.of(), null, null);
    }

    /** Returns an assistant message. */
    public static Message assistant(String text) {
        return new Message("assistant", text, null, List.of(), null, null);
    }

    /** Returns an assistant message with tool calls; {@code text} may be null. */
    public static Message assistant(@Nullable String text, List<ToolCall> calls) {
        return new Message("assistant", text, null, calls, null, null);
    }

    /** Returns a tool message with the result of {@code call}. */
    public static Message tool(ToolCall call, String result) {
        return new Message("tool", result, null, List.of(), call.id(), call.name());
    }

    static Message of(Map<String, Object> fields) {
        return new Message(
                Objects.requireNonNullElse(Json.string(fields.get("role")), "assistant"),
                fields.get("content"),
                Json.string(fields.get("reasoning_content")),
                Json.objects(fields.get("tool_calls")).stream().map(ToolCall::of).toList(),
                Json.string(fields.get("tool_call_id")),
                Json.string(fields.get("name")));
    }

    Map<String, Object> toMap() {
        Fields fields = new Fields();
        fields.put("role", role);
        fields.put("content", content);
        fields.putIfSet("reasoning_content", reasoningContent);
        if (!toolCalls.isEmpty()) {
            fields.put("tool_calls", toolCalls.stream().map(ToolCall::toMap).toList());
        }
        fields.putIfSet("tool_call_id", toolCallId);
        fields.putIfSet("name", name);
        return fields;
    }
}
