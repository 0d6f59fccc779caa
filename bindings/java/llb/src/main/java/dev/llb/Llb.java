package dev.llb;

import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * Functions of the library that need no chat: model information, templates and the hub.
 *
 * <p>All methods may be called from any thread. Methods with a typed result throw
 * {@link LlbException} on failure. Methods named {@code …Json} return the library's reply
 * unchanged, including error replies. Every method throws {@link LlbException} with
 * {@code LIBRARY_NOT_FOUND} or {@code LIBRARY_INCOMPATIBLE} if the library cannot be loaded.
 */
public final class Llb {

    private Llb() {}

    /** Returns the versions of the library and of llama.cpp. */
    public static String version() {
        return Native.get().version();
    }

    /** Returns the C ABI version of the library. */
    public static int abiVersion() {
        return Native.get().abiVersion();
    }

    /**
     * Describes the processor, and the kernels and devices that chats of this process compute with.
     * Before the first chat, the reported variant is the one that it would choose.
     */
    public static Backends backends() {
        return Backends.of(LlbChat.requireSuccess(Native.get().backends()));
    }

    /**
     * Describes a model file and its capabilities. Reads only the header, which takes milliseconds.
     *
     * @throws LlbException with {@code MODEL_NOT_FOUND}, {@code MODEL_INVALID} or
     *     {@code TEMPLATE_ERROR}
     */
    public static ModelInfo modelInfo(Path model) {
        Map<String, Object> info;
        try {
            info = Json.readObject(modelInfoJson(model));
        } catch (IllegalArgumentException e) {
            throw new LlbException(
                    ErrorCodes.INTERNAL_BRIDGE_ERROR, "the library returned invalid JSON", e);
        }
        Object error = info.get("error");
        if (error instanceof Map<?, ?>) {
            throw LlbException.of(Json.object(error), List.of());
        }
        if (error instanceof String kind) {
            String message = Json.string(info.get("message"));
            throw new LlbException(codeOf(kind), message != null ? message : kind, info, List.of());
        }
        return new ModelInfo(info);
    }

    /** As {@link #modelInfo}, but returns JSON. A failure is named in its member {@code error}. */
    public static String modelInfoJson(Path model) {
        String path = Objects.requireNonNull(model, "model").toString();
        return Native.get().callWithText("llb_model_info", path);
    }

    /** Maps the failure names of {@code llb_model_info} to error codes. */
    private static String codeOf(String kind) {
        return switch (kind) {
            case "null_path" -> ErrorCodes.INVALID_REQUEST;
            case "model_not_found" -> ErrorCodes.MODEL_NOT_FOUND;
            case "load_model" -> ErrorCodes.MODEL_INVALID;
            case "chat_template" -> ErrorCodes.TEMPLATE_ERROR;
            default -> kind.toUpperCase(Locale.ROOT);
        };
    }

    /** Describes the capabilities of a chat template, with the evidence. Takes and returns JSON. */
    public static String templateInfoJson(String requestJson) {
        return call("llb_template_info", requestJson);
    }

    /** Renders messages to a prompt. Takes and returns JSON. */
    public static String templateRenderJson(String requestJson) {
        return call("llb_template_render", requestJson);
    }

    /** Parses the text of a model into a message. Takes and returns JSON. */
    public static String templateParseJson(String requestJson) {
        return call("llb_template_parse", requestJson);
    }

    /** Composes a chat template from components, or derives components. Takes and returns JSON. */
    public static String templateComposeJson(String requestJson) {
        return call("llb_template_compose", requestJson);
    }

    /**
     * Returns the tokens of a text, using the vocabulary of a model file. Takes and returns JSON.
     */
    public static String tokenizeJson(String requestJson) {
        return call("llb_tokenize", requestJson);
    }

    /** Returns the text of tokens, using the vocabulary of a model file. Takes and returns JSON. */
    public static String detokenizeJson(String requestJson) {
        return call("llb_detokenize", requestJson);
    }

    /**
     * Returns the number of tokens in a request's prompt, without a chat. Takes and returns JSON.
     */
    public static String countJson(String requestJson) {
        return call("llb_count", requestJson);
    }

    /**
     * Returns what a chat with these options takes in memory, before it is opened. Reads no
     * weights. Chooses the kernels of the process, as the first chat does.
     */
    public static Memory memory(ChatOptions options) {
        return memory(options, List.of());
    }

    /**
     * As {@link #memory(ChatOptions)}, and also for up to 64 other contexts of the model
     * ({@link Memory#contexts}), which take hardly longer. A failure of one of them does not affect
     * the others.
     */
    public static Memory memory(ChatOptions options, List<ContextOptions> contexts) {
        Map<String, Object> request = new LinkedHashMap<>(options.values());
        request.put("model_path", request.remove("model"));
        request.put("contexts", contexts.stream().map(ContextOptions::values).toList());
        return new Memory(LlbChat.requireSuccess(memoryJson(Json.write(request))));
    }

    /**
     * Like {@link #memory(ChatOptions)}, but takes and returns JSON. Must not be called in a
     * callback.
     */
    public static String memoryJson(String requestJson) {
        return call("llb_memory", requestJson);
    }

    /**
     * Unloads a model from memory and returns the number of chats that held it. These chats stay
     * open, and the next request of each loads the model again. Fails with {@code BUSY} while a
     * request runs on the model.
     */
    public static int unloadModel(Path model) {
        String request = Json.write(Map.of("model_path", model.toString()));
        Map<String, Object> reply = LlbChat.requireSuccess(unloadModelJson(request));
        return reply.get("chats") instanceof Number chats ? chats.intValue() : 0;
    }

    /**
     * Like {@link #unloadModel(Path)}, but takes and returns JSON. Must not be called in a
     * callback.
     */
    public static String unloadModelJson(String requestJson) {
        return call("llb_model_unload", requestJson);
    }

    /** Like {@link #fetch(FetchRequest)}, for {@code org/name} or {@code org/name:Q8_0}. */
    public static FetchedModel fetch(String id) {
        return fetch(FetchRequest.of(id));
    }

    /**
     * Downloads a model of the hub into the cache shared with {@code huggingface_hub}, unless it is
     * cached, and verifies it. Blocks until then. A model without tool support is refused before
     * the download. {@link #modelFetchCancel} cancels it, and so does {@link Thread#interrupt} of
     * this thread. The next fetch resumes the download.
     *
     * @throws LlbException with {@code CANCELLED}, {@code MODEL_NOT_TOOL_CAPABLE}, and other codes
     */
    public static FetchedModel fetch(FetchRequest request) {
        String reply = fetchJson(request.toJson(), request::dispatch);
        return FetchedModel.of(LlbChat.requireSuccess(reply));
    }

    /**
     * Like {@link #fetch(FetchRequest)}, but takes and returns JSON. {@code onEvent} receives the
     * events on this thread. If it throws, the fetch is cancelled and this method throws the
     * exception. An interrupt or an exception cancels all fetches that were requested by this id.
     */
    public static String fetchJson(String requestJson, Consumer<String> onEvent) {
        Native library = Native.get();
        Objects.requireNonNull(requestJson, "requestJson");
        Runnable cancel = () -> {
            String id = Json.string(Json.readObject(requestJson).get("id"));
            if (id != null) {
                library.modelFetchCancel(id);
            }
        };
        Callback events = new Callback(Objects.requireNonNull(onEvent, "onEvent"), cancel);
        CancelWatch.Watched watched = CancelWatch.watchInterrupts(cancel);
        String reply;
        try {
            reply = library.modelFetch(requestJson, events);
        } finally {
            watched.close();
        }
        events.rethrow();
        return reply;
    }

    /**
     * Cancels the fetches of {@code id}: with {@code org/name:quant} those requested by exactly
     * that id, with {@code org/name} all fetches of that model. Does not wait. May be called in a
     * callback.
     */
    public static void modelFetchCancel(String id) {
        Native.get().modelFetchCancel(Objects.requireNonNull(id, "id"));
    }

    private static String call(String function, String requestJson) {
        Objects.requireNonNull(requestJson, "requestJson");
        return Native.get().callWithText(function, requestJson);
    }
}
