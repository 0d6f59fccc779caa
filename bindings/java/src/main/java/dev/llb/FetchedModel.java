package dev.llb;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/**
 * A model of the hub that is in the cache, whole and verified.
 *
 * @param path its file, of a split model the first; null after a dry run
 * @param paths all its files, in order
 * @param revision the commit it is of
 * @param sha256 of {@code path}, in hexadecimal digits
 * @param fromCache whether nothing had to be downloaded
 * @param modelInfo what its header tells
 * @param raw all of the reply
 */
public record FetchedModel(
        Path path,
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
                Json.flag(reply.get("from_cache")),
                ModelInfo.of(Json.object(reply.get("model_info"))),
                reply);
    }
}
