package dev.llb;

import java.util.List;
import java.util.Map;

/** The message that a {@link Template} finds in the output of a model. */
public final class ParsedMessage extends JsonReply {

    private final Message message;
    private final boolean complete;
    private final List<Object> diagnostics;

    private ParsedMessage(Map<String, Object> reply) {
        super(reply);
        message = Message.of(Json.object(reply.get("message")));
        complete = Json.bool(reply.get("complete"));
        diagnostics = Json.list(reply.get("diagnostics"));
    }

    static ParsedMessage of(Map<String, Object> reply) {
        return new ParsedMessage(reply);
    }

    /** The message, with its reasoning and tool calls. */
    public Message message() {
        return message;
    }

    /** Whether the output is finished: false if the request has {@code partial}. */
    public boolean complete() {
        return complete;
    }

    /** The diagnostics of the library. */
    public List<Object> diagnostics() {
        return diagnostics;
    }
}
