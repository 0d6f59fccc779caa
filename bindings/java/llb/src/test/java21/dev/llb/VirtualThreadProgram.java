package dev.llb;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.Future;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedFrame;
import jdk.jfr.consumer.RecordingFile;

/** A program for {@link ChildJvm} on few carriers. Prints what the test expects. */
public final class VirtualThreadProgram {

    private static final int CHATS = 4;

    private VirtualThreadProgram() {}

    public static void run(Path model, Path recordingFile) throws Exception {
        try (Recording recording = new Recording();
                LlbModel open = LlbModel.open(ChatOptions.builder(model).parallel(CHATS).build());
                var threads = Executors.newVirtualThreadPerTaskExecutor()) {
            recording.enable("jdk.VirtualThreadPinned").withoutThreshold();
            recording.start();
            System.out.println("together: " + together(open, threads::submit));
            System.out.println("published: " + published(open, threads));
            System.out.println("replies: " + many(open, threads::submit));
            recording.stop();
            recording.dump(recordingFile);
        }
        List<String> pinned = new ArrayList<>();
        // Other events come from the JVM, such as threads that wait for a class to be loaded.
        RecordingFile.readAllEvents(recordingFile).stream()
                .filter(event -> event.getStackTrace().getFrames().stream().anyMatch(
                        frame -> Access.class.isAssignableFrom(type(frame))))
                .forEach(event -> pinned.add(event.toString()));
        System.out.println("pinned: " + pinned.size());
        pinned.stream().limit(3).forEach(System.err::println);
        Files.delete(recordingFile);
    }

    private static Class<?> type(RecordedFrame frame) {
        try {
            return Class.forName(frame.getMethod().getType().getName());
        } catch (ClassNotFoundException | LinkageError e) {
            return Object.class;
        }
    }

    private interface Threads {
        Future<String> submit(java.util.concurrent.Callable<String> task);
    }

    /**
     * Each of these requests continues only when all have begun, and there are more requests than
     * carriers.
     */
    private static String together(LlbModel model, Threads threads) throws Exception {
        CountDownLatch begun = new CountDownLatch(CHATS);
        List<Future<String>> replies = new ArrayList<>();
        for (int i = 0; i < CHATS; i++) {
            replies.add(threads.submit(() -> model.stream(ChatRequest.of("hi"), piece -> {
                if (!Thread.currentThread().isVirtual()) {
                    throw new AssertionError("not the thread of the request");
                }
                begun.countDown();
                await(begun);
            }).finishReason().toString()));
        }
        return distinct(replies);
    }

    /** Each of these publishers gets further demand only when all have published a chunk. */
    private static int published(LlbModel model, ExecutorService threads) throws Exception {
        CountDownLatch begun = new CountDownLatch(CHATS);
        CountDownLatch complete = new CountDownLatch(CHATS);
        List<Flow.Subscription> subscriptions = new CopyOnWriteArrayList<>();
        for (int i = 0; i < CHATS; i++) {
            model.publish(ChatRequest.of("hi"), threads).subscribe(new Flow.Subscriber<>() {
                @Override
                public void onSubscribe(Flow.Subscription subscription) {
                    subscriptions.add(subscription);
                    subscription.request(1);
                }

                @Override
                public void onNext(ChatChunk chunk) {
                    begun.countDown();
                }

                @Override
                public void onError(Throwable failure) {
                    throw new AssertionError(failure);
                }

                @Override
                public void onComplete() {
                    complete.countDown();
                }
            });
        }
        begun.await();
        subscriptions.forEach(subscription -> subscription.request(Long.MAX_VALUE));
        complete.await();
        return subscriptions.size();
    }

    private static String many(LlbModel model, Threads threads) throws Exception {
        List<Future<String>> replies = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            int request = i;
            replies.add(threads.submit(() -> request % 2 == 0
                    ? model.infer(ChatRequest.of("hi")).text()
                    : model.stream(ChatRequest.of("hi"), piece -> Thread.yield()).text()));
        }
        return distinct(replies);
    }

    private static String distinct(List<Future<String>> replies) throws Exception {
        List<String> all = new ArrayList<>();
        for (Future<String> reply : replies) {
            all.add(reply.get());
        }
        return all.size() + " " + all.stream().distinct().toList();
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }
}
