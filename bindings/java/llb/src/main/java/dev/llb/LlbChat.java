package dev.llb;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;

/**
 * A chat on one model. Must be closed.
 *
 * <p>All methods may be called from any thread. Requests on one chat run one at a time, in order of
 * arrival. Chats opened on the same file with the same options share the model in memory.
 *
 * <p>A request blocks until the reply is complete. {@link #cancel} ends it, and so does
 * {@link Thread#interrupt} of its thread: the reply has the output so far and the finish reason
 * {@code cancelled}, and the interrupt stays pending. A virtual thread keeps its carrier free: its
 * request runs on a platform thread, and its callbacks on the virtual thread.
 *
 * <p>Callbacks run on the thread of the request. They may call only {@link #cancel}, {@link
 * #endReasoning}, {@link #close} and the template methods of {@link Llb}; another request on the
 * same chat fails with {@code BUSY}. If a callback throws, the request is cancelled and throws the
 * same exception.
 *
 * <p>Methods with typed requests throw {@link LlbException} on failure. Methods named {@code …Json}
 * return the library's reply unchanged, including error replies.
 */
public final class LlbChat implements AutoCloseable {

    /**
     * What lets small models fill a record: they have read the names of its components, and neither
     * repeat the items of a list nor continue it until the context is full.
     */
    private static final Map<String, Object> TYPED_DEFAULTS =
            Map.of("schema_in_prompt", true, "bound_schema", true, "repeat_penalty", 1.1);

    private final Native library;
    private final long handle;
    private final Callback events;
    private final boolean strictRequests;
    private final Destruction destruction;

    private LlbChat(
            Native library, long handle, Callback events, long eventId, boolean strictRequests) {
        this.library = library;
        this.handle = handle;
        this.events = events;
        this.strictRequests = strictRequests;
        this.destruction = Destruction.of(this, "a chat", () -> {
            try {
                library.chatDestroy(handle);
            } finally {
                Callback.remove(eventId);
            }
        });
    }

    /**
     * Opens a chat with the default options.
     *
     * @throws LlbException with {@code MODEL_NOT_TOOL_CAPABLE} if the template does not support
     *     tools, and other codes
     */
    public static LlbChat open(Path model) {
        return open(ChatOptions.builder(model).build());
    }

    /**
     * Opens a chat. Blocks until the model is loaded.
     *
     * @throws LlbException if the chat cannot be opened; {@link LlbException#events} has the events
     *     so far
     */
    public static LlbChat open(ChatOptions options) {
        return open(Native.get(), options);
    }

    /**
     * Opens a chat on a model of the hub, {@code org/name} or {@code org/name:Q8_0}. Downloads it
     * if it is not cached.
     */
    public static LlbChat fromHub(String id) {
        return fromHub(FetchRequest.of(id), options -> options);
    }

    /**
     * Like {@link #fromHub(String)}. {@code options} sets options on the builder for the fetched
     * model.
     */
    public static LlbChat fromHub(
            FetchRequest request, UnaryOperator<ChatOptions.Builder> options) {
        return open(hubOptions(request, options));
    }

    static ChatOptions hubOptions(
            FetchRequest request, UnaryOperator<ChatOptions.Builder> options) {
        Path model = Llb.fetch(request).path();
        if (model == null) {
            throw new LlbException(
                    ErrorCodes.INVALID_REQUEST,
                    "dry_run: a chat needs the model file; set it to false");
        }
        return options.apply(ChatOptions.builder(model)).build();
    }

    private static LlbChat open(Native library, ChatOptions options) {
        String optionsJson = Json.write(options.values());
        EventLog log = new EventLog(options.onEvent());
        Callback events = new Callback(log, () -> {});
        long eventId = events.register();
        boolean opened = false;
        try {
            Native.Created created = library.chatCreate(optionsJson, eventId);
            Throwable thrown = events.takeFailure();
            List<String> seen = log.stop();
            if (created.handle() == 0) {
                LlbException failure = createFailure(created.error(), seen);
                if (thrown != null) {
                    thrown.addSuppressed(failure);
                    throw Callback.<RuntimeException>unchecked(thrown);
                }
                throw failure;
            }
            if (thrown != null) {
                library.chatDestroy(created.handle());
                throw Callback.<RuntimeException>unchecked(thrown);
            }
            events.onFailure(() -> library.chatCancel(created.handle()));
            opened = true;
            return new LlbChat(
                    library, created.handle(), events, eventId, options.strictRequests());
        } finally {
            if (!opened) {
                Callback.remove(eventId);
            }
        }
    }

    /** {@code lastError} is an error reply, or only its inner object. */
    static LlbException createFailure(String lastError, List<String> events) {
        Map<String, Object> reply = parse(lastError);
        boolean nested = reply.get("error") instanceof Map<?, ?>;
        Map<String, Object> error = nested ? Json.object(reply.get("error")) : reply;
        return LlbException.of(error, events);
    }

    /** Runs one request and returns the reply. */
    public ChatReply infer(ChatRequest request) {
        String json = checked(request);
        return IgnoredKeys.logged(new ChatReply(requireSuccess(inferJson(json))));
    }

    /**
     * Runs one request whose reply is a value: the text is constrained to the JSON of the record.
     * Its components may be records (also recursive ones), strings, numbers, booleans, enums,
     * {@link java.util.Optional}, lists, sets, and maps with string keys. {@link Description}
     * explains them to the model. The prompt shows the schema, unless the request sets {@code
     * schema_in_prompt} to false. A list has at most 64 items, a string at most 2,000 characters,
     * and the reply at most 4,096 tokens, unless it sets {@code bound_schema} to false. The {@code
     * repeat_penalty} is 1.1, unless it sets another one.
     *
     * @throws LlbException with {@code REPLY_INVALID} if the reply is cut off; {@code details} has
     *     its text
     * @throws IllegalArgumentException if a component has another type
     */
    public <T extends Record> T infer(ChatRequest request, Class<T> type) {
        Map<String, Object> options = new LinkedHashMap<>(request.options());
        String name = type.getSimpleName();
        options.put("response_format", ChatRequest.format(name, TypeSchema.of(type)));
        TYPED_DEFAULTS.forEach(options::putIfAbsent);
        ChatReply reply = infer(new ChatRequest(request.messages(), request.tools(), options));
        try {
            Map<String, Object> value = Json.readObject(reply.text());
            return type.cast(TypeSchema.read(value, type, name));
        } catch (IllegalArgumentException e) {
            throw new LlbException(
                    ErrorCodes.REPLY_INVALID,
                    "the reply is not a valid " + name + " (finish reason "
                            + reply.finishReason() + "): " + e.getMessage(),
                    Map.of("text", reply.text()),
                    List.of());
        }
    }

    /**
     * Runs a request and the tools that the model calls, until a reply has no calls, at most
     * {@code maxRounds} rounds of calls. Calls of one reply run one after another, on this thread.
     */
    public ToolRun run(ChatRequest request, ToolSet tools, int maxRounds) {
        return ToolRun.run(this, request, tools, maxRounds);
    }

    /**
     * Runs one request, passes each piece of visible text to {@code onPiece} as it is generated,
     * and returns the reply. The pieces concatenate to its text. With the option
     * {@code "stream_format":"chunks"} a piece is the JSON of an OpenAI chunk instead, also for
     * reasoning and tool calls.
     */
    public ChatReply stream(ChatRequest request, Consumer<String> onPiece) {
        String json = checked(request);
        return IgnoredKeys.logged(new ChatReply(requireSuccess(streamJson(json, onPiece))));
    }

    /**
     * Like {@link #stream}, but passes chunks: also pieces of reasoning and of tool calls, as they
     * are generated.
     */
    public ChatReply streamChunks(ChatRequest request, Consumer<ChatChunk> onChunk) {
        Objects.requireNonNull(onChunk, "onChunk");
        Map<String, Object> options = new LinkedHashMap<>(request.options());
        options.put("stream_format", "chunks");
        options.putIfAbsent("stream_options", Map.of("include_usage", true));
        ChatRequest chunked = new ChatRequest(request.messages(), request.tools(), options);
        return stream(chunked, json -> onChunk.accept(ChatChunk.of(parse(json))));
    }

    /** Describes what a request would do, without generating a token. */
    public Explanation explain(ChatRequest request) {
        return Explanation.of(requireSuccess(explainJson(request.toJson())));
    }

    /** Like {@link #infer(ChatRequest)}, but takes and returns JSON. */
    public String inferJson(String requestJson) {
        Objects.requireNonNull(requestJson, "requestJson");
        return call(null, () -> library.chatInfer(handle, requestJson));
    }

    /** Like {@link #stream}, but takes and returns JSON. */
    public String streamJson(String requestJson, Consumer<String> onPiece) {
        Objects.requireNonNull(requestJson, "requestJson");
        Objects.requireNonNull(onPiece, "onPiece");
        Callback pieces = new Callback(onPiece, () -> library.chatCancel(handle));
        return call(pieces, () -> library.chatInferStream(handle, requestJson, pieces));
    }

    /** Like {@link #explain}, but takes and returns JSON. */
    public String explainJson(String requestJson) {
        Objects.requireNonNull(requestJson, "requestJson");
        return call(null, () -> library.chatExplain(handle, requestJson));
    }

    /**
     * Cancels the running request and all waiting ones. Each returns its output so far, with the
     * finish reason {@code cancelled}. Does not wait. May be called in a callback, and after
     * {@link #close}.
     */
    public void cancel() {
        library.chatCancel(handle);
    }

    /**
     * Ends the current reasoning of the running reply. Its answer follows. The request's {@code
     * reasoning_budget_message} is appended to the reasoning. Does nothing if no reply is in
     * reasoning. Does not wait. May be called in a callback, from any thread, and after {@link
     * #close}.
     */
    public void endReasoning() {
        library.chatEndReasoning(handle);
    }

    /**
     * Cancels the requests, waits until they end, and frees the chat. Idempotent. Later requests
     * fail with {@code ENGINE_CLOSED}. In a callback it returns at once, and the chat is freed when
     * the running request has returned.
     */
    @Override
    public void close() {
        if (!destruction.begin()) {
            return;
        }
        if (Callback.isRunningHere()) {
            cancel();
            Thread destroyer = new Thread(destruction::run, "llb-close");
            destroyer.setDaemon(true);
            destroyer.start();
        } else {
            destruction.run();
            events.rethrow();
        }
    }

    /** The JSON of a request. If requests are strict, fails if it has an unknown member. */
    private String checked(ChatRequest request) {
        String json = request.toJson();
        if (strictRequests) {
            Explanation explanation = Explanation.of(requireSuccess(explainJson(json)));
            IgnoredKeys.refuse(Json.strings(explanation.raw().get("ignored_keys")));
        }
        return json;
    }

    private interface Call {
        String run();
    }

    /**
     * Runs a call. Rethrows an exception of {@code pieces}, which may be null, or of the event
     * listener.
     */
    private String call(Callback pieces, Call call) {
        CancelWatch.Watched watched = CancelWatch.watchInterrupts(this::cancel);
        try {
            // After a close the handle is stale, and the library returns ENGINE_CLOSED.
            String reply = call.run();
            Throwable fromEvents = events.takeFailure();
            if (pieces != null) {
                pieces.rethrow();
            }
            if (fromEvents != null) {
                throw Callback.<RuntimeException>unchecked(fromEvents);
            }
            return reply;
        } finally {
            watched.close();
            // Prevents the chat from being collected, and destroyed, while the call runs.
            Reference.reachabilityFence(this);
        }
    }

    /** Parses a reply. Throws an error reply as {@link LlbException}. */
    static Map<String, Object> requireSuccess(String reply) {
        Map<String, Object> fields = parse(reply);
        if ("error".equals(fields.get("type"))) {
            throw LlbException.of(Json.object(fields.get("error")), List.of());
        }
        return fields;
    }

    private static Map<String, Object> parse(String reply) {
        try {
            return Json.readObject(reply);
        } catch (IllegalArgumentException e) {
            throw new LlbException(
                    ErrorCodes.INTERNAL_BRIDGE_ERROR, "the library returned invalid JSON", e);
        }
    }

    /** Forwards events, and records those of the create for its exception. */
    private static final class EventLog implements Consumer<String> {

        private final Consumer<String> next;
        private final List<String> seen = Collections.synchronizedList(new ArrayList<>());
        private volatile boolean recording = true;

        EventLog(Consumer<String> next) {
            this.next = next;
        }

        @Override
        public void accept(String event) {
            if (recording) {
                seen.add(event);
            }
            if (next != null) {
                next.accept(event);
            }
        }

        List<String> stop() {
            recording = false;
            List<String> events = List.copyOf(seen);
            seen.clear();
            return events;
        }
    }
}
