package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Tests exceptions of callbacks, and calls from callbacks. */
class CallbackTest {

    private static final ChatRequest ENDLESS = Endless.REQUEST;

    @Test
    void anExceptionCancelsTheRequestAndIsRethrown() {
        try (LlbChat chat = Endless.open()) {
            IllegalStateException thrown = new IllegalStateException("enough");
            AtomicInteger pieces = new AtomicInteger();
            assertSame(thrown,
                    assertThrows(IllegalStateException.class, () -> chat.stream(ENDLESS, piece -> {
                pieces.incrementAndGet();
                throw thrown;
            })));
            assertEquals(1, pieces.get());
            // The chat remains usable.
            assertEquals(
                    FinishReason.LENGTH,
                    chat.infer(ChatRequest.builder().user("hi").maxTokens(2).build())
                            .finishReason());
        }
    }

    @Test
    void errorsAndCheckedExceptionsAreRethrownUnchanged() {
        try (LlbChat chat = Endless.open()) {
            StackOverflowError error = new StackOverflowError();
            assertSame(error,
                    assertThrows(StackOverflowError.class, () -> chat.stream(ENDLESS, piece -> {
                throw error;
            })));
            IOException checked = new IOException("sneaked");
            assertSame(checked,
                    assertThrows(IOException.class, () -> chat.stream(ENDLESS, piece -> {
                throw Callback.<RuntimeException>unchecked(checked);
            })));
        }
    }

    @Test
    void anExceptionOfTheEventListenerIsRethrownOnce() {
        AtomicReference<RuntimeException> toThrow = new AtomicReference<>();
        ChatOptions options = ChatOptions.builder(TestFiles.scripted("text.gguf"))
                .onEvent(event -> {
                    if (toThrow.get() != null) {
                        throw toThrow.get();
                    }
                })
                .build();
        LlbChat chat = LlbChat.open(options);
        toThrow.set(new IllegalStateException("during infer"));
        assertSame(
                toThrow.get(),
                assertThrows(IllegalStateException.class, () -> chat.infer(ChatRequest.of("hi"))));
        toThrow.set(null);
        assertEquals(FinishReason.STOP, chat.infer(ChatRequest.of("hi")).finishReason());
        toThrow.set(new IllegalStateException("during close"));
        assertSame(toThrow.get(), assertThrows(IllegalStateException.class, chat::close));
        chat.close();
    }

    @Test
    void cancelInACallback() {
        try (LlbChat chat = Endless.open()) {
            List<String> pieces = new ArrayList<>();
            ChatReply reply = chat.stream(ENDLESS, piece -> {
                pieces.add(piece);
                if (pieces.size() == 3) {
                    chat.cancel();
                }
            });
            assertEquals(FinishReason.CANCELLED, reply.finishReason());
            assertEquals(String.join("", pieces), reply.text());
        }
    }

    @Test
    void endReasoningInACallback() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("reasoning.gguf"))) {
            // The answer has begun, so there is no reasoning to end.
            ChatReply reply = chat.stream(ChatRequest.of("hi"), piece -> chat.endReasoning());
            assertEquals(FinishReason.STOP, reply.finishReason());
            assertEquals("The answer.", reply.text());
            ChatRequest request = ChatRequest.builder()
                    .user("hi")
                    .reasoningBudget(1)
                    .reasoningBudgetMessage(" Stop.\n")
                    .build();
            assertEquals("One, two, Stop.", chat.infer(request).reasoningContent());
        }
    }

    @Test
    void aRequestInACallbackIsRefused() {
        try (LlbChat chat = Endless.open()) {
            LlbException e = assertThrows(
                    LlbException.class,
                    () -> chat.stream(ENDLESS, piece -> chat.infer(ChatRequest.of("and this"))));
            assertEquals("BUSY", e.code());
        }
    }

    @Test
    void templateMethodsWorkInACallback() {
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            AtomicReference<String> rendered = new AtomicReference<>();
            chat.stream(ChatRequest.of("hi"), piece ->
                    rendered.set(Llb.templateRenderJson(TemplateTest.RENDER)));
            assertEquals("rendered", Json.readObject(rendered.get()).get("type"));
        }
    }

    @Test
    void closeInACallback() throws Exception {
        CountDownLatch destroyed = new CountDownLatch(1);
        ChatOptions options = Endless.options()
                .onEvent(event -> {
                    if (event.equals("destroy")) {
                        destroyed.countDown();
                    }
                })
                .build();
        LlbChat chat = LlbChat.open(options);
        AtomicBoolean returned = new AtomicBoolean();
        try {
            ChatReply reply = chat.stream(ENDLESS, piece -> {
                chat.close();
                returned.set(true);
            });
            assertEquals(FinishReason.CANCELLED, reply.finishReason());
        } catch (LlbException e) {
            assertTrue(List.of("ENGINE_CLOSED", "CANCELLED").contains(e.code()), e.code());
        }
        assertTrue(returned.get());
        assertTrue(destroyed.await(60, TimeUnit.SECONDS));
        assertEquals(
                "ENGINE_CLOSED",
                assertThrows(LlbException.class, () -> chat.infer(ChatRequest.of("hi"))).code());
    }
}
