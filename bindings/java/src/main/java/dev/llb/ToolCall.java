package dev.llb;

import java.util.Map;
import java.util.Objects;

/**
 * A call of a tool that the model asks for.
 *
 * @param id what the answer to this call names, in {@link Message#tool}
 * @param name the tool
 * @param arguments JSON text of an object
 */
public record ToolCall(String id, String name, String arguments) {

    public ToolCall {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(arguments, "arguments");
    }

    /** The arguments read; whole numbers are {@link Long}. An {@link IllegalArgumentException} if they are no object. */
    public Map<String, Object> argumentsAsMap() {
        return Json.readObject(arguments);
    }

    /** From a reply's flat {@code tool_calls} or a message's, where name and arguments lie in {@code function}. */
    static ToolCall of(Map<String, Object> call) {
        Map<String, Object> function = call.get("function") instanceof Map<?, ?> ? Json.object(call.get("function")) : call;
        Object arguments = function.get("arguments");
        return new ToolCall(
                Json.string(call.get("id")),
                Objects.requireNonNullElse(Json.string(function.get("name")), ""),
                arguments instanceof String text ? text : Json.write(arguments == null ? Map.of() : arguments));
    }

    Map<String, Object> toMap() {
        Fields fields = new Fields();
        fields.putIfSet("id", id);
        fields.put("type", "function");
        fields.put("function", new Fields().with("name", name).with("arguments", arguments));
        return fields;
    }
}
