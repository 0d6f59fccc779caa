package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

/** Tests vectors of a scripted model. The expected values were computed with NumPy. */
class EmbedderTest {

    private static LlbEmbedder open() {
        return LlbEmbedder.open(TestFiles.scripted("embedding.gguf"));
    }

    private static Map<String, Object> expected() throws IOException {
        return Json.object(data().get("embedding"));
    }

    private static Map<String, Object> data() throws IOException {
        Path file = Path.of(System.getProperty("llb.header"))
                .resolveSibling("../tests/data/embeddings.json");
        return Json.readObject(Files.readString(file));
    }

    private static double cosine(float[] vector, List<Object> other) {
        double product = 0;
        double length = 0;
        double otherLength = 0;
        for (int i = 0; i < vector.length; i++) {
            double number = Json.decimal(other.get(i));
            product += vector[i] * number;
            length += vector[i] * vector[i];
            otherLength += number * number;
        }
        return product / Math.sqrt(length * otherLength);
    }

    @Test
    void theVectorsAreThoseOfNumPy() throws Exception {
        List<String> texts = List.copyOf(expected().keySet());
        try (LlbEmbedder embedder = open()) {
            Embeddings found = embedder.embed(EmbedRequest.of(texts));
            assertEquals(texts.size(), found.vectors().size());
            for (int i = 0; i < texts.size(); i++) {
                List<Object> vector = Json.list(expected().get(texts.get(i)));
                assertEquals(vector.size(), found.dimensions());
                assertEquals(vector.size(), found.vectors().get(i).length);
                double cosine = cosine(found.vectors().get(i), vector);
                assertTrue(cosine > 0.9999, texts.get(i) + ": " + cosine);
            }
            assertTrue(found.promptTokens() >= texts.size());
            assertEquals("embedding", embedder.name());
        }
    }

    @Test
    void theScoresAreThoseOfNumPy() throws Exception {
        try (LlbEmbedder reranker = LlbEmbedder.open(TestFiles.scripted("reranker.gguf"))) {
            for (Object entry : Json.list(data().get("scores"))) {
                List<Object> pair = Json.list(entry);
                Ranking found = reranker.rank(
                        (String) pair.get(0), List.of((String) pair.get(1), "the dog"));
                assertEquals(2, found.results().size());
                assertTrue(found.results().get(0).score() >= found.results().get(1).score());
                double score = found.results().stream()
                        .filter(result -> result.index() == 0)
                        .findFirst()
                        .orElseThrow()
                        .score();
                assertEquals(Json.decimal(pair.get(2)), score, 2e-3);
                assertTrue(found.promptTokens() > 0);
            }
        }
        try (LlbEmbedder embedder = open()) {
            LlbException e =
                    assertThrows(LlbException.class, () -> embedder.rank("a", List.of("b")));
            assertEquals("INVALID_REQUEST", e.code());
        }
    }

    @Test
    void requestsHaveOptions() {
        try (LlbEmbedder embedder = open()) {
            float[] whole = embedder.embed("the cat sits");
            Embeddings part = embedder.embed(EmbedRequest.builder(List.of("cat sits"))
                    .prefix("the ")
                    .dimensions(4)
                    .normalize(false)
                    .build());
            float[] four = part.vectors().get(0);
            assertEquals(4, four.length);
            // Both vectors have the same direction.
            assertEquals(whole[0] / whole[1], four[0] / four[1], 1e-3);
        }
    }

    @Test
    void failures() {
        LlbException e = assertThrows(
                LlbException.class, () -> LlbEmbedder.open(Path.of("/nowhere.gguf")));
        assertEquals("MODEL_NOT_FOUND", e.code());
        LlbEmbedder embedder = LlbEmbedder.builder(TestFiles.scripted("embedding.gguf"))
                .contextLength(16)
                .open();
        String tooLong = "the cat sits ".repeat(30);
        e = assertThrows(LlbException.class, () -> embedder.embed(tooLong));
        assertEquals("CONTEXT_OVERFLOW", e.code());
        EmbedRequest cut = EmbedRequest.builder(List.of(tooLong)).truncate(true).build();
        assertEquals(1, Json.list(embedder.embed(cut).raw().get("truncated")).size());
        embedder.close();
        embedder.close();
        e = assertThrows(LlbException.class, () -> embedder.embed("the cat"));
        assertEquals("ENGINE_CLOSED", e.code());
        embedder.cancel();
    }

    @Test
    void eachTokenHasAVectorOnlyInJson() {
        try (LlbEmbedder embedder = LlbEmbedder.builder(TestFiles.scripted("embedding.gguf"))
                .pooling("none")
                .open()) {
            assertThrows(LlbException.class, () -> embedder.embed("the cat"));
            assertTrue(embedder.embedJson("{\"input\":\"the cat\"}").contains("\"embeddings\""));
        }
    }

    @Test
    void anInterruptCancels() throws Exception {
        try (LlbEmbedder embedder = open();
                Pool other = Pool.of(1)) {
            List<String> texts = new ArrayList<>();
            for (int i = 0; i < 50_000; i++) {
                texts.add("the cat sits ".repeat(5) + i);
            }
            CountDownLatch begun = new CountDownLatch(1);
            Thread[] thread = new Thread[1];
            Future<String> code = other.submit(() -> {
                thread[0] = Thread.currentThread();
                EmbedRequest request = EmbedRequest.of(texts);
                begun.countDown();
                String end = assertThrows(LlbException.class, () -> embedder.embed(request)).code();
                return end + " " + Thread.interrupted();
            });
            begun.await();
            thread[0].interrupt();
            assertEquals("CANCELLED true", code.get());
        }
    }
}
