package dev.llb;

import java.awt.image.BufferedImage;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.Map;
import javax.imageio.ImageIO;

/**
 * Makes the parts of a message's content, for {@link Message#user(java.util.List)}. Pictures and
 * sounds are for chats with the option {@code projector} (docs/media.md); the library decodes and
 * checks them.
 */
public final class ContentPart {

    private ContentPart() {}

    /** A text. */
    public static Map<String, Object> text(String text) {
        return new Fields().with("type", "text").with("text", text);
    }

    /**
     * A picture file: PNG, JPEG, WebP, GIF or BMP.
     *
     * @throws UncheckedIOException if it cannot be read
     */
    public static Map<String, Object> image(Path file) {
        try {
            return image(Files.readAllBytes(file));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** A picture by the bytes of its file. */
    public static Map<String, Object> image(byte[] file) {
        String data = Base64.getEncoder().encodeToString(file);
        return image("data:" + mediaType(file) + ";base64," + data);
    }

    /** A picture in memory. It is sent as PNG. */
    public static Map<String, Object> image(BufferedImage picture) {
        ByteArrayOutputStream file = new ByteArrayOutputStream();
        try {
            if (!ImageIO.write(picture, "png", file)) {
                throw new IllegalArgumentException("picture: cannot be written as PNG; convert it to"
                        + " BufferedImage.TYPE_INT_RGB");
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return image(file.toByteArray());
    }

    /** A picture by its data URL. */
    public static Map<String, Object> image(String dataUrl) {
        Fields image = new Fields().with("url", dataUrl);
        return new Fields().with("type", "image_url").with("image_url", image);
    }

    /**
     * A sound file: WAV, MP3 or FLAC.
     *
     * @throws UncheckedIOException if it cannot be read
     */
    public static Map<String, Object> audio(Path file) {
        try {
            return audio(Files.readAllBytes(file));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** A sound by the bytes of its file. */
    public static Map<String, Object> audio(byte[] file) {
        // The library recognizes the format.
        Fields audio = new Fields()
                .with("data", Base64.getEncoder().encodeToString(file))
                .with("format", "wav");
        return new Fields().with("type", "input_audio").with("input_audio", audio);
    }

    /** The type by the first bytes. The library recognizes files by their content. */
    private static String mediaType(byte[] file) {
        int length = Math.min(file.length, 4);
        String beginning = new String(file, 0, length, StandardCharsets.ISO_8859_1);
        return switch (beginning) {
            case "\u0089PNG" -> "image/png";
            case "GIF8" -> "image/gif";
            case "RIFF" -> "image/webp";
            default -> beginning.startsWith("\u00FF\u00D8") ? "image/jpeg"
                    : beginning.startsWith("BM") ? "image/bmp" : "application/octet-stream";
        };
    }
}
