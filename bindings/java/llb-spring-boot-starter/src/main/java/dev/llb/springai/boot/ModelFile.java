package dev.llb.springai.boot;

import dev.llb.ErrorCodes;
import dev.llb.FetchRequest;
import dev.llb.Llb;
import dev.llb.LlbException;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/**
 * Resolves a property to a file. The property is a path, or a model on the hub, which may be
 * downloaded.
 */
final class ModelFile {

    private static final String HUB = "hf:";

    private ModelFile() {}

    /**
     * A model that need not support tools, such as an embedding model, has the policy {@code any}.
     */
    static Path find(String model, LlbProperties properties) {
        return find(model, properties, properties.toolPolicy());
    }

    static Path find(String model, LlbProperties properties, @Nullable String toolPolicy) {
        if (!model.startsWith(HUB)) {
            return Path.of(model);
        }
        FetchRequest.Builder request = FetchRequest.builder(model.substring(HUB.length()));
        if (properties.revision() != null) {
            request.revision(properties.revision());
        }
        if (properties.cacheDir() != null) {
            request.cacheDir(properties.cacheDir());
        }
        if (toolPolicy != null && !toolPolicy.equals("native")) {
            request.requireTools(false);
        }
        return fetch(request, properties.pullStrategy());
    }

    private static Path fetch(FetchRequest.Builder request, LlbProperties.PullStrategy strategy) {
        if (strategy != LlbProperties.PullStrategy.ALWAYS) {
            try {
                return Llb.fetch(request.offline(true).build()).path();
            } catch (LlbException e) {
                boolean missing = e.code().equals(ErrorCodes.OFFLINE);
                if (!missing || strategy == LlbProperties.PullStrategy.NEVER) {
                    throw e;
                }
            }
        }
        return Llb.fetch(request.offline(false).build()).path();
    }
}
