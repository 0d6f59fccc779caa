package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests models of the hub, from a cache in huggingface_hub's layout. No server is involved. */
class HubTest {

    private static final String COMMIT = "0123456789abcdef0123456789abcdef01234567";

    @TempDir
    private Path cache;

    private FetchRequest.Builder request(String id) throws IOException {
        Path repository = cache.resolve("models--o--n");
        Path snapshot = Files.createDirectories(repository.resolve("snapshots").resolve(COMMIT));
        if (!Files.exists(snapshot.resolve("m-Q4_K_M.gguf"))) {
            Files.copy(TestFiles.scripted("text.gguf"), snapshot.resolve("m-Q4_K_M.gguf"));
            Files.copy(TestFiles.scripted("no_tools.gguf"), snapshot.resolve("m-Q8_0.gguf"));
            Files.writeString(Files.createDirectories(repository.resolve("refs")).resolve("main"),
                    COMMIT);
        }
        return FetchRequest.builder(id).cacheDir(cache).offline(true);
    }

    @Test
    void aCachedModelIsFound() throws IOException {
        List<String> events = new ArrayList<>();
        List<Long> bytes = new ArrayList<>();
        FetchedModel fetched = Llb.fetch(request("o/n")
                .onEvent(events::add)
                .onProgress((done, total) -> bytes.addAll(List.of(done, total)))
                .build());
        Path end = Path.of(COMMIT, "m-Q4_K_M.gguf");
        assertTrue(fetched.path().endsWith(end), fetched.path().toString());
        assertEquals(List.of(fetched.path()), fetched.paths());
        assertTrue(fetched.fromCache() && fetched.modelInfo().supportsTools());
        assertEquals(COMMIT, fetched.revision());
        long size = Files.size(fetched.path());
        assertEquals(List.of(size, size), bytes.subList(bytes.size() - 2, bytes.size()));
        assertEquals("fetch_start", events.get(0));
        assertEquals("fetch_success", events.get(events.size() - 1));
    }

    @Test
    void failuresHaveCodes() throws IOException {
        checkFails("OFFLINE", request("o/n:Q2_K").build());
        checkFails("MODEL_NOT_TOOL_CAPABLE", request("o/n:Q8_0").build());
        checkFails("INVALID_REQUEST", FetchRequest.of("no/../id"));
        assertNull(assertThrows(LlbException.class, () -> LlbChat.fromHub("")).getCause());
    }

    private static void checkFails(String code, FetchRequest request) {
        assertEquals(code, assertThrows(LlbException.class, () -> Llb.fetch(request)).code());
    }

    @Test
    void aCopyOfTheHeaderIsOnlyForADryRun(@TempDir Path headers) throws IOException {
        LlbException refused = assertThrows(
                LlbException.class, () -> Llb.fetch(request("o/n").headerDir(headers).build()));
        assertEquals("INVALID_REQUEST", refused.code());
        assertTrue(refused.getMessage().contains("header_dir: "), refused.getMessage());
        FetchedModel planned = Llb.fetch(request("o/n").dryRun(true).headerDir(headers).build());
        // A model in the cache needs no copy.
        assertTrue(Files.exists(planned.path()), planned.toString());
        assertNull(planned.raw().get("ignored_keys"));
        try (Stream<Path> copies = Files.list(headers)) {
            assertEquals(0, copies.count());
        }
    }

    @Test
    void aChatOpensById() throws IOException {
        FetchRequest request = request("o/n").build();
        try (LlbChat chat =
                LlbChat.fromHub(request, options -> options.contextLength(512).threads(1))) {
            assertEquals(TestFiles.expected("text"), chat.infer(ChatRequest.of("Hello")).text());
        }
    }

    @Test
    void anExceptionOfTheListenerCancelsTheFetch() throws IOException {
        IllegalStateException thrown = new IllegalStateException("on purpose");
        FetchRequest request = request("o/n").onEvent(event -> { throw thrown; }).build();
        assertSame(thrown, assertThrows(IllegalStateException.class, () -> Llb.fetch(request)));
        Llb.modelFetchCancel("o/unknown");
    }
}
