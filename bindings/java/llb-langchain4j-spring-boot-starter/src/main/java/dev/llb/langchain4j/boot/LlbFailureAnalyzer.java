package dev.llb.langchain4j.boot;

import dev.llb.ErrorCodes;
import dev.llb.LlbException;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;

/** Says which property or dependency to change if the model cannot be opened at the start. */
class LlbFailureAnalyzer extends AbstractFailureAnalyzer<LlbException> {

    @Override
    protected @Nullable FailureAnalysis analyze(Throwable rootFailure, LlbException cause) {
        if (!isOfThisStarter(cause)) {
            return null;
        }
        String action = switch (cause.code()) {
            case ErrorCodes.MODEL_NOT_FOUND, ErrorCodes.MODEL_INVALID ->
                "Set langchain4j.llb.model to the path of a GGUF file, or to hf:org/name.";
            case ErrorCodes.MODEL_NOT_TOOL_CAPABLE ->
                "Choose a model whose template has tools, or set langchain4j.llb.tool-policy to"
                        + " polyfill or any.";
            case ErrorCodes.LIBRARY_NOT_FOUND, ErrorCodes.LIBRARY_INCOMPATIBLE ->
                "Add dev.llb:llb-natives of the same version to the dependencies.";
            case ErrorCodes.OUT_OF_MEMORY ->
                "Set a smaller langchain4j.llb.context-length, or choose a smaller model.";
            case ErrorCodes.HUB_GATED, ErrorCodes.HUB_UNAUTHORIZED, ErrorCodes.HUB_FORBIDDEN ->
                "Set the environment variable HF_TOKEN to a token that may read the model.";
            default -> "Change what the description names.";
        };
        return new FailureAnalysis(
                "llb could not open the model: " + cause.getMessage(), action, cause);
    }

    /** Programs open models themselves, and make requests at the start. */
    private static boolean isOfThisStarter(LlbException failure) {
        return Arrays.stream(failure.getStackTrace()).anyMatch(
                frame -> frame.getClassName().equals(LlbAutoConfiguration.class.getName()));
    }
}
