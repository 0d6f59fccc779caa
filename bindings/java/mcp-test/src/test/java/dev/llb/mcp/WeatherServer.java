package dev.llb.mcp;

import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.server.McpServer;
import io.modelcontextprotocol.server.transport.StdioServerTransportProvider;
import io.modelcontextprotocol.spec.McpSchema.CallToolResult;
import io.modelcontextprotocol.spec.McpSchema.ServerCapabilities;
import io.modelcontextprotocol.spec.McpSchema.Tool;
import java.util.List;
import java.util.Map;

/** An MCP server with one tool, on standard input and output. */
final class WeatherServer {

    private static final Tool WEATHER = Tool.builder("get_weather", Map.of(
                    "type", "object",
                    "properties", Map.of("city", Map.of("type", "string")),
                    "required", List.of("city")))
            .description("The current weather in a city")
            .build();

    private WeatherServer() {}

    public static void main(String[] args) {
        McpServer.sync(new StdioServerTransportProvider(McpJsonDefaults.getMapper()))
                .serverInfo("weather", "1")
                .capabilities(ServerCapabilities.builder().tools(false).build())
                .toolCall(WEATHER, (exchange, call) -> weather(call.arguments().get("city")))
                .build();
    }

    private static CallToolResult weather(Object city) {
        boolean known = city.equals("Paris");
        return CallToolResult.builder()
                .addTextContent(known ? "21 degrees and sunny" : "There is no city " + city + ".")
                .isError(!known)
                .build();
    }
}
