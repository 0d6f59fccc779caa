package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The reply to a request. */
public final class ChatReply extends JsonReply {

    private final ReplyType type;
    private final String text;
    private final @Nullable String reasoningContent;
    private final List<ToolCall> toolCalls;
    private final FinishReason finishReason;
    private final @Nullable String stopSequence;
    private final Message message;
    private final Usage usage;
    private final Timings timings;
    private final List<String> polyfillsApplied;
    private final List<Object> diagnostics;
    private final List<String> ignoredKeys;

    private ChatReply(Map<String, Object> reply) {
        super(reply);
        type = ReplyType.of(Json.string(reply.get("type")));
        text = Objects.requireNonNullElse(Json.string(reply.get("text")), "");
        reasoningContent = Json.string(reply.get("reasoning_content"));
        toolCalls = Json.objects(reply.get("tool_calls")).stream().map(ToolCall::of).toList();
        finishReason = FinishReason.of(Json.string(reply.get("finish_reason")));
        stopSequence = Json.string(reply.get("stop_sequence"));
        message = Message.of(Json.object(reply.get("message")));
        usage = Usage.of(Json.object(reply.get("usage")));
        timings = Timings.of(Json.object(reply.get("timings")));
        polyfillsApplied = Json.strings(reply.get("polyfills_applied"));
        diagnostics = Json.list(reply.get("diagnostics"));
        ignoredKeys = Json.strings(reply.get("ignored_keys"));
    }

    static ChatReply of(Map<String, Object> reply) {
        return new ChatReply(reply);
    }

    /** What the reply is. */
    public ReplyType type() {
        return type;
    }

    /** The visible text; may be empty. */
    public String text() {
        return text;
    }

    /** The reasoning of the model, or null. */
    public @Nullable String reasoningContent() {
        return reasoningContent;
    }

    /** The tool calls; may be empty. */
    public List<ToolCall> toolCalls() {
        return toolCalls;
    }

    /** Why the reply ended. */
    public FinishReason finishReason() {
        return finishReason;
    }

    /** The stop string of the request that ended the reply, or null. */
    public @Nullable String stopSequence() {
        return stopSequence;
    }

    /** The reply as a message that can be added to the conversation. */
    public Message message() {
        return message;
    }

    /** The number of tokens. */
    public Usage usage() {
        return usage;
    }

    /** The durations. */
    public Timings timings() {
        return timings;
    }

    /** The polyfills applied because the template lacks a capability. */
    public List<String> polyfillsApplied() {
        return polyfillsApplied;
    }

    /** The diagnostics of the library. */
    public List<Object> diagnostics() {
        return diagnostics;
    }

    /** The keys of the request that the library does not know. */
    public List<String> ignoredKeys() {
        return ignoredKeys;
    }

    /** Whether the reply contains tool calls. */
    public boolean callsTools() {
        return !toolCalls.isEmpty();
    }
}
