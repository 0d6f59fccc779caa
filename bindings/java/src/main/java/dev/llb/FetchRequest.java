package dev.llb;

import java.nio.file.Path;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * Which model of the hub to fetch, and how.
 *
 * @param values the request by the library's names; what is absent has the library's default
 * @param onProgress told how far it is, at most ten times a second; may be null
 * @param onEvent told each event of the fetch; may be null. What either throws cancels the fetch and is thrown by it.
 */
public record FetchRequest(Map<String, Object> values, ProgressListener onProgress, Consumer<String> onEvent) {

    private static final String PROGRESS = "fetch_progress:";

    /** How far a fetch is. */
    @FunctionalInterface
    public interface ProgressListener {

        /** The bytes that are here, of all files, and how many there are to have. */
        void at(long bytes, long total);
    }

    public FetchRequest {
        values = Collections.unmodifiableMap(new LinkedHashMap<>(values));
    }

    /** The model {@code id}, {@code org/name} or {@code org/name:Q8_0}, with the library's defaults. */
    public static FetchRequest of(String id) {
        return builder(id).build();
    }

    public static Builder builder(String id) {
        return new Builder().set("id", Objects.requireNonNull(id, "id"));
    }

    String toJson() {
        return Json.write(values);
    }

    /** An event as the library calls it. */
    void tell(String event) {
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

    /** Builds a {@link FetchRequest}; a member without a method of its own goes through {@link #set}. */
    public static final class Builder {

        private final Map<String, Object> values = new LinkedHashMap<>();
        private ProgressListener onProgress;
        private Consumer<String> onEvent;

        private Builder() {}

        /** Any member of the library's request, by its name there. */
        public Builder set(String name, Object value) {
            values.put(Objects.requireNonNull(name, "name"), value);
            return this;
        }

        /** A branch, a tag or a commit. */
        public Builder revision(String revision) {
            return set("revision", revision);
        }

        /** Exactly this file. */
        public Builder filename(String filename) {
            return set("filename", filename);
        }

        /** In place of the cache that the environment names. */
        public Builder cacheDir(Path folder) {
            return set("cache_dir", folder.toString());
        }

        /** Whether only the cache is looked at. */
        public Builder offline(boolean offline) {
            return set("offline", offline);
        }

        /** Whether a model that cannot carry tools is refused, before it is downloaded; true by default. */
        public Builder requireTools(boolean required) {
            return set("require_tools", required);
        }

        /** Whether nothing is downloaded. */
        public Builder dryRun(boolean dry) {
            return set("dry_run", dry);
        }

        public Builder onProgress(ProgressListener listener) {
            onProgress = listener;
            return this;
        }

        public Builder onEvent(Consumer<String> listener) {
            onEvent = listener;
            return this;
        }

        public FetchRequest build() {
            return new FetchRequest(values, onProgress, onEvent);
        }
    }
}
