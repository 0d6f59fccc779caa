package dev.llb;

import java.util.LinkedHashMap;

/**
 * The members of a JSON object, in insertion order. A template may print them, so the order must be
 * the same in every run. {@code Map.of} does not guarantee that.
 */
final class Fields extends LinkedHashMap<String, Object> {

    private static final long serialVersionUID = 1;

    Fields with(String name, Object value) {
        put(name, value);
        return this;
    }

    void putIfSet(String name, Object value) {
        if (value != null) {
            put(name, value);
        }
    }
}
