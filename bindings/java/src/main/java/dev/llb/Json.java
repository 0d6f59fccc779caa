package dev.llb;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonParseException;
import com.google.gson.ToNumberPolicy;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * JSON text to and from maps, lists, strings, numbers and booleans. The only class that knows the JSON library.
 *
 * <p>Whole numbers are read as {@link Long}, the others as {@link Double}.
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

    /** The object that {@code text} holds; what else it may hold is an {@link IllegalArgumentException}. */
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

    /** {@code value} as an object, or an empty one when it is anything else. */
    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        return value instanceof Map<?, ?> map ? Collections.unmodifiableMap((Map<String, Object>) map) : Map.of();
    }

    /** {@code value} as a list, or an empty one when it is anything else. */
    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) {
        return value instanceof List<?> list ? Collections.unmodifiableList((List<Object>) list) : List.of();
    }

    static List<Map<String, Object>> objects(Object value) {
        return list(value).stream().map(Json::object).toList();
    }

    static List<String> strings(Object value) {
        return list(value).stream().filter(String.class::isInstance).map(String.class::cast).toList();
    }

    static String string(Object value) {
        return value instanceof String text ? text : null;
    }

    static boolean flag(Object value) {
        return Boolean.TRUE.equals(value);
    }

    static long whole(Object value) {
        return value instanceof Number number ? number.longValue() : 0;
    }

    static double real(Object value) {
        return value instanceof Number number ? number.doubleValue() : 0;
    }
}
