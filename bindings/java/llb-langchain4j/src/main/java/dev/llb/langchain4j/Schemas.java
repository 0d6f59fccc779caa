package dev.llb.langchain4j;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.langchain4j.exception.InvalidRequestException;
import dev.langchain4j.exception.UnsupportedFeatureException;
import dev.langchain4j.model.chat.request.json.JsonAnyOfSchema;
import dev.langchain4j.model.chat.request.json.JsonArraySchema;
import dev.langchain4j.model.chat.request.json.JsonBooleanSchema;
import dev.langchain4j.model.chat.request.json.JsonEnumSchema;
import dev.langchain4j.model.chat.request.json.JsonIntegerSchema;
import dev.langchain4j.model.chat.request.json.JsonNullSchema;
import dev.langchain4j.model.chat.request.json.JsonNumberSchema;
import dev.langchain4j.model.chat.request.json.JsonObjectSchema;
import dev.langchain4j.model.chat.request.json.JsonRawSchema;
import dev.langchain4j.model.chat.request.json.JsonReferenceSchema;
import dev.langchain4j.model.chat.request.json.JsonSchemaElement;
import dev.langchain4j.model.chat.request.json.JsonStringSchema;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Converts LangChain4j's schemas to JSON Schema.
 *
 * <p>A closed schema has the meaning of OpenAI's strict structured outputs: an object has exactly
 * its properties, and optional ones may be null. The model must therefore decide about each
 * property and cannot invent others. An object without properties, such as that of a map, stays
 * open.
 */
final class Schemas {

    private static final ObjectMapper JSON = new ObjectMapper();

    private final boolean closed;

    private Schemas(boolean closed) {
        this.closed = closed;
    }

    static Map<String, Object> closed(JsonSchemaElement root) {
        return new Schemas(true).schema(root);
    }

    static Map<String, Object> open(JsonSchemaElement root) {
        return new Schemas(false).schema(root);
    }

    private Map<String, Object> schema(JsonSchemaElement element) {
        if (element instanceof JsonRawSchema raw) {
            return parse(raw.schema());
        }
        Map<String, Object> schema = new LinkedHashMap<>();
        if (element instanceof JsonObjectSchema object) {
            object(schema, object);
        } else if (element instanceof JsonArraySchema array) {
            schema.put("type", "array");
            if (array.items() != null) {
                schema.put("items", schema(array.items()));
            }
        } else if (element instanceof JsonEnumSchema values) {
            schema.put("type", "string");
            schema.put("enum", values.enumValues());
        } else if (element instanceof JsonStringSchema) {
            schema.put("type", "string");
        } else if (element instanceof JsonIntegerSchema) {
            schema.put("type", "integer");
        } else if (element instanceof JsonNumberSchema) {
            schema.put("type", "number");
        } else if (element instanceof JsonBooleanSchema) {
            schema.put("type", "boolean");
        } else if (element instanceof JsonNullSchema) {
            schema.put("type", "null");
        } else if (element instanceof JsonReferenceSchema reference) {
            schema.put("$ref", "#/$defs/" + reference.reference());
        } else if (element instanceof JsonAnyOfSchema any) {
            schema.put("anyOf", any.anyOf().stream().map(this::schema).toList());
        } else {
            throw new UnsupportedFeatureException(
                    "a schema of " + element.getClass().getName() + " is not supported");
        }
        if (element.description() != null) {
            schema.put("description", element.description());
        }
        return schema;
    }

    private void object(Map<String, Object> schema, JsonObjectSchema object) {
        schema.put("type", "object");
        Map<String, Object> properties = new LinkedHashMap<>();
        boolean closing = closed
                && !object.properties().isEmpty()
                && !Boolean.TRUE.equals(object.additionalProperties());
        List<String> required = object.required() == null ? List.of() : object.required();
        object.properties().forEach((name, value) -> {
            Map<String, Object> property = schema(value);
            boolean optional = !required.contains(name);
            properties.put(name, closing && optional ? orNull(property) : property);
        });
        schema.put("properties", properties);
        List<String> names = closing ? List.copyOf(object.properties().keySet()) : required;
        if (!names.isEmpty()) {
            schema.put("required", names);
        }
        if (closing || object.additionalProperties() != null) {
            schema.put("additionalProperties", Boolean.TRUE.equals(object.additionalProperties()));
        }
        if (!object.definitions().isEmpty()) {
            Map<String, Object> definitions = new LinkedHashMap<>();
            object.definitions().forEach((name, value) -> definitions.put(name, schema(value)));
            schema.put("$defs", definitions);
        }
    }

    private static Map<String, Object> orNull(Map<String, Object> schema) {
        Map<String, Object> nullable = new LinkedHashMap<>(schema);
        if (schema.get("type") instanceof String type && !type.equals("null")) {
            nullable.put("type", List.of(type, "null"));
            if (schema.get("enum") instanceof List<?> values) {
                List<Object> withNull = new ArrayList<>(values);
                withNull.add(null);
                nullable.put("enum", withNull);
            }
            return nullable;
        }
        nullable.clear();
        nullable.put("anyOf", List.of(schema, Map.of("type", "null")));
        return nullable;
    }

    private static Map<String, Object> parse(String schema) {
        try {
            return JSON.readValue(schema, new TypeReference<LinkedHashMap<String, Object>>() {});
        } catch (JsonProcessingException e) {
            throw new InvalidRequestException(
                    "the raw JSON schema is not a JSON object: " + e.getOriginalMessage(), e);
        }
    }
}
