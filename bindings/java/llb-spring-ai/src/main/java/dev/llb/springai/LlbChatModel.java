package dev.llb.springai;

import dev.llb.ChatReply;
import dev.llb.ChatRequest;
import dev.llb.LlbModel;
import io.micrometer.observation.Observation;
import io.micrometer.observation.ObservationRegistry;
import io.micrometer.observation.contextpropagation.ObservationThreadLocalAccessor;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import org.springframework.ai.chat.model.ChatModel;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.model.MessageAggregator;
import org.springframework.ai.chat.observation.ChatModelObservationContext;
import org.springframework.ai.chat.observation.ChatModelObservationConvention;
import org.springframework.ai.chat.observation.ChatModelObservationDocumentation;
import org.springframework.ai.chat.observation.DefaultChatModelObservationConvention;
import org.springframework.ai.chat.prompt.Prompt;
import reactor.core.publisher.Flux;
import reactor.core.publisher.FluxSink;

/**
 * A local model for Spring AI. The owner of the {@link LlbModel} must close it.
 *
 * <p>May be used by any number of threads; {@link LlbModel} says how many requests run together.
 * Spring AI's {@code ChatClient} runs the tools; a reply of this class contains the calls. Failures
 * are {@link dev.llb.LlbException}. A part of a prompt that llb cannot carry, such as an image, is
 * an {@code IllegalArgumentException}. The options of a prompt replace those of the model one by
 * one.
 *
 * <p>Reasoning is in the metadata of the message, as {@code reasoningContent}.
 */
public final class LlbChatModel implements ChatModel {

    /** The {@code gen_ai.system} of observations. */
    static final String PROVIDER = "llb";

    private static final ChatModelObservationConvention CONVENTION =
            new DefaultChatModelObservationConvention();

    private final LlbModel model;
    private final LlbChatOptions options;
    private final ObservationRegistry registry;
    private final ChatModelObservationConvention convention;

    private LlbChatModel(Builder builder) {
        model = builder.model;
        options = LlbChatOptions.builder().model(model.name()).build()
                .overriddenBy(builder.options);
        Prompts.requireModelName(options, model.name());
        registry = builder.registry;
        convention = builder.convention;
    }

    /** Returns a builder for a chat model on an open model, which chat models may share. */
    public static Builder builder(LlbModel model) {
        return new Builder(model);
    }

    @Override
    public LlbChatOptions getOptions() {
        return options;
    }

    @Override
    public ChatResponse call(Prompt prompt) {
        Prompt full = withDefaults(prompt);
        ChatRequest request = Prompts.convert(full, model.name());
        ChatModelObservationContext context = context(full, false);
        return observation(context).observe(() -> {
            ChatResponse response = Responses.convert(model.infer(request), model.name());
            context.setResponse(response);
            return response;
        });
    }

    /**
     * Streams pieces of text as they are generated, each in a separate response. Pieces of
     * reasoning and tool calls are in the metadata of the generation: {@code reasoningDelta}, a
     * string, and {@code toolCallDeltas}, a list of {@link dev.llb.ChatChunk.ToolCallDelta}. The
     * last response has the whole tool calls and reasoning, the finish reason and the usage.
     *
     * <p>Each subscription starts a separate generation on its own thread. It does not wait for
     * demand. Cancelling the subscription ends it.
     */
    @Override
    public Flux<ChatResponse> stream(Prompt prompt) {
        Prompt full = withDefaults(prompt);
        ChatRequest request = Prompts.convert(full, model.name());
        return Flux.deferContextual(subscriber -> {
            ChatModelObservationContext context = context(full, true);
            Observation observation = observation(context);
            observation.parentObservation(
                    subscriber.getOrDefault(ObservationThreadLocalAccessor.KEY, null));
            observation.start();
            Flux<ChatResponse> responses =
                    Flux.<ChatResponse>create(sink -> generate(request, sink))
                    .doOnError(observation::error)
                    .contextWrite(c -> c.put(ObservationThreadLocalAccessor.KEY, observation));
            // The observation contains the whole response, and ends before the subscriber is
            // notified of the end.
            return new MessageAggregator().aggregate(responses, context::setResponse)
                    .doOnTerminate(observation::stop)
                    .doOnCancel(observation::stop);
        });
    }

    private void generate(ChatRequest request, FluxSink<ChatResponse> sink) {
        Responses.Chunks chunks = new Responses.Chunks(model.name());
        CompletableFuture<ChatReply> reply =
                model.streamAsync(request, chunk -> chunks.convert(chunk).ifPresent(sink::next));
        sink.onCancel(() -> reply.cancel(true));
        reply.whenComplete((whole, failure) -> {
            if (sink.isCancelled()) {
                return;
            }
            if (failure != null) {
                sink.error(failure);
            } else if (whole != null) {
                sink.next(chunks.last(whole));
                sink.complete();
            }
        });
    }

    private Prompt withDefaults(Prompt prompt) {
        LlbChatOptions full =
                prompt.getOptions() == null ? options : options.overriddenBy(prompt.getOptions());
        return prompt.mutate().chatOptions(full).build();
    }

    private static ChatModelObservationContext context(Prompt prompt, boolean streaming) {
        return ChatModelObservationContext.builder()
                .prompt(prompt)
                .provider(PROVIDER)
                .streaming(streaming)
                .build();
    }

    private Observation observation(ChatModelObservationContext context) {
        return ChatModelObservationDocumentation.CHAT_MODEL_OPERATION.observation(
                convention, CONVENTION, () -> context, registry);
    }

    /** Builds {@link LlbChatModel}. Not thread-safe. */
    public static final class Builder {

        private final LlbModel model;
        private LlbChatOptions options = LlbChatOptions.builder().build();
        private ObservationRegistry registry = ObservationRegistry.NOOP;
        private ChatModelObservationConvention convention = CONVENTION;

        private Builder(LlbModel model) {
            this.model = Objects.requireNonNull(model, "model");
        }

        /** Options for prompts that omit them. */
        public Builder options(LlbChatOptions options) {
            this.options = Objects.requireNonNull(options, "options");
            return this;
        }

        /** Observes each request, with the names of OpenTelemetry's GenAI conventions. */
        public Builder observationRegistry(ObservationRegistry registry) {
            this.registry = Objects.requireNonNull(registry, "registry");
            return this;
        }

        /** Replaces the names of the observations. */
        public Builder observationConvention(ChatModelObservationConvention convention) {
            this.convention = Objects.requireNonNull(convention, "convention");
            return this;
        }

        public LlbChatModel build() {
            return new LlbChatModel(this);
        }
    }
}
