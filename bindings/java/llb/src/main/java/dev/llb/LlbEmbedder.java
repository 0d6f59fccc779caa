package dev.llb;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Supplier;

/**
 * A model that makes vectors of texts, or scores of documents for a query. Must be closed.
 *
 * <p>All methods may be called from any thread. Calls run one at a time, in order of arrival.
 * {@link Thread#interrupt} of a calling thread cancels its call, and those that wait.
 */
public final class LlbEmbedder implements AutoCloseable {

    private final Native library;
    private final long handle;
    private final Map<String, Object> options;
    private final Destruction destruction;

    private LlbEmbedder(Native library, long handle, Map<String, Object> options) {
        this.library = library;
        this.handle = handle;
        this.options = options;
        destruction =
                Destruction.of(this, "an embedder", () -> library.embedDestroy(handle));
    }

    /** Opens a model with the default options. */
    public static LlbEmbedder open(Path model) {
        return builder(model).open();
    }

    /**
     * Like {@link #open(Path)}, with a model on the hub, which is downloaded if it is not cached.
     */
    public static LlbEmbedder fromHub(String id) {
        FetchRequest request = FetchRequest.builder(id).requireTools(false).build();
        return open(Llb.fetch(request).path());
    }

    /** Returns a builder for the GGUF file {@code model}. */
    public static Builder builder(Path model) {
        return new Builder().set("model", Objects.requireNonNull(model, "model").toString());
    }

    /** The name of the model file without {@code .gguf}. */
    public String name() {
        return LlbModel.fileName(options);
    }

    /** Like {@link #embed(EmbedRequest)}, with the default options. */
    public float[] embed(String text) {
        return embed(EmbedRequest.of(List.of(text))).vectors().get(0);
    }

    /**
     * Makes a vector of each text.
     *
     * @throws LlbException with {@code CONTEXT_OVERFLOW} if a text is too long and {@code truncate}
     *     is not set, {@code CANCELLED}, and other codes
     */
    public Embeddings embed(EmbedRequest request) {
        return Embeddings.of(LlbChat.requireSuccess(embedJson(request.toJson())));
    }

    /** Like {@link #embed(EmbedRequest)}, but takes and returns JSON. */
    public String embedJson(String requestJson) {
        Objects.requireNonNull(requestJson, "requestJson");
        return call(() -> library.embed(handle, requestJson));
    }

    /** Scores documents for a query. Requires a model made for that. */
    public Ranking rank(String query, List<String> documents) {
        Map<String, Object> request = new LinkedHashMap<>();
        request.put("query", query);
        request.put("documents", documents);
        return Ranking.of(LlbChat.requireSuccess(rankJson(Json.write(request))));
    }

    /** Like {@link #rank}, with all members of a request. Takes and returns JSON. */
    public String rankJson(String requestJson) {
        Objects.requireNonNull(requestJson, "requestJson");
        return call(() -> library.rank(handle, requestJson));
    }

    private String call(Supplier<String> call) {
        CancelWatch.Watched watched = CancelWatch.watchInterrupts(this::cancel);
        try {
            // After a close the handle is stale, and the library returns ENGINE_CLOSED.
            return call.get();
        } finally {
            watched.close();
            // Prevents the embedder from being collected, and destroyed, while the call runs.
            Reference.reachabilityFence(this);
        }
    }

    /** Cancels the running call and all waiting ones. Each throws {@code CANCELLED}. */
    public void cancel() {
        library.embedCancel(handle);
    }

    /** Cancels the calls, waits until they end, and frees the model. Idempotent. */
    @Override
    public void close() {
        if (destruction.begin()) {
            destruction.run();
        }
    }

    /** Builds {@link LlbEmbedder}. Not thread-safe. */
    public static final class Builder {

        private final Map<String, Object> values = new LinkedHashMap<>();

        private Builder() {}

        /** Sets any option by the library's name. */
        public Builder set(String name, Object value) {
            values.put(Objects.requireNonNull(name, "name"), Json.copy(value));
            return this;
        }

        /**
         * How the vectors of a text's tokens are combined: {@code mean}, {@code cls} (the first) or
         * {@code last}. Default: the file's setting, or else {@code mean}.
         */
        public Builder pooling(String pooling) {
            return set("pooling", pooling);
        }

        /** The most tokens of a text. Default: that of the model, at most 8192. */
        public Builder contextLength(int tokens) {
            return set("n_ctx", tokens);
        }

        /** Number of threads. Default: one for each physical core. */
        public Builder threads(int threads) {
            return set("n_threads", threads);
        }

        /**
         * Opens the model. Blocks until it is loaded.
         *
         * @throws LlbException if it cannot be opened
         */
        public LlbEmbedder open() {
            Native library = Native.get();
            Native.Created created = library.embedCreate(Json.write(values));
            if (created.handle() == 0) {
                throw LlbChat.createFailure(created.error(), List.of());
            }
            return new LlbEmbedder(library, created.handle(), Map.copyOf(values));
        }
    }
}
