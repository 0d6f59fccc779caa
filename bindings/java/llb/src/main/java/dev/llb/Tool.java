package dev.llb;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A tool that the model may call.
 *
 * @param name the name of the tool
 * @param description what the tool does and when to call it; may be null
 * @param parameters the JSON Schema of the arguments; the prompt shows it in the order of this map
 */
public record Tool(String name, @Nullable String description, Map<String, Object> parameters) {

    public Tool {
        Objects.requireNonNull(name, "name");
        parameters = Collections.unmodifiableMap(new LinkedHashMap<>(parameters));
    }

    /**
     * Returns a tool with a JSON Schema as text.
     *
     * @throws IllegalArgumentException if {@code parametersJson} is not a JSON object
     */
    public static Tool of(String name, @Nullable String description, String parametersJson) {
        return new Tool(name, description, Json.readObject(parametersJson));
    }

    Map<String, Object> toMap() {
        Fields function = new Fields();
        function.put("name", name);
        function.putIfSet("description", description);
        function.put("parameters", parameters);
        return new Fields().with("type", "function").with("function", function);
    }
}
