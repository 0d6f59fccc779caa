package dev.llb.readme;

import dev.llb.ChatOptions;
import dev.llb.LlbChat;
import dev.llb.scripted.ScriptedServer;
import java.lang.reflect.Field;
import java.util.List;

/** Runs the blocks with these names in a JVM of its own. The text of {@code chat} is known. */
public final class StatementBlocks {

    private static final String CALL = "<tool_call>\n"
            + "{\"name\": \"%s\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";

    /** In the order of the README: a call and an answer, a record, a call and an answer. */
    private static final List<String> REPLIES = List.of(
            CALL.formatted("get_weather"),
            "It is sunny.",
            "{\"name\": \"Paris\", \"population\": 2.1, \"rivers\": [\"Seine\"]}",
            CALL.formatted("weather"),
            "Yes, it is warm.");

    private StatementBlocks() {}

    public static void main(String[] names) throws Exception {
        try (ScriptedServer server = new ScriptedServer();
                LlbChat chat = LlbChat.open(server.chatOptions().build())) {
            server.say(REPLIES);
            for (String name : names) {
                Class<?> block = Class.forName(name);
                Field field = block.getDeclaredField("chat");
                field.setAccessible(true);
                field.set(null, chat);
                block.getMethod("main", String[].class).invoke(null, (Object) new String[0]);
                System.out.println(name + " has run");
            }
        }
        // The executors of the blocks have threads.
        System.exit(0);
    }
}
