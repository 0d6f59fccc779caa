package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.lang.module.ModuleFinder;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Set;
import java.util.spi.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests tools of a program that is a named module, which this test compiles. */
class NamedModuleTest {

    private static final String PROGRAM =
            """
            package app;

            import dev.llb.*;
            import java.util.List;

            public class Program {
                enum Sky { CLEAR, CLOUDY { @Override public String toString() { return "c"; } } }
                record Place(String city) {}
                record Hour(int hour, Sky sky) {}
                record Weather(Place place, List<Hour> hours) {}

                @ToolMethod("The weather at a place")
                Object weather(Place place) {
                    return new Weather(place, List.of(new Hour(1, Sky.CLEAR), new Hour(2, Sky.CLOUDY)));
                }

                @ToolMethod("The weather of a library")
                Object foreign() {
                    return List.of(new other.Weather(1));
                }

                public static String call(String name, String arguments) {
                    return (String) ToolSet.of(new Program())
                            .call(new ToolCall("id", name, arguments)).content();
                }
            }
            """;

    @TempDir
    private Path folder;

    private void write(String path, String text) throws Exception {
        Path file = folder.resolve("src").resolve(path);
        Files.createDirectories(file.getParent());
        Files.writeString(file, text);
    }

    /** The jar of this module, and those that it needs. */
    private static String modules() {
        Path llb = Path.of(URI.create(
                Llb.class.getProtectionDomain().getCodeSource().getLocation().toString()));
        return llb + File.pathSeparator + llb.resolveSibling("lib");
    }

    @Test
    void recordsOfANamedModuleAreWritten() throws Exception {
        Optional<ToolProvider> javac = ToolProvider.findFirst("javac");
        assumeTrue(javac.isPresent(), "this Java has no compiler");
        write("module-info.java", "module app { requires dev.llb; exports app; opens app to"
                + " dev.llb; }");
        write("app/Program.java", PROGRAM);
        write("other/Weather.java", "package other; public record Weather(int celsius) {}");
        int status = javac.get().run(
                System.out, System.err,
                "-p", modules(), "-d", folder.resolve("app").toString(), "-parameters",
                folder.resolve("src/module-info.java").toString(),
                folder.resolve("src/app/Program.java").toString(),
                folder.resolve("src/other/Weather.java").toString());
        assertEquals(0, status);
        ModuleLayer boot = ModuleLayer.boot();
        assumeTrue(boot.findModule("dev.llb").isPresent(), "the tests run on the class path");
        ModuleLayer layer = boot.defineModulesWithOneLoader(
                boot.configuration().resolve(
                        ModuleFinder.of(folder.resolve("app")), ModuleFinder.of(), Set.of("app")),
                ClassLoader.getSystemClassLoader());
        Class<?> program = layer.findLoader("app").loadClass("app.Program");
        var call = program.getMethod("call", String.class, String.class);
        assertEquals(
                "{\"place\":{\"city\":\"Rome\"},"
                        + "\"hours\":[{\"hour\":1,\"sky\":\"CLEAR\"},{\"hour\":2,\"sky\":\"CLOUDY\"}]}",
                call.invoke(null, "weather", "{\"city\":\"Rome\"}"));
        assertEquals(
                "error: [0]: other.Weather is not accessible: open its package to dev.llb in the"
                        + " module descriptor",
                call.invoke(null, "foreign", "{}"));
    }
}
