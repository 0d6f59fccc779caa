package dev.llb;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * A request for vectors of texts.
 *
 * @param texts at least one
 * @param options all other members by the library's names, such as {@code dimensions}; an absent
 *     member has the library's default
 */
public record EmbedRequest(List<String> texts, Map<String, Object> options) {

    public EmbedRequest {
        texts = List.copyOf(texts);
        options = Collections.unmodifiableMap(new LinkedHashMap<>(options));
    }

    /** Returns a request with the default options. */
    public static EmbedRequest of(List<String> texts) {
        return builder(texts).build();
    }

    /** Returns a builder for a request with these texts. */
    public static Builder builder(List<String> texts) {
        return new Builder(texts);
    }

    /** Vectors are transferred as base64, which is exact and short. */
    String toJson() {
        Map<String, Object> fields = new LinkedHashMap<>(options);
        fields.put("input", texts);
        fields.put("encoding_format", "base64");
        return Json.write(fields);
    }

    /** Builds an {@link EmbedRequest}. {@link #set} sets options without a method. */
    public static final class Builder {

        private final List<String> texts;
        private final Map<String, Object> options = new LinkedHashMap<>();

        private Builder(List<String> texts) {
            this.texts = List.copyOf(texts);
        }

        /** Sets any option by the library's name. */
        public Builder set(String name, Object value) {
            options.put(Objects.requireNonNull(name, "name"), Json.copy(value));
            return this;
        }

        /**
         * Text to put before each text, such as {@code "query: "}. The model's page says which one
         * to use.
         */
        public Builder prefix(String prefix) {
            return set("prefix", prefix);
        }

        /** Whether vectors are scaled to length 1. Default: true. */
        public Builder normalize(boolean normalize) {
            return set("normalize", normalize);
        }

        /** Keeps only this many numbers of each vector. Default: all. */
        public Builder dimensions(int dimensions) {
            return set("dimensions", dimensions);
        }

        /** Whether a text that is too long is cut. Default: false. */
        public Builder truncate(boolean truncate) {
            return set("truncate", truncate);
        }

        public EmbedRequest build() {
            return new EmbedRequest(texts, options);
        }
    }
}
