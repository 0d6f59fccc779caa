package dev.llb;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** Options of a chat. Immutable. */
public final class ChatOptions {

    private final Map<String, Object> values;
    private final @Nullable Consumer<String> onEvent;
    private final boolean strictRequests;

    private ChatOptions(Builder builder) {
        values = Collections.unmodifiableMap(new LinkedHashMap<>(builder.values));
        onEvent = builder.onEvent;
        strictRequests = builder.strictRequests;
    }

    /** The options by the library's names. An absent option has the library's default. */
    public Map<String, Object> values() {
        return values;
    }

    /**
     * Receives each event of the chat, from {@code create_start} to {@code destroy}, on the thread
     * of the call that caused it; may be null. If it throws, that call is cancelled and throws the
     * exception.
     */
    public @Nullable Consumer<String> onEvent() {
        return onEvent;
    }

    /** See {@link Builder#strictRequests}. */
    public boolean strictRequests() {
        return strictRequests;
    }

    /** Returns a builder with these options. */
    public Builder toBuilder() {
        Builder builder = new Builder();
        builder.values.putAll(values);
        builder.onEvent = onEvent;
        return builder.strictRequests(strictRequests);
    }

    /** Returns a builder without a model, for a remote engine. */
    public static Builder builder() {
        return new Builder();
    }

    /** Returns a builder for a chat on the GGUF file {@code model}. */
    public static Builder builder(Path model) {
        return new Builder().set("model", Objects.requireNonNull(model, "model").toString());
    }

    /** Builds {@link ChatOptions}. {@link #set} sets options without a method. Not thread-safe. */
    public static final class Builder {

        private final Map<String, Object> values = new LinkedHashMap<>();
        private @Nullable Consumer<String> onEvent;
        private boolean strictRequests;

        private Builder() {}

        /** Sets any option by the library's name. */
        public Builder set(String name, Object value) {
            values.put(Objects.requireNonNull(name, "name"), Json.copy(value));
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
         * Whether all chats of this model share the context. If not, each has one of its own, which
         * takes more memory and is faster for many chats on a GPU. Default: each has its own on a
         * GPU with enough memory.
         */
        public Builder sharedContext(boolean shared) {
            return set("kv_unified", shared);
        }

        /**
         * Number of threads. Default: up to one for each physical core, fewer while the machine is
         * busy.
         */
        public Builder threads(int threads) {
            return set("n_threads", threads);
        }

        /**
         * How long the model stays in memory after a request of this chat. The next request loads
         * it again. Default: until the chat is closed.
         */
        public Builder keepAlive(Duration time) {
            return set("keep_alive", time.toMillis() / 1000.0);
        }

        /**
         * The file with the encoder of pictures or of sound, which belongs to the model:
         * {@code mmproj-….gguf}. Requests may then have content parts of the type {@code image_url}
         * with data URLs, or of the type {@code input_audio}. Default: none.
         */
        public Builder projector(Path file) {
            return projector(file.toString());
        }

        /**
         * The path of the encoder of pictures or of sound, or {@code "auto"}: the one beside the
         * model file, if there is one. Default: none.
         */
        public Builder projector(String value) {
            return set("projector", value);
        }

        /**
         * What the media of a request may have at most: {@code bytes} of a file, {@code pixels} of a
         * picture, {@code seconds} of a sound, and {@code parts} with media. More is refused.
         * Default: 33554432, 50000000, 600 and 256, also of those that are absent.
         */
        public Builder mediaLimits(Map<String, ? extends Number> limits) {
            return set("media_limits", Map.copyOf(limits));
        }

        /**
         * The folders whose pictures and sounds a request may name: in {@code file:} URLs, and by
         * the {@code path} of parts of the types {@code image} and {@code audio}. Other files are
         * refused. Default: none.
         */
        public Builder mediaFolders(List<Path> folders) {
            return set("media_folders", folders.stream().map(Path::toString).toList());
        }

        /**
         * The servers whose pictures and sounds a request may name by {@code http} and
         * {@code https} URLs: {@code "none"}, {@code "public"} for those of the public internet, or {@code "all"}.
         * Default: {@code "none"}.
         */
        public Builder mediaUrls(String servers) {
            return set("media_urls", servers);
        }

        /**
         * A folder that keeps what was computed of the beginnings of prompts, for other chats and
         * processes. It holds what the prompts say; only its owner can read it. The least recently
         * used files are removed when it has more than {@code bytes} bytes. Default: none.
         */
        public Builder cacheDir(Path folder, long bytes) {
            return set("cache_dir", folder.toString()).set("cache_bytes", bytes);
        }

        /** Number of layers on a GPU, in a build with GPU support. Default: as many as fit. */
        public Builder gpuLayers(int layers) {
            return set("n_gpu_layers", layers);
        }

        /**
         * The devices that may hold layers, by their names in {@link Llb#backends}; none for the
         * processor alone. Default: all GPUs.
         */
        public Builder devices(String... names) {
            return set("devices", List.of(names));
        }

        /**
         * Number of layers, from the first one, whose experts stay in main memory, in models with
         * experts. Default: as many as let all other weights be on GPUs.
         */
        public Builder cpuMoe(int layers) {
            return set("n_cpu_moe", layers);
        }

        /**
         * Puts the tensors whose names contain a match of the regular expression on a device, by
         * its name in {@link Llb#backends}; {@code CPU} is main memory. Of several calls, the first
         * one that matches a tensor decides.
         */
        public Builder overrideTensor(String pattern, String device) {
            List<List<String>> pairs = new ArrayList<>();
            if (values.get("override_tensor") instanceof List<?> earlier) {
                for (Object pair : earlier) {
                    pairs.add(((List<?>) pair).stream().map(Object::toString).toList());
                }
            }
            pairs.add(List.of(pattern, device));
            return set("override_tensor", List.copyOf(pairs));
        }

        /**
         * How several GPUs divide the model: {@code layer} (each has some layers; the default),
         * {@code none} (one has all), {@code row} or {@code tensor} (each has a part of every
         * tensor).
         */
        public Builder splitMode(String mode) {
            return set("split_mode", mode);
        }

        /** The GPU that has all layers with the split mode {@code none}, by its index. Default: 0. */
        public Builder mainGpu(int index) {
            return set("main_gpu", index);
        }

        /** The share of the layers that each GPU gets. Default: by free memory. */
        public Builder tensorSplit(double... shares) {
            return set("tensor_split", Arrays.stream(shares).boxed().toList());
        }

        /**
         * The variant of the kernels, such as {@code haswell}: one of {@link Llb#backends}. All
         * chats of a process have the same. Default: the fastest found.
         */
        public Builder backend(String name) {
            return set("backend", name);
        }

        /**
         * Where the model runs: {@code none} (in this process; the default), or {@code process} (in
         * a helper process, for untrusted files).
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
         * Default sampling members, and {@code max_tokens}, for requests that omit them. They take
         * precedence over what the model file recommends.
         */
        public Builder defaults(Map<String, ?> members) {
            return set("defaults", members);
        }

        /**
         * What to do with a prompt that does not fit the context: {@code error} (the default),
         * {@code truncate_oldest} or {@code truncate_middle}. With {@code shift} a reply continues
         * when the context is full.
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
        public Builder onEvent(@Nullable Consumer<String> listener) {
            onEvent = listener;
            return this;
        }

        /**
         * Whether a typed request with an unknown member, such as a misspelt option, fails with
         * {@code INVALID_REQUEST} before it runs. Each request is then explained first, which takes
         * a rendering of its prompt. Default: false; unknown members are ignored, listed in {@link
         * ChatReply#ignoredKeys}, and logged once as a warning.
         */
        public Builder strictRequests(boolean strict) {
            strictRequests = strict;
            return this;
        }

        public ChatOptions build() {
            return new ChatOptions(this);
        }
    }
}
