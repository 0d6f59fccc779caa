package dev.llb;

import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.Semaphore;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * A model for many threads: opened once, with a pool of chats. Must be closed.
 *
 * <p>A request runs on a chat of the pool that is free. The pool has as many chats as the model
 * decodes together ({@link ChatOptions.Builder#parallel}); further requests wait. The weights and
 * the KV cache are shared, so a request reuses what is cached of its prompt, whichever chat it runs
 * on. All methods may be called from any thread.
 */
public final class LlbModel implements AutoCloseable {

    /** The default of {@code n_parallel}. */
    private static final int PARALLEL = 4;

    private final ChatOptions options;
    private final Semaphore free;
    private final Deque<LlbChat> idle = new ArrayDeque<>();
    private final Set<LlbChat> busy = new HashSet<>();
    private boolean closed;

    private LlbModel(ChatOptions options) {
        this.options = options;
        boolean set = options.values().get("n_parallel") instanceof Number n && n.intValue() > 0;
        int chats = set ? ((Number) options.values().get("n_parallel")).intValue() : PARALLEL;
        free = new Semaphore(chats, true);
    }

    /** Opens a model with the default options. Blocks until it is loaded. */
    public static LlbModel open(Path model) {
        return open(ChatOptions.builder(model).build());
    }

    /**
     * Opens a model. Blocks until it is loaded. A listener of events receives those of all chats.
     *
     * @throws LlbException if it cannot be opened; {@link LlbException#events} has the events so
     *     far
     */
    public static LlbModel open(ChatOptions options) {
        LlbModel model = new LlbModel(options);
        // The first chat loads the weights.
        model.idle.push(LlbChat.open(options));
        return model;
    }

    /** As {@link LlbChat#fromHub(String)}. */
    public static LlbModel fromHub(String id) {
        return open(LlbChat.hubOptions(FetchRequest.of(id), builder -> builder));
    }

    /** The options of all its chats. */
    public ChatOptions options() {
        return options;
    }

    /** Opens a chat of this model beside the pool. The caller closes it. */
    public LlbChat chat() {
        return LlbChat.open(options);
    }

    /** As {@link LlbChat#infer(ChatRequest)}, on a free chat of the pool. */
    public ChatReply infer(ChatRequest request) {
        return with(chat -> chat.infer(request));
    }

    /** As {@link LlbChat#infer(ChatRequest, Class)}, on a free chat of the pool. */
    public <T extends Record> T infer(ChatRequest request, Class<T> type) {
        return with(chat -> chat.infer(request, type));
    }

    /** As {@link LlbChat#run}, on a free chat of the pool, which it keeps for all rounds. */
    public ToolRun run(ChatRequest request, ToolSet tools, int maxRounds) {
        return with(chat -> chat.run(request, tools, maxRounds));
    }

    /** As {@link LlbChat#stream}, on a free chat of the pool. */
    public ChatReply stream(ChatRequest request, Consumer<String> onPiece) {
        return with(chat -> chat.stream(request, onPiece));
    }

    /** As {@link LlbChat#streamChunks}, on a free chat of the pool. */
    public ChatReply streamChunks(ChatRequest request, Consumer<ChatChunk> onChunk) {
        return with(chat -> chat.streamChunks(request, onChunk));
    }

    /** As {@link #inferAsync(ChatRequest, Executor)}, on a new daemon thread. */
    public CompletableFuture<ChatReply> inferAsync(ChatRequest request) {
        return inferAsync(request, LlbModel::runOnThread);
    }

    /**
     * Runs a request on a thread of {@code executor}, which it blocks. If the future is completed
     * by another thread, as by {@code cancel} or {@code orTimeout}, the request is cancelled, and
     * no other one. Do not use virtual threads: a request pins its carrier.
     */
    public CompletableFuture<ChatReply> inferAsync(ChatRequest request, Executor executor) {
        PooledRequest running = new PooledRequest();
        CompletableFuture<ChatReply> future = new CompletableFuture<>();
        future.whenComplete((reply, failure) -> running.cancel());
        executor.execute(() -> {
            try {
                ChatReply reply = running.run(this, chat -> chat.infer(request));
                future.complete(reply);
            } catch (Throwable e) {
                future.completeExceptionally(e);
            }
        });
        return future;
    }

    /** As {@link #publish(ChatRequest, Executor)}, each on a new daemon thread. */
    public Flow.Publisher<ChatChunk> publish(ChatRequest request) {
        return publish(request, LlbModel::runOnThread);
    }

    /**
     * Returns a publisher of the chunks of this request. Each subscription is a generation of its
     * own, on a thread of {@code executor}, which it blocks. The generation waits while the
     * subscriber has no demand. Cancelling the subscription ends it.
     */
    public Flow.Publisher<ChatChunk> publish(ChatRequest request, Executor executor) {
        Objects.requireNonNull(request, "request");
        return new ChunkPublisher(this, request, Objects.requireNonNull(executor, "executor"));
    }

    private static void runOnThread(Runnable task) {
        Thread thread = new Thread(task, "llb-request");
        thread.setDaemon(true);
        thread.start();
    }

    /**
     * Runs {@code use} with a chat of the pool that no other thread uses, and returns its result.
     * Waits until one is free. {@code use} must not keep or close the chat.
     *
     * @throws LlbException with {@code ENGINE_CLOSED} after {@link #close}, and {@code CANCELLED}
     *     if the thread is interrupted while it waits
     */
    public <T> T with(Function<LlbChat, T> use) {
        Objects.requireNonNull(use, "use");
        try {
            free.acquire();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new LlbException("CANCELLED", "interrupted while waiting for a free chat", e);
        }
        try {
            LlbChat chat = take();
            try {
                return use.apply(chat);
            } finally {
                giveBack(chat);
            }
        } finally {
            free.release();
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
            requireOpen();
        }
        return opened;
    }

    private synchronized void requireOpen() {
        if (closed) {
            throw new LlbException("ENGINE_CLOSED", "the model is closed");
        }
    }

    private synchronized void giveBack(LlbChat chat) {
        // After a close the chat is closed, too.
        if (busy.remove(chat)) {
            idle.push(chat);
        }
    }

    /** Cancels the requests, waits until they end, and frees all chats of the pool. Idempotent. */
    @Override
    public void close() {
        List<LlbChat> all = new ArrayList<>();
        synchronized (this) {
            closed = true;
            all.addAll(busy);
            all.addAll(idle);
            busy.clear();
            idle.clear();
        }
        all.forEach(LlbChat::close);
    }
}
