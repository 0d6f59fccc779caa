package dev.llb;

import java.util.List;
import java.util.Map;

/**
 * What the header of a model file tells; no weight is read for it. Facts the file does not state are null, or 0.
 *
 * @param supportsTools whether a chat opens with the default {@code tool_policy}
 * @param supportsToolCalls whether the template can show earlier calls
 * @param hasToolUseTemplate whether the file has a template of its own for tools
 * @param chatFormat llama.cpp's name for the output format; a diagnostic
 * @param toolSupport {@code native}, {@code polyfilled} or {@code none}
 * @param templates the names of the chat templates in the file
 * @param caps what the template can carry, by llama.cpp's names
 * @param templateCaps the same by minja's names, with {@code reasoning_format}
 * @param findings remarks on the file, as the library gives them
 * @param raw all of it, also the evidence for each capability
 */
public record ModelInfo(
        boolean supportsTools,
        boolean supportsToolCalls,
        boolean hasToolUseTemplate,
        String chatFormat,
        String toolSupport,
        String architecture,
        String name,
        String license,
        String quantization,
        long nParams,
        long contextLength,
        long embeddingLength,
        long blockCount,
        long fileSize,
        String bosToken,
        String eosToken,
        List<String> templates,
        String templateSha256,
        Map<String, Object> caps,
        Map<String, Object> templateCaps,
        List<Object> findings,
        Map<String, Object> raw) {

    static ModelInfo of(Map<String, Object> info) {
        return new ModelInfo(
                Json.flag(info.get("supports_tools")),
                Json.flag(info.get("supports_tool_calls")),
                Json.flag(info.get("has_tool_use_template")),
                Json.string(info.get("chat_format")),
                Json.string(info.get("tool_support")),
                Json.string(info.get("architecture")),
                Json.string(info.get("name")),
                Json.string(info.get("license")),
                Json.string(info.get("quantization")),
                Json.whole(info.get("n_params")),
                Json.whole(info.get("context_length")),
                Json.whole(info.get("embedding_length")),
                Json.whole(info.get("block_count")),
                Json.whole(info.get("file_size")),
                Json.string(info.get("bos_token")),
                Json.string(info.get("eos_token")),
                Json.strings(info.get("templates")),
                Json.string(info.get("template_sha256")),
                Json.object(info.get("caps")),
                Json.object(info.get("template_caps")),
                Json.list(info.get("findings")),
                info);
    }
}
