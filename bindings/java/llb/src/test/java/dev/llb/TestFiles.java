package dev.llb;

import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Assumptions;

/**
 * Finds the library and the models under test. A test whose requirement is missing is skipped with
 * a message, or fails if {@code LLB_REQUIRE_ALL} is 1.
 */
final class TestFiles {

    private TestFiles() {}

    /** Returns the path of a scripted model, whose output is known. */
    static Path scripted(String name) {
        library();
        return file(scriptedFolder(), name);
    }

    /** Returns the path of a real model. */
    static Path real(String name) {
        library();
        return file(folder("LLB_MODELS", ""), name);
    }

    /** Returns the output of a scripted model. */
    static String expected(String stem) throws IOException {
        String json = Files.readString(file(scriptedFolder(), "expected.json"));
        Object text = Json.readObject(json).get(stem);
        return text instanceof String known ? known : fail("expected.json has no text for " + stem);
    }

    /** Skips the test if the library cannot be found. */
    static void library() {
        try {
            Llb.version();
        } catch (LlbException e) {
            if (!e.code().equals("LIBRARY_NOT_FOUND")) {
                throw e;
            }
            skip(e.getMessage());
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
            skip(variable + " is not set");
        }
        return Path.of(path);
    }

    private static Path file(Path folder, String name) {
        Path file = folder.resolve(name);
        if (!Files.isRegularFile(file)) {
            skip("no file " + file);
        }
        return file;
    }

    private static void skip(String reason) {
        if ("1".equals(System.getenv("LLB_REQUIRE_ALL"))) {
            fail(reason);
        }
        String test = StackWalker.getInstance()
                .walk(frames -> frames.filter(f -> f.getClassName().endsWith("Test"))
                        .reduce((inner, outer) -> outer)
                        .map(f -> f.getClassName() + "." + f.getMethodName())
                        .orElse("a test"));
        System.out.println("skipped " + test + ": " + reason);
        Assumptions.abort(reason);
    }
}
