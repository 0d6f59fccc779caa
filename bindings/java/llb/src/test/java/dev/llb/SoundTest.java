package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import javax.sound.sampled.AudioFileFormat;
import javax.sound.sampled.AudioFormat;
import javax.sound.sampled.AudioInputStream;
import javax.sound.sampled.AudioSystem;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests sounds in requests, with a model and a projector of random weights. */
class SoundTest {

    private static final int RATE = 16_000;

    /** A WAV file of 25 seconds. */
    private static byte[] tone(int frequency) throws IOException {
        int count = 25 * RATE;
        byte[] samples = new byte[2 * count];
        for (int at = 0; at < count; at++) {
            short sample = (short) (9000 * Math.sin(2 * Math.PI * frequency * at / RATE));
            samples[2 * at] = (byte) sample;
            samples[2 * at + 1] = (byte) (sample >> 8);
        }
        AudioFormat format = new AudioFormat(RATE, 16, 1, true, false);
        ByteArrayOutputStream file = new ByteArrayOutputStream();
        AudioSystem.write(
                new AudioInputStream(new ByteArrayInputStream(samples), format, count),
                AudioFileFormat.Type.WAVE,
                file);
        return file.toByteArray();
    }

    private static ChatOptions.Builder options(Path model) {
        return ChatOptions.builder(model)
                .projector("auto")
                .set("tool_policy", "any")
                .set("n_ctx", 2048);
    }

    private static String ask(LlbChat chat, Map<String, Object> sound) {
        ChatRequest request = ChatRequest.builder()
                .message(Message.user(List.of(sound, ContentPart.text("what is it"))))
                .temperature(0)
                .maxTokens(12)
                .build();
        return chat.infer(request).text();
    }

    @Test
    void everyFormOfASoundIsTheSame(@TempDir Path folder) throws Exception {
        Path model = TestFiles.scripted("sounds/qwen2a/model.gguf");
        assertEquals(List.of("text", "audio"), Llb.modelInfo(model).inputModalities());
        byte[] low = tone(200);
        Path file = Files.write(folder.resolve("low.wav"), low);
        try (LlbChat chat = LlbChat.open(options(model).build())) {
            String text = ask(chat, ContentPart.audio(low));
            assertEquals(12, text.length());
            assertEquals(text, ask(chat, ContentPart.audio(file)));
            assertNotEquals(text, ask(chat, ContentPart.audio(tone(2000))));
            LlbException refused = assertThrows(
                    LlbException.class, () -> ask(chat, ContentPart.audio(new byte[] {1, 2})));
            assertEquals("INVALID_REQUEST", refused.code());
            assertTrue(refused.getMessage().contains(
                    "messages[0].content[0].input_audio.data: not a sound"), refused.getMessage());
        }
        assertThrows(
                UncheckedIOException.class, () -> ContentPart.audio(folder.resolve("none.wav")));
    }

    @Test
    void aSoundBeyondTheLimitIsRefused() throws Exception {
        Path model = TestFiles.scripted("sounds/qwen2a/model.gguf");
        ChatOptions options = options(model).mediaLimits(Map.of("seconds", 24)).build();
        try (LlbChat chat = LlbChat.open(options)) {
            LlbException refused = assertThrows(
                    LlbException.class, () -> ask(chat, ContentPart.audio(tone(200))));
            assertEquals("INVALID_REQUEST", refused.code());
            assertTrue(refused.getMessage().contains("media_limits.seconds"), refused.getMessage());
        }
    }
}
