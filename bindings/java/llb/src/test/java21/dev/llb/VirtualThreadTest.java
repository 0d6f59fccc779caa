package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that virtual threads keep their carriers free and otherwise behave like other threads. */
class VirtualThreadTest {

    private static <T> T onVirtualThread(java.util.concurrent.Callable<T> task) throws Exception {
        FutureTask<T> future = new FutureTask<>(task);
        Thread.startVirtualThread(future);
        return future.get(60, TimeUnit.SECONDS);
    }

    private static LlbChat open(String file) {
        return LlbChat.open(TestFiles.scripted(file));
    }

    @Test
    void twoHundredOnTwoCarriers(@TempDir Path folder) throws Exception {
        ChildJvm child = new ChildJvm().with(
                "-Djdk.virtualThreadScheduler.parallelism=2",
                "-Djdk.virtualThreadScheduler.maxPoolSize=2");
        ChildJvm.Result result = child.run(
                "virtual",
                TestFiles.scripted("text.gguf").toString(),
                folder.resolve("events.jfr").toString());
        assertEquals(
                "together: 4 [stop]\npublished: 4\nreplies: 200 [" + TestFiles.expected("text")
                        + "]\npinned: 0\n",
                result.output());
    }

    @Test
    void aRequestInACallbackIsBusy() throws Exception {
        String code = onVirtualThread(() -> {
            try (LlbChat chat = open("text.gguf")) {
                String[] inner = new String[1];
                chat.stream(ChatRequest.of("hi"), piece -> {
                    LlbException e = assertThrows(
                            LlbException.class, () -> chat.infer(ChatRequest.of("hi")));
                    inner[0] = e.code();
                    Llb.templateRenderJson("{}");
                });
                return inner[0];
            }
        });
        assertEquals("BUSY", code);
    }

    @Test
    void anExceptionOfACallbackIsThrown() throws Exception {
        onVirtualThread(() -> {
            try (LlbChat chat = open("long.gguf")) {
                return assertThrows(IllegalStateException.class, () -> chat.stream(
                        ChatRequest.of("hi"),
                        piece -> {
                            throw new IllegalStateException("on purpose");
                        }));
            }
        });
    }

    @Test
    void anInterruptEndsTheRequestAndStaysPending() throws Exception {
        try (LlbChat chat = Endless.open()) {
            CountDownLatch running = new CountDownLatch(1);
            FutureTask<String> request = new FutureTask<>(() -> {
                String reason = chat.stream(Endless.REQUEST, piece -> running.countDown())
                        .finishReason().toString();
                return reason + " " + Thread.currentThread().isInterrupted();
            });
            Thread thread = Thread.startVirtualThread(request);
            assertTrue(running.await(60, TimeUnit.SECONDS));
            thread.interrupt();
            assertEquals("cancelled true", request.get(60, TimeUnit.SECONDS));
        }
    }

    @Test
    void aChatIsClosedInACallback() throws Exception {
        String end = onVirtualThread(() -> {
            LlbChat chat = Endless.open();
            return chat.stream(Endless.REQUEST, piece -> chat.close())
                    .finishReason().toString();
        });
        assertEquals("cancelled", end);
    }
}
