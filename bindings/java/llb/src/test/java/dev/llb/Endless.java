package dev.llb;

import java.util.Map;

/** A reply that goes on until it is ended, however long a test needs for that. */
final class Endless {

    static final ChatRequest REQUEST = ChatRequest.builder()
            .user("hi")
            .maxTokens(Integer.MAX_VALUE)
            .set("logit_bias", Map.of("97", 100))
            .build();

    private Endless() {}

    /** Options of chats that give such a reply. */
    static ChatOptions.Builder options() {
        return ChatOptions.builder(TestFiles.scripted("long.gguf")).contextOverflow("shift");
    }

    static LlbChat open() {
        return LlbChat.open(options().build());
    }
}
