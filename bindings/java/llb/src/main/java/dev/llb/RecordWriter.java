package dev.llb;

import com.google.gson.Gson;
import com.google.gson.TypeAdapter;
import com.google.gson.TypeAdapterFactory;
import com.google.gson.reflect.TypeToken;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonWriter;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.RecordComponent;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Writes records as JSON objects. Gson would need access to the module of a record. This module has
 * it: a named module opens its package to {@code dev.llb} or exports it.
 */
final class RecordWriter implements TypeAdapterFactory {

    @Override
    public <T> TypeAdapter<T> create(Gson gson, TypeToken<T> type) {
        return type.getRawType().isRecord() ? new Adapter<>(gson) : null;
    }

    private static final class Adapter<T> extends TypeAdapter<T> {

        private final Gson gson;

        Adapter(Gson gson) {
            this.gson = gson;
        }

        @Override
        public void write(JsonWriter out, T value) throws IOException {
            if (value == null) {
                out.nullValue();
                return;
            }
            out.beginObject();
            for (Map.Entry<String, Object> member : members((Record) value).entrySet()) {
                out.name(member.getKey());
                Object component = member.getValue();
                Class<?> type = component == null ? Object.class : component.getClass();
                gson.toJson(component, type, out);
            }
            out.endObject();
        }

        @Override
        public T read(JsonReader in) {
            throw new UnsupportedOperationException("TypeSchema reads records");
        }
    }

    /** Whether {@link #members} may read a record of this type. */
    static boolean canRead(Class<?> type) {
        for (RecordComponent component : type.getRecordComponents()) {
            if (!component.getAccessor().trySetAccessible()) {
                return false;
            }
        }
        return true;
    }

    /** The components of a record, by name. */
    static Map<String, Object> members(Record value) {
        if (!canRead(value.getClass())) {
            throw new IllegalArgumentException(notAccessible(value.getClass()));
        }
        Map<String, Object> members = new LinkedHashMap<>();
        for (RecordComponent component : value.getClass().getRecordComponents()) {
            members.put(component.getName(), read(component.getAccessor(), value));
        }
        return members;
    }

    static String notAccessible(Class<?> type) {
        return type.getName() + " is not accessible: open its package to dev.llb in the module"
                + " descriptor";
    }

    private static Object read(Method accessor, Record value) {
        try {
            accessor.setAccessible(true);
            return accessor.invoke(value);
        } catch (InvocationTargetException e) {
            throw Callback.<RuntimeException>unchecked(e.getCause());
        } catch (IllegalAccessException e) {
            throw new AssertionError("the accessor was made accessible", e);
        }
    }
}
