package dev.llb;

import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * What the library does without a chat. The methods from JSON to JSON give the library's reply as it is, an error reply
 * too.
 */
public final class Llb {

    private Llb() {}

    /** The library's version, with that of the engine in it. */
    public static String version() {
        return Native.get().version();
    }

    /** The version of the C interface the library speaks. */
    public static int abiVersion() {
        return Native.get().abiVersion();
    }

    /** Reads the header of a model file. */
    public static ModelInfo modelInfo(Path model) {
        Map<String, Object> info;
        try {
            info = Json.readObject(modelInfoJson(model));
        } catch (IllegalArgumentException e) {
            throw new LlbException("INTERNAL_BRIDGE_ERROR", "cannot read the library's reply", e);
        }
        Object error = info.get("error");
        if (error instanceof Map<?, ?>) {
            throw LlbException.of(Json.object(error), List.of());
        }
        if (error instanceof String kind) {
            String message = Json.string(info.get("message"));
            throw new LlbException(codeOf(kind), message != null ? message : kind, info, List.of());
        }
        return ModelInfo.of(info);
    }

    /** {@link #modelInfo} as JSON; there a failure is a word in {@code error}. */
    public static String modelInfoJson(Path model) {
        return Native.get().modelInfo(model.toString());
    }

    /** {@code llb_model_info} has words of its own for what goes wrong. */
    private static String codeOf(String kind) {
        return switch (kind) {
            case "null_path" -> "INVALID_REQUEST";
            case "model_not_found" -> "MODEL_NOT_FOUND";
            case "load_model" -> "MODEL_INVALID";
            case "chat_template" -> "TEMPLATE_ERROR";
            default -> kind.toUpperCase(Locale.ROOT);
        };
    }

    /** What a chat template can carry, and the evidence for it. */
    public static String templateInfo(String requestJson) {
        return Native.get().templateInfo(Objects.requireNonNull(requestJson, "requestJson"));
    }

    /** Messages to the prompt a model would read. */
    public static String templateRender(String requestJson) {
        return Native.get().templateRender(Objects.requireNonNull(requestJson, "requestJson"));
    }

    /** What a model wrote to a message. */
    public static String templateParse(String requestJson) {
        return Native.get().templateParse(Objects.requireNonNull(requestJson, "requestJson"));
    }

    /** Building blocks to a chat template. */
    public static String templateCompose(String requestJson) {
        return Native.get().templateCompose(Objects.requireNonNull(requestJson, "requestJson"));
    }

    /** Fetches a model of the hub, {@code org/name} or {@code org/name:Q8_0}, unless it is in the cache. */
    public static FetchedModel fetch(String id) {
        return fetch(FetchRequest.of(id));
    }

    /**
     * Fetches a model of the hub into the cache that {@code huggingface_hub} uses too, unless it is there, and verifies it.
     * A model that cannot carry tools is refused before it is downloaded. {@link #modelFetchCancel} ends it; the next fetch
     * goes on where it ended.
     */
    public static FetchedModel fetch(FetchRequest request) {
        return FetchedModel.of(LlbChat.checked(modelFetch(request.toJson(), request::tell)));
    }

    /**
     * {@link #fetch} from JSON to JSON. {@code onEvent} is told the progress; what it throws cancels the
     * download and is thrown here.
     */
    public static String modelFetch(String requestJson, Consumer<String> onEvent) {
        Native library = Native.get();
        Objects.requireNonNull(requestJson, "requestJson");
        Callback events = new Callback(Objects.requireNonNull(onEvent, "onEvent"), () -> {
            String id = Json.string(Json.readObject(requestJson).get("id"));
            if (id != null) {
                library.modelFetchCancel(id);
            }
        });
        String reply = library.modelFetch(requestJson, events);
        events.rethrow();
        return reply;
    }

    /** Ends the downloads of {@code id}. From any thread. */
    public static void modelFetchCancel(String id) {
        Native.get().modelFetchCancel(Objects.requireNonNull(id, "id"));
    }
}
