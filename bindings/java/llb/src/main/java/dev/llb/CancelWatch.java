package dev.llb;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * Cancels running calls whose thread is interrupted. A library call returns only at its end, so
 * another thread checks for interrupts while calls are running.
 */
final class CancelWatch {

    /** The name of the thread. */
    static final String THREAD = "llb-cancel";

    private static final long INTERVAL_NANOS = 20_000_000;

    /** After a second without calls the thread ends: it keeps the class loader. */
    private static final int IDLE_ROUNDS = 50;

    private static final Set<Watched> WATCHED = ConcurrentHashMap.newKeySet();

    /** The thread that looks, or null. */
    private static volatile Thread watcher;

    private CancelWatch() {}

    /** A running call. A class rather than a record, so that equal calls remain distinct. */
    static final class Watched {

        private final BooleanSupplier isCancelled;
        private final Runnable cancel;
        private boolean closed;

        private Watched(BooleanSupplier isCancelled, Runnable cancel) {
            this.isCancelled = isCancelled;
            this.cancel = cancel;
        }

        /**
         * After this, {@code cancel} does not run any more, because it would cancel the next call.
         */
        void close() {
            WATCHED.remove(this);
            synchronized (this) {
                closed = true;
            }
        }

        private synchronized void look() {
            if (!closed && isCancelled.getAsBoolean()) {
                cancel.run();
            }
        }
    }

    /**
     * Calls {@code cancel} once {@code isCancelled} holds, and repeats it until the call is closed,
     * because the first time may be too early for the library.
     */
    static Watched watch(BooleanSupplier isCancelled, Runnable cancel) {
        Watched watched = new Watched(isCancelled, cancel);
        WATCHED.add(watched);
        if (watcher == null) {
            try {
                start();
            } catch (Throwable noThread) {
                watched.close();
                throw noThread;
            }
        }
        return watched;
    }

    /** Like {@link #watch}, until this thread is interrupted. */
    static Watched watchInterrupts(Runnable cancel) {
        Thread caller = Thread.currentThread();
        return watch(() -> PlatformCall.isInterrupted(caller), cancel);
    }

    private static synchronized void start() {
        if (watcher == null) {
            Thread thread = new Thread(CancelWatch::run, THREAD);
            thread.setDaemon(true);
            // It runs no code of the web application that started it.
            thread.setContextClassLoader(null);
            watcher = thread;
            try {
                thread.start();
            } catch (Throwable noThread) {
                watcher = null;
                throw noThread;
            }
        }
    }

    private static void run() {
        for (int idle = 0; idle < IDLE_ROUNDS || !end(); idle = WATCHED.isEmpty() ? idle + 1 : 0) {
            LockSupport.parkNanos(INTERVAL_NANOS);
            try {
                WATCHED.forEach(Watched::look);
            } catch (Throwable e) {
                // No memory, for one. The next round looks again.
            }
        }
    }

    /**
     * Whether the thread can end. A call is added before it asks for the thread, so none is lost.
     */
    private static synchronized boolean end() {
        watcher = null;
        if (!WATCHED.isEmpty()) {
            watcher = Thread.currentThread();
        }
        return watcher == null;
    }
}
