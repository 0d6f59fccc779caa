import dev.llb.ChatOptions;
import dev.llb.ChatReply;
import dev.llb.ChatRequest;
import dev.llb.LlbChat;
import dev.llb.LlbException;
import dev.llb.Message;
import dev.llb.Tool;
import dev.llb.ToolCall;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs a tool call of a model and returns the result to it. The README shows the full command:
 *
 * <pre>java … examples/Tools.java model.gguf ["a question"]</pre>
 */
public class Tools {

    private static final Tool WEATHER = Tool.of(
            "get_weather",
            "The current weather in a city",
            """
            {"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}""");

    public static void main(String[] args) {
        if (args.length == 0) {
            System.err.println("usage: Tools.java model.gguf [question]");
            System.exit(2);
        }
        String question = args.length > 1 ? args[1] : "What is the weather in Paris?";
        try (LlbChat chat = LlbChat.open(ChatOptions.builder(Path.of(args[0])).build())) {
            converse(chat, question);
        } catch (LlbException e) {
            System.err.println(e.getMessage());
            System.exit(1);
        }
    }

    private static void converse(LlbChat chat, String question) {
        List<Message> messages = new ArrayList<>(List.of(Message.user(question)));
        ChatReply callReply = chat.infer(ChatRequest.builder()
                .messages(messages)
                .tool(WEATHER)
                .parallelToolCalls(false)
                .temperature(0)
                .build());
        messages.add(callReply.message());
        for (ToolCall call : callReply.toolCalls()) {
            String result = weather(String.valueOf(call.argumentsAsMap().get("city")));
            System.out.println(call.name() + call.arguments() + " = " + result);
            messages.add(Message.tool(call, result));
        }
        ChatReply answer = chat.stream(
                ChatRequest.builder()
                        .messages(messages)
                        .tool(WEATHER)
                        .temperature(0)
                        .maxTokens(100)
                        .build(),
                piece -> {
                    System.out.print(piece);
                    System.out.flush();
                });
        System.out.println();
        System.out.println(answer.usage());
    }

    /** Stands in for a weather service. */
    private static String weather(String city) {
        return "{\"city\":\"" + city + "\",\"celsius\":22,\"sky\":\"clear\"}";
    }
}
