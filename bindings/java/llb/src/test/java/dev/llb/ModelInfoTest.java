package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests model information and versions. */
class ModelInfoTest {

    @Test
    void versionAndAbi() {
        TestFiles.library();
        assertFalse(Llb.version().isBlank());
        assertTrue(Llb.abiVersion() >= 1);
    }

    @Test
    void aModelWithTools() throws Exception {
        Path model = TestFiles.scripted("text.gguf");
        ModelInfo info = Llb.modelInfo(model);
        assertTrue(info.supportsTools());
        assertTrue(info.supportsToolCalls());
        assertFalse(info.hasToolUseTemplate());
        assertEquals(ToolSupport.NATIVE, info.toolSupport());
        assertEquals(Files.size(model), info.fileSize());
        assertTrue(info.contextLength() > 0);
        assertFalse(info.architecture().isBlank());
        assertFalse(info.templates().isEmpty());
        assertEquals(64, info.templateSha256().length());
        assertEquals(true, info.caps().get("supports_tools"));
        assertEquals("model_info", info.raw().get("type"));
    }

    @Test
    void aModelWithoutTools() {
        ModelInfo info = Llb.modelInfo(TestFiles.scripted("no_tools.gguf"));
        assertFalse(info.supportsTools());
        assertEquals(ToolSupport.POLYFILLED, info.toolSupport());
    }

    @Test
    void aModelWithATemplateForTools() {
        ModelInfo info = Llb.modelInfo(TestFiles.scripted("tool_use.gguf"));
        assertTrue(info.hasToolUseTemplate());
        assertTrue(info.supportsTools());
    }

    @Test
    void aModelWithoutATemplate() {
        ModelInfo info = Llb.modelInfo(TestFiles.scripted("no_template.gguf"));
        assertFalse(info.supportsTools());
        assertEquals(List.of(), info.templates());
        assertNull(info.templateSha256());
    }

    /** The header is complete, and missing tensor data is a finding. */
    @Test
    void aTruncatedModel() {
        ModelInfo info = Llb.modelInfo(TestFiles.scripted("truncated.gguf"));
        assertEquals("file_truncated", Json.object(info.findings().get(0)).get("code"));
    }

    @Test
    void aTemplateThatDoesNotParse() {
        check(TestFiles.scripted("bad_template.gguf"), "TEMPLATE_ERROR", "chat_template");
    }

    @Test
    void aFileThatIsNotAModel(@TempDir Path folder) throws Exception {
        TestFiles.library();
        Path text = Files.writeString(folder.resolve("text.gguf"), "not a model");
        check(text, "MODEL_INVALID", "load_model");
    }

    @Test
    void aMissingFile(@TempDir Path empty) {
        TestFiles.library();
        check(empty.resolve("nowhere.gguf"), "MODEL_NOT_FOUND", "model_not_found");
    }

    @Test
    void aFolder(@TempDir Path folder) {
        TestFiles.library();
        LlbException e = assertThrows(LlbException.class, () -> Llb.modelInfo(folder));
        assertTrue(e.code().startsWith("MODEL_"), e.code());
    }

    private static void check(Path model, String code, String kind) {
        LlbException e = assertThrows(LlbException.class, () -> Llb.modelInfo(model));
        assertEquals(code, e.code());
        assertEquals(kind, e.details().get("error"));
        assertTrue(e.getMessage().length() > code.length() + 2, e.getMessage());
        assertEquals(kind, Json.readObject(Llb.modelInfoJson(model)).get("error"));
    }
}
