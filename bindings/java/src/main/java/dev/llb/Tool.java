package dev.llb;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * A tool the model may call.
 *
 * @param name what the model calls it
 * @param description when and for what to call it; may be null
 * @param parameters the JSON Schema of the arguments; the model reads it in the order of this map
 */
public record Tool(String name, String description, Map<String, Object> parameters) {

    public Tool {
        Objects.requireNonNull(name, "name");
        parameters = Collections.unmodifiableMap(new LinkedHashMap<>(parameters));
    }

    /** A tool whose schema is written as JSON text. */
    public static Tool of(String name, String description, String parametersJson) {
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
