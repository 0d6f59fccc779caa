package dev.llb;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * Threads that are joined at the end of a block. {@link ExecutorService} is closable only since
 * Java 19.
 */
record Pool(ExecutorService service) implements AutoCloseable {

    static Pool of(int threads) {
        return new Pool(Executors.newFixedThreadPool(threads));
    }

    /** Virtual threads, or a pool of platform threads before Java 21. */
    static Pool virtual() {
        try {
            Object service =
                    Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
            return new Pool((ExecutorService) service);
        } catch (ReflectiveOperationException before21) {
            return new Pool(Executors.newCachedThreadPool());
        }
    }

    <T> Future<T> submit(Callable<T> task) {
        return service.submit(task);
    }

    Future<?> submit(Runnable task) {
        return service.submit(task);
    }

    @Override
    public void close() {
        service.shutdown();
        try {
            if (!service.awaitTermination(120, TimeUnit.SECONDS)) {
                throw new AssertionError("a thread of the test did not end");
            }
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }
}
