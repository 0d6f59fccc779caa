package dev.llb;

import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * A model for many threads: opened once, with a pool of chats. Must be closed.
 *
 * <p>A request runs on a free chat of the pool. The pool has as many chats as the model decodes
 * together ({@link ChatOptions.Builder#parallel}); further requests wait. The weights and the KV
 * cache are shared, so a request reuses what is cached of its prompt, whichever chat it runs on.
 * All methods may be called from any thread.
 */
public final class LlbModel implements AutoCloseable {

    /** The default of {@code n_parallel}. */
    private static final int PARALLEL = 4;

    /** The options of a chat that change its prompts (docs/tokens.md). */
    private static final List<String> PROMPT_OPTIONS =
            List.of(
                    "chat_template",
                    "components",
                    "media_folders",
                    "media_limits",
                    "media_urls",
                    "polyfills",
                    "projector",
                    "template_limits");

    private final ChatOptions options;
    private final ChatPool pool;

    private LlbModel(ChatOptions options) {
        this.options = options;
        boolean set = options.values().get("n_parallel") instanceof Number n && n.intValue() > 0;
        int chats = set ? ((Number) options.values().get("n_parallel")).intValue() : PARALLEL;
        // The first chat loads the weights.
        pool = new ChatPool(options, chats, LlbChat.open(options));
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
        return new LlbModel(options);
    }

    /** See {@link LlbChat#fromHub(String)}. */
    public static LlbModel fromHub(String id) {
        return open(LlbChat.hubOptions(FetchRequest.of(id), builder -> builder));
    }

    /** The options of all its chats. */
    public ChatOptions options() {
        return options;
    }

    /** The name of the model file without {@code .gguf}, or {@code llb} for a remote engine. */
    public String name() {
        return fileName(options.values());
    }

    static String fileName(Map<String, Object> values) {
        Object path = values.get("model");
        if (path == null) {
            return "llb";
        }
        String file = String.valueOf(Path.of(path.toString()).getFileName());
        return file.endsWith(".gguf") ? file.substring(0, file.length() - 5) : file;
    }

    /** Whether requests are accepted: true until {@code close} is called. */
    public boolean isOpen() {
        return pool.isOpen();
    }

    /** Returns the tokens of a text, without the tokens that the vocabulary would add around it. */
    public Tokens tokenize(String text) {
        Map<String, Object> request = ofFile();
        request.put("text", Objects.requireNonNull(text, "text"));
        return Tokens.of(LlbChat.requireSuccess(Llb.tokenizeJson(Json.write(request))));
    }

    /**
     * Returns the text of tokens. Bytes that are not UTF-8, because the tokens end inside a
     * character, become U+FFFD.
     */
    public String detokenize(List<Integer> ids) {
        Map<String, Object> request = ofFile();
        request.put("ids", ids);
        return Json.string(LlbChat.requireSuccess(Llb.detokenizeJson(Json.write(request))).get("text"));
    }

    /** Returns the number of tokens of the prompt of a request, without running it. */
    public int countTokens(ChatRequest chatRequest) {
        Map<String, Object> request = ofFile();
        for (String name : PROMPT_OPTIONS) {
            if (options.values().containsKey(name)) {
                request.put(name, options.values().get(name));
            }
        }
        request.putAll(Json.readObject(chatRequest.toJson()));
        Map<String, Object> reply = LlbChat.requireSuccess(Llb.countJson(Json.write(request)));
        return (int) Json.integer(reply.get("prompt_tokens"));
    }

    private Map<String, Object> ofFile() {
        Map<String, Object> request = new LinkedHashMap<>();
        request.put("model_path", options.values().get("model"));
        if (options.values().containsKey("isolation")) {
            request.put("isolation", options.values().get("isolation"));
        }
        return request;
    }

    /** Opens a chat of this model outside of the pool. The caller must close it. */
    public LlbChat chat() {
        return LlbChat.open(options);
    }

    /** Like {@link LlbChat#infer(ChatRequest)}, on a free chat of the pool. */
    public ChatReply infer(ChatRequest request) {
        return with(chat -> chat.infer(request));
    }

    /** Like {@link LlbChat#infer(ChatRequest, Class)}, on a free chat of the pool. */
    public <T extends Record> T infer(ChatRequest request, Class<T> type) {
        return with(chat -> chat.infer(request, type));
    }

    /** Like {@link LlbChat#run}, on a free chat of the pool, which it keeps for all rounds. */
    public ToolRun run(ChatRequest request, ToolSet tools, int maxRounds) {
        return with(chat -> chat.run(request, tools, maxRounds));
    }

    /** Like {@link LlbChat#stream}, on a free chat of the pool. */
    public ChatReply stream(ChatRequest request, Consumer<String> onPiece) {
        return with(chat -> chat.stream(request, onPiece));
    }

    /** Like {@link LlbChat#streamChunks}, on a free chat of the pool. */
    public ChatReply streamChunks(ChatRequest request, Consumer<ChatChunk> onChunk) {
        return with(chat -> chat.streamChunks(request, onChunk));
    }

    /**
     * Runs a request on a new daemon thread, once a chat is free; until then it holds no thread. If
     * another thread completes the future, for example by {@code cancel} or {@code orTimeout}, only
     * this request is cancelled.
     */
    public CompletableFuture<ChatReply> inferAsync(ChatRequest request) {
        return async(null, chat -> chat.infer(request));
    }

    /**
     * Like {@link #inferAsync(ChatRequest)}, on a thread of {@code executor}, which also waits for
     * the chat there.
     */
    public CompletableFuture<ChatReply> inferAsync(ChatRequest request, Executor executor) {
        return async(Objects.requireNonNull(executor, "executor"), chat -> chat.infer(request));
    }

    /** Like {@link #inferAsync(ChatRequest)}, with {@link LlbChat#streamChunks}. */
    public CompletableFuture<ChatReply> streamAsync(
            ChatRequest request, Consumer<ChatChunk> onChunk) {
        Objects.requireNonNull(onChunk, "onChunk");
        return async(null, chat -> chat.streamChunks(request, onChunk));
    }

    /** Like {@link #inferAsync(ChatRequest, Executor)}, with {@link LlbChat#streamChunks}. */
    public CompletableFuture<ChatReply> streamAsync(
            ChatRequest request, Consumer<ChatChunk> onChunk, Executor executor) {
        Objects.requireNonNull(onChunk, "onChunk");
        Objects.requireNonNull(executor, "executor");
        return async(executor, chat -> chat.streamChunks(request, onChunk));
    }

    private CompletableFuture<ChatReply> async(
            @Nullable Executor executor, Function<LlbChat, ChatReply> use) {
        CompletableFuture<ChatReply> future = new CompletableFuture<>();
        PooledRequest<ChatReply> request = new PooledRequest<>(pool, use, (reply, failure) -> {
            if (failure == null) {
                future.complete(reply);
            } else {
                future.completeExceptionally(failure);
            }
        });
        future.whenComplete((reply, failure) -> request.cancel());
        if (executor == null) {
            request.start();
        } else {
            request.start(executor);
        }
        return future;
    }

    /**
     * Returns a publisher of the chunks of this request. Each subscription starts a separate
     * generation on a new daemon thread, once a chat is free. The generation waits while the
     * subscriber has no demand. Cancelling the subscription ends it.
     */
    public Flow.Publisher<ChatChunk> publish(ChatRequest request) {
        return new ChunkPublisher(pool, Objects.requireNonNull(request, "request"), null);
    }

    /**
     * Like {@link #publish(ChatRequest)}, on a thread of {@code executor}, which also waits for the
     * chat there.
     */
    public Flow.Publisher<ChatChunk> publish(ChatRequest request, Executor executor) {
        return new ChunkPublisher(
                pool,
                Objects.requireNonNull(request, "request"),
                Objects.requireNonNull(executor, "executor"));
    }

    /**
     * Runs {@code use} with a chat of the pool that no other thread uses, and returns its result.
     * Waits until one is free. {@code use} must not keep or close the chat.
     *
     * @throws LlbException with {@code ENGINE_CLOSED} after {@link #close}, {@code CANCELLED} if
     *     the thread is interrupted while it waits, and {@code BUSY} if no chat is free and this
     *     thread uses one already, as in a tool of {@link #run}, because it could wait for itself
     */
    public <T> T with(Function<LlbChat, T> use) {
        return pool.with(pool::enqueue, Objects.requireNonNull(use, "use"));
    }

    /**
     * Refuses further requests, waits up to {@code grace} for the running ones, and closes the
     * model. If the thread is interrupted, it stops waiting.
     */
    public void close(Duration grace) {
        try {
            pool.refuse().get(grace.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (TimeoutException e) {
            // Cancels what still runs.
        } catch (ExecutionException e) {
            throw new AssertionError("this future never fails", e);
        }
        close();
    }

    /** Cancels the requests, waits until they end, and frees all chats of the pool. Idempotent. */
    @Override
    public void close() {
        pool.close();
    }
}
