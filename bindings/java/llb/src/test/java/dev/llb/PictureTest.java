package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.awt.image.BufferedImage;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests pictures in requests, with a model and a projector of random weights. */
class PictureTest {

    /** A PNG file with one red pixel. */
    private static final byte[] RED = Base64.getDecoder().decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIA"
            + "AACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC");

    private static BufferedImage pixel(int rgb) {
        BufferedImage picture = new BufferedImage(1, 1, BufferedImage.TYPE_INT_RGB);
        picture.setRGB(0, 0, rgb);
        return picture;
    }

    private static ChatOptions options() {
        return ChatOptions.builder(TestFiles.scripted("pictures/mlp/model.gguf"))
                .set("projector", "auto")
                .set("tool_policy", "any")
                .set("n_ctx", 512)
                .build();
    }

    private static String ask(LlbChat chat, Map<String, Object> picture) {
        ChatRequest request = ChatRequest.builder()
                .message(Message.user(List.of(picture, ContentPart.text("what is it"))))
                .temperature(0)
                .maxTokens(12)
                .build();
        return chat.infer(request).text();
    }

    @Test
    void everyFormOfAPictureIsTheSame(@TempDir Path folder) throws Exception {
        Path file = Files.write(folder.resolve("red.png"), RED);
        String url = "data:image/png;base64," + Base64.getEncoder().encodeToString(RED);
        try (LlbChat chat = LlbChat.open(options())) {
            String red = ask(chat, ContentPart.image(url));
            assertEquals(12, red.length());
            assertEquals(red, ask(chat, ContentPart.image(file)));
            assertEquals(red, ask(chat, ContentPart.image(RED)));
            assertEquals(red, ask(chat, ContentPart.image(pixel(0xFF0000))));
            assertNotEquals(red, ask(chat, ContentPart.image(pixel(0x0000FF))));
            LlbException refused = assertThrows(
                    LlbException.class, () -> ask(chat, ContentPart.image(new byte[] {1, 2})));
            assertEquals("INVALID_REQUEST", refused.code());
            assertTrue(refused.getMessage().contains(
                    "messages[0].content[0].image_url.url: not a picture"), refused.getMessage());
        }
        assertThrows(
                UncheckedIOException.class, () -> ContentPart.image(folder.resolve("none.png")));
    }

    @Test
    void aModelSaysWhatItTakes() {
        Path model = TestFiles.scripted("pictures/gemma3/model.gguf");
        assertEquals(List.of("text", "image"), Llb.modelInfo(model).inputModalities());
        assertEquals(List.of("text"),
                Llb.modelInfo(TestFiles.scripted("text.gguf")).inputModalities());
    }
}
