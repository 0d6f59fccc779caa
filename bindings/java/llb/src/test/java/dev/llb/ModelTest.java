package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Tests models with a pool of chats, and chunks. */
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
    void aThreadDoesNotWaitForItself() {
        try (LlbModel model = open("text.gguf", 1)) {
            String code = model.with(chat -> assertThrows(
                    LlbException.class, () -> model.infer(ChatRequest.of("hi"))).code());
            assertEquals("BUSY", code);
            assertEquals(FinishReason.STOP, model.infer(ChatRequest.of("hi")).finishReason());
        }
    }

    @Test
    void aPromptIsCachedForAllChats() {
        try (LlbModel model = open("text.gguf", 2)) {
            ChatRequest request = ChatRequest.of("The same question.");
            Usage first = model.infer(request).usage();
            // The first chat is in use.
            Usage second = model.with(chat -> model.infer(request).usage());
            assertTrue(second.cachedTokens() > first.promptTokens() / 2, second.toString());
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
            assertEquals(FinishReason.STOP, model.infer(ChatRequest.of("hi")).finishReason());
        }
    }

    @Test
    void closeEndsRequests() throws Exception {
        LlbModel model = LlbModel.open(Endless.options().parallel(2).build());
        try (Pool other = Pool.of(1)) {
            CountDownLatch running = new CountDownLatch(1);
            Future<String> end = other.submit(() -> {
                try {
                    return model.stream(Endless.REQUEST, piece -> running.countDown())
                            .finishReason().toString();
                } catch (LlbException e) {
                    return e.code();
                }
            });
            assertTrue(running.await(60, TimeUnit.SECONDS));
            model.close();
            model.close();
            String reason = end.get();
            List<String> expected = List.of("cancelled", "CANCELLED", "ENGINE_CLOSED");
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

    /** A model with a single chat. */
    private static LlbModel openEndless() {
        return LlbModel.open(Endless.options().parallel(1).build());
    }

    @Test
    void aFutureHasTheReply() throws Exception {
        try (LlbModel model = open("text.gguf", 2)) {
            CompletableFuture<ChatReply> reply = model.inferAsync(ChatRequest.of("hi"));
            assertEquals(TestFiles.expected("text"), reply.get(60, TimeUnit.SECONDS).text());
            CompletableFuture<ChatReply> failed =
                    model.inferAsync(ChatRequest.builder().user("hi").temperature(-1).build());
            ExecutionException e = assertThrows(
                    ExecutionException.class, () -> failed.get(60, TimeUnit.SECONDS));
            assertEquals("INVALID_REQUEST", ((LlbException) e.getCause()).code());
        }
    }

    /** With a single chat, the second request can run only after the first has ended. */
    @Test
    void cancellingAFutureEndsTheGeneration() throws Exception {
        try (LlbModel model = openEndless()) {
            for (int i = 0; i < 3; i++) {
                CompletableFuture<ChatReply> reply = model.inferAsync(Endless.REQUEST);
                CompletableFuture<ChatReply> waiting = model.inferAsync(Endless.REQUEST);
                assertTrue(waiting.cancel(true));
                assertTrue(i == 0 ? reply.cancel(true)
                        : reply.completeExceptionally(new Exception()));
                ChatRequest two = ChatRequest.builder().user("hi").maxTokens(2).build();
                assertEquals(
                        FinishReason.LENGTH,
                        model.inferAsync(two).get(60, TimeUnit.SECONDS).finishReason());
            }
        }
    }

    private static Set<Thread> requestThreads() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("llb-request"))
                .collect(Collectors.toSet());
    }

    @Test
    void aRequestThatWaitsHoldsNoThread() throws Exception {
        try (LlbModel model = openEndless()) {
            // Those of other tests may still be ending.
            Set<Thread> before = requestThreads();
            CountDownLatch running = new CountDownLatch(1);
            CompletableFuture<ChatReply> first =
                    model.streamAsync(Endless.REQUEST, chunk -> running.countDown());
            assertTrue(running.await(60, TimeUnit.SECONDS));
            List<CompletableFuture<ChatReply>> waiting = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                waiting.add(model.inferAsync(Endless.REQUEST)
                        .orTimeout(1, TimeUnit.MILLISECONDS));
            }
            ChatRequest two = ChatRequest.builder().user("hi").maxTokens(2).build();
            CompletableFuture<ChatReply> last = model.inferAsync(two);
            Subscriber subscriber = new Subscriber();
            model.publish(two).subscribe(subscriber);
            Set<Thread> threads = requestThreads();
            threads.removeAll(before);
            assertEquals(1, threads.size());
            for (CompletableFuture<ChatReply> reply : waiting) {
                ExecutionException e = assertThrows(
                        ExecutionException.class, () -> reply.get(60, TimeUnit.SECONDS));
                assertTrue(e.getCause() instanceof TimeoutException, e.toString());
            }
            first.cancel(true);
            assertEquals(FinishReason.LENGTH, last.get(60, TimeUnit.SECONDS).finishReason());
            subscriber.subscription.request(1);
            assertTrue(subscriber.next() instanceof ChatChunk);
            subscriber.subscription.cancel();
        }
    }

    /** The only thread of the executor waits for the chat, and is free after the cancel. */
    @Test
    void cancellingAWaitFreesTheThreadOfTheExecutor() throws Exception {
        try (LlbModel model = openEndless();
                Pool executor = Pool.of(1)) {
            CountDownLatch running = new CountDownLatch(1);
            CompletableFuture<ChatReply> first =
                    model.streamAsync(Endless.REQUEST, chunk -> running.countDown());
            assertTrue(running.await(60, TimeUnit.SECONDS));
            CompletableFuture<ChatReply> waiting =
                    model.inferAsync(Endless.REQUEST, executor.service());
            waiting.cancel(true);
            assertEquals("free", executor.submit(() -> "free").get(60, TimeUnit.SECONDS));
            first.cancel(true);
        }
    }

    @Test
    void closeRefusesRequestsThatWait() throws Exception {
        LlbModel model = openEndless();
        CountDownLatch running = new CountDownLatch(1);
        CompletableFuture<ChatReply> first =
                model.streamAsync(Endless.REQUEST, chunk -> running.countDown());
        assertTrue(running.await(60, TimeUnit.SECONDS));
        CompletableFuture<ChatReply> waiting = model.inferAsync(Endless.REQUEST);
        model.close();
        ExecutionException e = assertThrows(
                ExecutionException.class, () -> waiting.get(60, TimeUnit.SECONDS));
        assertEquals("ENGINE_CLOSED", ((LlbException) e.getCause()).code());
        assertEquals(FinishReason.CANCELLED, first.get(60, TimeUnit.SECONDS).finishReason());
        e = assertThrows(
                ExecutionException.class,
                () -> model.inferAsync(Endless.REQUEST).get(60, TimeUnit.SECONDS));
        assertEquals("ENGINE_CLOSED", ((LlbException) e.getCause()).code());
    }

    @Test
    void aStreamedFutureHasChunksAndTheReply() throws Exception {
        try (LlbModel model = open("text.gguf", 1)) {
            StringBuilder text = new StringBuilder();
            ChatReply reply = model
                    .streamAsync(ChatRequest.of("hi"), chunk -> text.append(chunk.text()))
                    .get(60, TimeUnit.SECONDS);
            assertEquals(TestFiles.expected("text"), text.toString());
            assertEquals(reply.text(), text.toString());
            assertEquals("text", model.name());
        }
    }

    @Test
    void closeWithGraceWaits() throws Exception {
        LlbModel model = open("text.gguf", 2);
        CountDownLatch running = new CountDownLatch(1);
        CountDownLatch closing = new CountDownLatch(1);
        CompletableFuture<ChatReply> reply = model.streamAsync(ChatRequest.of("hi"), chunk -> {
            running.countDown();
            await(closing);
        });
        assertTrue(running.await(60, TimeUnit.SECONDS));
        try (Pool other = Pool.of(1)) {
            Future<?> closed = other.submit(() -> model.close(Duration.ofSeconds(60)));
            while (model.isOpen()) {
                Thread.onSpinWait();
            }
            LlbException e =
                    assertThrows(LlbException.class, () -> model.infer(ChatRequest.of("hi")));
            assertEquals("ENGINE_CLOSED", e.code());
            closing.countDown();
            closed.get(60, TimeUnit.SECONDS);
        }
        assertEquals(FinishReason.STOP, reply.get(60, TimeUnit.SECONDS).finishReason());
    }

    @Test
    void closeWithoutGraceCancels() throws Exception {
        LlbModel model = openEndless();
        CountDownLatch running = new CountDownLatch(1);
        CompletableFuture<ChatReply> reply =
                model.streamAsync(Endless.REQUEST, chunk -> running.countDown());
        assertTrue(running.await(60, TimeUnit.SECONDS));
        model.close(Duration.ZERO);
        assertEquals(FinishReason.CANCELLED, reply.get(60, TimeUnit.SECONDS).finishReason());
    }

    private static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Records signals. It requests nothing by itself. */
    private static class Subscriber implements Flow.Subscriber<ChatChunk> {

        final BlockingQueue<Object> signals = new LinkedBlockingQueue<>();
        Flow.Subscription subscription;

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            this.subscription = subscription;
        }

        @Override
        public void onNext(ChatChunk chunk) {
            signals.add(chunk);
        }

        @Override
        public void onError(Throwable error) {
            signals.add(error);
        }

        @Override
        public void onComplete() {
            signals.add("complete");
        }

        Object next() throws InterruptedException {
            Object signal = signals.poll(60, TimeUnit.SECONDS);
            return signal == null ? "nothing" : signal;
        }
    }

    @Test
    void aPublisherWaitsForDemand() throws Exception {
        try (LlbModel model = open("text.gguf", 1)) {
            Subscriber subscriber = new Subscriber();
            model.publish(ChatRequest.of("hi")).subscribe(subscriber);
            StringBuilder text = new StringBuilder();
            Usage usage = null;
            for (Object signal = null; !"complete".equals(signal); ) {
                subscriber.subscription.request(1);
                signal = subscriber.next();
                if (signal instanceof ChatChunk chunk) {
                    text.append(chunk.text());
                    usage = chunk.usage() != null ? chunk.usage() : usage;
                    // Without demand no chunk arrives, only the end.
                    Object early = subscriber.signals.peek();
                    assertTrue(early == null || early.equals("complete"), "" + early);
                } else {
                    assertEquals("complete", signal);
                }
            }
            assertEquals(TestFiles.expected("text"), text.toString());
            assertTrue(usage.completionTokens() > 0);
        }
    }

    @Test
    void cancellingASubscriptionEndsTheGeneration() throws Exception {
        try (LlbModel model = openEndless()) {
            Subscriber subscriber = new Subscriber();
            model.publish(Endless.REQUEST).subscribe(subscriber);
            subscriber.subscription.request(2);
            assertTrue(subscriber.next() instanceof ChatChunk);
            assertTrue(subscriber.next() instanceof ChatChunk);
            subscriber.subscription.cancel();
            ChatRequest two = ChatRequest.builder().user("hi").maxTokens(2).build();
            assertEquals(FinishReason.LENGTH, model.infer(two).finishReason());
            assertTrue(subscriber.signals.isEmpty(), subscriber.signals.toString());
        }
    }

    @Test
    void failuresOfAPublisher() throws Exception {
        try (LlbModel model = openEndless()) {
            Subscriber refused = new Subscriber();
            model.publish(ChatRequest.builder().user("hi").temperature(-1).build())
                    .subscribe(refused);
            assertEquals("INVALID_REQUEST", ((LlbException) refused.next()).code());
            Subscriber invalid = new Subscriber();
            model.publish(Endless.REQUEST).subscribe(invalid);
            invalid.subscription.request(0);
            assertTrue(invalid.next() instanceof IllegalArgumentException);
            ChatRequest two = ChatRequest.builder().user("hi").maxTokens(2).build();
            assertEquals(FinishReason.LENGTH, model.infer(two).finishReason());
        }
    }

    @Test
    void aPublisherWithoutLimit() throws Exception {
        try (LlbModel model = open("text.gguf", 1)) {
            StringBuilder text = new StringBuilder();
            Subscriber subscriber = new Subscriber();
            model.publish(ChatRequest.of("hi")).subscribe(subscriber);
            subscriber.subscription.request(1);
            subscriber.subscription.request(Long.MAX_VALUE);
            subscriber.subscription.request(Long.MAX_VALUE);
            Object signal = subscriber.next();
            for (; signal instanceof ChatChunk chunk; signal = subscriber.next()) {
                text.append(chunk.text());
            }
            assertEquals("complete", signal);
            assertEquals(TestFiles.expected("text"), text.toString());
        }
    }

    /** A subscriber that throws gets no further signal, and its chat is free again. */
    @Test
    void aSubscriberThatThrows() throws Exception {
        try (LlbModel model = openEndless()) {
            Subscriber throwing = new Subscriber() {
                @Override
                public void onNext(ChatChunk chunk) {
                    super.onNext(chunk);
                    throw new IllegalStateException("on purpose");
                }
            };
            model.publish(Endless.REQUEST).subscribe(throwing);
            throwing.subscription.request(10);
            assertTrue(throwing.next() instanceof ChatChunk);
            ChatRequest two = ChatRequest.builder().user("hi").maxTokens(2).build();
            assertEquals(FinishReason.LENGTH, model.infer(two).finishReason());
            assertTrue(throwing.signals.isEmpty(), throwing.signals.toString());
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
            assertEquals(FinishReason.TOOL_CALLS, chunks.get(chunks.size() - 1).finishReason());
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
