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

    private final boolean supportsTools;
    private final boolean supportsToolCalls;
    private final boolean hasToolUseTemplate;
    private final @Nullable String chatFormat;
    private final ToolSupport toolSupport;
    private final @Nullable String architecture;
    private final @Nullable String name;
    private final @Nullable String license;
    private final @Nullable String quantization;
    private final long nParams;
    private final long contextLength;
    private final long embeddingLength;
    private final long blockCount;
    private final long fileSize;
    private final @Nullable String bosToken;
    private final @Nullable String eosToken;
    private final List<String> templates;
    private final @Nullable String templateSha256;
    private final Map<String, Object> caps;
    private final Map<String, Object> templateCaps;
    private final List<Object> findings;
    private final List<String> inputModalities;

    private ModelInfo(Map<String, Object> info) {
        super(info);
        supportsTools = Json.bool(info.get("supports_tools"));
        supportsToolCalls = Json.bool(info.get("supports_tool_calls"));
        hasToolUseTemplate = Json.bool(info.get("has_tool_use_template"));
        chatFormat = Json.string(info.get("chat_format"));
        toolSupport = ToolSupport.of(Json.string(info.get("tool_support")));
        architecture = Json.string(info.get("architecture"));
        name = Json.string(info.get("name"));
        license = Json.string(info.get("license"));
        quantization = Json.string(info.get("quantization"));
        nParams = Json.integer(info.get("n_params"));
        contextLength = Json.integer(info.get("context_length"));
        embeddingLength = Json.integer(info.get("embedding_length"));
        blockCount = Json.integer(info.get("block_count"));
        fileSize = Json.integer(info.get("file_size"));
        bosToken = Json.string(info.get("bos_token"));
        eosToken = Json.string(info.get("eos_token"));
        templates = Json.strings(info.get("templates"));
        templateSha256 = Json.string(info.get("template_sha256"));
        caps = Json.object(info.get("caps"));
        templateCaps = Json.object(info.get("template_caps"));
        findings = Json.list(info.get("findings"));
        inputModalities = Json.strings(info.get("input_modalities"));
    }

    static ModelInfo of(Map<String, Object> info) {
        return new ModelInfo(info);
    }

    /**
     * What a chat with {@code projector} "auto" takes: "text", and "image" if a projector lies beside
     * the file (docs/media.md).
     */
    public List<String> inputModalities() {
        return inputModalities;
    }

    /** Whether a chat opens with the default {@code tool_policy}. */
    public boolean supportsTools() {
        return supportsTools;
    }

    /** Whether the template renders tool calls of earlier messages. */
    public boolean supportsToolCalls() {
        return supportsToolCalls;
    }

    /** Whether the file has a separate template for tools. */
    public boolean hasToolUseTemplate() {
        return hasToolUseTemplate;
    }

    /** Llama.cpp's name for the output format; a diagnostic. */
    public @Nullable String chatFormat() {
        return chatFormat;
    }

    /** How the template carries tools. */
    public ToolSupport toolSupport() {
        return toolSupport;
    }

    public @Nullable String architecture() {
        return architecture;
    }

    public @Nullable String name() {
        return name;
    }

    public @Nullable String license() {
        return license;
    }

    public @Nullable String quantization() {
        return quantization;
    }

    public long nParams() {
        return nParams;
    }

    /** The context the model was trained for, in tokens. */
    public long contextLength() {
        return contextLength;
    }

    public long embeddingLength() {
        return embeddingLength;
    }

    public long blockCount() {
        return blockCount;
    }

    /** In bytes. */
    public long fileSize() {
        return fileSize;
    }

    public @Nullable String bosToken() {
        return bosToken;
    }

    public @Nullable String eosToken() {
        return eosToken;
    }

    /** The names of the chat templates in the file. */
    public List<String> templates() {
        return templates;
    }

    /** The SHA-256 of the described template. */
    public @Nullable String templateSha256() {
        return templateSha256;
    }

    /** The capabilities of the template, by llama.cpp's names. */
    public Map<String, Object> caps() {
        return caps;
    }

    /** The capabilities by minja's names, with {@code reasoning_format}. */
    public Map<String, Object> templateCaps() {
        return templateCaps;
    }

    /** The remarks of the library on the file and its template. */
    public List<Object> findings() {
        return findings;
    }
}
