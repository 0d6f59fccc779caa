package dev.llb;

import java.util.Map;

/**
 * How long one reply took: milliseconds, and tokens per second, for the prompt and for what was generated.
 */
public record Timings(double promptMs, double predictedMs, double promptPerSecond, double predictedPerSecond) {

    static Timings of(Map<String, Object> timings) {
        return new Timings(
                Json.real(timings.get("prompt_ms")),
                Json.real(timings.get("predicted_ms")),
                Json.real(timings.get("prompt_per_second")),
                Json.real(timings.get("predicted_per_second")));
    }
}
