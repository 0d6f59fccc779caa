package dev.llb;

import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * A chat template without a model: makes prompts of requests and messages of outputs, as a chat on
 * that template would. Reads no weights. May be used by any thread, and in callbacks.
 *
 * <p>The methods throw {@link LlbException} with {@code INVALID_REQUEST} and the path of the
 * member, or {@code TEMPLATE_ERROR} with the message of the template.
 */
public final class Template {

    /** The members of a request that name the template. */
    private final Map<String, Object> members;

    private Template(Map<String, Object> members) {
        this.members = members;
    }

    private static Template named(String member, Object value) {
        return new Template(new Fields().with(member, value));
    }

    /** Returns the template with this Jinja text. It is compiled when it is used. */
    public static Template of(String jinja) {
        return named("chat_template", Objects.requireNonNull(jinja, "jinja"));
    }

    /** Returns the template of a GGUF file, whose header is read when it is used. */
    public static Template ofModel(Path model) {
        return named("gguf", Objects.requireNonNull(model, "model").toString());
    }

    /** Returns the template composed from components ({@link ChatOptions.Builder#components}). */
    public static Template ofComponents(Map<String, ?> components) {
        return named("components", Json.copy(Objects.requireNonNull(components, "components")));
    }

    /** Returns a registered template, such as {@code qwen2.5}. */
    public static Template registered(String name) {
        return named("components", Objects.requireNonNull(name, "name"));
    }

    /** Returns this template with the special tokens that a Jinja text may print. */
    public Template withTokens(String bosToken, String eosToken) {
        Map<String, Object> more = new LinkedHashMap<>(members);
        more.put("bos_token", Objects.requireNonNull(bosToken, "bosToken"));
        more.put("eos_token", Objects.requireNonNull(eosToken, "eosToken"));
        return new Template(more);
    }

    /** How the template carries tools. */
    public ToolSupport toolSupport() {
        String info = Llb.templateInfoJson(Json.write(members));
        return ToolSupport.of(Json.string(LlbChat.requireSuccess(info).get("tool_support")));
    }

    /**
     * Returns the prompt of a request. Its options may have the members of {@code
     * llb_template_render}, such as {@code spans}; those of sampling have no effect.
     */
    public RenderedPrompt render(ChatRequest request) {
        Map<String, Object> fields = new LinkedHashMap<>(Json.readObject(request.toJson()));
        fields.putAll(members);
        return new RenderedPrompt(
                LlbChat.requireSuccess(Llb.templateRenderJson(Json.write(fields))));
    }

    /**
     * Returns the message in the output of a model, which answers this request. Its options may
     * have the members of {@code llb_template_parse}, such as {@code partial}, and {@code prompt}
     * if the output continues a text of the assistant.
     */
    public ParsedMessage parse(ChatRequest request, String output) {
        Map<String, Object> fields = new LinkedHashMap<>(Json.readObject(request.toJson()));
        fields.remove("messages");
        fields.putAll(members);
        fields.put("output", Objects.requireNonNull(output, "output"));
        return new ParsedMessage(LlbChat.requireSuccess(Llb.templateParseJson(Json.write(fields))));
    }
}
