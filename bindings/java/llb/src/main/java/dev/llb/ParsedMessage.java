package dev.llb;

import java.util.List;
import java.util.Map;

/** The message that a {@link Template} finds in the output of a model. */
public final class ParsedMessage extends JsonReply {

    ParsedMessage(Map<String, Object> raw) {
        super(raw);
    }

    /** The message, with its reasoning and tool calls. */
    public Message message() {
        return Message.of(Json.object(raw.get("message")));
    }

    /** Whether the output is finished: false if the request has {@code partial}. */
    public boolean complete() {
        return Json.bool(raw.get("complete"));
    }

    /** The diagnostics of the library. */
    public List<Object> diagnostics() {
        return Json.list(raw.get("diagnostics"));
    }
}
