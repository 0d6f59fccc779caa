package dev.llb;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonParseException;
import com.google.gson.ToNumberPolicy;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * Converts between JSON text and maps, lists, strings, numbers and booleans. The only class that
 * uses Gson.
 *
 * <p>Integers are read as {@link Long}, other numbers as {@link Double}.
 */
final class Json {

    private static final Gson GSON = new GsonBuilder()
            .serializeNulls()
            .disableHtmlEscaping()
            .setObjectToNumberStrategy(ToNumberPolicy.LONG_OR_DOUBLE)
            .create();

    private Json() {}

    static String write(Object value) {
        return GSON.toJson(value);
    }

    /** Parses a JSON object. Throws {@link IllegalArgumentException} for any other text. */
    static Map<String, Object> readObject(String text) {
        try {
            if (GSON.fromJson(text, Object.class) instanceof Map<?, ?> map) {
                return object(map);
            }
        } catch (JsonParseException e) {
            throw new IllegalArgumentException("not JSON: " + e.getMessage(), e);
        }
        throw new IllegalArgumentException("not a JSON object");
    }

    /** Returns {@code value} as an object, or an empty map if it is not one. */
    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        return value instanceof Map<?, ?> map
                ? Collections.unmodifiableMap((Map<String, Object>) map)
                : Map.of();
    }

    /** Returns {@code value} as a list, or an empty list if it is not one. */
    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) {
        return value instanceof List<?> list
                ? Collections.unmodifiableList((List<Object>) list)
                : List.of();
    }

    static List<Map<String, Object>> objects(Object value) {
        return list(value).stream().map(Json::object).toList();
    }

    static List<String> strings(Object value) {
        return list(value).stream()
                .filter(String.class::isInstance)
                .map(String.class::cast)
                .toList();
    }

    static String string(Object value) {
        return value instanceof String text ? text : null;
    }

    static boolean bool(Object value) {
        return Boolean.TRUE.equals(value);
    }

    static long integer(Object value) {
        return value instanceof Number number ? number.longValue() : 0;
    }

    static double decimal(Object value) {
        return value instanceof Number number ? number.doubleValue() : 0;
    }
}
