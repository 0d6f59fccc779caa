package dev.llb;

import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A description of a model file, read from its header. Fields that the file does not have are null
 * or 0.
 *
 * @param supportsTools whether a chat opens with the default {@code tool_policy}
 * @param supportsToolCalls whether the template renders tool calls of earlier messages
 * @param hasToolUseTemplate whether the file has a separate template for tools
 * @param chatFormat llama.cpp's name for the output format; a diagnostic
 * @param toolSupport {@code native}, {@code polyfilled} or {@code none}
 * @param contextLength the context the model was trained for, in tokens
 * @param fileSize in bytes
 * @param templates the names of the chat templates in the file
 * @param templateSha256 the SHA-256 of the described template
 * @param caps the capabilities of the template, by llama.cpp's names
 * @param templateCaps the capabilities by minja's names, with {@code reasoning_format}
 * @param findings the remarks of the library on the file and its template
 * @param raw the whole reply, with the evidence for each capability, the origin of the model, and
 *     {@code sampling}, what the file recommends
 */
public record ModelInfo(
        boolean supportsTools,
        boolean supportsToolCalls,
        boolean hasToolUseTemplate,
        @Nullable String chatFormat,
        @Nullable String toolSupport,
        @Nullable String architecture,
        @Nullable String name,
        @Nullable String license,
        @Nullable String quantization,
        long nParams,
        long contextLength,
        long embeddingLength,
        long blockCount,
        long fileSize,
        @Nullable String bosToken,
        @Nullable String eosToken,
        List<String> templates,
        @Nullable String templateSha256,
        Map<String, Object> caps,
        Map<String, Object> templateCaps,
        List<Object> findings,
        Map<String, Object> raw) {

    static ModelInfo of(Map<String, Object> info) {
        return new ModelInfo(
                Json.bool(info.get("supports_tools")),
                Json.bool(info.get("supports_tool_calls")),
                Json.bool(info.get("has_tool_use_template")),
                Json.string(info.get("chat_format")),
                Json.string(info.get("tool_support")),
                Json.string(info.get("architecture")),
                Json.string(info.get("name")),
                Json.string(info.get("license")),
                Json.string(info.get("quantization")),
                Json.integer(info.get("n_params")),
                Json.integer(info.get("context_length")),
                Json.integer(info.get("embedding_length")),
                Json.integer(info.get("block_count")),
                Json.integer(info.get("file_size")),
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
