package dev.llb;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * A consumer that the library calls. An exception of the consumer never crosses a C frame. It is
 * stored here, and the call that caused it rethrows it in Java with {@link #rethrow}.
 *
 * <p>The library identifies a callback by the id of its registration, which it passes back as
 * {@code user_data}. Unknown ids are ignored.
 */
final class Callback {

    /** The number of nested callbacks on this thread. */
    private static final ThreadLocal<Integer> DEPTH = ThreadLocal.withInitial(() -> 0);

    private static final Map<Long, Callback> REGISTERED = new ConcurrentHashMap<>();
    private static final AtomicLong LAST_ID = new AtomicLong();

    private final Consumer<String> consumer;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private volatile Runnable onFailure;

    /** {@code onFailure} cancels the native call. It runs inside the failed callback. */
    Callback(Consumer<String> consumer, Runnable onFailure) {
        this.consumer = consumer;
        this.onFailure = onFailure;
    }

    /** Returns an id for the library, valid until {@link #remove}. */
    long register() {
        long id = LAST_ID.incrementAndGet();
        REGISTERED.put(id, this);
        return id;
    }

    static void remove(long id) {
        REGISTERED.remove(id);
    }

    /** The number of callbacks that the library may call. */
    static int registered() {
        return REGISTERED.size();
    }

    /** Called by the library, through the {@link Access}. Throws nothing. */
    static void receive(long id, byte[] text) {
        Callback callback = REGISTERED.get(id);
        if (callback == null) {
            return;
        }
        try {
            callback.accept(new String(text, StandardCharsets.UTF_8));
        } catch (Throwable thrown) {
            fail(id, thrown);
        }
    }

    /**
     * Stores a failure of the callback, or of the code that calls it, and cancels the native call.
     */
    static void fail(long id, Throwable thrown) {
        Callback callback = REGISTERED.get(id);
        if (callback != null) {
            try {
                callback.fail(thrown);
            } catch (Throwable cancelFailed) {
                // The first failure is stored, and the native call runs to its end.
            }
        }
    }

    /** Whether this thread is inside a callback. Waiting for the library would deadlock there. */
    static boolean isRunningHere() {
        return DEPTH.get() > 0;
    }

    void onFailure(Runnable cancel) {
        onFailure = cancel;
    }

    /** After a failure the consumer is not called until {@link #rethrow}. */
    private void accept(String text) {
        if (failure.get() == null) {
            PlatformCall.callBack(() -> consume(text));
        }
    }

    private void consume(String text) {
        int depth = DEPTH.get();
        DEPTH.set(depth + 1);
        try {
            consumer.accept(text);
        } finally {
            DEPTH.set(depth);
        }
    }

    /** Stores the first failure and cancels the native call. */
    private void fail(Throwable thrown) {
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
