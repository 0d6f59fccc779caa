package dev.llb;

import java.lang.reflect.Constructor;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Deque;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * The JSON Schema of a Java type, and values of the type read from JSON.
 *
 * <p>Types: records (also recursive ones), strings, numbers, booleans, enums, {@link Optional},
 * {@link List}, {@link Set}, {@link Collection}, and {@link Map} with string keys. A recursive
 * record needs an optional or a collection between it and itself. An object has exactly the
 * components of its record. An empty optional is null.
 */
final class TypeSchema {

    private static final Set<Class<?>> INTEGERS = Set.of(
            byte.class, Byte.class, short.class, Short.class, int.class, Integer.class,
            long.class, Long.class, BigInteger.class);
    private static final Set<Class<?>> DECIMALS = Set.of(
            float.class, Float.class, double.class, Double.class, BigDecimal.class);

    private final Deque<Class<?>> open = new ArrayDeque<>();
    private final Set<Class<?>> recursive = new HashSet<>();
    private final Fields definitions = new Fields();

    private TypeSchema() {}

    /** @throws IllegalArgumentException if a type has no schema; names the path to it */
    static Map<String, Object> of(Class<? extends Record> type) {
        TypeSchema schema = new TypeSchema();
        Map<String, Object> root = schema.schema(type, type.getSimpleName());
        return schema.withDefinitions(root);
    }

    /** The schema of an object with these members, such as the parameters of a method. */
    static Map<String, Object> ofMembers(Map<String, Member> members, String path) {
        TypeSchema schema = new TypeSchema();
        return schema.withDefinitions(schema.object(members, path));
    }

    /** A type, and its description or null. */
    record Member(Type type, Description description) {}

    private Map<String, Object> withDefinitions(Map<String, Object> root) {
        if (definitions.isEmpty()) {
            return root;
        }
        // A recursive root is defined a second time, because not every reader follows a $ref to the
        // root.
        Fields whole = new Fields();
        if (root.get("$ref") instanceof String reference) {
            whole.putAll(Json.object(definitions.get(reference.substring("#/$defs/".length()))));
        } else {
            whole.putAll(root);
        }
        return whole.with("$defs", definitions);
    }

    private Map<String, Object> schema(Type type, String path) {
        Class<?> raw = rawType(type, path);
        if (INTEGERS.contains(raw)) {
            return new Fields().with("type", "integer");
        }
        if (DECIMALS.contains(raw)) {
            return new Fields().with("type", "number");
        }
        if (raw == boolean.class || raw == Boolean.class) {
            return new Fields().with("type", "boolean");
        }
        if (raw == String.class) {
            return new Fields().with("type", "string");
        }
        if (raw.isEnum()) {
            return new Fields().with("type", "string").with("enum", names(raw));
        }
        if (raw.isRecord()) {
            return recordSchema(raw, path);
        }
        if (raw == Optional.class) {
            Map<String, Object> value = schema(argument(type, 0, path), path);
            Map<String, Object> none = new Fields().with("type", "null");
            return new Fields().with("anyOf", List.of(value, none));
        }
        if (raw == List.class || raw == Set.class || raw == Collection.class) {
            Map<String, Object> items = schema(argument(type, 0, path), path + "[]");
            return new Fields().with("type", "array").with("items", items);
        }
        if (raw == Map.class && argument(type, 0, path) == String.class) {
            Map<String, Object> values = schema(argument(type, 1, path), path + "{}");
            return new Fields().with("type", "object").with("additionalProperties", values);
        }
        throw noSchema(type, path);
    }

    private Map<String, Object> recordSchema(Class<?> type, String path) {
        String name = type.getSimpleName();
        Map<String, Object> reference = new Fields().with("$ref", "#/$defs/" + name);
        if (open.contains(type)) {
            recursive.add(type);
            return reference;
        }
        if (recursive.contains(type)) {
            return reference;
        }
        requireFinite(type, new ArrayDeque<>(), path);
        constructor(type, path);
        Map<String, Member> members = new LinkedHashMap<>();
        for (RecordComponent component : type.getRecordComponents()) {
            Description description = component.getAnnotation(Description.class);
            members.put(component.getName(), new Member(component.getGenericType(), description));
        }
        open.push(type);
        Fields object = object(members, path);
        open.pop();
        Description description = type.getAnnotation(Description.class);
        if (description != null) {
            object.put("description", description.value());
        }
        if (!recursive.contains(type)) {
            return object;
        }
        if (definitions.putIfAbsent(name, object) != null) {
            throw new IllegalArgumentException(
                    path + ": two recursive records are named " + name + "; rename one");
        }
        return reference;
    }

    /** A record whose components always contain the same record again has no JSON with an end. */
    private static void requireFinite(Class<?> type, Deque<Class<?>> inside, String path) {
        if (inside.contains(type)) {
            throw new IllegalArgumentException(path + ": a " + type.getSimpleName()
                    + " always contains another one, without end; make it an Optional or a List");
        }
        inside.push(type);
        for (RecordComponent component : type.getRecordComponents()) {
            if (component.getType().isRecord()) {
                requireFinite(component.getType(), inside, path + "." + component.getName());
            }
        }
        inside.pop();
    }

    private Fields object(Map<String, Member> members, String path) {
        Fields properties = new Fields();
        members.forEach((name, member) -> {
            Map<String, Object> property = schema(member.type(), path + "." + name);
            if (member.description() != null) {
                property.put("description", member.description().value());
            }
            properties.put(name, property);
        });
        return new Fields()
                .with("type", "object")
                .with("properties", properties)
                .with("required", List.copyOf(members.keySet()))
                .with("additionalProperties", false);
    }

    private static List<String> names(Class<?> type) {
        return Arrays.stream(type.getEnumConstants()).map(c -> ((Enum<?>) c).name()).toList();
    }

    private static Class<?> rawType(Type type, String path) {
        if (type instanceof Class<?> raw) {
            return raw;
        }
        if (type instanceof ParameterizedType generic) {
            return (Class<?>) generic.getRawType();
        }
        throw noSchema(type, path);
    }

    private static Type argument(Type type, int index, String path) {
        if (type instanceof ParameterizedType generic) {
            return generic.getActualTypeArguments()[index];
        }
        throw new IllegalArgumentException(
                path + ": " + type.getTypeName() + " needs a type argument");
    }

    private static IllegalArgumentException noSchema(Type type, String path) {
        return new IllegalArgumentException(path + ": " + type.getTypeName()
                + " has no schema; use records, strings, numbers, booleans, enums, Optional, List,"
                + " Set, Collection, or Map with String keys");
    }

    // Values

    /** @throws IllegalArgumentException if the value does not fit; names the path to it */
    static Object read(Object value, Type type, String path) {
        Class<?> raw = rawType(type, path);
        if (raw == Optional.class) {
            Type inner = argument(type, 0, path);
            return value == null ? Optional.empty() : Optional.of(read(value, inner, path));
        }
        if (value == null) {
            throw new IllegalArgumentException(path + ": missing or null");
        }
        if (value instanceof Map<?, ?> object && raw.isRecord()) {
            return readRecord(object, raw, path);
        }
        if (value instanceof Map<?, ?> object && raw == Map.class) {
            Map<Object, Object> values = new LinkedHashMap<>();
            Type inner = argument(type, 1, path);
            object.forEach((key, each) -> values.put(key, read(each, inner, path + "." + key)));
            return values;
        }
        if (value instanceof List<?> list && Collection.class.isAssignableFrom(raw)) {
            boolean set = raw == Set.class;
            Collection<Object> values = set ? new LinkedHashSet<>() : new ArrayList<>();
            Type inner = argument(type, 0, path);
            for (Object each : list) {
                values.add(read(each, inner, path + "[" + values.size() + "]"));
            }
            return values;
        }
        if (value instanceof String name && raw.isEnum()) {
            for (Object constant : raw.getEnumConstants()) {
                if (((Enum<?>) constant).name().equals(name)) {
                    return constant;
                }
            }
        }
        boolean same = raw == String.class && value instanceof String
                || (raw == boolean.class || raw == Boolean.class) && value instanceof Boolean;
        if (same) {
            return value;
        }
        if (value instanceof Number number && (INTEGERS.contains(raw) || DECIMALS.contains(raw))) {
            return number(number, raw, path);
        }
        throw new IllegalArgumentException(
                path + ": expected " + type.getTypeName() + ", not " + Json.write(value));
    }

    private static Object number(Number number, Class<?> type, String path) {
        BigDecimal exact = new BigDecimal(number.toString());
        try {
            return switch (type.getSimpleName()) {
                case "byte", "Byte" -> exact.byteValueExact();
                case "short", "Short" -> exact.shortValueExact();
                case "int", "Integer" -> exact.intValueExact();
                case "long", "Long" -> exact.longValueExact();
                case "BigInteger" -> exact.toBigIntegerExact();
                case "float", "Float" -> exact.floatValue();
                case "double", "Double" -> exact.doubleValue();
                default -> exact;
            };
        } catch (ArithmeticException e) {
            throw new IllegalArgumentException(
                    path + ": " + number + " is no " + type.getSimpleName(), e);
        }
    }

    private static Object readRecord(Map<?, ?> object, Class<?> type, String path) {
        List<Object> values = new ArrayList<>();
        for (RecordComponent component : type.getRecordComponents()) {
            String name = component.getName();
            values.add(read(object.get(name), component.getGenericType(), path + "." + name));
        }
        try {
            return constructor(type, path).newInstance(values.toArray());
        } catch (ReflectiveOperationException e) {
            Throwable cause = e.getCause() != null ? e.getCause() : e;
            throw new IllegalArgumentException(
                    path + ": cannot make a " + type.getSimpleName() + ": " + cause.getMessage(),
                    e);
        }
    }

    /** The canonical constructor. */
    private static Constructor<?> constructor(Class<?> type, String path) {
        Class<?>[] components = Arrays.stream(type.getRecordComponents())
                .map(RecordComponent::getType)
                .toArray(Class<?>[]::new);
        try {
            Constructor<?> constructor = type.getDeclaredConstructor(components);
            if (!constructor.trySetAccessible()) {
                throw new IllegalArgumentException(path + ": " + type.getName()
                        + " is not accessible: open its package to dev.llb in the module"
                        + " descriptor");
            }
            return constructor;
        } catch (NoSuchMethodException e) {
            throw new AssertionError("every record has a canonical constructor", e);
        }
    }
}
