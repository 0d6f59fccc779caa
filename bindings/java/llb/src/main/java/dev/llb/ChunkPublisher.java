package dev.llb;

import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Publishes the chunks of a request. Each subscription starts a separate generation on a thread of
 * the executor. The generation waits while there is no demand.
 */
final class ChunkPublisher implements Flow.Publisher<ChatChunk> {

    private final LlbModel model;
    private final ChatRequest request;
    private final Executor executor;

    ChunkPublisher(LlbModel model, ChatRequest request, Executor executor) {
        this.model = model;
        this.request = request;
        this.executor = executor;
    }

    @Override
    public void subscribe(Flow.Subscriber<? super ChatChunk> subscriber) {
        Objects.requireNonNull(subscriber, "subscriber");
        Generation generation = new Generation(subscriber);
        subscriber.onSubscribe(generation);
        try {
            executor.execute(generation);
        } catch (RuntimeException e) {
            generation.cancel();
            subscriber.onError(e);
        }
    }

    private final class Generation implements Flow.Subscription, Runnable {

        private final Flow.Subscriber<? super ChatChunk> subscriber;
        private final PooledRequest running = new PooledRequest();
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

        @Override
        public void run() {
            try {
                running.run(model, chat -> chat.streamChunks(request, this::next));
            } catch (Throwable e) {
                if (!running.isCancelled()) {
                    running.cancel();
                    subscriber.onError(e);
                }
                return;
            }
            if (!running.isCancelled()) {
                subscriber.onComplete();
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
                throw new LlbException("CANCELLED", "interrupted while waiting for demand", e);
            } finally {
                lock.unlock();
            }
        }
    }
}
