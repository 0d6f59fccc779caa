package dev.llb;

import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * Publishes the chunks of a request. Each subscription starts a separate generation on a thread of
 * the executor, or without one on a new thread. The generation waits while there is no demand.
 */
final class ChunkPublisher implements Flow.Publisher<ChatChunk> {

    private final ChatPool pool;
    private final ChatRequest request;
    private final @Nullable Executor executor;

    ChunkPublisher(ChatPool pool, ChatRequest request, @Nullable Executor executor) {
        this.pool = pool;
        this.request = request;
        this.executor = executor;
    }

    @Override
    public void subscribe(Flow.Subscriber<? super ChatChunk> subscriber) {
        Objects.requireNonNull(subscriber, "subscriber");
        Generation generation = new Generation(subscriber);
        subscriber.onSubscribe(generation);
        try {
            generation.start();
        } catch (RuntimeException e) {
            generation.cancel();
            subscriber.onError(e);
        }
    }

    private final class Generation implements Flow.Subscription {

        private final Flow.Subscriber<? super ChatChunk> subscriber;
        private final PooledRequest<ChatReply> running = new PooledRequest<>(
                pool, chat -> chat.streamChunks(request, this::next), this::end);
        /** A monitor would pin the carrier of a virtual thread on Java 21. */
        private final ReentrantLock lock = new ReentrantLock();
        private final Condition changed = lock.newCondition();
        private long demand;
        private RuntimeException invalidDemand;

        Generation(Flow.Subscriber<? super ChatChunk> subscriber) {
            this.subscriber = subscriber;
        }

        @Override
        public void request(long n) {
            lock.lock();
            try {
                if (n <= 0) {
                    invalidDemand = new IllegalArgumentException("request(" + n
                            + "): the demand must be positive (Reactive Streams 3.9)");
                } else {
                    demand = demand + n < 0 ? Long.MAX_VALUE : demand + n;
                }
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }

        @Override
        public void cancel() {
            running.cancel();
            lock.lock();
            try {
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }

        void start() {
            if (executor == null) {
                running.start();
            } else {
                running.start(executor);
            }
        }

        private void end(@Nullable ChatReply reply, @Nullable Throwable failure) {
            if (running.isCancelled()) {
                return;
            }
            if (failure == null) {
                subscriber.onComplete();
            } else {
                running.cancel();
                subscriber.onError(failure);
            }
        }

        private void next(ChatChunk chunk) {
            awaitDemand();
            if (running.isCancelled()) {
                return;
            }
            try {
                subscriber.onNext(chunk);
            } catch (Throwable e) {
                // A subscriber that throws counts as cancelled (Reactive Streams 2.13).
                running.cancel();
                throw e;
            }
        }

        private void awaitDemand() {
            lock.lock();
            try {
                while (demand == 0 && invalidDemand == null && !running.isCancelled()) {
                    changed.await();
                }
                if (invalidDemand != null) {
                    throw invalidDemand;
                }
                demand = demand == Long.MAX_VALUE ? demand : demand - 1;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new LlbException(
                        ErrorCodes.CANCELLED, "interrupted while waiting for demand", e);
            } finally {
                lock.unlock();
            }
        }
    }
}
