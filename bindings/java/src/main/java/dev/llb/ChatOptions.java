package dev.llb;

import java.nio.file.Path;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * How to open a chat.
 *
 * @param values the options by the library's names; what is absent has the library's default
 * @param onEvent told each event of the chat from {@code create_start} to {@code destroy}, in the thread where it
 *     happens; may be null. What it throws cancels the call it happened in and is thrown by that call.
 */
public record ChatOptions(Map<String, Object> values, Consumer<String> onEvent) {

    public ChatOptions {
        values = Collections.unmodifiableMap(new LinkedHashMap<>(values));
    }

    public static Builder builder(Path model) {
        return new Builder().set("model", model.toString());
    }

    /** Builds {@link ChatOptions}; an option without a method of its own goes through {@link #set}. */
    public static final class Builder {

        private final Map<String, Object> values = new LinkedHashMap<>();
        private Consumer<String> onEvent;

        private Builder() {}

        /** Any option of the library, by its name there. */
        public Builder set(String name, Object value) {
            values.put(Objects.requireNonNull(name, "name"), value);
            return this;
        }

        /** Tokens of context for each chat. */
        public Builder contextLength(int tokens) {
            return set("n_ctx", tokens);
        }

        /** How many chats of this model are decoded together. */
        public Builder parallel(int chats) {
            return set("n_parallel", chats);
        }

        public Builder threads(int threads) {
            return set("n_threads", threads);
        }

        public Builder gpuLayers(int layers) {
            return set("n_gpu_layers", layers);
        }

        /** A Jinja template instead of the file's. */
        public Builder chatTemplate(String jinja) {
            return set("chat_template", jinja);
        }

        /** Building blocks of a template instead of the file's: a map, or the name of a registered one, such as {@code qwen2.5}. */
        public Builder components(Object blocksOrName) {
            return set("components", blocksOrName);
        }

        /** {@code native}, {@code polyfill} or {@code any}: which models may open. */
        public Builder toolPolicy(String policy) {
            return set("tool_policy", policy);
        }

        /** {@code error}, {@code truncate_oldest} or {@code truncate_middle}. */
        public Builder contextOverflow(String what) {
            return set("context_overflow", what);
        }

        /** The lowest level of the engine's log that comes as events; {@code off} by default. */
        public Builder log(String level) {
            return set("log", level);
        }

        public Builder onEvent(Consumer<String> listener) {
            onEvent = listener;
            return this;
        }

        public ChatOptions build() {
            return new ChatOptions(values, onEvent);
        }
    }
}
