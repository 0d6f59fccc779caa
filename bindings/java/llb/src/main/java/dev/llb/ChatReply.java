package dev.llb;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The reply to a request. */
public final class ChatReply extends JsonReply {

    ChatReply(Map<String, Object> raw) {
        super(raw);
    }

    /** What the reply is. */
    public ReplyType type() {
        return ReplyType.of(Json.string(raw.get("type")));
    }

    /** The visible text; may be empty. */
    public String text() {
        return Objects.requireNonNullElse(Json.string(raw.get("text")), "");
    }

    /** The reasoning of the model, or null. */
    public @Nullable String reasoningContent() {
        return Json.string(raw.get("reasoning_content"));
    }

    /** The tool calls; may be empty. */
    public List<ToolCall> toolCalls() {
        return Json.objects(raw.get("tool_calls")).stream().map(ToolCall::of).toList();
    }

    /** Why the reply ended. */
    public FinishReason finishReason() {
        return FinishReason.of(Json.string(raw.get("finish_reason")));
    }

    /** The stop string of the request that ended the reply, or null. */
    public @Nullable String stopSequence() {
        return Json.string(raw.get("stop_sequence"));
    }

    /** The reply as a message that can be added to the conversation. */
    public Message message() {
        return Message.of(Json.object(raw.get("message")));
    }

    /** The number of tokens. */
    public Usage usage() {
        return Usage.of(Json.object(raw.get("usage")));
    }

    /** The durations. */
    public Timings timings() {
        return Timings.of(Json.object(raw.get("timings")));
    }

    /** The polyfills applied because the template lacks a capability. */
    public List<String> polyfillsApplied() {
        return Json.strings(raw.get("polyfills_applied"));
    }

    /** The diagnostics of the library. */
    public List<Object> diagnostics() {
        return Json.list(raw.get("diagnostics"));
    }

    /** The keys of the request that the library does not know. */
    public List<String> ignoredKeys() {
        return Json.strings(raw.get("ignored_keys"));
    }

    /** Whether the reply contains tool calls. */
    public boolean callsTools() {
        return !toolCalls().isEmpty();
    }
}
