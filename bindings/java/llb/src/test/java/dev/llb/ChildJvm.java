package dev.llb;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Starts a program of {@link ChildPrograms} in a separate JVM of the same version. */
final class ChildJvm {

    static final String NATIVE_ACCESS = "--enable-native-access=ALL-UNNAMED";

    private final List<String> options = new ArrayList<>();
    private List<String> start = List.of();
    private final ProcessBuilder process = new ProcessBuilder();

    /** The child uses the library under test, through {@code LLB_LIBRARY}, and the same access. */
    ChildJvm() {
        String access = System.getProperty(Native.ACCESS, "");
        if (!access.isEmpty()) {
            options.add("-D" + Native.ACCESS + "=" + access);
        }
        if (Runtime.version().feature() >= 22) {
            options.add(NATIVE_ACCESS);
        }
        String library = System.getProperty(NativeLibrary.PROPERTY, "");
        if (!library.isBlank()) {
            process.environment().put(NativeLibrary.VARIABLE, library);
        }
    }

    ChildJvm with(String... more) {
        options.addAll(List.of(more));
        return this;
    }

    ChildJvm without(String option) {
        options.remove(option);
        return this;
    }

    /** Has another program start the JVM. */
    ChildJvm startedBy(String... command) {
        start = List.of(command);
        return this;
    }

    Map<String, String> environment() {
        return process.environment();
    }

    record Result(int status, String output) {}

    /** Runs the program. {@code output} contains both streams. */
    Result run(String program, String... arguments) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(start);
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(options);
        command.add("-cp");
        command.add(String.join(File.pathSeparator, classPath()));
        command.add("dev.llb.ChildPrograms");
        command.add(program);
        command.addAll(List.of(arguments));
        Process running = process.command(command).redirectErrorStream(true).start();
        running.getOutputStream().close();
        String output = new String(running.getInputStream().readAllBytes());
        return new Result(running.waitFor(), output);
    }

    /** The jar of this module, its tests, Gson, and the libraries. */
    private static List<String> classPath() {
        List<String> paths = new ArrayList<>();
        paths.add(System.getProperty("llb.testClasses"));
        for (Class<?> type : List.of(Llb.class, com.google.gson.Gson.class)) {
            paths.add(path(type.getProtectionDomain().getCodeSource().getLocation()));
        }
        var natives = ChildJvm.class.getClassLoader()
                .getResource("dev/llb/natives/" + NativeLibrary.platform() + "/libllb-jni.so");
        if (natives != null && natives.getProtocol().equals("jar")) {
            String jar = natives.getPath().substring(0, natives.getPath().indexOf('!'));
            paths.add(Path.of(java.net.URI.create(jar)).toString());
        }
        return paths;
    }

    private static String path(java.net.URL location) {
        return Path.of(java.net.URI.create(location.toString())).toString();
    }
}
