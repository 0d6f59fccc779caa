package dev.llb;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A verified model of the hub in the cache.
 *
 * @param path its file, or the first file of a split model; null after a dry run of a model that is
 *     not in the cache
 * @param paths all its files, in order
 * @param revision its commit
 * @param sha256 the SHA-256 of {@code path} in hexadecimal digits
 * @param fromCache whether nothing was downloaded
 * @param modelInfo the description of the model from its header
 * @param raw the whole reply of the library
 */
public record FetchedModel(
        @Nullable Path path,
        List<Path> paths,
        String revision,
        String sha256,
        boolean fromCache,
        ModelInfo modelInfo,
        Map<String, Object> raw) {

    static FetchedModel of(Map<String, Object> reply) {
        String path = Json.string(reply.get("path"));
        return new FetchedModel(
                path == null ? null : Path.of(path),
                Json.strings(reply.get("paths")).stream().map(Path::of).toList(),
                Json.string(reply.get("revision")),
                Json.string(reply.get("sha256")),
                Json.bool(reply.get("from_cache")),
                new ModelInfo(Json.object(reply.get("model_info"))),
                reply);
    }
}
