package dev.llb.springai.boot;

import dev.llb.ChatRequest;
import dev.llb.LlbChat;
import dev.llb.LlbModel;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.health.autoconfigure.contributor.ConditionalOnEnabledHealthIndicator;
import org.springframework.boot.health.contributor.AbstractHealthIndicator;
import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;
import org.springframework.context.annotation.Bean;

/** The health of the model, as {@code llb}. */
@AutoConfiguration(after = LlbAutoConfiguration.class)
@ConditionalOnClass({HealthIndicator.class, ConditionalOnEnabledHealthIndicator.class})
@ConditionalOnBean(LlbModel.class)
@ConditionalOnEnabledHealthIndicator("llb")
public class LlbHealthAutoConfiguration {

    @Bean
    @ConditionalOnMissingBean(name = "llbHealthIndicator")
    HealthIndicator llbHealthIndicator(LlbModel model) {
        return new Indicator(model);
    }

    /** Has the model tokenize a prompt, on a separate chat, so that no request delays the check. */
    private static final class Indicator extends AbstractHealthIndicator implements AutoCloseable {

        private final LlbModel model;
        private @Nullable LlbChat chat;

        Indicator(LlbModel model) {
            super("the model does not answer");
            this.model = model;
        }

        @Override
        protected synchronized void doHealthCheck(Health.Builder builder) {
            builder.withDetail("model", model.name());
            if (!model.isOpen()) {
                builder.outOfService();
                return;
            }
            if (chat == null) {
                chat = model.chat();
            }
            chat.explain(ChatRequest.of("hi"));
            builder.up();
        }

        @Override
        public synchronized void close() {
            if (chat != null) {
                chat.close();
            }
        }
    }
}
