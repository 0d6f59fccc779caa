package dev.llb.scripted;

import static org.junit.jupiter.api.Assertions.fail;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Assumptions;

/** Model files. A test without its file is skipped, or fails if {@code LLB_REQUIRE_ALL} is 1. */
public final class TestModels {

    private TestModels() {}

    /** A scripted model file, whose output is known. */
    public static Path scripted(String name) {
        return file(System.getProperty("llb.testModels", ""), "LLB_TEST_MODELS", name);
    }

    /** The small real model. */
    public static Path real() {
        String folder = System.getenv().getOrDefault("LLB_MODELS", "");
        return file(folder, "LLB_MODELS", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
    }

    private static Path file(String folder, String variable, String name) {
        // Maven passes on an unset variable as its name.
        boolean set = !folder.isBlank() && !folder.startsWith("${");
        Path file = Path.of(set ? folder : "", name);
        if (!set || !Files.isRegularFile(file)) {
            String reason = set ? "no file " + file : variable + " is not set";
            if ("1".equals(System.getenv("LLB_REQUIRE_ALL"))) {
                fail(reason);
            }
            System.out.println("skipped tests with " + name + ": " + reason);
            Assumptions.abort(reason);
        }
        return file;
    }
}
