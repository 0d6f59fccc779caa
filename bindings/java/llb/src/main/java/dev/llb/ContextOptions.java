package dev.llb;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * What is different in one context of {@link Llb#memory(ChatOptions, java.util.List)}.
 *
 * @param values the options by the library's names; an absent one is as in the {@link ChatOptions}
 */
public record ContextOptions(Map<String, Object> values) {

    public ContextOptions {
        values = Collections.unmodifiableMap(new LinkedHashMap<>(values));
    }

    public static Builder builder() {
        return new Builder();
    }

    /** Builds {@link ContextOptions}. Not thread-safe. */
    public static final class Builder {

        private final Map<String, Object> values = new LinkedHashMap<>();

        private Builder() {}

        private Builder set(String name, Object value) {
            values.put(name, Objects.requireNonNull(value, name));
            return this;
        }

        /** Context size in tokens. */
        public Builder contextLength(int tokens) {
            return set("n_ctx", tokens);
        }

        /** The largest context that fits. */
        public Builder largestContext() {
            return set("n_ctx", "fit");
        }

        /** Number of chats that are decoded together. */
        public Builder parallel(int chats) {
            return set("n_parallel", chats);
        }

        /** Whether all chats share the context. If not, each has one of its own. */
        public Builder sharedContext(boolean shared) {
            return set("kv_unified", shared);
        }

        /** Number of tokens of a prompt that are decoded together. */
        public Builder batch(int tokens) {
            return set("n_batch", tokens);
        }

        /** Whether to use flash attention. */
        public Builder flashAttention(boolean use) {
            return set("flash_attn", use ? "on" : "off");
        }

        /** The types of the KV cache's elements, such as {@code f16} or {@code q8_0}. */
        public Builder cacheTypes(String keys, String values) {
            return set("cache_type_k", keys).set("cache_type_v", values);
        }

        public ContextOptions build() {
            return new ContextOptions(values);
        }
    }
}
