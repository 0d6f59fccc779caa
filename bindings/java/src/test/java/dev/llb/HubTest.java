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
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Models of the hub, from a cache as huggingface_hub lays it out: a test in Java has no way to name another hub. */
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
            Files.writeString(Files.createDirectories(repository.resolve("refs")).resolve("main"), COMMIT);
        }
        return FetchRequest.builder(id).cacheDir(cache).offline(true);
    }

    @Test
    void whatIsInTheCacheIsFound() throws IOException {
        List<String> events = new ArrayList<>();
        List<Long> bytes = new ArrayList<>();
        FetchedModel fetched = Llb.fetch(request("o/n")
                .onEvent(events::add)
                .onProgress((here, total) -> bytes.addAll(List.of(here, total)))
                .build());
        assertEquals(Path.of(COMMIT, "m-Q4_K_M.gguf"), fetched.path().subpath(fetched.path().getNameCount() - 2, fetched.path().getNameCount()));
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
        FetchRequest absent = request("o/n:Q2_K").build();
        assertEquals("OFFLINE", assertThrows(LlbException.class, () -> Llb.fetch(absent)).code());
        FetchRequest plain = request("o/n:Q8_0").build();
        assertEquals("MODEL_NOT_TOOL_CAPABLE", assertThrows(LlbException.class, () -> Llb.fetch(plain)).code());
        FetchRequest wrong = FetchRequest.of("no/../id");
        assertEquals("INVALID_REQUEST", assertThrows(LlbException.class, () -> Llb.fetch(wrong)).code());
        assertNull(assertThrows(LlbException.class, () -> LlbChat.fromHub("")).getCause());
    }

    @Test
    void aChatOfAnId() throws IOException {
        FetchRequest request = request("o/n").build();
        try (LlbChat chat = LlbChat.fromHub(request, options -> options.contextLength(512).threads(1))) {
            assertEquals(TestFiles.expected("text"), chat.infer(ChatRequest.of("Hello")).text());
        }
    }

    @Test
    void aListenerThatThrowsEndsTheFetch() throws IOException {
        IllegalStateException thrown = new IllegalStateException("on purpose");
        FetchRequest request = request("o/n").onEvent(event -> { throw thrown; }).build();
        assertSame(thrown, assertThrows(IllegalStateException.class, () -> Llb.fetch(request)));
        Llb.modelFetchCancel("o/nobody");
    }
}
