package dev.llb;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * The chats of a model, and the requests that wait for one, in order of arrival. A request that
 * waits is a future, so it needs no thread.
 */
final class ChatPool {

    private final ChatOptions options;
    private final int size;
    private final Deque<LlbChat> idle = new ArrayDeque<>();
    private final Set<LlbChat> busy = new HashSet<>();
    private final Set<CompletableFuture<Void>> waiting = new LinkedHashSet<>();
    /** Completed when the pool is closed and no request has a permit. */
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    /** True on threads that use a chat of the pool. */
    private final ThreadLocal<Boolean> usedHere = new ThreadLocal<>();
    /** The number of requests that may still use a chat. */
    private int permits;
    private boolean closed;

    /** A pool of {@code size} chats. The first one is open, the others are opened when needed. */
    ChatPool(ChatOptions options, int size, LlbChat first) {
        this.options = options;
        this.size = size;
        permits = size;
        idle.push(first);
    }

    synchronized boolean isOpen() {
        return !closed;
    }

    /**
     * Waits for a chat, uses it, and returns the result. {@code turn} calls {@link #enqueue}.
     *
     * @throws LlbException as {@link LlbModel#with} does
     */
    <T> T with(Supplier<CompletableFuture<Void>> turn, Function<LlbChat, T> use) {
        if (usedHere.get() == null) {
            await(turn.get());
        } else if (!tryAcquire()) {
            throw new LlbException(ErrorCodes.BUSY, "no chat of the pool is free, and this thread uses"
                    + " one already; raise parallel, or make the request after the other one");
        }
        return withPermit(use);
    }

    /**
     * Uses a chat and returns the result. The caller has a permit, which is returned at the end.
     */
    <T> T withPermit(Function<LlbChat, T> use) {
        boolean nested = usedHere.get() != null;
        try {
            LlbChat chat = take();
            usedHere.set(true);
            try {
                return use.apply(chat);
            } finally {
                giveBack(chat);
            }
        } finally {
            if (!nested) {
                usedHere.remove();
            }
            release();
        }
    }

    /**
     * Returns a future that completes when the request may use a chat. It fails with {@code
     * ENGINE_CLOSED}. It completes on the thread that returned the permit.
     */
    CompletableFuture<Void> enqueue() {
        CompletableFuture<Void> turn = new CompletableFuture<>();
        boolean granted;
        synchronized (this) {
            requireOpen();
            granted = permits > 0;
            if (granted) {
                permits--;
            } else {
                waiting.add(turn);
            }
        }
        if (granted) {
            turn.complete(null);
        }
        return turn;
    }

    /** Removes a request that waits. Returns false if it has, or had, a permit. */
    synchronized boolean leave(CompletableFuture<Void> turn) {
        return waiting.remove(turn);
    }

    /** Blocks until a request has a permit. */
    private void await(CompletableFuture<Void> turn) {
        try {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            turn.get();
        } catch (InterruptedException e) {
            if (!leave(turn)) {
                // It has a permit, or is about to get it.
                turn.thenRun(this::release);
            }
            Thread.currentThread().interrupt();
            throw new LlbException(
                    ErrorCodes.CANCELLED, "interrupted while waiting for a free chat", e);
        } catch (ExecutionException e) {
            throw closedFailure();
        }
    }

    private synchronized boolean tryAcquire() {
        requireOpen();
        if (permits == 0) {
            return false;
        }
        permits--;
        return true;
    }

    /** Returns a permit that was not used. */
    void release() {
        CompletableFuture<Void> next = null;
        boolean last = false;
        synchronized (this) {
            var queue = waiting.iterator();
            if (queue.hasNext()) {
                next = queue.next();
                queue.remove();
            } else {
                permits++;
                last = closed && permits == size;
            }
        }
        if (next != null) {
            next.complete(null);
        } else if (last) {
            ended.complete(null);
        }
    }

    private LlbChat take() {
        synchronized (this) {
            requireOpen();
            LlbChat chat = idle.poll();
            if (chat != null) {
                busy.add(chat);
                return chat;
            }
        }
        LlbChat opened = LlbChat.open(options);
        boolean late;
        synchronized (this) {
            late = closed;
            if (!late) {
                busy.add(opened);
            }
        }
        if (late) {
            opened.close();
            throw closedFailure();
        }
        return opened;
    }

    private void requireOpen() {
        if (closed) {
            throw closedFailure();
        }
    }

    private static LlbException closedFailure() {
        return new LlbException(ErrorCodes.ENGINE_CLOSED, "the model is closed");
    }

    private synchronized void giveBack(LlbChat chat) {
        // The pool was closed meanwhile, so the chat is closed too.
        if (busy.remove(chat)) {
            idle.push(chat);
        }
    }

    /**
     * Refuses further requests and those that wait. The returned future completes at the end of
     * the running ones.
     */
    CompletableFuture<Void> refuse() {
        List<CompletableFuture<Void>> refused;
        boolean last;
        synchronized (this) {
            closed = true;
            refused = List.copyOf(waiting);
            waiting.clear();
            last = permits == size;
        }
        refused.forEach(turn -> turn.completeExceptionally(closedFailure()));
        if (last) {
            ended.complete(null);
        }
        return ended;
    }

    /** Cancels the requests, waits until they end, and frees the chats. */
    void close() {
        refuse();
        List<LlbChat> all = new ArrayList<>();
        synchronized (this) {
            all.addAll(busy);
            all.addAll(idle);
            busy.clear();
            idle.clear();
        }
        all.forEach(LlbChat::close);
    }
}
