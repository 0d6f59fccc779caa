package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

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

    private static Map<String, Object> reply(String json, String type) {
        Map<String, Object> reply = Json.readObject(json);
        assertEquals(type, reply.get("type"), json);
        return reply;
    }
}
