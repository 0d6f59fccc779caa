package dev.llb;

import java.util.List;
import java.util.Map;

/**
 * The tokens of a text.
 *
 * @param ids their ids in the vocabulary
 * @param tokens the tokens, in the same order
 */
public record Tokens(List<Integer> ids, List<Token> tokens) {

    /**
     * A token.
     *
     * @param id its id in the vocabulary
     * @param text what it stands for, with U+FFFD for bytes that are not UTF-8
     * @param special whether only a chat template may write it
     */
    public record Token(int id, String text, boolean special) {}

    static Tokens of(Map<String, Object> reply) {
        List<Token> tokens = Json.objects(reply.get("tokens")).stream()
                .map(token -> new Token(
                        (int) Json.integer(token.get("id")),
                        Json.string(token.get("text")),
                        Json.bool(token.get("special"))))
                .toList();
        return new Tokens(tokens.stream().map(Token::id).toList(), tokens);
    }
}
