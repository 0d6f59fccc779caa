package dev.llb;

import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * A consumer as the library calls it. What the consumer throws is kept here and never crosses the C frames; the call
 * that caused it throws it on, through {@link #rethrow}, once it is back in Java.
 */
final class Callback {

    /** How many callbacks this thread is inside of. */
    private static final ThreadLocal<Integer> DEPTH = ThreadLocal.withInitial(() -> 0);

    private final Consumer<String> consumer;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private volatile Runnable onFailure;

    /** {@code onFailure} stops the work that calls back; it runs in the callback that failed. */
    Callback(Consumer<String> consumer, Runnable onFailure) {
        this.consumer = consumer;
        this.onFailure = onFailure;
    }

    /** True in a thread that is inside a callback, where the library may not be asked to wait for itself. */
    static boolean inside() {
        return DEPTH.get() > 0;
    }

    void onFailure(Runnable stop) {
        onFailure = stop;
    }

    /** Called by the library. After a failure the consumer rests until {@link #rethrow}. */
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

    /** Keeps the first failure. Never throws. */
    void fail(Throwable thrown) {
        if (failure.compareAndSet(null, thrown)) {
            onFailure.run();
        }
    }

    /** Takes the failure out, or null when there was none. */
    Throwable takeFailure() {
        return failure.getAndSet(null);
    }

    /** Throws what the consumer threw, if it did, as it was. */
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
