package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Tests chats with real models. */
class RealModelTest {

    private static final String QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
    private static final String SMOLLM = "smollm2-135m-instruct-q4_1.gguf";
    private static final String GEMMA = "gemma-3-270m-q4_k_m.gguf";

    @Test
    void info() {
        ModelInfo qwen = Llb.modelInfo(TestFiles.real(QWEN));
        assertEquals("qwen2", qwen.architecture());
        assertTrue(qwen.supportsTools());
        assertTrue(qwen.nParams() > 400_000_000, "" + qwen.nParams());
        for (String name : List.of(SMOLLM, GEMMA)) {
            ModelInfo other = Llb.modelInfo(TestFiles.real(name));
            assertFalse(other.supportsTools(), name);
        }
    }

    @Test
    void modelsWithoutToolsAreRefused() {
        for (String name : List.of(SMOLLM, GEMMA)) {
            Path model = TestFiles.real(name);
            LlbException e = assertThrows(LlbException.class, () -> LlbChat.open(model));
            assertEquals("MODEL_NOT_TOOL_CAPABLE", e.code());
            assertEquals(List.of("create_start", "create_failure:tools_unsupported"), e.events());
        }
    }

    @Test
    void streamedText() {
        try (LlbChat chat = open(QWEN)) {
            List<String> pieces = new ArrayList<>();
            ChatRequest request =
                    ChatRequest.builder().user("Count from 1 to 5.").temperature(0).maxTokens(12)
                            .build();
            ChatReply reply = chat.stream(request, pieces::add);
            assertEquals(reply.text(), String.join("", pieces));
            assertTrue(pieces.size() > 3, pieces.toString());
            ChatReply again = chat.infer(request);
            assertEquals(reply.text(), again.text());
            assertTrue(again.usage().cachedTokens() > 0, again.usage().toString());
        }
    }

    @Test
    void aToolCallAndItsResult() {
        try (LlbChat chat = open(QWEN)) {
            ChatRequest.Builder request = ChatRequest.builder()
                    .user("What is the weather in Paris?")
                    .tool(ChatTest.WEATHER)
                    .temperature(0)
                    .maxTokens(32);
            ChatReply reply = chat.infer(
                    request.toolChoice(ChatTest.WEATHER).parallelToolCalls(false).build());
            assertEquals(FinishReason.TOOL_CALLS, reply.finishReason());
            ToolCall call = reply.toolCalls().get(0);
            assertEquals("get_weather", call.name());
            assertTrue(call.argumentsAsMap().get("city") instanceof String, call.arguments());
            ChatRequest next = request.message(reply.message())
                    .message(Message.tool(call, "{\"celsius\":22}"))
                    .toolChoice("none")
                    .maxTokens(4)
                    .build();
            assertTrue(chat.explain(next).prompt().contains("{\"celsius\":22}"));
            assertFalse(chat.infer(next).text().isEmpty());
        }
    }

    @Test
    void aSchemaIsObeyed() {
        try (LlbChat chat = open(QWEN)) {
            Map<String, Object> schema = Map.of(
                    "type", "object",
                    "properties", Map.of("n", Map.of("type", "integer", "maximum", 99)),
                    "required", List.of("n"),
                    "additionalProperties", false);
            ChatReply reply = chat.infer(ChatRequest.builder()
                    .user("Give me a number.")
                    .jsonSchema("number", schema)
                    .temperature(0)
                    .maxTokens(24)
                    .build());
            assertTrue(Json.readObject(reply.text()).get("n") instanceof Long, reply.text());
        }
    }

    private static LlbChat open(String name) {
        return LlbChat.open(ChatOptions.builder(TestFiles.real(name)).contextLength(1024).build());
    }
}
