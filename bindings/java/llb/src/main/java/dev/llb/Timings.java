package dev.llb;

import java.util.Map;

/**
 * The durations of one reply.
 *
 * @param promptMs milliseconds to process the prompt
 * @param predictedMs milliseconds to generate the reply
 * @param promptPerSecond prompt tokens per second
 * @param predictedPerSecond generated tokens per second
 * @param threads mean number of threads that computed, weighted by time; 0 if a server did
 */
public record Timings(
        double promptMs,
        double predictedMs,
        double promptPerSecond,
        double predictedPerSecond,
        double threads) {

    static Timings of(Map<String, Object> timings) {
        return new Timings(
                Json.decimal(timings.get("prompt_ms")),
                Json.decimal(timings.get("predicted_ms")),
                Json.decimal(timings.get("prompt_per_second")),
                Json.decimal(timings.get("predicted_per_second")),
                Json.decimal(timings.get("threads")));
    }
}
