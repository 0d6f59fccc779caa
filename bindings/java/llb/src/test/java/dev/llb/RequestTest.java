package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Tests requests and replies as JSON, without the library. */
class RequestTest {

    @Test
    void theShortestRequest() {
        check(ChatRequest.of("hi"), "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    }

    @Test
    void aConversationWithTools() {
        ToolCall call = new ToolCall("call_1", "now", "{}");
        Tool now = new Tool("now", null, Map.of("type", "object"));
        check(
                ChatRequest.builder()
                        .message(Message.assistant(null, List.of(call)))
                        .message(Message.tool(call, "noon"))
                        .tool(now)
                        .toolChoice(now)
                        .build(),
                """
                {"messages":[
                  {"role":"assistant","content":null,"tool_calls":[
                    {"id":"call_1","type":"function","function":{"name":"now","arguments":"{}"}}]},
                  {"role":"tool","content":"noon","tool_call_id":"call_1","name":"now"}],
                 "tools":[{"type":"function","function":{"name":"now","parameters":{"type":"object"}}}],
                 "tool_choice":{"type":"function","function":{"name":"now"}}}""");
    }

    /** A template may print a tool unchanged, so the order is part of the prompt. */
    @Test
    void fieldsKeepTheirOrder() {
        Tool now = Tool.of("now", "The time",
                "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}}}");
        assertEquals(
                "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":[{\"type\":\"function\",\"function\":"
                        + "{\"name\":\"now\",\"description\":\"The time\",\"parameters\":"
                        + "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}}}}}],\"tool_choice\":"
                        + "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}}",
                ChatRequest.builder().user("hi").tool(now).toolChoice(now).build().toJson());
    }

    @Test
    void options() {
        check(
                ChatRequest.builder()
                        .user("<&é日>")
                        .maxTokens(7)
                        .temperature(0)
                        .seed(1L << 40)
                        .stop("a", "b")
                        .timeout(Duration.ofSeconds(2))
                        .set("enable_thinking", false)
                        .reasoningBudget(64)
                        .logprobs(3)
                        .lora(Map.of(1, 0.5))
                        .speculative("off")
                        .jsonObject()
                        .build(),
                """
                {"messages":[{"role":"user","content":"<&é日>"}],"max_tokens":7,"temperature":0.0,
                 "seed":1099511627776,"stop":["a","b"],"timeout_ms":2000,"enable_thinking":false,
                 "reasoning_budget":64,"logprobs":true,"top_logprobs":3,"lora":[{"id":1,"scale":0.5}],
                 "speculative":"off","response_format":{"type":"json_object"}}""");
    }

    @Test
    void anOptionDoesNotReplaceTheMessages() {
        check(
                ChatRequest.builder().user("hi").set("messages", List.of()).build(),
                "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    }

    @Test
    void contentParts() {
        Message message = Message.user(List.of(Map.of("type", "text", "text", "hi")));
        check(
                ChatRequest.of(List.of(message)),
                "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}]}");
        assertThrows(IllegalArgumentException.class, () ->
                new Message("user", 1, null, null, null, null));
    }

    @Test
    void valuesWithoutAJsonForm() {
        checkRefused("temperature", Double.NaN, "temperature: NaN has no JSON form; use ");
        checkRefused(
                "a",
                Map.of("b", List.of(1, Thread.currentThread())),
                "a.b[1]: java.lang.Thread has no JSON form; use ");
        check(
                ChatRequest.builder().set("file", java.nio.file.Path.of("/m")).build(),
                "{\"messages\":[],\"file\":\"/m\"}");
    }

    private static void checkRefused(String name, Object value, String message) {
        ChatRequest request = ChatRequest.builder().set(name, value).build();
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, request::toJson);
        assertTrue(e.getMessage().startsWith(message), e.getMessage());
    }

    @Test
    void aReply() {
        ChatReply reply = new ChatReply(Json.readObject(
                """
                {"type":"tool_call","text":"","reasoning_content":"hm",
                 "tool_calls":[{"id":"call_1","name":"f","arguments":"{\\"n\\":9007199254740993,\\"x\\":0.5}"}],
                 "finish_reason":"tool_calls","stop_sequence":"END",
                 "message":{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[
                   {"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},
                 "usage":{"prompt_tokens":42,"completion_tokens":17,"total_tokens":59,
                          "prompt_tokens_details":{"cached_tokens":30}},
                 "timings":{"prompt_ms":1.5,"predicted_ms":2,"prompt_per_second":3,"predicted_per_second":4,
                            "threads":1.5},
                 "logprobs":null,"polyfills_applied":["tools"],"diagnostics":[],"ignored_keys":["k"],"new_key":1}"""));
        assertEquals("hm", reply.reasoningContent());
        assertEquals("END", reply.stopSequence());
        assertEquals(
                Map.of("n", 9007199254740993L, "x", 0.5), reply.toolCalls().get(0)
                        .argumentsAsMap());
        assertEquals(new ToolCall("call_1", "f", "{}"), reply.message().toolCalls().get(0));
        assertEquals(new Usage(42, 17, 59, 30), reply.usage());
        assertEquals(new Timings(1.5, 2, 3, 4, 1.5), reply.timings());
        assertEquals(List.of("tools"), reply.polyfillsApplied());
        assertEquals(List.of("k"), reply.ignoredKeys());
        assertEquals(1L, reply.raw().get("new_key"));
    }

    private static void check(ChatRequest request, String json) {
        assertEquals(Json.readObject(json), Json.readObject(request.toJson()));
    }
}
