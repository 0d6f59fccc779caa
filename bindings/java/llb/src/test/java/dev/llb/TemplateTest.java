package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Tests templates without a model. */
class TemplateTest {

    static final String RENDER =
            """
            {"chat_template":"{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}",
             "messages":[{"role":"user","content":"hi"}],"polyfills":{"apply_polyfills":false}}""";

    @Test
    void render() {
        TestFiles.library();
        Map<String, Object> reply = reply(Llb.templateRenderJson(RENDER), "rendered");
        assertEquals("user: hi\n", reply.get("prompt"));
    }

    @Test
    void anExceptionOfATemplate() {
        TestFiles.library();
        Map<String, Object> reply = reply(
                Llb.templateRenderJson(
                        """
                        {"chat_template":"{{ raise_exception('only users') }}",
                         "messages":[{"role":"user","content":"hi"}],"polyfills":{"apply_polyfills":false}}"""),
                "error");
        Map<String, Object> error = Json.object(reply.get("error"));
        assertEquals("TEMPLATE_ERROR", error.get("code"));
        assertTrue(((String) error.get("message")).contains("only users"), error.toString());
    }

    @Test
    void info() {
        TestFiles.library();
        Map<String, Object> reply = reply(
                Llb.templateInfoJson(
                        "{\"chat_template\":\"{% for m in messages %}{{ m.content }}{% endfor %}\"}"),
                "template_info");
        assertNotEquals("native", reply.get("tool_support"));
    }

    @Test
    void parse() {
        TestFiles.library();
        Map<String, Object> reply = reply(
                Llb.templateParseJson(
                        "{\"chat_template\":\"{% for m in messages %}{{ m.content }}{% endfor %}\",\"output\":\"hello\"}"),
                "message");
        assertEquals("hello", Json.object(reply.get("message")).get("content"));
    }

    @Test
    void compose() {
        TestFiles.library();
        Map<String, Object> reply =
                reply(Llb.templateComposeJson("{\"components\":\"qwen2.5\"}"), "template");
        assertEquals("native", reply.get("tool_support"));
        assertEquals("<|im_start|>assistant\n", reply.get("generation_prompt"));
        assertTrue(((String) reply.get("chat_template")).startsWith("{#-"), reply.toString());
    }

    // The typed form

    private static final Template USERS_ONLY = Template.of(
            "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('only users') }}"
                    + "{% endif %}{{ bos_token }}{{ m.content }}{{ eos_token }}\n{% endfor %}");

    @Test
    void aPrompt() {
        TestFiles.library();
        ChatRequest request = ChatRequest.builder().user("hi").user("you").temperature(0).build();
        RenderedPrompt rendered = USERS_ONLY.withTokens("<s>", "</s>").render(request);
        assertEquals("<s>hi</s>\n<s>you</s>\n", rendered.prompt());
        assertEquals(List.of(), rendered.polyfillsApplied());
        assertEquals(List.of("temperature"), rendered.raw().get("ignored_keys"));
        assertEquals(ToolSupport.NONE, USERS_ONLY.toolSupport());
    }

    @Test
    void callsInAnOutput() {
        TestFiles.library();
        Tool weather = Tool.of(
                "get_weather",
                null,
                "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}");
        ChatRequest request = ChatRequest.builder().user("Weather?").tool(weather).build();
        Template template = Template.registered("qwen2.5");
        assertEquals(ToolSupport.NATIVE, template.toolSupport());
        assertTrue(template.render(request).prompt().contains("get_weather"));
        ParsedMessage parsed = template.parse(
                request,
                "Sure.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}"
                        + "\n</tool_call>");
        assertEquals("Sure.", parsed.message().content());
        assertEquals("get_weather", parsed.message().toolCalls().get(0).name());
        assertEquals(
                Map.of("city", "Paris"), parsed.message().toolCalls().get(0).argumentsAsMap());
        assertTrue(parsed.complete());
        assertEquals(List.of(), parsed.diagnostics());
    }

    @Test
    void anUnfinishedOutput() {
        TestFiles.library();
        ChatRequest request = ChatRequest.builder().user("hi").set("partial", true).build();
        ParsedMessage parsed = Template.registered("qwen2.5").parse(request, "Hel");
        assertEquals("Hel", parsed.message().content());
        assertFalse(parsed.complete());
    }

    @Test
    void componentsAndFiles() {
        Template file = Template.ofModel(TestFiles.scripted("text.gguf"));
        assertTrue(file.render(ChatRequest.of("hi there")).prompt().contains("hi there"));
        Template composed = Template.ofComponents(Map.of(
                "user_template", "U:{content}\n", "assistant_template", "A:{content}\n"));
        assertEquals("U:hi\nA:", composed.render(ChatRequest.of("hi")).prompt());
    }

    @Test
    void aTemplateThatFails() {
        TestFiles.library();
        ChatRequest request =
                ChatRequest.builder().system("Be brief.").user("hi")
                        .set("polyfills", Map.of("apply_polyfills", false)).build();
        LlbException failure =
                assertThrows(LlbException.class, () -> USERS_ONLY.render(request));
        assertEquals(ErrorCodes.TEMPLATE_ERROR, failure.code());
        assertTrue(failure.getMessage().contains("only users"), failure.getMessage());
        LlbException missing = assertThrows(
                LlbException.class,
                () -> Template.ofModel(Path.of("/nowhere.gguf")).render(ChatRequest.of("hi")));
        assertEquals(ErrorCodes.MODEL_NOT_FOUND, missing.code());
    }

    private static Map<String, Object> reply(String json, String type) {
        Map<String, Object> reply = Json.readObject(json);
        assertEquals(type, reply.get("type"), json);
        return reply;
    }
}
