package dev.llb.springai.boot;

import dev.llb.Llb;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.springframework.aot.hint.ExecutableMode;
import org.springframework.aot.hint.ReflectionHints;
import org.springframework.aot.hint.RuntimeHints;
import org.springframework.aot.hint.RuntimeHintsRegistrar;
import org.springframework.aot.hint.TypeHint;
import org.springframework.aot.hint.TypeReference;
import org.springframework.boot.json.JsonParserFactory;

/**
 * Gives Spring what the library lists for GraalVM in its own file: the files of the library, and
 * what it uses by reflection and JNI. A native image reads that file by itself, and there finds the
 * foreign calls, too, for which Spring has no hints. Checks of Spring's hints see these only.
 */
class LlbRuntimeHints implements RuntimeHintsRegistrar {

    private static final String FILE =
            "/META-INF/native-image/dev.llb/llb/reachability-metadata.json";

    @Override
    public void registerHints(RuntimeHints hints, @Nullable ClassLoader classLoader) {
        Map<String, Object> metadata = metadata();
        for (Map<?, ?> resource : objects(metadata.get("resources"))) {
            hints.resources().registerPattern((String) resource.get("glob"));
        }
        for (Map<?, ?> type : objects(metadata.get("reflection"))) {
            boolean jni = Boolean.TRUE.equals(type.get("jniAccessible"));
            register(jni ? hints.jni() : hints.reflection(), type);
        }
    }

    private static Map<String, Object> metadata() {
        try (InputStream in = Llb.class.getResourceAsStream(FILE)) {
            String json = new String(in.readAllBytes(), StandardCharsets.UTF_8);
            return JsonParserFactory.getJsonParser().parseMap(json);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void register(ReflectionHints hints, Map<?, ?> type) {
        hints.registerType(TypeReference.of((String) type.get("type")), hint ->
                objects(type.get("methods")).forEach(method -> register(hint, method)));
    }

    private static void register(TypeHint.Builder type, Map<?, ?> method) {
        String name = (String) method.get("name");
        List<TypeReference> parameters = list(method.get("parameterTypes")).stream()
                .map(parameter -> TypeReference.of((String) parameter))
                .toList();
        if (name.equals("<init>")) {
            type.withConstructor(parameters, ExecutableMode.INVOKE);
        } else {
            type.withMethod(name, parameters, ExecutableMode.INVOKE);
        }
    }

    private static List<Map<?, ?>> objects(@Nullable Object value) {
        return list(value).stream().<Map<?, ?>>map(each -> (Map<?, ?>) each).toList();
    }

    private static List<?> list(@Nullable Object value) {
        return value instanceof List<?> list ? list : List.of();
    }
}
