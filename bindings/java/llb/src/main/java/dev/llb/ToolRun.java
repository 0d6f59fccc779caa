package dev.llb;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The end of a conversation in which Java ran the tools.
 *
 * @param reply the last reply, usually without calls
 * @param messages the whole conversation: the request's messages, the calls, their results, and the
 *     last reply
 */
public record ToolRun(ChatReply reply, List<Message> messages) {

    /**
     * Asks, runs the calls, and asks again, until a reply has no calls. The request after the last
     * round is made without calls.
     */
    static ToolRun run(LlbChat chat, ChatRequest request, ToolSet tools, int maxRounds) {
        if (maxRounds < 1) {
            throw new IllegalArgumentException("maxRounds: " + maxRounds + " is not positive");
        }
        List<Tool> all = new ArrayList<>(request.tools());
        all.addAll(tools.tools());
        List<Message> messages = new ArrayList<>(request.messages());
        Map<String, Object> options = new LinkedHashMap<>(request.options());
        for (int round = 0; ; round++) {
            if (round == maxRounds) {
                options.put("tool_choice", "none");
            } else if (round > 0 && !"none".equals(options.get("tool_choice"))) {
                // A forced call was made. It would be forced again after its result.
                options.remove("tool_choice");
            }
            ChatReply reply = chat.infer(new ChatRequest(messages, all, options));
            messages.add(reply.message());
            if (!reply.callsTools() || round == maxRounds || !complete(reply)) {
                return new ToolRun(reply, List.copyOf(messages));
            }
            for (ToolCall call : reply.toolCalls()) {
                messages.add(tools.call(call));
            }
        }
    }

    /** A reply that was cancelled has calls that the caller no longer wants. */
    private static boolean complete(ChatReply reply) {
        return !"cancelled".equals(reply.finishReason());
    }
}
