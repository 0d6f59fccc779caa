package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Tests tokens of texts and requests, and the memory of chats. */
class TokensTest {

    private static LlbModel open(String template) {
        ChatOptions.Builder options =
                ChatOptions.builder(TestFiles.scripted("text.gguf")).toolPolicy("any");
        if (template != null) {
            options.chatTemplate(template);
        }
        return LlbModel.open(options.build());
    }

    @Test
    void theTokensSpellTheText() {
        try (LlbModel model = open(null)) {
            Tokens tokens = model.tokenize("Hello, World");
            assertEquals("Hello, World",
                    tokens.tokens().stream().map(Tokens.Token::text).collect(Collectors.joining()));
            assertEquals("Hello, World", model.detokenize(tokens.ids()));
            assertTrue(tokens.tokens().stream().noneMatch(Tokens.Token::special));
            assertFalse(tokens.ids().isEmpty());
            assertEquals(List.of(), model.tokenize("").ids());
            LlbException e =
                    assertThrows(LlbException.class, () -> model.detokenize(List.of(-1)));
            assertEquals("INVALID_REQUEST", e.code());
        }
    }

    @Test
    void memoryIsKnownBeforehand() {
        ChatOptions.Builder options = ChatOptions.builder(TestFiles.scripted("text.gguf"));
        Memory small = Llb.memory(options.contextLength(256).build());
        Memory large = Llb.memory(options.contextLength(1024).build());
        assertTrue(small.weights() > 0);
        assertEquals(small.weights(), large.weights());
        assertTrue(small.cache() < large.cache(), small + " " + large);
        assertEquals(large.total(), large.weights() + large.cache() + large.compute());
        assertTrue(large.fits());
        assertEquals(List.of(), large.contexts());
        LlbException e = assertThrows(
                LlbException.class,
                () -> Llb.memory(ChatOptions.builder(java.nio.file.Path.of("/nowhere")).build()));
        assertEquals("MODEL_NOT_FOUND", e.code());
    }

    /** The devices without their free memory, which changes between two calls. */
    private static List<Memory.Device> needs(Memory memory) {
        return memory.devices().stream()
                .map(d -> new Memory.Device(
                        d.name(), d.layers(), d.weights(), d.cache(), d.compute(), d.total(), null))
                .toList();
    }

    @Test
    void memoryOfSeveralContexts() {
        ChatOptions options = ChatOptions.builder(TestFiles.scripted("text.gguf"))
                .contextLength(512)
                .parallel(2)
                .build();
        ContextOptions.Builder larger = ContextOptions.builder().contextLength(1024).parallel(1);
        Memory memory = Llb.memory(options, List.of(
                ContextOptions.builder().build(),
                larger.build(),
                larger.batch(64).cacheTypes("f32", "f32").flashAttention(false).build(),
                // llama.cpp needs flash attention for such values.
                larger.cacheTypes("f16", "q8_0").build(),
                ContextOptions.builder().largestContext().build()));
        Memory base = memory.contexts().get(0).orThrow();
        assertEquals(List.of(512, 2), List.of(base.contextLength(), base.parallel()));
        assertEquals(needs(memory), needs(base));
        Memory second = memory.contexts().get(1).orThrow();
        assertEquals(List.of(1024, 1), List.of(second.contextLength(), second.parallel()));
        assertEquals(memory.weights(), second.weights());
        Memory third = memory.contexts().get(2).orThrow();
        assertEquals(2 * second.cache(), third.cache());
        assertTrue(third.compute() < second.compute(), memory.toString());
        Memory.Context refused = memory.contexts().get(3);
        assertEquals("INFERENCE_FAILED", assertThrows(LlbException.class, refused::orThrow).code());
        assertEquals(
                memory.largestContextLength(),
                memory.contexts().get(4).orThrow().contextLength());
        assertEquals(5, memory.contexts().size());
        Memory.Device cpu = memory.devices().get(0);
        assertEquals("CPU", cpu.name());
        assertEquals(cpu.total(), cpu.weights() + cpu.cache() + cpu.compute());

        LlbException e = assertThrows(LlbException.class, () -> Llb.memory(
                options, List.of(ContextOptions.builder().contextLength(-1).build())));
        assertTrue(e.getMessage().contains("contexts[0].n_ctx"), e.getMessage());
    }

    /** A request has as many tokens as its reply reports, also with a custom template. */
    @Test
    void requestsAreCounted() {
        ChatRequest request = ChatRequest.builder()
                .system("Be brief.")
                .user("What is the weather in Paris?")
                .tool(ChatTest.WEATHER)
                .maxTokens(2)
                .build();
        for (String template
                : new String[] {null, "{% for m in messages %}{{ m.content }}{% endfor %}"}) {
            try (LlbModel model = open(template)) {
                assertEquals(model.infer(request).usage().promptTokens(),
                        model.countTokens(request));
            }
        }
    }
}
