package dev.llb;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests replies of a chat. */
class ChatTest {

    static final Tool WEATHER = Tool.of(
            "get_weather",
            "The weather at a place",
            """
            {"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}""");

    @Test
    void text() throws Exception {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            ChatReply reply = chat.infer(ChatRequest.builder().user("hi").temperature(0).build());
            assertEquals(ReplyType.ASSISTANT_TEXT, reply.type());
            assertEquals(TestFiles.expected("text"), reply.text());
            assertEquals(FinishReason.STOP, reply.finishReason());
            assertFalse(reply.callsTools());
            assertNull(reply.reasoningContent());
            assertEquals("assistant", reply.message().role());
            assertEquals(reply.text(), reply.message().content());
            assertTrue(reply.usage().promptTokens() > 0);
            assertTrue(reply.usage().completionTokens() > 0);
            assertEquals(
                    reply.usage().promptTokens() + reply.usage().completionTokens(),
                    reply.usage().totalTokens());
        }
    }

    @Test
    void aReplyIsAcceptedAsMessage() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            List<Message> messages = new ArrayList<>(List.of(Message.user("hi")));
            messages.add(chat.infer(ChatRequest.of(messages)).message());
            messages.add(Message.user("and now?"));
            assertEquals(
                    ReplyType.ASSISTANT_TEXT, chat.infer(ChatRequest.of(messages)).type());
        }
    }

    @Test
    void piecesConcatenateToTheText() throws Exception {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            List<String> pieces = new ArrayList<>();
            ChatReply reply = chat.stream(ChatRequest.of("hi"), pieces::add);
            assertEquals(TestFiles.expected("text"), reply.text());
            assertEquals(reply.text(), String.join("", pieces));
            assertTrue(pieces.size() > 1, pieces.toString());
            assertFalse(String.join("", pieces).contains("\uFFFD"));
        }
    }

    @Test
    void aToolCall() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("tool_call.gguf"))) {
            ChatRequest request =
                    ChatRequest.builder().user("weather in Paris?").tool(WEATHER).temperature(0)
                            .build();
            ChatReply reply = chat.infer(request);
            assertEquals(ReplyType.TOOL_CALL, reply.type());
            assertEquals(FinishReason.TOOL_CALLS, reply.finishReason());
            assertEquals(1, reply.toolCalls().size());
            ToolCall call = reply.toolCalls().get(0);
            assertFalse(call.id().isEmpty());
            assertEquals("get_weather", call.name());
            assertEquals(Map.of("city", "Paris"), call.argumentsAsMap());
        }
    }

    @Test
    void aToolResult() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            ToolCall call = new ToolCall("call_1", "get_weather", "{\"city\":\"Paris\"}");
            ChatRequest request = ChatRequest.builder()
                    .user("weather in Paris?")
                    .message(Message.assistant(null, List.of(call)))
                    .message(Message.tool(call, "22 degrees"))
                    .tool(WEATHER)
                    .toolChoice("none")
                    .build();
            assertFalse(chat.infer(request).text().isEmpty());
            assertTrue(chat.explain(request).prompt().contains("22 degrees"));
        }
    }

    @Test
    void chunks() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("tool_call.gguf"))) {
            List<Map<String, Object>> chunks = new ArrayList<>();
            ChatRequest request = ChatRequest.builder()
                    .user("weather in Paris?")
                    .tool(WEATHER)
                    .set("stream_format", "chunks")
                    .build();
            ChatReply reply = chat.stream(request, piece -> chunks.add(Json.readObject(piece)));
            StringBuilder arguments = new StringBuilder();
            String finish = null;
            for (Map<String, Object> chunk : chunks) {
                assertEquals("chat.completion.chunk", chunk.get("object"));
                for (Map<String, Object> choice : Json.objects(chunk.get("choices"))) {
                    Map<String, Object> delta = Json.object(choice.get("delta"));
                    for (Map<String, Object> call : Json.objects(delta.get("tool_calls"))) {
                        Object part = Json.object(call.get("function")).get("arguments");
                        arguments.append(part == null ? "" : part);
                    }
                    finish = choice.get("finish_reason") instanceof String reason ? reason : finish;
                }
            }
            assertEquals("tool_calls", finish);
            assertEquals(reply.toolCalls().get(0).arguments(), arguments.toString());
        }
    }

    @Test
    void length() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("long.gguf"))) {
            ChatReply reply = chat.infer(ChatRequest.builder().user("hi").maxTokens(3).build());
            assertEquals(FinishReason.LENGTH, reply.finishReason());
            assertEquals(3, reply.usage().completionTokens());
        }
    }

    @Test
    void explanation() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            Explanation explanation = chat.explain(ChatRequest.of("hi there"));
            assertTrue(explanation.prompt().contains("hi there"), explanation.prompt());
            assertTrue(explanation.promptTokens() > 0);
            assertEquals("explanation", explanation.raw().get("type"));
        }
    }

    @ParameterizedTest
    @CsvSource(quoteCharacter = '`', value = {
        "`{\"messages\":\"hi\"}`, messages",
        "`{\"messages\":[{\"role\":\"assistent\",\"content\":\"hi\"}]}`, messages[0].role",
        "`{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"temperature\":\"hot\"}`, temperature",
        "`{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tool_choice\":\"perhaps\"}`, tool_choice",
    })
    void anErrorNamesTheField(String request, String path) {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            Map<String, Object> reply = Json.readObject(chat.inferJson(request));
            assertEquals("error", reply.get("type"));
            Map<String, Object> error = Json.object(reply.get("error"));
            assertEquals("INVALID_REQUEST", error.get("code"));
            assertTrue(((String) error.get("message")).startsWith(path), error.toString());
        }
    }

    @Test
    void aTypedRequestThrowsTheError() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            ChatRequest request =
                    ChatRequest.of(List.of(new Message("assistent", "hi", null, null, null, null)));
            LlbException e = assertThrows(LlbException.class, () -> chat.infer(request));
            assertEquals("INVALID_REQUEST", e.code());
            assertTrue(e.getMessage().contains("messages[0].role"), e.getMessage());
            assertThrows(LlbException.class, () -> chat.stream(request, piece -> {}));
            assertThrows(LlbException.class, () -> chat.explain(request));
            assertDoesNotThrow(() -> chat.infer(ChatRequest.of("hi")));
        }
    }

    @Test
    void anUnknownKeyIsReported() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            ChatReply reply =
                    chat.infer(ChatRequest.builder().user("hi").set("no_such_key", 1).build());
            assertEquals(List.of("no_such_key"), reply.ignoredKeys());
        }
    }

    @Test
    void anUnknownKeyOfAStrictRequestIsAnError() throws Exception {
        ChatOptions options = ChatOptions.builder(TestFiles.scripted("text.gguf"))
                .strictRequests(true)
                .build();
        try (LlbChat chat = LlbChat.open(options)) {
            List<String> pieces = new ArrayList<>();
            LlbException e = assertThrows(LlbException.class, () -> chat.stream(
                    ChatRequest.builder().user("hi").set("temprature", 1).build(), pieces::add));
            assertEquals("INVALID_REQUEST", e.code());
            assertTrue(e.getMessage().contains("temprature: unknown member"), e.getMessage());
            assertEquals(List.of(), pieces);
            assertEquals(TestFiles.expected("text"), chat.infer(ChatRequest.of("hi")).text());
        }
    }

    @Test
    void aNulCharacterIsRefused() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            LlbException e = assertThrows(LlbException.class, () -> chat.inferJson("{}\0"));
            assertEquals("INVALID_REQUEST", e.code());
            // JSON escapes the NUL character, so the library receives the whole request.
            assertDoesNotThrow(() -> chat.inferJson(ChatRequest.of("a\0b").toJson()));
        }
    }
}
