package dev.llb;

import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * A consumer that the library calls. An exception of the consumer never crosses a C frame: it is
 * stored here, and the call that caused it rethrows it in Java with {@link #rethrow}.
 */
final class Callback {

    /** The number of nested callbacks on this thread. */
    private static final ThreadLocal<Integer> DEPTH = ThreadLocal.withInitial(() -> 0);

    private final Consumer<String> consumer;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private volatile Runnable onFailure;

    /** {@code onFailure} cancels the native call. It runs inside the failed callback. */
    Callback(Consumer<String> consumer, Runnable onFailure) {
        this.consumer = consumer;
        this.onFailure = onFailure;
    }

    /** Whether this thread is inside a callback, where waiting for the library would deadlock. */
    static boolean isRunningHere() {
        return DEPTH.get() > 0;
    }

    void onFailure(Runnable cancel) {
        onFailure = cancel;
    }

    /** Called by the library. After a failure the consumer is not called until {@link #rethrow}. */
    void accept(String text) {
        if (failure.get() != null) {
            return;
        }
        int depth = DEPTH.get();
        DEPTH.set(depth + 1);
        try {
            consumer.accept(text);
        } finally {
            DEPTH.set(depth);
        }
    }

    /** Stores the first failure and cancels the native call. */
    void fail(Throwable thrown) {
        if (failure.compareAndSet(null, thrown)) {
            onFailure.run();
        }
    }

    /** Removes and returns the failure, or returns null. */
    Throwable takeFailure() {
        return failure.getAndSet(null);
    }

    /** Throws the unchanged exception of the consumer, if there is one. */
    void rethrow() {
        Throwable thrown = takeFailure();
        if (thrown != null) {
            throw Callback.<RuntimeException>unchecked(thrown);
        }
    }

    @SuppressWarnings("unchecked")
    static <T extends Throwable> T unchecked(Throwable thrown) throws T {
        throw (T) thrown;
    }
}
