package dev.llb;

import java.util.function.Function;

/** One request on a chat of a pool, which another thread can cancel without cancelling others. */
final class PooledRequest {

    private LlbChat running;
    private boolean cancelled;

    /** Runs {@code use}. Returns null if the request was already cancelled. */
    <T> T run(LlbModel model, Function<LlbChat, T> use) {
        return model.with(chat -> {
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
        });
    }

    synchronized void cancel() {
        cancelled = true;
        if (running != null) {
            running.cancel();
        }
    }

    synchronized boolean isCancelled() {
        return cancelled;
    }
}
