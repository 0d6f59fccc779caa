package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that need their own JVM: its options, its environment, its end. */
class ChildJvmTest {

    @TempDir
    Path folder;

    private String model;

    @BeforeEach
    void model() {
        model = TestFiles.scripted("text.gguf").toString();
    }

    @Test
    void theJniCheckIsSilent() throws Exception {
        // Without libjsig, this check also reports the library's signal handlers, which pass on
        // faults that are not the library's.
        ChildJvm child = new ChildJvm().with("-Xcheck:jni");
        Path jsig = Path.of(System.getProperty("java.home"), "lib", "libjsig.so");
        child.environment().put("LD_PRELOAD", jsig.toString());
        ChildJvm.Result result = child.run("calls", model);
        assertEquals("", result.output());
        assertEquals(0, result.status());
    }

    @Test
    void callsLeaveNoGrowth() throws Exception {
        ChildJvm.Result result =
                new ChildJvm().with("-Xms48m", "-Xmx48m", "-XX:+AlwaysPreTouch")
                        .run("growth", model);
        String[] lines = result.output().strip().split("\n");
        assertEquals(2, lines.length, result.output());
        // If 7,500 replies of 4 KB leaked, that would be 30 MB.
        assertTrue(Long.parseLong(lines[0]) < 12_000, result.output());
        assertEquals("0", lines[1]);
    }

    @Test
    void nothingOfAClosedModelStays() throws Exception {
        ChildJvm.Result result = new ChildJvm().run("reopened", model);
        assertEquals("", result.output());
        assertEquals(0, result.status());
    }

    @Test
    void twoClassLoaders() throws Exception {
        ChildJvm.Result result = new ChildJvm().run("loaders");
        String version = Llb.version() + "\n";
        assertEquals(version + version, result.output());
    }

    /** Its classes are collected, so that it can be started again any number of times. */
    @Test
    void aWebApplicationIsStopped() throws Exception {
        ChildJvm.Result result = new ChildJvm().run("stopped", model);
        assertEquals("collected\ncollected\ncollected\n", result.output());
    }

    @Test
    void anOutOfMemoryErrorInACallback() throws Exception {
        ChildJvm.Result result = new ChildJvm().with("-Xmx48m").run("memory", model);
        assertEquals("length\n", result.output());
    }

    /** The server accepts the connection and never answers. */
    @Test
    void anInterruptEndsAFetch() throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            ChildJvm child = new ChildJvm();
            child.environment().put(
                    "HF_ENDPOINT", "http://127.0.0.1:" + silent.getLocalPort());
            assertEquals(
                    "CANCELLED true\n", child.run("fetch", folder.toString()).output());
        }
    }

    @Test
    void aChatThatIsNotClosed() throws Exception {
        ChildJvm.Result result = new ChildJvm().run("collected", model);
        assertTrue(result.output().contains("a chat was collected without close"), result.output());
        assertTrue(result.output().endsWith("destroyed\n"), result.output());
    }

    @Test
    void warningsAreLogged() throws Exception {
        String logged = new ChildJvm().run("warnings", model).output();
        assertTrue(logged.contains("a call of the tool visit failed"), logged);
        assertTrue(logged.contains("java.lang.IllegalStateException"), logged);
        assertTrue(logged.contains("at dev.llb.ChildPrograms.lambda$warnings"), logged);
        assertFalse(logged.contains("private"), logged);
        assertEquals(2, logged.split("temprature: unknown member", -1).length, logged);
    }

    // The artifact llb-natives

    /** A child without a path to the library, with this folder as cache. */
    private ChildJvm withArtifact(Path cache) {
        ChildJvm child = new ChildJvm();
        child.environment().remove(NativeLibrary.VARIABLE);
        child.environment().put("XDG_CACHE_HOME", cache.toString());
        return child;
    }

    @Test
    void processesShareTheUnpackedLibrary() throws Exception {
        try (Pool pool = Pool.of(3)) {
            List<Future<ChildJvm.Result>> results = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                results.add(pool.submit(() -> withArtifact(folder).run("version")));
            }
            for (Future<ChildJvm.Result> result : results) {
                assertEquals(Llb.version() + "\n", result.get().output());
            }
        }
        try (var files = Files.walk(folder.resolve("llb"))) {
            List<String> names = files.filter(Files::isRegularFile)
                    .map(file -> file.getFileName().toString())
                    .sorted()
                    .collect(Collectors.toList());
            boolean jni = Native.get().accessName().equals("jni");
            List<String> expected = new ArrayList<>(kernels());
            expected.addAll(jni ? List.of("libllb-jni.so", "libllb.so") : List.of("libllb.so"));
            assertEquals(expected, names);
        }
    }

    /** The files of kernels beside the library under test. The artifact contains them too. */
    private static List<String> kernels() throws IOException {
        Path library = Path.of(System.getProperty("dev.llb.library"));
        try (var files = Files.list(library.toAbsolutePath().getParent())) {
            return files.map(file -> file.getFileName().toString())
                    .filter(name -> name.matches("libllb-cpu-.*\\.so"))
                    .sorted()
                    .collect(Collectors.toList());
        }
    }

    @Test
    void theKernelsOfTheArtifactAreFound() throws Exception {
        String output = withArtifact(folder).run("backends").output();
        assertEquals(
                kernels(),
                output.lines()
                        .filter(line -> line.startsWith(folder.toString()))
                        .map(line -> Path.of(line).getFileName().toString())
                        .sorted()
                        .collect(Collectors.toList()),
                output);
    }

    @Test
    void aCacheThatCannotBeWritten() throws Exception {
        Path file = Files.writeString(folder.resolve("file"), "not a folder");
        String version = Llb.version();
        assertEquals(version + "\n", withArtifact(file).run("version").output());
    }

    /** In the locale C, too, where Java cannot name such a folder. */
    @Test
    void aCacheWithASpaceAndAnUmlaut() throws Exception {
        for (String locale : List.of("C.UTF-8", "C")) {
            ChildJvm child = withArtifact(folder);
            child.environment().put("LC_ALL", locale);
            child.environment().put("XDG_CACHE_HOME", folder + "/ü n");
            assertEquals(Llb.version() + "\n", child.run("version").output());
        }
    }

    @Test
    void aCacheInWhichNothingCanBeExecuted() throws Exception {
        String[] mount = {
            "unshare", "-rm", "sh", "-c", "mount -t tmpfs -o noexec tmpfs \"$0\" && exec \"$@\"",
            folder.toString()
        };
        Assumptions.assumeTrue(canRun(mount), "no rights to mount a file system");
        ChildJvm child = withArtifact(folder).startedBy(mount);
        assertEquals(Llb.version() + "\n", child.run("version").output());

        child = withArtifact(folder).startedBy(mount).with("-Djava.io.tmpdir=" + folder);
        String output = child.run("version").output();
        assertTrue(output.contains("LIBRARY_NOT_FOUND: cannot unpack"), output);
        assertTrue(output.contains("no file there can be executed"), output);
    }

    /** Whether {@code true} runs so. */
    private static boolean canRun(String... start) throws Exception {
        List<String> command = new ArrayList<>(List.of(start));
        command.add("true");
        try {
            return new ProcessBuilder(command).start().waitFor() == 0;
        } catch (IOException noSuchProgram) {
            return false;
        }
    }

    @Test
    void aPlatformWithoutLibraryNamesTheArtifact() throws Exception {
        ChildJvm.Result result = withArtifact(folder).with("-Dos.arch=sparc").run("version");
        assertEquals(1, result.status());
        String expected = "LIBRARY_NOT_FOUND: no llb library for linux-sparc: add the artifact"
                + " dev.llb:llb-natives with the classifier linux-sparc";
        assertTrue(result.output().contains(expected), result.output());
    }

    @Test
    void anUnknownWayIn() throws Exception {
        ChildJvm.Result result = new ChildJvm().with("-Ddev.llb.access=magic").run("version");
        assertTrue(result.output().contains("dev.llb.access: \"magic\" is neither jni nor panama"),
                result.output());
    }

    @Test
    void theWayInOfEachVersion() throws Exception {
        boolean since22 = Runtime.version().feature() >= 22;
        ChildJvm.Result result = new ChildJvm().with("-Ddev.llb.access=panama").run("version");
        String expected = since22
                ? Llb.version()
                : "LIBRARY_INCOMPATIBLE: dev.llb.access: panama needs Java 22 or later";
        assertTrue(result.output().contains(expected), result.output());
        assertTrue(since22 || Native.get().accessName().equals("jni"));
    }

    @Test
    void nativeAccessThatIsDenied() throws Exception {
        Assumptions.assumeTrue(Runtime.version().feature() >= 24, "older Java has no such option");
        ChildJvm.Result result = new ChildJvm()
                .without(ChildJvm.NATIVE_ACCESS)
                .with("--illegal-native-access=deny")
                .run("version");
        String expected = "this JVM denies native access; add the option " + ChildJvm.NATIVE_ACCESS;
        assertTrue(result.output().contains("LIBRARY_NOT_FOUND: cannot load"), result.output());
        assertTrue(result.output().contains(expected), result.output());
    }

    // Libraries that do not fit

    @Test
    void anOlderLibraryIsRefused() throws Exception {
        String problem = "has ABI version 1, this binding needs 2 or later";
        checkIncompatible(problem, 1, functions());
        checkIncompatible(problem, 1, List.of("llb_abi_version"));
        List<String> withoutStream = new ArrayList<>(functions());
        withoutStream.remove("llb_chat_infer_stream");
        checkIncompatible("has no function llb_chat_infer_stream", 2, withoutStream);
    }

    private void checkIncompatible(String problem, int abi, List<String> functions)
            throws Exception {
        Path library = compile(abi, functions);
        ChildJvm child = new ChildJvm();
        child.environment().put(NativeLibrary.VARIABLE, library.toString());
        ChildJvm.Result result = child.run("version");
        String expected = "LIBRARY_INCOMPATIBLE: " + library
                + " (from the environment variable LLB_LIBRARY) " + problem;
        assertTrue(result.output().contains(expected), result.output());
    }

    /** The functions that the header declares. */
    private static List<String> functions() throws IOException {
        Path header = Path.of(System.getProperty("llb.header"));
        return java.util.regex.Pattern.compile("\\b(llb_\\w+)\\(")
                .matcher(Files.readString(header))
                .results()
                .map(match -> match.group(1))
                .distinct()
                .collect(Collectors.toList());
    }

    /** A library whose functions return a number. */
    private Path compile(int result, List<String> functions) throws Exception {
        Path source = folder.resolve("library.c");
        Files.writeString(source, functions.stream()
                .map(name -> "long " + name + "(void) { return " + result + "; }\n")
                .collect(Collectors.joining()));
        Path library = folder.resolve("library" + functions.size() + ".so");
        String compiler = System.getenv().getOrDefault("CC", "cc");
        Process running = new ProcessBuilder(
                        compiler, "-shared", "-fPIC", "-o", library.toString(), source.toString())
                .inheritIO()
                .start();
        assertEquals(0, running.waitFor());
        return library;
    }
}
