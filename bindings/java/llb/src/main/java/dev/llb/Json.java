package dev.llb;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonNull;
import com.google.gson.JsonParseException;
import com.google.gson.JsonPrimitive;
import com.google.gson.JsonSerializer;
import com.google.gson.ToNumberPolicy;
import java.nio.file.Path;
import java.time.temporal.TemporalAccessor;
import java.time.temporal.TemporalAmount;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Converts between JSON text and maps, lists, strings, numbers and booleans, and writes records.
 * Only this class and {@link RecordWriter} use Gson.
 *
 * <p>Integers are read as {@link Long}, other numbers as {@link Double}.
 */
final class Json {

    private static final JsonSerializer<Optional<?>> OPTIONAL = (value, type, context) ->
            value.isPresent() ? context.serialize(value.get()) : JsonNull.INSTANCE;
    private static final JsonSerializer<Object> TEXT =
            (value, type, context) -> new JsonPrimitive(value.toString());
    /** Gson's own adapter needs access to the module of the enum. */
    private static final JsonSerializer<Enum<?>> NAME =
            (value, type, context) -> new JsonPrimitive(value.name());

    private static final Gson GSON = new GsonBuilder()
            .serializeNulls()
            .disableHtmlEscaping()
            .setObjectToNumberStrategy(ToNumberPolicy.LONG_OR_DOUBLE)
            .registerTypeHierarchyAdapter(Optional.class, OPTIONAL)
            .registerTypeHierarchyAdapter(TemporalAccessor.class, TEXT)
            .registerTypeHierarchyAdapter(TemporalAmount.class, TEXT)
            .registerTypeHierarchyAdapter(Path.class, TEXT)
            .registerTypeHierarchyAdapter(Enum.class, NAME)
            .registerTypeAdapterFactory(new RecordWriter())
            .create();

    private Json() {}

    /**
     * @throws IllegalArgumentException if a value has no JSON form, such as NaN or a thread; names
     *     the path to it
     */
    static String write(Object value) {
        try {
            return GSON.toJson(value);
        } catch (JsonParseException | IllegalArgumentException e) {
            throw new IllegalArgumentException(withoutForm(value, ""), e);
        } catch (StackOverflowError e) {
            throw new IllegalArgumentException("a value that contains itself has no JSON form", e);
        }
    }

    /** The path to the first value that cannot be written, and why it cannot. */
    private static String withoutForm(Object value, String path) {
        for (Map.Entry<String, Object> member : members(value).entrySet()) {
            if (!canWrite(member.getValue())) {
                boolean bare = path.isEmpty() || member.getKey().startsWith("[");
                return withoutForm(
                        member.getValue(), path + (bare ? "" : ".") + member.getKey());
            }
        }
        String at = path.isEmpty() ? "" : path + ": ";
        if (value instanceof Record && !RecordWriter.canRead(value.getClass())) {
            return at + RecordWriter.notAccessible(value.getClass());
        }
        String what = value instanceof Number ? value.toString() : value.getClass().getName();
        return at + what + " has no JSON form; use records, maps, collections, strings, numbers and"
                + " booleans";
    }

    /** The values in a value, by their names or indexes. */
    private static Map<String, Object> members(Object value) {
        Map<String, Object> members = new LinkedHashMap<>();
        if (value instanceof Map<?, ?> map) {
            map.forEach((name, member) -> members.put(String.valueOf(name), member));
        } else if (value instanceof Collection<?> collection) {
            collection.forEach(each -> members.put("[" + members.size() + "]", each));
        } else if (value instanceof Record && RecordWriter.canRead(value.getClass())) {
            members.putAll(RecordWriter.members((Record) value));
        }
        return members;
    }

    private static boolean canWrite(Object value) {
        try {
            GSON.toJson(value);
            return true;
        } catch (JsonParseException | IllegalArgumentException e) {
            return false;
        }
    }

    /** A copy of the maps and lists in a value, which later changes do not affect. */
    static Object copy(Object value) {
        if (value instanceof Map<?, ?> map) {
            Fields copy = new Fields();
            map.forEach((name, member) -> copy.put(String.valueOf(name), copy(member)));
            return Collections.unmodifiableMap(copy);
        }
        if (value instanceof Collection<?> collection) {
            return collection.stream().map(Json::copy).toList();
        }
        return value;
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

    /** The constant with this name in JSON, or the one for unknown names. */
    static <E extends Enum<E>> E constant(E[] constants, String name, E unknown) {
        for (E each : constants) {
            if (each.toString().equals(name)) {
                return each;
            }
        }
        return unknown;
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
