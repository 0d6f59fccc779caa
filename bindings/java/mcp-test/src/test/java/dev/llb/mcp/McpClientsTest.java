package dev.llb.mcp;

import static org.assertj.core.api.Assertions.assertThat;

import dev.langchain4j.mcp.McpToolProvider;
import dev.langchain4j.mcp.client.DefaultMcpClient;
import dev.langchain4j.mcp.client.transport.stdio.StdioMcpTransport;
import dev.langchain4j.service.AiServices;
import dev.llb.LlbModel;
import dev.llb.scripted.ScriptedServer;
import dev.llb.springai.LlbChatModel;
import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.McpSyncClient;
import io.modelcontextprotocol.client.transport.ServerParameters;
import io.modelcontextprotocol.client.transport.StdioClientTransport;
import io.modelcontextprotocol.json.McpJsonDefaults;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.mcp.SyncMcpToolCallbackProvider;

/**
 * The tools of an MCP server, which runs as a process, through the clients of the frameworks. The
 * model calls a tool that fails, calls it again, and answers.
 */
class McpClientsTest {

    private static final ScriptedServer MODEL_SERVER = new ScriptedServer();
    private static final String QUESTION = "Is it warm in Paris?";
    private static final String ANSWER = "Yes, it is warm.";
    /** The clients' own limits are seconds, in which a busy machine starts no JVM. */
    private static final Duration TIMEOUT = Duration.ofHours(1);

    private static LlbModel model;

    @BeforeAll
    static void open() {
        model = MODEL_SERVER.open();
    }

    @AfterAll
    static void close() {
        model.close();
        MODEL_SERVER.close();
    }

    @BeforeEach
    void say() {
        MODEL_SERVER.say(List.of(call("Pairs"), call("Paris"), ANSWER));
    }

    private static String call(String city) {
        return "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"" + city
                + "\"}}\n</tool_call>";
    }

    /** The command of the MCP server. */
    private static List<String> command() {
        String classPath = System.getProperty(
                "surefire.test.class.path", System.getProperty("java.class.path"));
        return List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp", classPath,
                WeatherServer.class.getName());
    }

    /** The last prompt has the tool as the server describes it, and both results. */
    private static void checkPrompt() {
        assertThat(MODEL_SERVER.lastPrompt())
                .contains("The current weather in a city")
                .contains("There is no city Pairs.")
                .contains("21 degrees and sunny");
    }

    /** A service of LangChain4j. */
    interface Assistant {
        String answer(String question);
    }

    @Test
    void langChain4j() throws Exception {
        StdioMcpTransport transport = StdioMcpTransport.builder().command(command()).build();
        try (DefaultMcpClient client = new DefaultMcpClient.Builder()
                .transport(transport)
                .initializationTimeout(TIMEOUT)
                .toolExecutionTimeout(TIMEOUT)
                .autoHealthCheck(false)
                .build()) {
            Assistant assistant = AiServices.builder(Assistant.class)
                    .chatModel(dev.llb.langchain4j.LlbChatModel.builder().model(model).build())
                    .toolProvider(McpToolProvider.builder().mcpClients(client).build())
                    .build();
            assertThat(assistant.answer(QUESTION)).isEqualTo(ANSWER);
            checkPrompt();
        }
    }

    @Test
    void springAi() {
        List<String> command = command();
        ServerParameters server = ServerParameters.builder(command.get(0))
                .args(command.subList(1, command.size()))
                .build();
        try (McpSyncClient client = McpClient.sync(
                        new StdioClientTransport(server, McpJsonDefaults.getMapper()))
                .initializationTimeout(TIMEOUT)
                .requestTimeout(TIMEOUT)
                .build()) {
            client.initialize();
            String answer = ChatClient.create(LlbChatModel.builder(model).build())
                    .prompt(QUESTION)
                    .tools(SyncMcpToolCallbackProvider.builder().mcpClients(client).build())
                    .call()
                    .content();
            assertThat(answer).isEqualTo(ANSWER);
            checkPrompt();
        }
    }
}
