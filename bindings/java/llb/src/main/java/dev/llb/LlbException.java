package dev.llb;

import java.util.List;
import java.util.Map;

/**
 * A failed call. {@link #code} is stable between versions; the message says what is wrong and
 * where.
 *
 * <p>The codes are those of the library, such as {@code INVALID_REQUEST}, {@code ENGINE_CLOSED} or
 * {@code MODEL_NOT_TOOL_CAPABLE}, and three of this binding: {@code LIBRARY_NOT_FOUND},
 * {@code LIBRARY_INCOMPATIBLE} and {@code REPLY_INVALID}. {@link ErrorCodes} has them all.
 */
public final class LlbException extends RuntimeException {

    private static final long serialVersionUID = 1;

    private final String code;
    private final transient Map<String, Object> details;
    private final transient List<String> events;

    LlbException(String code, String message) {
        this(code, message, Map.of(), List.of(), null);
    }

    LlbException(String code, String message, Throwable cause) {
        this(code, message, Map.of(), List.of(), cause);
    }

    LlbException(String code, String message, Map<String, Object> details, List<String> events) {
        this(code, message, details, events, null);
    }

    private LlbException(
            String code,
            String message,
            Map<String, Object> details,
            List<String> events,
            Throwable cause) {
        super(code + ": " + message, cause);
        this.code = code;
        this.details = details;
        this.events = List.copyOf(events);
    }

    /** Converts an {@code error} object of the library. */
    static LlbException of(Map<String, Object> error, List<String> events) {
        String code = Json.string(error.get("code"));
        String message = Json.string(error.get("message"));
        return new LlbException(
                code != null ? code : ErrorCodes.INTERNAL_BRIDGE_ERROR,
                message != null ? message : "the library returned no message",
                Json.object(error.get("details")),
                events);
    }

    /** The stable error code, one of {@link ErrorCodes}. */
    public String code() {
        return code;
    }

    /** Further members of the error, depending on the code; may be empty. Not serialized. */
    public Map<String, Object> details() {
        return details != null ? details : Map.of();
    }

    /**
     * The events of a failed {@link LlbChat#open open}, in order; otherwise empty. Not serialized.
     */
    public List<String> events() {
        return events != null ? events : List.of();
    }
}
