package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * Checks that the GraalVM metadata lists everything that the sources use by reflection, JNI and
 * foreign calls.
 */
class ReachabilityTest {

    private static final String FILE =
            "/META-INF/native-image/dev.llb/llb/reachability-metadata.json";

    /** {@code target/test-classes} is two folders below the module. */
    private static final Path MODULE =
            Path.of(System.getProperty("llb.testClasses")).getParent().getParent();

    private static Map<String, Object> metadata() throws IOException {
        try (InputStream in = Llb.class.getResourceAsStream(FILE)) {
            return Json.readObject(new String(in.readAllBytes(), StandardCharsets.UTF_8));
        }
    }

    private static String source(String path) throws IOException {
        return Files.readString(MODULE.resolve(path));
    }

    private static Stream<MatchResult> matches(String regex, String text) {
        return Pattern.compile(regex).matcher(text).results();
    }

    /** Either {@code type} or {@code type.method(parameters)}. */
    private static Set<String> listed(boolean jni) throws IOException {
        Set<String> names = new TreeSet<>();
        for (Map<String, Object> entry : Json.objects(metadata().get("reflection"))) {
            if (Json.bool(entry.get("jniAccessible")) == jni) {
                names.add(Json.string(entry.get("type")));
                for (Map<String, Object> method : Json.objects(entry.get("methods"))) {
                    names.add(entry.get("type") + "." + method.get("name")
                            + Json.strings(method.get("parameterTypes")));
                }
            }
        }
        return names;
    }

    @Test
    void reflection() throws Exception {
        Set<String> used = new TreeSet<>();
        Set<String> users = new TreeSet<>();
        try (Stream<Path> files = Files.walk(MODULE.resolve("src/main"))) {
            for (Path file : files.filter(f -> f.toString().endsWith(".java")).toList()) {
                String text = Files.readString(file);
                matches("Class\\.forName\\(\"([^\"]+)\"\\)", text)
                        .forEach(m -> used.add(m.group(1)));
                if (Pattern.compile(
                        "forName\\(|findVirtual\\(|getDeclared|getRecordComponents\\(|getMethod")
                        .matcher(text)
                        .find()) {
                    users.add(file.getFileName().toString());
                }
            }
        }
        // RecordWriter, TypeSchema and ToolSet inspect classes of the program. PlatformCall calls
        // Thread.isVirtual, and PanamaAccess calls Reference.get.
        assertEquals(
                Set.of(
                        "Native.java",
                        "PanamaAccess.java",
                        "PlatformCall.java",
                        "RecordWriter.java",
                        "ToolSet.java",
                        "TypeSchema.java"),
                users);
        used.add("java.lang.Thread");
        used.add("java.lang.Thread.isVirtual[]");
        used.add("java.lang.ref.Reference");
        used.add("java.lang.ref.Reference.get[]");
        used.add("dev.llb.PanamaAccess.load[" + NativeLibrary.Found.class.getName() + "]");
        assertEquals(used, listed(false));
        for (String name : listed(false)) {
            if (!name.contains("PanamaAccess") && name.indexOf('[') < 0) {
                Class.forName(name);
            }
        }
    }

    @Test
    void jni() throws Exception {
        String shim = source("../llb-natives/src/main/c/llb_jni.c");
        Set<String> used = new TreeSet<>();
        matches("FindClass\\(env, \"([^\"]+)\"\\)", shim)
                .forEach(m -> used.add(m.group(1).replace('/', '.')));
        matches("GetStaticMethodID\\(env, callback, \"(\\w+)\", \"([^\"]+)\"\\)", shim)
                .forEach(m -> used.add("dev.llb.Callback." + m.group(1) + parameters(m.group(2))));
        // Used by ThrowNew.
        assertTrue(shim.contains("ThrowNew(env, error"));
        used.add("java.lang.OutOfMemoryError.<init>[java.lang.String]");
        assertEquals(used, listed(true));
    }

    private static List<String> parameters(String signature) {
        return matches("J|\\[B|L([^;]+);", signature.substring(1, signature.indexOf(')')))
                .map(m -> switch (m.group()) {
                    case "J" -> "long";
                    case "[B" -> "byte[]";
                    default -> m.group(1).replace('/', '.');
                })
                .collect(Collectors.toList());
    }

    @Test
    void foreignCalls() throws Exception {
        String access = source("src/main/java22/dev/llb/PanamaAccess.java");
        Map<String, String> types =
                Map.of("ADDRESS", "void*", "JAVA_LONG", "jlong", "JAVA_INT", "jint");
        Set<String> downcalls = new TreeSet<>();
        Set<String> upcalls = new TreeSet<>();
        matches("(callback = )?FunctionDescriptor\\.(of|ofVoid)\\(([^)]*)\\)", access)
                .forEach(m -> {
            List<String> all = new ArrayList<>();
            if (m.group(2).equals("ofVoid")) {
                all.add("void");
            }
            Arrays.stream(m.group(3).split(","))
                    .map(String::strip)
                    .filter(type -> !type.isEmpty())
                    .forEach(type -> all.add(types.get(type)));
            (m.group(1) != null ? upcalls : downcalls).add(all.toString());
        });
        // The only call with an option is strlen.
        assertEquals(1, matches("Linker\\.Option\\.", access).count());
        downcalls.add("critical [jlong, void*]");
        Map<String, Object> foreign = Json.object(metadata().get("foreign"));
        assertEquals(downcalls, signatures(foreign.get("downcalls")));
        assertEquals(upcalls, signatures(foreign.get("upcalls")));
    }

    private static Set<String> signatures(Object entries) {
        Set<String> signatures = new TreeSet<>();
        for (Map<String, Object> entry : Json.objects(entries)) {
            List<String> all = new ArrayList<>();
            all.add(Json.string(entry.get("returnType")));
            all.addAll(Json.strings(entry.get("parameterTypes")));
            signatures.add((entry.containsKey("options") ? "critical " : "") + all);
        }
        return signatures;
    }

    @Test
    void resources() throws Exception {
        Map<String, Object> entry = Json.objects(metadata().get("resources")).get(0);
        String folder = Json.string(entry.get("glob")).replace("**", "");
        // The only place that creates names of resources.
        assertTrue(source("src/main/java/dev/llb/NativeArtifact.java")
                .contains("String folder = \"" + folder + "\" + platform"));
    }
}
