package dev.llb;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The members of requests that the library does not know, such as misspelt options. */
final class IgnoredKeys {

    /** A program that sends ever new members is told about these. */
    private static final int MAX_LOGGED = 100;

    private static final Set<String> LOGGED = ConcurrentHashMap.newKeySet();

    private IgnoredKeys() {}

    /** Logs each ignored member once in this process. */
    static ChatReply logged(ChatReply reply) {
        for (String key : reply.ignoredKeys()) {
            if (LOGGED.size() < MAX_LOGGED && LOGGED.add(key)) {
                System.getLogger("dev.llb").log(
                        System.Logger.Level.WARNING,
                        key + ": unknown member of a request, ignored; check its spelling, or make"
                                + " it an error by ChatOptions.Builder.strictRequests");
            }
        }
        return reply;
    }

    /** @throws LlbException with {@code INVALID_REQUEST} unless there are none */
    static void refuse(List<String> keys) {
        if (!keys.isEmpty()) {
            throw new LlbException(
                    ErrorCodes.INVALID_REQUEST,
                    String.join(", ", keys) + ": unknown member of the request; check its"
                            + " spelling, or do not set strictRequests");
        }
    }
}
