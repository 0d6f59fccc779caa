package dev.llb.readme;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.llb.scripted.ScriptedServer;
import dev.llb.scripted.TestModels;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The Java code of the documents compiles for Java 17, and runs, as it is copied. */
class ReadmeTest {

    private static final Path REPOSITORY = Path.of(System.getProperty("llb.repository"));
    private static final Path README = REPOSITORY.resolve("bindings/java/README.md");
    private static final String JAVA = System.getProperty("java.home");
    private static final String CALL = "<tool_call>\n"
            + "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";

    @TempDir
    Path folder;

    /** The folders of each Java to run on. */
    static Stream<String> javas() {
        return Stream.of("java.home", "llb.jdk17", "llb.jdk21")
                .map(property -> System.getProperty(property, ""))
                .filter(home -> !home.isBlank());
    }

    private static String classPath() {
        return System.getProperty(
                "surefire.test.class.path", System.getProperty("java.class.path"));
    }

    private void compile(List<CodeBlock> blocks) throws IOException {
        List<String> options = new ArrayList<>(List.of(
                "--release", "17", "-parameters", "-proc:none", "-cp", classPath(), "-d",
                folder.toString()));
        for (CodeBlock block : blocks) {
            options.add(block.write(folder).toString());
        }
        int status = ToolProvider.getSystemJavaCompiler()
                .run(null, System.out, System.out, options.toArray(String[]::new));
        assertEquals(0, status, "the code does not compile, see above");
    }

    /** The models that the documents name, whose text is known. */
    private void models() throws IOException {
        for (Map.Entry<String, String> model : Map.of(
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "text.gguf",
                "model.gguf", "text.gguf",
                "all-MiniLM-L6-v2.gguf", "embedding.gguf",
                "tools.gguf", "tool_call.gguf").entrySet()) {
            Files.copy(
                    TestModels.scripted(model.getValue()), folder.resolve(model.getKey()));
        }
    }

    /** Runs a class in this folder. Returns what it prints. */
    private String run(String java, String name, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of(
                Path.of(java, "bin", "java").toString(),
                "-Dfile.encoding=UTF-8",
                "-cp", folder + File.pathSeparator + classPath(),
                name));
        command.addAll(List.of(arguments));
        Path output = folder.resolve("output");
        Process running = new ProcessBuilder(command)
                .directory(folder.toFile())
                .redirectErrorStream(true)
                .redirectOutput(output.toFile())
                .start();
        int status = running.waitFor();
        String printed = Files.readString(output);
        assertEquals(0, status, printed);
        return printed;
    }

    private static CodeBlock program(Path document, String name) throws IOException {
        return CodeBlock.of(document).stream()
                .filter(block -> block.isProgram() && block.name().equals(name))
                .findFirst()
                .orElseThrow(() -> new AssertionError("no program " + name + " in " + document));
    }

    private String compileAndRun(String java, Path document, String name, String... arguments)
            throws Exception {
        models();
        compile(List.of(program(document, name)));
        return run(java, name, arguments);
    }

    private static void checkContains(String output, String... expected) {
        for (String text : expected) {
            assertTrue(output.contains(text), "no " + text + " in: " + output);
        }
    }

    @ParameterizedTest
    @MethodSource("javas")
    void theFirstProgram(String java) throws Exception {
        checkContains(compileAndRun(java, README, "Sky"), "Usage[", "😀 cut in two.");
    }

    @ParameterizedTest
    @MethodSource("javas")
    void theProgramOfLangChain4j(String java) throws Exception {
        String output = compileAndRun(java, README, "Weather", "tools.gguf");
        checkContains(output, "name = \"get_weather\"", "\"Paris\"", "LlbTokenUsage");
    }

    @ParameterizedTest
    @MethodSource("javas")
    void theProgramOfSpring(String java) throws Exception {
        try (ScriptedServer server = new ScriptedServer()) {
            server.say(List.of(
                    CALL, "It is sunny.", "{\"name\": \"Berlin\", \"country\": \"Germany\"}"));
            String[] arguments = server.springProperties().stream()
                    .map(property -> "--" + property)
                    .toArray(String[]::new);
            String output = compileAndRun(java, README, "weather.Weather", arguments);
            checkContains(output, "It is sunny.", "City[name=Berlin, country=Germany]");
        }
    }

    @Test
    void theFirstProgramOfTheStartPage() throws Exception {
        Path start = REPOSITORY.resolve("docs/start.md");
        checkContains(compileAndRun(JAVA, start, "River"), "😀 cut in two.");
    }

    @Test
    void theProgramsOfTheMovingPage() throws Exception {
        Path moving = REPOSITORY.resolve("docs/moving.md");
        models();
        compile(List.of(program(moving, "FromOllama"), program(moving, "FromJavaLlama")));
        for (String name : List.of("FromOllama", "FromJavaLlama")) {
            checkContains(run(JAVA, name), "😀 cut in two.");
        }
    }

    @Test
    void theProgramOfTheRepository() throws Exception {
        Files.copy(
                TestModels.scripted("tool_call.gguf"), folder.resolve("model.gguf"));
        compile(List.of(program(REPOSITORY.resolve("README.md"), "Weather")));
        checkContains(run(JAVA, "Weather"), "get_weather {\"city\": \"Paris\"}");
    }

    /** What is no program is put into one, with the names that the text around it explains. */
    @ParameterizedTest
    @MethodSource("javas")
    void theOtherBlocks(String java) throws Exception {
        models();
        List<CodeBlock> blocks =
                CodeBlock.of(README).stream().filter(block -> !block.isProgram()).toList();
        compile(blocks);
        String[] names = blocks.stream().map(CodeBlock::name).toArray(String[]::new);
        String output = run(java, "dev.llb.readme.StatementBlocks", names);
        checkContains(output, "Yes, it is warm.", names[names.length - 1] + " has run");
    }
}
