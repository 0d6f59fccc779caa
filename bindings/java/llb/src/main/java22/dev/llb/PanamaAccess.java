package dev.llb;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.charset.StandardCharsets;

/**
 * The functions of {@code llb.h}, with Java strings instead of C strings. The only class that calls
 * the library.
 *
 * <p>Every string returned by the library is copied and freed here. This class does not parse JSON.
 */
@SuppressWarnings("restricted")
final class Native {

    /** The oldest ABI version that this binding supports. Later versions only add functions. */
    private static final int OLDEST_ABI = 1;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final FunctionDescriptor CALLBACK = FunctionDescriptor.ofVoid(ADDRESS, ADDRESS);
    private static final MethodHandle UPCALL;

    static {
        try {
            MethodType type = MethodType.methodType(
                    void.class, Callback.class, MemorySegment.class, MemorySegment.class);
            UPCALL = MethodHandles.lookup().findStatic(Native.class, "upcall", type);
        } catch (ReflectiveOperationException e) {
            throw new AssertionError("upcall is a method of this class", e);
        }
    }

    private static volatile Native instance;

    private final NativeLibrary.Loaded library;
    private final MethodHandle version;
    private final MethodHandle abiVersion;
    private final MethodHandle modelInfo;
    private final MethodHandle chatCreate;
    private final MethodHandle chatInfer;
    private final MethodHandle chatInferStream;
    private final MethodHandle chatExplain;
    private final MethodHandle chatCancel;
    private final MethodHandle chatDestroy;
    private final MethodHandle templateInfo;
    private final MethodHandle templateRender;
    private final MethodHandle templateParse;
    private final MethodHandle templateCompose;
    private final MethodHandle modelFetch;
    private final MethodHandle modelFetchCancel;
    private final MethodHandle lastError;
    private final MethodHandle stringFree;

    private Native(NativeLibrary.Loaded library) {
        this.library = library;
        FunctionDescriptor textToText = FunctionDescriptor.of(ADDRESS, ADDRESS);
        FunctionDescriptor withCallback = FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS, ADDRESS);
        version = bind("llb_version", FunctionDescriptor.of(ADDRESS));
        abiVersion = bind("llb_abi_version", FunctionDescriptor.of(JAVA_INT));
        int abi = abiVersion();
        if (Integer.compareUnsigned(abi, OLDEST_ABI) < 0) {
            throw incompatible(
                    "has ABI version " + abi + ", this binding needs " + OLDEST_ABI + " or later");
        }
        modelInfo = bind("llb_model_info", textToText);
        chatCreate = bind("llb_chat_create_with", withCallback);
        chatInfer = bind("llb_chat_infer", FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS));
        chatInferStream = bind(
                "llb_chat_infer_stream",
                FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS));
        chatExplain = bind("llb_chat_explain", FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS));
        chatCancel = bind("llb_chat_cancel", FunctionDescriptor.ofVoid(ADDRESS));
        chatDestroy = bind("llb_chat_destroy", FunctionDescriptor.ofVoid(ADDRESS));
        templateInfo = bind("llb_template_info", textToText);
        templateRender = bind("llb_template_render", textToText);
        templateParse = bind("llb_template_parse", textToText);
        templateCompose = bind("llb_template_compose", textToText);
        modelFetch = bind("llb_model_fetch", withCallback);
        modelFetchCancel = bind("llb_model_fetch_cancel", FunctionDescriptor.ofVoid(ADDRESS));
        lastError = bind("llb_last_error", FunctionDescriptor.of(ADDRESS));
        stringFree = bind("llb_string_free", FunctionDescriptor.ofVoid(ADDRESS));
    }

    /** Returns the library, loaded on the first call. A failure is not cached. */
    static Native get() {
        Native found = instance;
        if (found == null) {
            synchronized (Native.class) {
                found = instance;
                if (found == null) {
                    found = new Native(NativeLibrary.load());
                    instance = found;
                }
            }
        }
        return found;
    }

    private MethodHandle bind(String name, FunctionDescriptor type) {
        MemorySegment function = library.symbols()
                .find(name)
                .orElseThrow(() -> incompatible("has no function " + name));
        return LINKER.downcallHandle(function, type);
    }

    private LlbException incompatible(String problem) {
        return new LlbException("LIBRARY_INCOMPATIBLE", library.origin() + " " + problem);
    }

    /** The result of a create: a handle, or the JSON of {@code llb_last_error}. */
    record Created(MemorySegment handle, String error) {}

    // Chats

    Created chatCreate(String optionsJson, MemorySegment onEvent) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment handle = (MemorySegment)
                    chatCreate.invokeExact(text(arena, optionsJson), onEvent, MemorySegment.NULL);
            if (handle.address() != 0) {
                return new Created(handle, null);
            }
            // The last error is stored per carrier thread. No operation in between can move a
            // virtual thread to another carrier.
            return new Created(null, take((MemorySegment) lastError.invokeExact()));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    String chatInfer(MemorySegment chat, String requestJson) {
        try (Arena arena = Arena.ofConfined()) {
            return take((MemorySegment) chatInfer.invokeExact(chat, text(arena, requestJson)));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    /** The stub of the callback is freed when this method returns. */
    String chatInferStream(MemorySegment chat, String requestJson, Callback onPiece) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment request = text(arena, requestJson);
            MemorySegment stub = stub(onPiece, arena);
            return take((MemorySegment)
                    chatInferStream.invokeExact(chat, request, stub, MemorySegment.NULL));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    String chatExplain(MemorySegment chat, String requestJson) {
        try (Arena arena = Arena.ofConfined()) {
            return take((MemorySegment) chatExplain.invokeExact(chat, text(arena, requestJson)));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    void chatCancel(MemorySegment chat) {
        try {
            chatCancel.invokeExact(chat);
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    void chatDestroy(MemorySegment chat) {
        try {
            chatDestroy.invokeExact(chat);
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    // Models, templates, versions

    String modelInfo(String path) {
        return callWithText(modelInfo, path);
    }

    String templateInfo(String requestJson) {
        return callWithText(templateInfo, requestJson);
    }

    String templateRender(String requestJson) {
        return callWithText(templateRender, requestJson);
    }

    String templateParse(String requestJson) {
        return callWithText(templateParse, requestJson);
    }

    String templateCompose(String requestJson) {
        return callWithText(templateCompose, requestJson);
    }

    private String callWithText(MethodHandle function, String input) {
        try (Arena arena = Arena.ofConfined()) {
            return take((MemorySegment) function.invokeExact(text(arena, input)));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    String modelFetch(String requestJson, Callback onEvent) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment request = text(arena, requestJson);
            MemorySegment stub = stub(onEvent, arena);
            return take((MemorySegment) modelFetch.invokeExact(request, stub, MemorySegment.NULL));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    void modelFetchCancel(String id) {
        try (Arena arena = Arena.ofConfined()) {
            modelFetchCancel.invokeExact(text(arena, id));
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    String version() {
        try {
            return read((MemorySegment) version.invokeExact());
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    int abiVersion() {
        try {
            return (int) abiVersion.invokeExact();
        } catch (Throwable t) {
            throw unexpected(t);
        }
    }

    // Strings and callbacks

    private static MemorySegment text(Arena arena, String text) {
        int nul = text.indexOf('\0');
        if (nul >= 0) {
            throw new LlbException("INVALID_REQUEST", "NUL character in a string at index " + nul);
        }
        return arena.allocateFrom(text, StandardCharsets.UTF_8);
    }

    private String take(MemorySegment text) throws Throwable {
        try {
            return read(text);
        } finally {
            stringFree.invokeExact(text);
        }
    }

    private static String read(MemorySegment text) {
        return text.address() == 0
                ? ""
                : text.reinterpret(Long.MAX_VALUE).getString(0, StandardCharsets.UTF_8);
    }

    /** Returns a C function pointer for {@code callback}, valid until {@code arena} is closed. */
    static MemorySegment stub(Callback callback, Arena arena) {
        MethodHandle target = MethodHandles.insertArguments(UPCALL, 0, callback);
        return LINKER.upcallStub(target, CALLBACK, arena);
    }

    /** The target of the stubs. An exception that leaves it would terminate the JVM. */
    private static void upcall(Callback callback, MemorySegment text, MemorySegment userData) {
        try {
            callback.accept(read(text));
        } catch (Throwable thrown) {
            try {
                callback.fail(thrown);
            } catch (Throwable cancelFailed) {
                // The first failure is stored, and the native call runs to its end.
            }
        }
    }

    private static RuntimeException unexpected(Throwable thrown) {
        throw Callback.<RuntimeException>unchecked(thrown);
    }
}
