package dev.llb;

import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A tool call of the model.
 *
 * @param id the id of the call; {@link Message#tool} refers to it
 * @param name the name of the tool
 * @param arguments a JSON object as text
 */
public record ToolCall(@Nullable String id, String name, String arguments) {

    public ToolCall {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(arguments, "arguments");
    }

    /**
     * Parses the arguments. Integers are {@link Long}, other numbers {@link Double}.
     *
     * @throws IllegalArgumentException if they are not a JSON object
     */
    public Map<String, Object> argumentsAsMap() {
        return Json.readObject(arguments);
    }

    /**
     * Reads a call of a reply, or of a message, where {@code function} has the name and arguments.
     */
    static ToolCall of(Map<String, Object> call) {
        boolean nested = call.get("function") instanceof Map<?, ?>;
        Map<String, Object> function = nested ? Json.object(call.get("function")) : call;
        Object value = function.get("arguments");
        String arguments =
                value instanceof String text ? text : Json.write(value == null ? Map.of() : value);
        return new ToolCall(
                Json.string(call.get("id")),
                Objects.requireNonNullElse(Json.string(function.get("name")), ""),
                arguments);
    }

    Map<String, Object> toMap() {
        Fields fields = new Fields();
        fields.putIfSet("id", id);
        fields.put("type", "function");
        fields.put("function", new Fields().with("name", name).with("arguments", arguments));
        return fields;
    }
}
