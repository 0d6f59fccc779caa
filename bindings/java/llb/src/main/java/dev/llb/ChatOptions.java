package dev.llb;

import java.nio.file.Path;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Options of a chat.
 *
 * @param values the options by the library's names; an absent option has the library's default
 * @param onEvent receives each event of the chat, from {@code create_start} to {@code destroy}, on
 *     the thread of the call that caused it; may be null. If it throws, that call is cancelled and
 *     throws the exception.
 */
public record ChatOptions(Map<String, Object> values, @Nullable Consumer<String> onEvent) {

    public ChatOptions {
        values = Collections.unmodifiableMap(new LinkedHashMap<>(values));
    }

    /** Returns a builder for a chat on the GGUF file {@code model}. */
    public static Builder builder(Path model) {
        return new Builder().set("model", model.toString());
    }

    /** Builds {@link ChatOptions}. {@link #set} sets options without a method. Not thread-safe. */
    public static final class Builder {

        private final Map<String, Object> values = new LinkedHashMap<>();
        private Consumer<String> onEvent;

        private Builder() {}

        /** Sets any option by the library's name. */
        public Builder set(String name, Object value) {
            values.put(Objects.requireNonNull(name, "name"), value);
            return this;
        }

        /** Context size in tokens. Default: that of the model, at most 8192. */
        public Builder contextLength(int tokens) {
            return set("n_ctx", tokens);
        }

        /** Number of chats of this model that are decoded together. Default: 4. */
        public Builder parallel(int chats) {
            return set("n_parallel", chats);
        }

        /**
         * Number of threads. Default: up to one for each physical core, fewer while the machine is
         * busy.
         */
        public Builder threads(int threads) {
            return set("n_threads", threads);
        }

        /** Number of layers on a GPU, in a build with GPU support. Default: as many as fit. */
        public Builder gpuLayers(int layers) {
            return set("n_gpu_layers", layers);
        }

        /**
         * Where the model runs: {@code none} (in this process; the default), or {@code process} (in a
         * helper process, for files of strangers).
         */
        public Builder isolation(String isolation) {
            return set("isolation", isolation);
        }

        /** A Jinja template that replaces that of the file. */
        public Builder chatTemplate(String jinja) {
            return set("chat_template", jinja);
        }

        /**
         * Components of a template that replaces that of the file: a map, or the name of a
         * registered template such as {@code qwen2.5}.
         */
        public Builder components(Object mapOrName) {
            return set("components", mapOrName);
        }

        /**
         * The models to accept: {@code native} (the template supports tools; the default),
         * {@code polyfill} (or polyfills can add tools) or {@code any}.
         */
        public Builder toolPolicy(String policy) {
            return set("tool_policy", policy);
        }

        /**
         * Sampling members of a request, and {@code max_tokens}, for requests that leave them out.
         * They precede what the model file recommends.
         */
        public Builder defaults(Map<String, ?> members) {
            return set("defaults", members);
        }

        /**
         * What to do with a prompt that does not fit the context: {@code error} (the default),
         * {@code truncate_oldest} or {@code truncate_middle}.
         */
        public Builder contextOverflow(String strategy) {
            return set("context_overflow", strategy);
        }

        /**
         * The lowest level of log messages to send as events: {@code off} (the default),
         * {@code error}, {@code warn}, {@code info} or {@code debug}.
         */
        public Builder log(String level) {
            return set("log", level);
        }

        /** Sets the event listener; see {@link ChatOptions#onEvent}. */
        public Builder onEvent(Consumer<String> listener) {
            onEvent = listener;
            return this;
        }

        public ChatOptions build() {
            return new ChatOptions(values, onEvent);
        }
    }
}
