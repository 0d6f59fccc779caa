package dev.llb;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/**
 * Vectors of texts.
 *
 * @param vectors one for each text, in order
 * @param dimensions the length of each vector
 * @param promptTokens the number of tokens of all texts
 * @param raw the whole reply, with {@code truncated} and {@code timings}
 */
public record Embeddings(
        List<float[]> vectors, int dimensions, int promptTokens, Map<String, Object> raw) {

    static Embeddings of(Map<String, Object> reply) {
        List<float[]> vectors = new ArrayList<>();
        for (Map<String, Object> entry : Json.objects(reply.get("data"))) {
            if (!(entry.get("embedding") instanceof String base64)) {
                throw new LlbException(
                        ErrorCodes.INVALID_REQUEST,
                        "pooling: each token has a vector; use embedJson to read them");
            }
            vectors.add(decode(base64));
        }
        return new Embeddings(
                List.copyOf(vectors),
                (int) Json.integer(reply.get("dimensions")),
                (int) Json.integer(Json.object(reply.get("usage")).get("prompt_tokens")),
                reply);
    }

    /** Little-endian floats. */
    private static float[] decode(String base64) {
        ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(base64));
        float[] vector = new float[bytes.remaining() / Float.BYTES];
        bytes.order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(vector);
        return vector;
    }
}
