package dev.llb.springai.boot;

import dev.llb.ErrorCodes;
import dev.llb.LlbException;
import java.util.Arrays;
import java.util.Set;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;

/** Says which property or dependency to change if the model cannot be opened at the start. */
class LlbFailureAnalyzer extends AbstractFailureAnalyzer<LlbException> {

    private static final Set<String> OPENERS = Set.of(
            LlbAutoConfiguration.class.getName(), LlbEmbeddingAutoConfiguration.class.getName());

    @Override
    protected @Nullable FailureAnalysis analyze(Throwable rootFailure, LlbException cause) {
        if (!isOfThisStarter(cause)) {
            return null;
        }
        String action = switch (cause.code()) {
            case ErrorCodes.MODEL_NOT_FOUND, ErrorCodes.MODEL_INVALID ->
                "Set spring.ai.llb.model to the path of a GGUF file, or to hf:org/name.";
            case ErrorCodes.MODEL_NOT_TOOL_CAPABLE ->
                "Choose a model whose template has tools, or set spring.ai.llb.tool-policy to"
                        + " polyfill or any.";
            case ErrorCodes.LIBRARY_NOT_FOUND, ErrorCodes.LIBRARY_INCOMPATIBLE ->
                "Add dev.llb:llb-natives of the same version to the dependencies.";
            case ErrorCodes.OUT_OF_MEMORY ->
                "Set a smaller spring.ai.llb.context-length, or choose a smaller model.";
            case ErrorCodes.OFFLINE ->
                "Set spring.ai.llb.pull-strategy to when-missing, or spring.ai.llb.cache-dir to a"
                        + " cache that has the model.";
            case ErrorCodes.HUB_GATED, ErrorCodes.HUB_UNAUTHORIZED, ErrorCodes.HUB_FORBIDDEN ->
                "Set the environment variable HF_TOKEN to a token that may read the model.";
            default -> "Change what the description names.";
        };
        return new FailureAnalysis(
                "llb could not open the model: " + cause.getMessage(), action, cause);
    }

    /** Programs open models themselves, and make requests at the start. */
    private static boolean isOfThisStarter(LlbException failure) {
        return Arrays.stream(failure.getStackTrace())
                .anyMatch(frame -> OPENERS.contains(frame.getClassName()));
    }
}
