package dev.llb.springai.boot;

import dev.llb.LlbModel;
import java.time.Duration;
import org.springframework.context.SmartLifecycle;

/**
 * Closes the model at the end of the program. It stops after the web server, which waits for its
 * own requests. It then waits for requests that are still running, and finally cancels them.
 */
final class LlbShutdown implements SmartLifecycle {

    /**
     * Lower than the phases of Spring Boot's web server, which go down to 2048 below the default.
     */
    private static final int PHASE = DEFAULT_PHASE - 4096;

    private final LlbModel model;
    private final Duration grace;
    private volatile boolean running;

    LlbShutdown(LlbModel model, Duration grace) {
        this.model = model;
        this.grace = grace;
    }

    @Override
    public void start() {
        running = true;
    }

    @Override
    public void stop() {
        model.close(grace);
        running = false;
    }

    @Override
    public boolean isRunning() {
        return running;
    }

    /** A paused test context keeps its model. */
    @Override
    public boolean isPauseable() {
        return false;
    }

    @Override
    public int getPhase() {
        return PHASE;
    }
}
