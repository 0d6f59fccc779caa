package dev.llb;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;

/** Tests cancels of calls that end at the same time. */
class CancelWatchTest {

    /** A late cancel would cancel the next call. */
    @Test
    void noCancelRunsAfterTheEnd() throws Exception {
        CountDownLatch cancelling = new CountDownLatch(1);
        CountDownLatch closing = new CountDownLatch(1);
        AtomicBoolean cancelled = new AtomicBoolean();
        CancelWatch.Watched watched = CancelWatch.watch(() -> !cancelled.get(), () -> {
            cancelling.countDown();
            await(closing);
            cancelled.set(true);
        });
        await(cancelling);
        AtomicBoolean cancelledBeforeTheEnd = new AtomicBoolean();
        Thread call = new Thread(() -> {
            watched.close();
            cancelledBeforeTheEnd.set(cancelled.get());
        });
        call.start();
        while (call.getState() != Thread.State.BLOCKED
                && call.getState() != Thread.State.TERMINATED) {
            Thread.onSpinWait();
        }
        closing.countDown();
        call.join();
        assertTrue(cancelledBeforeTheEnd.get());
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }
}
