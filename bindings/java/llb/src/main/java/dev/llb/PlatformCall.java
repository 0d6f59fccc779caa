package dev.llb;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.Supplier;

/**
 * A library call that blocks. A virtual thread cannot leave its carrier while it is in C, so its
 * call runs on a platform thread while the virtual thread waits in Java. A call on a platform
 * thread runs there directly.
 *
 * <p>The two threads take turns: callbacks run on the virtual thread, and a call that is made in a
 * callback runs on the platform thread of the outer call, as the library expects.
 */
final class PlatformCall {

    private static final ExecutorService THREADS = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "llb-call");
        thread.setDaemon(true);
        // It runs no code of the web application that started it.
        thread.setContextClassLoader(null);
        return thread;
    });

    /** On a platform thread: the call that it runs. */
    private static final ThreadLocal<PlatformCall> RUNNING = new ThreadLocal<>();

    /** On a virtual thread: the call whose callback it runs. */
    private static final ThreadLocal<PlatformCall> CALLING_BACK = new ThreadLocal<>();

    /** The queues of work for the platform thread and the virtual thread. */
    private final BlockingQueue<Runnable> below = new LinkedBlockingQueue<>();
    private final BlockingQueue<Runnable> above = new LinkedBlockingQueue<>();

    /** Threads that were interrupted while they waited. They keep waiting. */
    private static final Set<Thread> INTERRUPTED = ConcurrentHashMap.newKeySet();

    private PlatformCall() {}

    /** Whether an interrupt of a thread is pending, even while its call runs on another thread. */
    static boolean isInterrupted(Thread thread) {
        return thread.isInterrupted() || INTERRUPTED.contains(thread);
    }

    /** Runs {@code call} and returns its result, or throws its exception. */
    static <T> T run(Supplier<T> call) {
        if (!IsVirtual.currentThread()) {
            return call.get();
        }
        PlatformCall outer = CALLING_BACK.get();
        if (outer != null) {
            return outer.turn(outer.below, outer.above, call);
        }
        PlatformCall own = new PlatformCall();
        Turn<T> turn = new Turn<>(call, own.above);
        THREADS.execute(() -> {
            RUNNING.set(own);
            try {
                turn.run();
            } finally {
                RUNNING.remove();
            }
        });
        return turn.await(own.above);
    }

    /** Runs a callback on the virtual thread of the call, if there is one. */
    static void callBack(Runnable callback) {
        PlatformCall call = RUNNING.get();
        if (call == null) {
            callback.run();
            return;
        }
        call.turn(call.above, call.below, () -> {
            PlatformCall outer = CALLING_BACK.get();
            CALLING_BACK.set(call);
            try {
                callback.run();
                return null;
            } finally {
                CALLING_BACK.set(outer);
            }
        });
    }

    /**
     * Makes the other thread run {@code work}. Meanwhile, runs work that the other thread has for
     * this one.
     */
    private <T> T turn(
            BlockingQueue<Runnable> theirs, BlockingQueue<Runnable> ours, Supplier<T> work) {
        Turn<T> turn = new Turn<>(work, ours);
        theirs.add(turn);
        return turn.await(ours);
    }

    /**
     * Waits for the next work. An interrupt does not end the wait, and is pending again after it.
     */
    private static Runnable next(BlockingQueue<Runnable> ours) {
        Thread current = Thread.currentThread();
        Runnable next = null;
        while (next == null) {
            try {
                next = ours.take();
            } catch (InterruptedException e) {
                INTERRUPTED.add(current);
            }
        }
        if (INTERRUPTED.remove(current)) {
            current.interrupt();
        }
        return next;
    }

    /** {@code Thread.isVirtual}, which Java 21 and later have. */
    private static final class IsVirtual {

        private static final MethodHandle METHOD = find();

        private static MethodHandle find() {
            try {
                return MethodHandles.publicLookup().findVirtual(
                        Thread.class, "isVirtual", MethodType.methodType(boolean.class));
            } catch (ReflectiveOperationException before21) {
                return MethodHandles.dropArguments(
                        MethodHandles.constant(boolean.class, false), 0, Thread.class);
            }
        }

        static boolean currentThread() {
            try {
                return (boolean) METHOD.invokeExact(Thread.currentThread());
            } catch (Throwable thrown) {
                throw Callback.<RuntimeException>unchecked(thrown);
            }
        }
    }

    /** Work for one thread, while the other thread waits for its end. */
    private static final class Turn<T> implements Runnable {

        private final Supplier<T> work;
        private final BlockingQueue<Runnable> waiting;
        private T result;
        private Throwable failure;
        private boolean done;

        Turn(Supplier<T> work, BlockingQueue<Runnable> waiting) {
            this.work = work;
            this.waiting = waiting;
        }

        @Override
        public void run() {
            try {
                result = work.get();
            } catch (Throwable thrown) {
                failure = thrown;
            }
            // The fields are written before the queue is, and read after it.
            waiting.add(() -> done = true);
        }

        T await(BlockingQueue<Runnable> ours) {
            while (!done) {
                next(ours).run();
            }
            if (failure != null) {
                throw Callback.<RuntimeException>unchecked(failure);
            }
            return result;
        }
    }
}
