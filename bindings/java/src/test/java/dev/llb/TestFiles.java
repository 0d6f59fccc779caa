package dev.llb;

import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Assumptions;

/**
 * The library and the models under test. What is absent skips the test with a line that says so, or fails it when
 * {@code LLB_REQUIRE_ALL} is 1.
 */
final class TestFiles {

    private TestFiles() {}

    /** A model made for tests, whose output is known. */
    static Path scripted(String name) {
        library();
        return file(scriptedFolder(), name);
    }

    /** A model as users have them. */
    static Path real(String name) {
        library();
        return file(folder("LLB_MODELS", ""), name);
    }

    /** What a scripted model writes. */
    static String expected(String stem) throws IOException {
        Object text = Json.readObject(Files.readString(file(scriptedFolder(), "expected.json"))).get(stem);
        return text instanceof String known ? known : fail("expected.json has no text for " + stem + ": " + text);
    }

    static void library() {
        try {
            Llb.version();
        } catch (LlbException e) {
            if (!e.code().equals("LIBRARY_NOT_FOUND")) {
                throw e;
            }
            absent(e.getMessage());
        }
    }

    private static Path scriptedFolder() {
        return folder("LLB_TEST_MODELS", "llb.testModels");
    }

    private static Path folder(String variable, String property) {
        String path = property.isEmpty() ? "" : System.getProperty(property, "");
        if (path.isBlank()) {
            path = System.getenv().getOrDefault(variable, "");
        }
        if (path.isBlank()) {
            absent(variable + " is not set");
        }
        return Path.of(path);
    }

    private static Path file(Path folder, String name) {
        Path file = folder.resolve(name);
        if (!Files.isRegularFile(file)) {
            absent("no " + file);
        }
        return file;
    }

    private static void absent(String what) {
        if ("1".equals(System.getenv("LLB_REQUIRE_ALL"))) {
            fail(what);
        }
        String test = StackWalker.getInstance()
                .walk(frames -> frames.filter(f -> f.getClassName().endsWith("Test"))
                        .reduce((inner, outer) -> outer)
                        .map(f -> f.getClassName() + "." + f.getMethodName())
                        .orElse("a test"));
        System.out.println("skipped " + test + ": " + what);
        Assumptions.abort(what);
    }
}
