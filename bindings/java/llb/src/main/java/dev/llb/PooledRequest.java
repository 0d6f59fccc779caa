package dev.llb;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * One request on a chat of a pool, which another thread can cancel without cancelling others.
 *
 * @param <T> its result
 */
final class PooledRequest<T> {

    private final ChatPool pool;
    private final Function<LlbChat, T> use;
    private final BiConsumer<@Nullable T, @Nullable Throwable> end;

    private CompletableFuture<Void> turn;
    private LlbChat running;
    private boolean cancelled;

    /**
     * {@code end} receives the result or the failure, once. The result is null if the request was
     * cancelled before it ran.
     */
    PooledRequest(
            ChatPool pool,
            Function<LlbChat, T> use,
            BiConsumer<@Nullable T, @Nullable Throwable> end) {
        this.pool = pool;
        this.use = use;
        this.end = end;
    }

    /** Runs the request on a new daemon thread, as soon as a chat is free. */
    void start() {
        try {
            enqueue().whenComplete((granted, refusal) -> {
                if (refusal == null) {
                    startThread();
                } else {
                    end.accept(null, refusal);
                }
            });
        } catch (LlbException closed) {
            end.accept(null, closed);
        }
    }

    /** Runs the request on a thread of {@code executor}, which also waits for a chat. */
    void start(Executor executor) {
        executor.execute(() -> run(() -> pool.with(this::enqueue, this::runOn)));
    }

    private synchronized CompletableFuture<Void> enqueue() {
        turn = pool.enqueue();
        if (cancelled && pool.leave(turn)) {
            turn.cancel(false);
        }
        return turn;
    }

    private void startThread() {
        Thread thread =
                new Thread(() -> run(() -> pool.withPermit(this::runOn)), "llb-request");
        thread.setDaemon(true);
        try {
            thread.start();
        } catch (Throwable noThread) {
            pool.release();
            end.accept(null, noThread);
        }
    }

    private void run(Supplier<T> request) {
        T result;
        try {
            result = request.get();
        } catch (Throwable e) {
            end.accept(null, e);
            return;
        }
        end.accept(result, null);
    }

    private T runOn(LlbChat chat) {
        synchronized (this) {
            if (cancelled) {
                return null;
            }
            running = chat;
        }
        CancelWatch.Watched watched = CancelWatch.watch(this::isCancelled, chat::cancel);
        try {
            return use.apply(chat);
        } finally {
            watched.close();
            synchronized (this) {
                running = null;
            }
        }
    }

    void cancel() {
        CompletableFuture<Void> left = null;
        synchronized (this) {
            cancelled = true;
            if (running != null) {
                running.cancel();
            } else if (turn != null && pool.leave(turn)) {
                left = turn;
            }
        }
        if (left != null) {
            left.cancel(false);
        }
    }

    synchronized boolean isCancelled() {
        return cancelled;
    }
}
