package dev.llb;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Programs for {@link ChildJvm}. If a program succeeds, it prints only what its comment says. */
final class ChildPrograms {

    private static final ChatRequest SHORT =
            ChatRequest.builder().user("hi").temperature(0).maxTokens(4).build();

    private ChildPrograms() {}

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "version" -> System.out.println(Llb.version());
            case "backends" -> Llb.backends().backends().stream()
                    .map(Backends.Backend::file)
                    .filter(file -> file != null)
                    .forEach(System.out::println);
            case "calls" -> calls(Path.of(args[1]));
            case "growth" -> growth(Path.of(args[1]));
            case "loaders" -> loaders();
            case "stopped" -> stopped(args[1]);
            case "memory" -> memory(Path.of(args[1]));
            case "fetch" -> fetch(Path.of(args[1]));
            case "reopened" -> reopened(Path.of(args[1]));
            case "collected" -> collected(Path.of(args[1]));
            case "warnings" -> warnings(Path.of(args[1]));
            // Compiled for a later Java than this class.
            case "virtual" -> Class.forName("dev.llb.VirtualThreadProgram")
                    .getMethod("run", Path.class, Path.class)
                    .invoke(null, Path.of(args[1]), Path.of(args[2]));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    /** Every function, with callbacks, failures and exceptions in callbacks. Prints nothing. */
    private static void calls(Path model) throws Exception {
        Llb.abiVersion();
        Llb.version();
        Llb.backends();
        Llb.modelInfo(model);
        Llb.modelInfoJson(Path.of("/nowhere"));
        Llb.templateRenderJson(TemplateTest.RENDER);
        Llb.templateInfoJson("{}");
        Llb.templateParseJson("{}");
        Llb.templateComposeJson("{}");
        Llb.tokenizeJson("{}");
        Llb.detokenizeJson("{}");
        Llb.countJson("{}");
        Llb.memoryJson("{}");
        try (LlbEmbedder embedder = LlbEmbedder.open(model.resolveSibling("embedding.gguf"))) {
            embedder.embed("the cat sits");
            embedder.embedJson("{}");
            embedder.rankJson("{}");
            embedder.cancel();
        }
        try {
            LlbEmbedder.open(Path.of("/nowhere")).close();
        } catch (LlbException expected) {
            // The file does not exist.
        }
        Llb.fetchJson("{\"id\":\"no/such\",\"offline\":true,\"cache_dir\":\"/nowhere\"}", event ->
                {});
        Llb.modelFetchCancel("no/such");
        for (Path file : List.of(model, Path.of("/nowhere"))) {
            ChatOptions options = ChatOptions.builder(file).onEvent(event -> {}).build();
            try (LlbChat chat = LlbChat.open(options)) {
                chat.infer(SHORT);
                chat.explain(SHORT);
                chat.stream(SHORT, piece -> Llb.templateRenderJson(TemplateTest.RENDER));
                chat.inferJson("{}");
                try {
                    chat.stream(SHORT, piece -> {
                        throw new IllegalStateException("on purpose");
                    });
                    throw new AssertionError("the exception of the callback is lost");
                } catch (IllegalStateException expected) {
                    chat.cancel();
                }
            } catch (LlbException expected) {
                if (file == model) {
                    throw expected;
                }
            }
        }
        LlbException[] fromThread = new LlbException[1];
        Thread other = new Thread(() -> {
            try (LlbChat chat = LlbChat.open(model)) {
                chat.stream(SHORT, piece -> {});
            } catch (LlbException e) {
                fromThread[0] = e;
            }
        });
        other.start();
        other.join();
        if (fromThread[0] != null) {
            throw fromThread[0];
        }
    }

    /**
     * Prints by how many KB the process grows during 10,000 calls, and the number of callbacks that
     * are left.
     */
    private static void growth(Path model) throws Exception {
        // The request and the reply have 4 KB each.
        String json = TemplateTest.RENDER.replace("\"hi\"", "\"" + "hi ".repeat(1300) + "\"");
        int before = Callback.registered();
        try (LlbChat chat = LlbChat.open(model)) {
            ChatRequest stream = ChatRequest.builder().user("hi").maxTokens(1).build();
            long first = 0;
            for (int call = 0; call < 13_000; call++) {
                if (call == 3_000) {
                    first = residentKilobytes();
                }
                if (call % 4 == 0) {
                    chat.stream(stream, piece -> {});
                } else {
                    Llb.templateRenderJson(json);
                }
            }
            System.out.println(residentKilobytes() - first);
        }
        System.out.println(Callback.registered() - before);
    }

    private static long residentKilobytes() throws Exception {
        System.gc();
        return Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(line -> line.startsWith("VmRSS:"))
                .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")))
                .findFirst()
                .orElseThrow();
    }

    /** Loads the classes twice, as two web applications do. Prints the version twice. */
    private static void loaders() throws Exception {
        for (int i = 0; i < 2; i++) {
            Class<?> llb = newLoader().loadClass("dev.llb.Llb");
            System.out.println(llb.getMethod("version").invoke(null));
        }
    }

    private static URLClassLoader newLoader() throws Exception {
        List<URL> urls = new ArrayList<>();
        for (String path : System.getProperty("java.class.path")
                .split(java.io.File.pathSeparator)) {
            urls.add(Path.of(path).toUri().toURL());
        }
        return new URLClassLoader(
                urls.toArray(URL[]::new), ClassLoader.getPlatformClassLoader());
    }

    /** Uses the classes as a web application that is then stopped. Prints what becomes of them. */
    private static void stopped(String model) throws Exception {
        for (int i = 0; i < 3; i++) {
            WeakReference<ClassLoader> loader = startAndStop(model);
            for (int j = 0; j < 600 && loader.get() != null; j++) {
                System.gc();
                Thread.sleep(100);
            }
            System.out.println(loader.get() == null ? "collected" : "kept");
        }
    }

    private static WeakReference<ClassLoader> startAndStop(String model) throws Exception {
        try (URLClassLoader loader = newLoader()) {
            Method main = loader.loadClass("dev.llb.ChildPrograms")
                    .getMethod("main", String[].class);
            main.setAccessible(true);
            main.invoke(null, (Object) new String[] {"calls", model});
            return new WeakReference<>(loader);
        }
    }

    /** An OutOfMemoryError in a callback. Prints the finish reason of the next request. */
    private static void memory(Path model) {
        try (LlbChat chat = LlbChat.open(model)) {
            List<long[]> held = new ArrayList<>();
            try {
                chat.stream(ChatRequest.builder().user("hi").maxTokens(100_000).build(), piece -> {
                    while (true) {
                        held.add(new long[1 << 20]);
                    }
                });
                throw new AssertionError("the error of the callback is lost");
            } catch (OutOfMemoryError expected) {
                held.clear();
            }
            System.out.println(chat.infer(SHORT).finishReason());
        }
    }

    /** A fetch whose thread is interrupted. Prints its code, and whether that is pending. */
    private static void fetch(Path cache) {
        FetchRequest request = FetchRequest.builder("org/name")
                .cacheDir(cache)
                .onEvent(event -> Thread.currentThread().interrupt())
                .build();
        try {
            Llb.fetch(request);
        } catch (LlbException e) {
            System.out.println(e.code() + " " + Thread.interrupted());
        }
    }

    /**
     * Opens and closes a model 20 times. Prints what stays of it: mappings, open files, and threads
     * that the library started. The JVM itself has one for the interrupts of all models.
     */
    private static void reopened(Path model) throws Exception {
        for (int i = 0; i < 20; i++) {
            try (LlbModel opened = LlbModel.open(model)) {
                opened.inferAsync(SHORT).get();
            }
        }
        // A thread that has ended is listed for a moment.
        List<String> left = leftOf(model);
        for (int i = 0; i < 600 && !left.isEmpty(); i++) {
            Thread.sleep(100);
            left = leftOf(model);
        }
        left.forEach(System.out::println);
    }

    private static List<String> leftOf(Path model) throws Exception {
        List<String> left = new ArrayList<>();
        try (Stream<String> maps = Files.lines(Path.of("/proc/self/maps"))) {
            maps.filter(line -> line.contains(model.getFileName().toString())).forEach(left::add);
        }
        for (Path file : entries("/proc/self/fd")) {
            if (file.toFile().getCanonicalPath().equals(model.toRealPath().toString())) {
                left.add(file.toString());
            }
        }
        for (Path thread : entries("/proc/self/task")) {
            String name = nameOf(thread);
            if (name.startsWith("llb-") && !name.equals(CancelWatch.THREAD)) {
                left.add(name);
            }
        }
        return left;
    }

    private static String nameOf(Path thread) {
        try {
            return Files.readString(thread.resolve("comm")).strip();
        } catch (IOException itHasEnded) {
            return "";
        }
    }

    private static List<Path> entries(String folder) throws IOException {
        try (Stream<Path> entries = Files.list(Path.of(folder))) {
            return entries.toList();
        }
    }

    /** Prints the log line of a chat that was never closed, and that it was destroyed. */
    private static void collected(Path model) throws Exception {
        CountDownLatch destroyed = new CountDownLatch(1);
        forget(model, destroyed);
        for (int i = 0; i < 600 && !destroyed.await(100, TimeUnit.MILLISECONDS); i++) {
            System.gc();
        }
        System.out.println(destroyed.getCount() == 0 ? "destroyed" : "alive");
    }

    /** A tool that fails, and a misspelt option in two requests. Prints only what is logged. */
    private static void warnings(Path model) {
        record Place(String city) {}
        ToolSet.empty()
                .with("visit", "Fails", Place.class, place -> {
                    throw new IllegalStateException("private: " + place.city());
                })
                .call(new ToolCall("id", "visit", "{\"city\":\"Paris\"}"));
        try (LlbChat chat = LlbChat.open(model)) {
            ChatRequest misspelt =
                    ChatRequest.builder().user("hi").maxTokens(1).set("temprature", 0).build();
            chat.infer(misspelt);
            chat.stream(misspelt, piece -> {});
        }
    }

    private static void forget(Path model, CountDownLatch destroyed) {
        ChatOptions options = ChatOptions.builder(model)
                .onEvent(event -> {
                    if (event.equals("destroy")) {
                        destroyed.countDown();
                    }
                })
                .build();
        LlbChat.open(options).infer(SHORT);
    }
}
