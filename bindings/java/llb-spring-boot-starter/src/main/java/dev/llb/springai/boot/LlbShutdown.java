package dev.llb.springai.boot;

import dev.llb.LlbModel;
import java.time.Duration;
import org.springframework.beans.factory.DisposableBean;

/**
 * Closes the model when the program ends, after the web server, and before the bean of the model is
 * destroyed: waits for requests that are still running, and then cancels them.
 */
record LlbShutdown(LlbModel model, Duration grace) implements DisposableBean {

    @Override
    public void destroy() {
        model.close(grace);
    }
}
