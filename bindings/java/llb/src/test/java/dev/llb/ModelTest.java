package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Models with a pool of chats, and chunks. */
class ModelTest {

    private static LlbModel open(String file, int parallel) {
        return LlbModel.open(
                ChatOptions.builder(TestFiles.scripted(file)).parallel(parallel).build());
    }

    @Test
    void manyThreadsOnOneModel() throws Exception {
        try (LlbModel model = open("text.gguf", 3);
                Pool threads = Pool.virtual()) {
            AtomicInteger running = new AtomicInteger();
            AtomicInteger most = new AtomicInteger();
            List<Future<String>> replies = new ArrayList<>();
            for (int i = 0; i < 24; i++) {
                replies.add(threads.submit(() -> model.with(chat -> {
                    most.accumulateAndGet(running.incrementAndGet(), Math::max);
                    String text = chat.infer(ChatRequest.of("hi")).text();
                    running.decrementAndGet();
                    return text;
                })));
            }
            for (Future<String> reply : replies) {
                assertEquals(TestFiles.expected("text"), reply.get());
            }
            assertTrue(most.get() <= 3, "" + most);
        }
    }

    @Test
    void aFreeChatIsUsedAgain() {
        try (LlbModel model = open("text.gguf", 2)) {
            LlbChat first = model.with(chat -> chat);
            assertSame(first, model.with(chat -> chat));
            model.with(outer -> {
                assertSame(first, outer);
                model.with(inner -> {
                    assertNotSame(first, inner);
                    return null;
                });
                return null;
            });
            assertTrue(model.infer(ChatRequest.of("hi")).usage().promptTokens() > 0);
            try (LlbChat own = model.chat()) {
                assertNotSame(first, own);
            }
        }
    }

    @Test
    void anExceptionGivesTheChatBack() {
        try (LlbModel model = open("text.gguf", 1)) {
            for (int i = 0; i < 3; i++) {
                assertThrows(IllegalStateException.class, () -> model.with(chat -> {
                    throw new IllegalStateException("on purpose");
                }));
            }
            assertEquals("stop", model.infer(ChatRequest.of("hi")).finishReason());
        }
    }

    @Test
    void closeEndsRequests() throws Exception {
        LlbModel model = open("long.gguf", 2);
        try (Pool other = Pool.of(1)) {
            CountDownLatch running = new CountDownLatch(1);
            ChatRequest request = ChatRequest.builder().user("hi").maxTokens(100_000).build();
            Future<String> end = other.submit(() -> {
                try {
                    return model.stream(request, piece -> running.countDown()).finishReason();
                } catch (LlbException e) {
                    return e.code();
                }
            });
            assertTrue(running.await(60, TimeUnit.SECONDS));
            model.close();
            model.close();
            String reason = end.get();
            List<String> expected = List.of("cancelled", "CANCELLED", "ENGINE_CLOSED", "stop");
            assertTrue(expected.contains(reason), reason);
        }
        LlbException e =
                assertThrows(LlbException.class, () -> model.infer(ChatRequest.of("hi")));
        assertEquals("ENGINE_CLOSED", e.code());
    }

    @Test
    void anInterruptEndsTheWait() {
        try (LlbModel model = open("text.gguf", 1)) {
            Thread.currentThread().interrupt();
            LlbException e = assertThrows(LlbException.class, () -> model.with(chat -> chat));
            assertEquals("CANCELLED", e.code());
            assertTrue(Thread.interrupted());
        }
    }

    @Test
    void chunksOfAToolCall() {
        try (LlbModel model = open("tool_call.gguf", 1)) {
            List<ChatChunk> chunks = new ArrayList<>();
            ChatRequest request =
                    ChatRequest.builder().user("weather in Paris?").tool(ChatTest.WEATHER).build();
            ChatReply reply = model.streamChunks(request, chunks::add);
            List<ChatChunk.ToolCallDelta> deltas =
                    chunks.stream().flatMap(chunk -> chunk.toolCalls().stream()).toList();
            assertEquals(reply.toolCalls().get(0).id(), deltas.get(0).id());
            assertEquals("get_weather", deltas.get(0).name());
            StringBuilder arguments = new StringBuilder();
            deltas.forEach(delta -> arguments.append(delta.arguments()));
            assertEquals(reply.toolCalls().get(0).arguments(), arguments.toString());
            assertEquals("tool_calls", chunks.get(chunks.size() - 1).finishReason());
        }
    }

    @Test
    void chunksOfReasoning() {
        ChatOptions options = ChatOptions.builder(TestFiles.scripted("reasoning.gguf"))
                .toolPolicy("any")
                .build();
        try (LlbModel model = LlbModel.open(options)) {
            StringBuilder reasoning = new StringBuilder();
            StringBuilder text = new StringBuilder();
            ChatReply reply = model.streamChunks(ChatRequest.of("hi"), chunk -> {
                reasoning.append(chunk.reasoningContent());
                text.append(chunk.text());
            });
            assertFalse(reasoning.isEmpty());
            assertEquals(reply.reasoningContent(), reasoning.toString());
            assertEquals(reply.text(), text.toString());
        }
    }
}
