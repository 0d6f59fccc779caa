package dev.llb;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Frees a handle of the library exactly once: when its owner is closed, or after the owner was
 * collected.
 */
final class Destruction {

    private static final Cleaner CLEANER = Cleaner.create();

    private final String what;
    private final Runnable free;
    private final AtomicBoolean begun = new AtomicBoolean();

    private Destruction(String what, Runnable free) {
        this.what = what;
        this.free = free;
    }

    /**
     * {@code free} must not refer to the owner, because the owner could then never be collected.
     */
    static Destruction of(Object owner, String what, Runnable free) {
        Destruction destruction = new Destruction(what, free);
        CLEANER.register(owner, destruction::afterCollection);
        return destruction;
    }

    /** Whether the caller is the first one. If so, it must call {@link #run}. */
    boolean begin() {
        return begun.compareAndSet(false, true);
    }

    void run() {
        free.run();
    }

    /** Runs on the thread of the cleaner. */
    private void afterCollection() {
        if (begin()) {
            System.getLogger("dev.llb").log(
                    System.Logger.Level.WARNING,
                    what + " was collected without close; its memory is freed only now");
            run();
        }
    }
}
