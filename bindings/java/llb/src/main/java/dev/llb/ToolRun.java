package dev.llb;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The end of a conversation in which Java ran the tools.
 *
 * @param reply the last reply, usually without calls
 * @param messages the whole conversation: the request's messages, the calls, their results, and the
 *     last reply
 */
public record ToolRun(ChatReply reply, List<Message> messages) {

    private static final Set<String> LOST_CALLS =
            Set.of("call_like_content", "malformed_call", "truncated_call");

    /**
     * The messages of diagnostics about calls that the model meant in the last reply, but that did
     * not become calls. The run ended with them. They are also logged as warnings.
     */
    public List<String> lostCalls() {
        return reply.diagnostics().stream()
                .map(Json::object)
                .filter(diagnostic -> LOST_CALLS.contains(diagnostic.get("code")))
                .map(diagnostic -> Json.string(diagnostic.get("message")))
                .toList();
    }

    /**
     * Sends the request, runs the calls, and repeats until a reply has no calls. The request after
     * the last round offers no calls.
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
                // The forced call was made. It would be forced again after its result.
                options.remove("tool_choice");
            }
            ChatReply reply = chat.infer(new ChatRequest(messages, all, options));
            messages.add(reply.message());
            if (!reply.callsTools() || round == maxRounds || !complete(reply)) {
                ToolRun run = new ToolRun(reply, List.copyOf(messages));
                for (String lost : run.lostCalls()) {
                    System.getLogger("dev.llb")
                            .log(System.Logger.Level.WARNING, "a tool call was lost: " + lost);
                }
                return run;
            }
            for (ToolCall call : reply.toolCalls()) {
                messages.add(tools.call(call));
            }
        }
    }

    /** The caller no longer wants the calls of a cancelled reply. */
    private static boolean complete(ChatReply reply) {
        return reply.finishReason() != FinishReason.CANCELLED;
    }
}
