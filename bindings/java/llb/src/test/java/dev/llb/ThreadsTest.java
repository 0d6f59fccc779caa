package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Tests concurrent use of chats, and closed chats. */
class ThreadsTest {

    @Test
    void cancelFromAnotherThread() throws Exception {
        try (LlbChat chat = Endless.open();
                Pool other = Pool.of(1)) {
            CountDownLatch running = new CountDownLatch(1);
            CountDownLatch cancelled = new CountDownLatch(1);
            Future<ChatReply> reply = other.submit(() -> chat.stream(Endless.REQUEST, piece -> {
                running.countDown();
                await(cancelled);
            }));
            await(running);
            chat.cancel();
            cancelled.countDown();
            assertEquals(FinishReason.CANCELLED, reply.get().finishReason());
            assertEquals(
                    FinishReason.LENGTH,
                    chat.infer(ChatRequest.builder().user("hi").maxTokens(2).build())
                            .finishReason());
        }
    }

    /** A node of a list. */
    private static final class Node {
        int value = 1;
    }

    private static int valueOf(Node node) {
        return node.value;
    }

    private static int depth(int depth) {
        return depth(depth + 1) + 1;
    }

    /** The JVM handles null pointers by SIGSEGV, which the library handles too. */
    @Test
    void exceptionsOfTheVirtualMachine() throws Exception {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            Node node = new Node();
            int sum = 0;
            // Enough calls that they are compiled without null checks.
            for (int round = 0; round < 200_000; round++) {
                sum += valueOf(node);
            }
            assertEquals(200_000, sum);
            for (int round = 0; round < 100; round++) {
                assertThrows(NullPointerException.class, () -> valueOf(null));
            }
            assertThrows(StackOverflowError.class, () -> depth(0));
            ChatReply reply = chat.stream(ChatRequest.of("hi"), piece ->
                    assertThrows(NullPointerException.class, () -> valueOf(null)));
            assertEquals(FinishReason.STOP, reply.finishReason());
        }
    }

    @Test
    void closeWhileAnotherThreadWaitsForAReply() throws Exception {
        LlbChat chat = Endless.open();
        try (Pool other = Pool.of(1)) {
            CountDownLatch running = new CountDownLatch(1);
            Future<String> end = other.submit(() -> {
                try {
                    return chat.stream(Endless.REQUEST, piece -> running.countDown())
                            .finishReason().toString();
                } catch (LlbException e) {
                    return e.code();
                }
            });
            await(running);
            chat.close();
            String reason = end.get();
            List<String> expected = List.of("cancelled", "CANCELLED", "ENGINE_CLOSED");
            assertTrue(expected.contains(reason), reason);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void callsAfterCloseFail() {
        LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"));
        chat.close();
        chat.close();
        chat.cancel();
        ChatRequest request = ChatRequest.of("hi");
        checkClosed(assertThrows(LlbException.class, () -> chat.infer(request)));
        checkClosed(assertThrows(LlbException.class, () -> chat.stream(request, piece -> {})));
        checkClosed(assertThrows(LlbException.class, () -> chat.explain(request)));
        assertTrue(chat.inferJson(request.toJson()).contains("ENGINE_CLOSED"));
    }

    private static void checkClosed(LlbException e) {
        assertEquals("ENGINE_CLOSED", e.code());
    }

    @Test
    void manyThreadsOnOneChat() throws Exception {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"));
                Pool threads = Pool.of(4)) {
            List<Future<ChatReply>> replies = new ArrayList<>();
            for (int i = 0; i < 16; i++) {
                replies.add(threads.submit(() -> chat.stream(ChatRequest.of("hi"), piece -> {})));
            }
            for (Future<ChatReply> reply : replies) {
                assertEquals(TestFiles.expected("text"), reply.get().text());
            }
        }
    }

    @Test
    void manyChatsOfOneFile() throws Exception {
        Path model = TestFiles.scripted("text.gguf");
        try (Pool threads = Pool.virtual()) {
            List<Future<String>> replies = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                replies.add(threads.submit(() -> {
                    try (LlbChat chat = LlbChat.open(model)) {
                        return chat.infer(ChatRequest.of("hi")).text();
                    }
                }));
            }
            for (Future<String> reply : replies) {
                assertEquals(TestFiles.expected("text"), reply.get());
            }
        }
    }

    @Test
    void concurrentRefusalsHaveTheirOwnReasons() throws Exception {
        Path noTools = TestFiles.scripted("no_tools.gguf");
        Path truncated = TestFiles.scripted("truncated.gguf");
        try (Pool threads = Pool.virtual()) {
            List<Future<String>> codes = new ArrayList<>();
            for (int i = 0; i < 64; i++) {
                Path model = i % 2 == 0 ? noTools : truncated;
                codes.add(threads.submit(
                        () -> assertThrows(LlbException.class, () -> LlbChat.open(model)).code()));
            }
            for (int i = 0; i < codes.size(); i++) {
                assertEquals(i % 2 == 0 ? "MODEL_NOT_TOOL_CAPABLE" : "MODEL_INVALID", codes.get(i)
                        .get());
            }
        }
    }

    @Test
    void manyOpensAndCloses() {
        Path model = TestFiles.scripted("text.gguf");
        for (int i = 0; i < 50; i++) {
            try (LlbChat chat = LlbChat.open(model)) {
                if (i % 10 == 0) {
                    assertEquals(FinishReason.STOP, chat.infer(ChatRequest.of("hi")).finishReason());
                }
            }
        }
    }

    @Test
    void manyThreadsCloseOneChat() throws Exception {
        for (int round = 0; round < 10; round++) {
            LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"));
            try (Pool threads = Pool.of(4)) {
                List<Future<?>> done = new ArrayList<>();
                for (int i = 0; i < 4; i++) {
                    boolean closes = i > 0;
                    done.add(threads.submit(() -> {
                        if (closes) {
                            chat.close();
                        } else {
                            chat.inferJson(ChatRequest.of("hi").toJson());
                        }
                    }));
                }
                for (Future<?> one : done) {
                    one.get();
                }
            }
        }
    }

    /** Without a callback, no Java code runs between the tokens. */
    @Test
    void anInterruptCancelsAndStaysPending() throws Exception {
        try (LlbChat chat = Endless.open();
                Pool other = Pool.of(1)) {
            CountDownLatch begun = new CountDownLatch(1);
            Thread[] caller = new Thread[1];
            Future<Boolean> pending = other.submit(() -> {
                caller[0] = Thread.currentThread();
                begun.countDown();
                ChatReply reply = chat.infer(Endless.REQUEST);
                assertEquals(FinishReason.CANCELLED, reply.finishReason());
                return Thread.interrupted();
            });
            await(begun);
            caller[0].interrupt();
            assertTrue(pending.get());
            // A call whose thread was interrupted before is cancelled, too.
            Thread.currentThread().interrupt();
            ChatReply reply = chat.infer(Endless.REQUEST);
            assertEquals(FinishReason.CANCELLED, reply.finishReason());
            assertTrue(Thread.interrupted());
            ChatRequest two = ChatRequest.builder().user("hi").maxTokens(2).build();
            assertEquals(FinishReason.LENGTH, chat.infer(two).finishReason());
        }
    }
}
