package dev.llb;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * Cancels running calls whose thread is interrupted. A call of the library returns only at its end,
 * so another thread looks, as long as calls run.
 */
final class CancelWatch {

    private static final long INTERVAL_NANOS = 20_000_000;

    private static final Set<Watched> WATCHED = ConcurrentHashMap.newKeySet();

    private CancelWatch() {}

    /** A running call. A class, not a record, so that equal ones are told apart. */
    static final class Watched {

        private final BooleanSupplier isCancelled;
        private final Runnable cancel;

        private Watched(BooleanSupplier isCancelled, Runnable cancel) {
            this.isCancelled = isCancelled;
            this.cancel = cancel;
        }

        void close() {
            WATCHED.remove(this);
        }
    }

    /**
     * Calls {@code cancel} when {@code isCancelled} holds, again and again until the call is
     * closed: the first time may be too early for the library.
     */
    static Watched watch(BooleanSupplier isCancelled, Runnable cancel) {
        Watched watched = new Watched(isCancelled, cancel);
        WATCHED.add(watched);
        if (Watcher.parked) {
            LockSupport.unpark(Watcher.THREAD);
        }
        return watched;
    }

    /** Started by the first call. Sleeps, until it is woken, after a second without calls. */
    private static final class Watcher {

        private static final int IDLE_ROUNDS = 50;

        private static volatile boolean parked;

        static final Thread THREAD = new Thread(Watcher::run, "llb-cancel");

        static {
            THREAD.setDaemon(true);
            THREAD.start();
        }

        private static void run() {
            for (int idle = 0; ; idle = WATCHED.isEmpty() ? idle + 1 : 0) {
                if (idle < IDLE_ROUNDS) {
                    LockSupport.parkNanos(INTERVAL_NANOS);
                } else {
                    // A call is added before it reads this, so that it is seen here or wakes this.
                    parked = true;
                    if (WATCHED.isEmpty()) {
                        LockSupport.park();
                    }
                    parked = false;
                }
                try {
                    WATCHED.forEach(Watcher::look);
                } catch (Throwable e) {
                    // No memory, for one. The next round looks again.
                }
            }
        }

        private static void look(Watched watched) {
            if (watched.isCancelled.getAsBoolean()) {
                watched.cancel.run();
            }
        }
    }
}
