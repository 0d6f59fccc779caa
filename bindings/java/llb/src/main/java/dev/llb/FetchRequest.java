package dev.llb;

import java.nio.file.Path;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * A request to fetch a model of the Hugging Face hub.
 *
 * <p>The listeners are called on the thread of the fetch. If one throws, the fetch is cancelled and
 * throws the exception.
 *
 * @param values the members by the library's names; an absent member has the library's default
 * @param onProgress receives the progress, at most ten times a second; may be null
 * @param onEvent receives each event of the fetch; may be null
 */
public record FetchRequest(
        Map<String, Object> values,
        @Nullable ProgressListener onProgress,
        @Nullable Consumer<String> onEvent) {

    private static final String PROGRESS = "fetch_progress:";

    /** Receives the progress of a fetch. */
    @FunctionalInterface
    public interface ProgressListener {

        /**
         * Called with the progress.
         *
         * @param bytes the bytes present, of all files
         * @param total the bytes of all files
         */
        void at(long bytes, long total);
    }

    public FetchRequest {
        values = Collections.unmodifiableMap(new LinkedHashMap<>(values));
    }

    /**
     * Returns a request for {@code org/name} or {@code org/name:Q8_0}, with the default options.
     */
    public static FetchRequest of(String id) {
        return builder(id).build();
    }

    /** Returns a builder for a request for {@code org/name} or {@code org/name:Q8_0}. */
    public static Builder builder(String id) {
        return new Builder().set("id", Objects.requireNonNull(id, "id"));
    }

    String toJson() {
        return Json.write(values);
    }

    /** Passes an event of the library to the listeners. */
    void dispatch(String event) {
        if (onProgress != null && event.startsWith(PROGRESS)) {
            int slash = event.indexOf('/');
            onProgress.at(
                    Long.parseLong(event, PROGRESS.length(), slash, 10),
                    Long.parseLong(event, slash + 1, event.length(), 10));
        }
        if (onEvent != null) {
            onEvent.accept(event);
        }
    }

    /**
     * Builds a {@link FetchRequest}. {@link #set} sets members without a method. Not thread-safe.
     */
    public static final class Builder {

        private final Map<String, Object> values = new LinkedHashMap<>();
        private ProgressListener onProgress;
        private Consumer<String> onEvent;

        private Builder() {}

        /** Sets any member by the library's name. */
        public Builder set(String name, Object value) {
            values.put(Objects.requireNonNull(name, "name"), Json.copy(value));
            return this;
        }

        /** A branch, tag or commit. Default: {@code main}. */
        public Builder revision(String revision) {
            return set("revision", revision);
        }

        /** The name of the file to fetch. */
        public Builder filename(String filename) {
            return set("filename", filename);
        }

        /** The cache folder. Default: that of {@code huggingface_hub}. */
        public Builder cacheDir(Path folder) {
            return set("cache_dir", folder.toString());
        }

        /** Whether to use only the cache. Default: false. */
        public Builder offline(boolean offline) {
            return set("offline", offline);
        }

        /** Whether to refuse a model without tool support before the download. Default: true. */
        public Builder requireTools(boolean required) {
            return set("require_tools", required);
        }

        /** Whether to describe the fetch without downloading. Default: false. */
        public Builder dryRun(boolean dry) {
            return set("dry_run", dry);
        }

        /**
         * An existing folder for a copy of the header, only for a {@link #dryRun}. If the model is
         * not in the cache, {@code header_path} of {@link FetchedModel#raw()} is the path of the
         * copy, which {@link Llb#memory(ChatOptions)} accepts. Default: none.
         */
        public Builder headerDir(Path folder) {
            return set("header_dir", folder.toString());
        }

        /** Sets the progress listener. */
        public Builder onProgress(ProgressListener listener) {
            onProgress = listener;
            return this;
        }

        /** Sets the event listener. */
        public Builder onEvent(Consumer<String> listener) {
            onEvent = listener;
            return this;
        }

        public FetchRequest build() {
            return new FetchRequest(values, onProgress, onEvent);
        }
    }
}
