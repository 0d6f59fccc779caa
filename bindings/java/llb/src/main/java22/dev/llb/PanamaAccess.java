package dev.llb;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;

/**
 * Access to the library through {@code java.lang.foreign}, for Java 22 and later. {@link Native}
 * loads this class by name.
 *
 * <p>Every string returned by the library is copied and freed here.
 */
@SuppressWarnings("restricted")
final class PanamaAccess implements Access {

    private static final Linker LINKER = Linker.nativeLinker();
    /** The parameter of {@code mallopt}, from glibc's {@code malloc.h}. */
    private static final int M_TRIM_THRESHOLD = -1;
    private static final MethodType RECEIVE_TYPE =
            MethodType.methodType(void.class, MemorySegment.class, long.class);
    private static final MethodHandle RECEIVE_HANDLE = receiveHandle();

    private final NativeLibrary.Found library;
    private final SymbolLookup symbols;
    /** What the library calls. */
    private final MemorySegment receive;
    private final MethodHandle version;
    private final MethodHandle abiVersion;
    private final MethodHandle backends;
    private final MethodHandle[] textFunctions;
    private final MethodHandle chatCreate;
    private final MethodHandle chatInfer;
    private final MethodHandle chatInferStream;
    private final MethodHandle chatExplain;
    private final MethodHandle chatCancel;
    private final MethodHandle chatEndReasoning;
    private final MethodHandle chatDestroy;
    private final MethodHandle embedCreate;
    private final MethodHandle embed;
    private final MethodHandle rank;
    private final MethodHandle embedCancel;
    private final MethodHandle embedDestroy;
    private final MethodHandle modelFetch;
    private final MethodHandle modelFetchCancel;
    private final MethodHandle lastError;
    private final MethodHandle stringFree;

    private PanamaAccess(NativeLibrary.Found library, SymbolLookup symbols) {
        this.library = library;
        this.symbols = symbols;
        abiVersion = bind("llb_abi_version", FunctionDescriptor.of(JAVA_INT));
        Native.requireAbi(library, abiVersion());
        receive = receiveStub();
        FunctionDescriptor textToText = FunctionDescriptor.of(ADDRESS, ADDRESS);
        FunctionDescriptor withCallback =
                FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS, JAVA_LONG);
        FunctionDescriptor ofChat = FunctionDescriptor.of(ADDRESS, JAVA_LONG, ADDRESS);
        version = bind("llb_version", FunctionDescriptor.of(ADDRESS));
        backends = bind("llb_backends", FunctionDescriptor.of(ADDRESS));
        textFunctions = TEXT_FUNCTIONS.stream()
                .map(name -> bind(name, textToText))
                .toArray(MethodHandle[]::new);
        chatCreate = bind(
                "llb_chat_create_with",
                FunctionDescriptor.of(JAVA_LONG, ADDRESS, ADDRESS, JAVA_LONG));
        chatInfer = bind("llb_chat_infer", ofChat);
        chatInferStream = bind(
                "llb_chat_infer_stream",
                FunctionDescriptor.of(ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, JAVA_LONG));
        chatExplain = bind("llb_chat_explain", ofChat);
        chatCancel = bind("llb_chat_cancel", FunctionDescriptor.ofVoid(JAVA_LONG));
        chatEndReasoning = bind("llb_chat_end_reasoning", FunctionDescriptor.ofVoid(JAVA_LONG));
        chatDestroy = bind("llb_chat_destroy", FunctionDescriptor.ofVoid(JAVA_LONG));
        embedCreate = bind("llb_embed_create", FunctionDescriptor.of(JAVA_LONG, ADDRESS));
        embed = bind("llb_embed", ofChat);
        rank = bind("llb_rank", ofChat);
        embedCancel = bind("llb_embed_cancel", FunctionDescriptor.ofVoid(JAVA_LONG));
        embedDestroy = bind("llb_embed_destroy", FunctionDescriptor.ofVoid(JAVA_LONG));
        modelFetch = bind("llb_model_fetch", withCallback);
        modelFetchCancel = bind("llb_model_fetch_cancel", FunctionDescriptor.ofVoid(ADDRESS));
        lastError = bind("llb_last_error", FunctionDescriptor.of(ADDRESS));
        stringFree = bind("llb_string_free", FunctionDescriptor.ofVoid(ADDRESS));
    }

    /**
     * Loads the library.
     *
     * @throws LlbException with {@code LIBRARY_NOT_FOUND} or {@code LIBRARY_INCOMPATIBLE}
     */
    static Access load(NativeLibrary.Found library) {
        try {
            return new PanamaAccess(
                    library,
                    SymbolLookup.libraryLookup(library.path().toAbsolutePath(), Arena.global()));
        } catch (IllegalArgumentException e) {
            throw NativeLibrary.notLoaded(library, e.getMessage(), e);
        }
    }

    private MethodHandle bind(String name, FunctionDescriptor type) {
        MemorySegment function = symbols.find(name).orElseThrow(
                () -> NativeLibrary.incompatible(library, "has no function " + name));
        return LINKER.downcallHandle(function, type);
    }

    @Override
    public String name() {
        return "panama";
    }

    @Override
    public byte[] version() {
        try {
            return read((MemorySegment) version.invokeExact());
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    @Override
    public int abiVersion() {
        try {
            return (int) abiVersion.invokeExact();
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    @Override
    public byte[] backends() {
        try {
            return take((MemorySegment) backends.invokeExact());
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    @Override
    public void setTrimThreshold(int bytes) {
        FunctionDescriptor type = FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT);
        LINKER.defaultLookup().find("mallopt").ifPresent(function -> {
            try {
                int done = (int) LINKER.downcallHandle(function, type)
                        .invokeExact(M_TRIM_THRESHOLD, bytes);
            } catch (Throwable t) {
                throw unexpected(t);
            }
        });
    }

    @Override
    public byte[] callWithText(int function, byte[] text) {
        try (Arena arena = Arena.ofConfined()) {
            return take((MemorySegment) textFunctions[function].invokeExact(text(arena, text)));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    @Override
    public byte[] chatCreate(byte[] optionsJson, long onEvent, long[] handle) {
        try (Arena arena = Arena.ofConfined()) {
            handle[0] = (long) chatCreate.invokeExact(text(arena, optionsJson), receive, onEvent);
            // The last error is stored per carrier thread. No operation in between can move a
            // virtual thread to another carrier.
            return handle[0] != 0 ? null : take((MemorySegment) lastError.invokeExact());
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    @Override
    public byte[] chatInfer(long chat, byte[] requestJson) {
        return reply(chatInfer, chat, requestJson);
    }

    @Override
    public byte[] chatInferStream(long chat, byte[] requestJson, long onPiece) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment request = text(arena, requestJson);
            return take((MemorySegment)
                    chatInferStream.invokeExact(chat, request, receive, onPiece));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    @Override
    public byte[] chatExplain(long chat, byte[] requestJson) {
        return reply(chatExplain, chat, requestJson);
    }

    @Override
    public void chatCancel(long chat) {
        run(chatCancel, chat);
    }

    @Override
    public void chatEndReasoning(long chat) {
        run(chatEndReasoning, chat);
    }

    @Override
    public void chatDestroy(long chat) {
        run(chatDestroy, chat);
    }

    @Override
    public byte[] embedCreate(byte[] optionsJson, long[] handle) {
        try (Arena arena = Arena.ofConfined()) {
            handle[0] = (long) embedCreate.invokeExact(text(arena, optionsJson));
            // As in chatCreate.
            return handle[0] != 0 ? null : take((MemorySegment) lastError.invokeExact());
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    @Override
    public byte[] embed(long embedder, byte[] requestJson) {
        return reply(embed, embedder, requestJson);
    }

    @Override
    public byte[] rank(long embedder, byte[] requestJson) {
        return reply(rank, embedder, requestJson);
    }

    @Override
    public void embedCancel(long embedder) {
        run(embedCancel, embedder);
    }

    @Override
    public void embedDestroy(long embedder) {
        run(embedDestroy, embedder);
    }

    @Override
    public byte[] modelFetch(byte[] requestJson, long onEvent) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment request = text(arena, requestJson);
            return take((MemorySegment) modelFetch.invokeExact(request, receive, onEvent));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    @Override
    public void modelFetchCancel(byte[] id) {
        try (Arena arena = Arena.ofConfined()) {
            modelFetchCancel.invokeExact(text(arena, id));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    private byte[] reply(MethodHandle function, long handle, byte[] requestJson) {
        try (Arena arena = Arena.ofConfined()) {
            return take((MemorySegment) function.invokeExact(handle, text(arena, requestJson)));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    private static void run(MethodHandle function, long handle) {
        try {
            function.invokeExact(handle);
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    // Strings and callbacks

    private static MemorySegment text(Arena arena, byte[] utf8) {
        MemorySegment text = arena.allocate(utf8.length + 1L);
        MemorySegment.copy(utf8, 0, text, JAVA_BYTE, 0, utf8.length);
        return text;
    }

    private byte[] take(MemorySegment text) throws Throwable {
        try {
            return read(text);
        } finally {
            stringFree.invokeExact(text);
        }
    }

    private static byte[] read(MemorySegment text) {
        if (text.address() == 0) {
            return new byte[0];
        }
        MemorySegment all = text.reinterpret(Long.MAX_VALUE);
        return all.asSlice(0, length(all)).toArray(JAVA_BYTE);
    }

    private static long length(MemorySegment text) {
        try {
            return (long) StringLength.STRLEN.invokeExact(text);
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    /** The C library's {@code strlen}, which is fast on long strings. */
    private static final class StringLength {
        static final MethodHandle STRLEN = LINKER.downcallHandle(
                LINKER.defaultLookup().find("strlen").orElseThrow(),
                FunctionDescriptor.of(JAVA_LONG, ADDRESS),
                Linker.Option.critical(false));
    }

    private static MethodHandle receiveHandle() {
        try {
            return MethodHandles.lookup().findStatic(PanamaAccess.class, "receive", RECEIVE_TYPE);
        } catch (ReflectiveOperationException e) {
            throw new AssertionError("receive is a method of this class", e);
        }
    }

    /**
     * One stub for all callbacks, which {@code user_data} tells apart. It is never freed, and
     * refers to this class weakly, so that the class loader of a web application that was stopped
     * can be collected. While a call runs, its frames keep the class.
     */
    private static MemorySegment receiveStub() {
        try {
            MethodHandle target = MethodHandles.publicLookup()
                    .findVirtual(Reference.class, "get", MethodType.methodType(Object.class))
                    .bindTo(new WeakReference<>(RECEIVE_HANDLE))
                    .asType(MethodType.methodType(MethodHandle.class));
            MethodHandle call =
                    MethodHandles.foldArguments(MethodHandles.exactInvoker(RECEIVE_TYPE), target);
            FunctionDescriptor callback = FunctionDescriptor.ofVoid(ADDRESS, JAVA_LONG);
            return LINKER.upcallStub(call, callback, Arena.global());
        } catch (ReflectiveOperationException e) {
            throw new AssertionError("Reference has a method get", e);
        }
    }

    /** The target of the stub. An exception that leaves it would terminate the JVM. */
    private static void receive(MemorySegment text, long id) {
        try {
            Callback.receive(id, read(text));
        } catch (Throwable thrown) {
            Callback.fail(id, thrown);
        }
    }

    private static RuntimeException unexpected(Throwable thrown) {
        throw Callback.<RuntimeException>unchecked(thrown);
    }
}
