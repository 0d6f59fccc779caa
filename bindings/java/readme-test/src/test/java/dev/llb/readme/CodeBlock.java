package dev.llb.readme;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * Java in a document: a whole program, or statements.
 *
 * @param name of its class
 * @param source that compiles: the program as it is, or the statements in a {@code main}
 */
record CodeBlock(String name, String source, boolean isProgram) {

    private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
    private static final Pattern PROGRAM =
            Pattern.compile("(?:^package (\\w+);.*?)?^(?:public )?class (\\w+) .*?main\\(String",
                    Pattern.DOTALL | Pattern.MULTILINE);
    private static final Pattern IMPORT =
            Pattern.compile("^import .*;\n", Pattern.MULTILINE);

    /** What the text around the statements says that there is. */
    private static final String AROUND = """
            import dev.llb.*;
            import java.nio.file.Path;
            import java.util.*;
            import java.util.concurrent.*;
            %s
            public class %s {
                static final Path path = Path.of("model.gguf");
                static final ExecutorService executor = Executors.newCachedThreadPool();
                static LlbChat chat;

                static String ask(Object... what) {
                    return "21 degrees and sunny";
                }

                public static void main(String[] args) throws Exception {
            %s
                }
            }
            """;

    /** The blocks of a document, in their order. */
    static List<CodeBlock> of(Path document) throws IOException {
        List<CodeBlock> blocks = new ArrayList<>();
        Matcher found = BLOCK.matcher(Files.readString(document));
        while (found.find()) {
            blocks.add(of(found.group(1), "Block" + blocks.size()));
        }
        return blocks;
    }

    private static CodeBlock of(String code, String name) {
        Matcher program = PROGRAM.matcher(code);
        if (program.find()) {
            String folder = program.group(1) == null ? "" : program.group(1) + ".";
            return new CodeBlock(folder + program.group(2), code, true);
        }
        String imports = IMPORT.matcher(code).results()
                .map(match -> match.group())
                .collect(Collectors.joining());
        String statements = IMPORT.matcher(code).replaceAll("");
        return new CodeBlock(name, AROUND.formatted(imports, name, statements), false);
    }

    /** Writes the source to where a compiler expects it. */
    Path write(Path folder) throws IOException {
        Path file = folder.resolve(name.replace('.', '/') + ".java");
        Files.createDirectories(file.getParent());
        return Files.writeString(file, source);
    }
}
