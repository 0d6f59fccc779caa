package dev.llb;

import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A description of a model file, read from its header. Fields that the file does not have are null
 * or 0. {@code raw()} also has the evidence for each capability, the origin of the model, and {@code
 * sampling}, what the file recommends.
 */
public final class ModelInfo extends JsonReply {

    ModelInfo(Map<String, Object> raw) {
        super(raw);
    }

    /**
     * What a chat with {@code projector} "auto" takes: "text", and "image" if a projector lies beside
     * the file (docs/media.md).
     */
    public List<String> inputModalities() {
        return Json.strings(raw.get("input_modalities"));
    }

    /** Whether a chat opens with the default {@code tool_policy}. */
    public boolean supportsTools() {
        return Json.bool(raw.get("supports_tools"));
    }

    /** Whether the template renders tool calls of earlier messages. */
    public boolean supportsToolCalls() {
        return Json.bool(raw.get("supports_tool_calls"));
    }

    /** Whether the file has a separate template for tools. */
    public boolean hasToolUseTemplate() {
        return Json.bool(raw.get("has_tool_use_template"));
    }

    /** Llama.cpp's name for the output format; a diagnostic. */
    public @Nullable String chatFormat() {
        return Json.string(raw.get("chat_format"));
    }

    /** How the template carries tools. */
    public ToolSupport toolSupport() {
        return ToolSupport.of(Json.string(raw.get("tool_support")));
    }

    public @Nullable String architecture() {
        return Json.string(raw.get("architecture"));
    }

    public @Nullable String name() {
        return Json.string(raw.get("name"));
    }

    public @Nullable String license() {
        return Json.string(raw.get("license"));
    }

    public @Nullable String quantization() {
        return Json.string(raw.get("quantization"));
    }

    public long nParams() {
        return Json.integer(raw.get("n_params"));
    }

    /** The context the model was trained for, in tokens. */
    public long contextLength() {
        return Json.integer(raw.get("context_length"));
    }

    public long embeddingLength() {
        return Json.integer(raw.get("embedding_length"));
    }

    public long blockCount() {
        return Json.integer(raw.get("block_count"));
    }

    /** In bytes. */
    public long fileSize() {
        return Json.integer(raw.get("file_size"));
    }

    public @Nullable String bosToken() {
        return Json.string(raw.get("bos_token"));
    }

    public @Nullable String eosToken() {
        return Json.string(raw.get("eos_token"));
    }

    /** The names of the chat templates in the file. */
    public List<String> templates() {
        return Json.strings(raw.get("templates"));
    }

    /** The SHA-256 of the described template. */
    public @Nullable String templateSha256() {
        return Json.string(raw.get("template_sha256"));
    }

    /** The capabilities of the template, by llama.cpp's names. */
    public Map<String, Object> caps() {
        return Json.object(raw.get("caps"));
    }

    /** The capabilities by minja's names, with {@code reasoning_format}. */
    public Map<String, Object> templateCaps() {
        return Json.object(raw.get("template_caps"));
    }

    /** The remarks of the library on the file and its template. */
    public List<Object> findings() {
        return Json.list(raw.get("findings"));
    }
}
