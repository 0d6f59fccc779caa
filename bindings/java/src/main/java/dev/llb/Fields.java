package dev.llb;

import java.util.LinkedHashMap;

/**
 * The fields of one JSON object, in the order they were put: a template may print them, and the same request must give
 * the same prompt in every run, which {@code Map.of} does not.
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
