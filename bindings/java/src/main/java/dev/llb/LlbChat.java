package dev.llb;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;

/**
 * A chat with one model. Every method may be called from any thread; requests on one chat run one after another, and
 * chats of the same file share one copy of its weights.
 *
 * <p>A call takes as long as the model does. {@link Thread#interrupt} does not end it and stays pending; {@link
 * #cancel} ends it. A virtual thread that calls holds its carrier thread for that time.
 *
 * <p>Inside a callback only {@link #cancel}, {@link #close} and the template methods of {@link Llb} may be called;
 * another request on the same chat fails with {@code BUSY}. What a callback throws cancels the request and is thrown,
 * as it was, by the method that made it.
 *
 * <p>The methods on typed requests throw {@link LlbException} on a failure. Those named {@code …Json} give the
 * library's own reply, failure or not.
 */
public final class LlbChat implements AutoCloseable {

    private final Native library;
    private final MemorySegment handle;
    private final Callback events;
    private final Arena eventArena;
    private final AtomicBoolean closed = new AtomicBoolean();

    /** The calls under way, and one for the open chat: the last to leave frees what events are called through. */
    private final AtomicInteger users = new AtomicInteger(1);

    private LlbChat(Native library, MemorySegment handle, Callback events, Arena eventArena) {
        this.library = library;
        this.handle = handle;
        this.events = events;
        this.eventArena = eventArena;
    }

    /** Opens a chat with the default options. A model that cannot call tools is refused: {@code MODEL_NOT_TOOL_CAPABLE}. */
    public static LlbChat open(Path model) {
        Native library = Native.get();
        return open(library, null, stub -> library.chatCreate(model.toString(), stub));
    }

    /** Opens a chat. {@link LlbException#events} of a failure tells how far it came. */
    public static LlbChat open(ChatOptions options) {
        Native library = Native.get();
        String json = Json.write(options.values());
        return open(library, options.onEvent(), stub -> library.chatCreateWith(json, stub));
    }

    /** Opens a chat on a model of the hub, {@code org/name} or {@code org/name:Q8_0}, fetched unless it is in the cache. */
    public static LlbChat fromHub(String id) {
        return fromHub(FetchRequest.of(id), options -> options);
    }

    /** As {@link #fromHub(String)}; {@code options} sets the chat's options on a builder that has the model. */
    public static LlbChat fromHub(FetchRequest request, UnaryOperator<ChatOptions.Builder> options) {
        Path model = Llb.fetch(request).path();
        if (model == null) {
            throw new LlbException("INVALID_REQUEST", "dry_run: a chat needs the model itself");
        }
        return open(options.apply(ChatOptions.builder(model)).build());
    }

    private interface Create {
        Native.Created call(MemorySegment eventStub);
    }

    private static LlbChat open(Native library, Consumer<String> onEvent, Create create) {
        EventLog log = new EventLog(onEvent);
        Callback events = new Callback(log, () -> {});
        Arena arena = Arena.ofShared();
        boolean opened = false;
        try {
            Native.Created created = create.call(Native.stub(events, arena));
            Throwable thrown = events.takeFailure();
            List<String> seen = log.stop();
            if (created.handle() == null) {
                LlbException refused = refusal(created.error(), seen);
                if (thrown != null) {
                    thrown.addSuppressed(refused);
                    throw Callback.<RuntimeException>unchecked(thrown);
                }
                throw refused;
            }
            if (thrown != null) {
                library.chatDestroy(created.handle());
                throw Callback.<RuntimeException>unchecked(thrown);
            }
            events.onFailure(() -> library.chatCancel(created.handle()));
            opened = true;
            return new LlbChat(library, created.handle(), events, arena);
        } finally {
            if (!opened) {
                arena.close();
            }
        }
    }

    /** {@code llb_last_error} is an error reply, or only its inner object. */
    private static LlbException refusal(String lastError, List<String> events) {
        Map<String, Object> reply = parse(lastError);
        Map<String, Object> error = reply.get("error") instanceof Map<?, ?> ? Json.object(reply.get("error")) : reply;
        return LlbException.of(error, events);
    }

    /** Runs one request and gives the whole reply. */
    public ChatReply infer(ChatRequest request) {
        return ChatReply.of(checked(inferJson(request.toJson())));
    }

    /**
     * Runs one request; each piece of visible text goes to {@code onPiece} as it comes. The pieces together are the
     * reply's text. With the option {@code "stream_format":"chunks"} a piece is the JSON of one chunk instead, with
     * reasoning and tool calls.
     */
    public ChatReply stream(ChatRequest request, Consumer<String> onPiece) {
        return ChatReply.of(checked(streamJson(request.toJson(), onPiece)));
    }

    /** What a request would do, without a token generated. */
    public Explanation explain(ChatRequest request) {
        return Explanation.of(checked(explainJson(request.toJson())));
    }

    /** {@link #infer} on JSON text, answered with the library's reply as it is, an error reply too. */
    public String inferJson(String requestJson) {
        Objects.requireNonNull(requestJson, "requestJson");
        return call(null, () -> library.chatInfer(handle, requestJson));
    }

    /** {@link #stream} on JSON text, answered with the library's reply as it is, an error reply too. */
    public String streamJson(String requestJson, Consumer<String> onPiece) {
        Objects.requireNonNull(requestJson, "requestJson");
        Callback pieces = new Callback(Objects.requireNonNull(onPiece, "onPiece"), () -> library.chatCancel(handle));
        return call(pieces, () -> library.chatInferStream(handle, requestJson, pieces));
    }

    /** {@link #explain} on JSON text, answered with the library's reply as it is, an error reply too. */
    public String explainJson(String requestJson) {
        Objects.requireNonNull(requestJson, "requestJson");
        return call(null, () -> library.chatExplain(handle, requestJson));
    }

    /** Ends the request that runs, with what it has so far. From any thread, also from a callback. */
    public void cancel() {
        library.chatCancel(handle);
    }

    /**
     * Cancels what runs, waits for it, and frees the chat. Closing again does nothing; a request after it fails with
     * {@code ENGINE_CLOSED}. Inside a callback it returns at once, and the chat is freed when the callback is over.
     */
    @Override
    public void close() {
        if (!closed.compareAndSet(false, true)) {
            return;
        }
        if (Callback.inside()) {
            cancel();
            Thread.ofPlatform().daemon().name("llb-close").start(this::destroy);
        } else {
            destroy();
            events.rethrow();
        }
    }

    private void destroy() {
        try {
            library.chatDestroy(handle);
        } finally {
            leave();
        }
    }

    private interface Call {
        String run();
    }

    /** Runs a call, then throws what {@code pieces} (which may be null) or the event listener threw during it. */
    private String call(Callback pieces, Call call) {
        boolean entered = enter();
        try {
            // After a close the handle is stale: the library knows that, and answers ENGINE_CLOSED.
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
            if (entered) {
                leave();
            }
        }
    }

    /** Keeps the event callback alive until {@link #leave}; false once it is gone. */
    private boolean enter() {
        return users.getAndUpdate(n -> n == 0 ? 0 : n + 1) != 0;
    }

    private void leave() {
        if (users.decrementAndGet() == 0) {
            eventArena.close();
        }
    }

    /** A reply as an object; an error reply is thrown. */
    static Map<String, Object> checked(String reply) {
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
            throw new LlbException("INTERNAL_BRIDGE_ERROR", "cannot read the library's reply", e);
        }
    }

    /** Passes events on, and keeps those of the create for its exception. */
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
