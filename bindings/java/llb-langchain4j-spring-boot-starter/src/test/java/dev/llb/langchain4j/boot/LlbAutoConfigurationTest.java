package dev.llb.langchain4j.boot;

import static org.assertj.core.api.Assertions.assertThat;

import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.model.TokenCountEstimator;
import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.langchain4j.model.chat.listener.ChatModelResponseContext;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.output.FinishReason;
import dev.llb.LlbException;
import dev.llb.LlbModel;
import dev.llb.langchain4j.LlbChatModel;
import dev.llb.langchain4j.LlbChatRequestParameters;
import dev.llb.scripted.TestModels;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.diagnostics.FailureAnalysis;
import org.springframework.boot.diagnostics.FailureAnalyzer;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.core.io.support.SpringFactoriesLoader;

/** Tests programs with the starter, on scripted models. */
class LlbAutoConfigurationTest {

    private final ApplicationContextRunner program = new ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(LlbAutoConfiguration.class));

    private ApplicationContextRunner on(String file) {
        return program.withPropertyValues("langchain4j.llb.model=" + TestModels.scripted(file));
    }

    @Test
    void aModelIsOpenedWithItsProperties() {
        on("long.gguf").withPropertyValues(
                        "langchain4j.llb.parallel=2",
                        "langchain4j.llb.context-length=512",
                        "langchain4j.llb.threads=1",
                        "langchain4j.llb.tool-policy=any",
                        "langchain4j.llb.chat-model.temperature=0",
                        "langchain4j.llb.chat-model.top-p=0.5",
                        "langchain4j.llb.chat-model.top-k=3",
                        "langchain4j.llb.chat-model.seed=7",
                        "langchain4j.llb.chat-model.stop=never,ever",
                        "langchain4j.llb.chat-model.timeout=90s",
                        "langchain4j.llb.chat-model.max-output-tokens=3")
                .run(context -> {
                    assertThat(context.getBean(LlbModel.class).options().values())
                            .containsEntry("n_parallel", 2)
                            .containsEntry("n_ctx", 512)
                            .containsEntry("n_threads", 1)
                            .containsEntry("tool_policy", "any");
                    LlbChatRequestParameters defaults =
                            context.getBean(LlbChatModel.class).defaultRequestParameters();
                    assertThat(defaults.temperature()).isEqualTo(0.0);
                    assertThat(defaults.topP()).isEqualTo(0.5);
                    assertThat(defaults.topK()).isEqualTo(3);
                    assertThat(defaults.stopSequences()).isEqualTo(List.of("never", "ever"));
                    assertThat(defaults).isEqualTo(LlbChatRequestParameters.builder()
                            .overrideWith(defaults)
                            .seed(7)
                            .timeout(Duration.ofSeconds(90))
                            .build());
                    ChatResponse reply =
                            context.getBean(ChatModel.class).chat(UserMessage.from("hi"));
                    assertThat(reply.finishReason()).isEqualTo(FinishReason.LENGTH);
                    assertThat(reply.tokenUsage().outputTokenCount()).isEqualTo(3);
                });
    }

    @Test
    void allModelsShareTheWeights() {
        on("text.gguf").run(context -> {
            String text = context.getBean(ChatModel.class).chat("hi");
            CompletableFuture<String> streamed = new CompletableFuture<>();
            context.getBean(StreamingChatModel.class).chat("hi", new StreamingChatResponseHandler() {
                @Override
                public void onCompleteResponse(ChatResponse response) {
                    streamed.complete(response.aiMessage().text());
                }

                @Override
                public void onError(Throwable error) {
                    streamed.completeExceptionally(error);
                }
            });
            assertThat(streamed.get(60, TimeUnit.SECONDS)).isEqualTo(text).isNotEmpty();
            assertThat(context.getBean(TokenCountEstimator.class).estimateTokenCountInText(text))
                    .isPositive();
            assertThat(context).hasSingleBean(LlbModel.class);
        });
    }

    @Test
    void listenersAreBeans() {
        AtomicInteger responses = new AtomicInteger();
        ChatModelListener listener = new ChatModelListener() {
            @Override
            public void onResponse(ChatModelResponseContext response) {
                responses.incrementAndGet();
            }
        };
        on("text.gguf").withBean(ChatModelListener.class, () -> listener).run(context -> {
            context.getBean(ChatModel.class).chat("hi");
            assertThat(responses).hasValue(1);
        });
    }

    @Test
    void theModelMayBeABeanOfTheProgram() {
        program.withBean(LlbModel.class, () -> LlbModel.open(TestModels.scripted("text.gguf")))
                .run(context -> assertThat(context.getBean(ChatModel.class).chat("hi"))
                        .isNotEmpty());
    }

    @Test
    void withoutAModelThereAreNoBeans() {
        program.run(context -> assertThat(context)
                .hasNotFailed()
                .doesNotHaveBean(LlbModel.class)
                .doesNotHaveBean(ChatModel.class));
    }

    @Test
    void aFailureSaysWhatToChange() {
        program.withPropertyValues("langchain4j.llb.model=/nowhere.gguf").run(context -> {
            FailureAnalysis analysis =
                    new LlbFailureAnalyzer().analyze(context.getStartupFailure());
            assertThat(analysis.getDescription()).contains("MODEL_NOT_FOUND", "/nowhere.gguf");
            assertThat(analysis.getAction()).startsWith("Set langchain4j.llb.model to the path");
        });
    }

    /** The properties of the starter would not help. */
    @Test
    void aFailureOfTheProgramIsNotExplained() {
        program.withBean(LlbModel.class, () -> LlbModel.open(Path.of("/nowhere.gguf")))
                .run(context -> {
                    Throwable failure = context.getStartupFailure();
                    assertThat(failure).hasRootCauseInstanceOf(LlbException.class);
                    assertThat(new LlbFailureAnalyzer().analyze(failure)).isNull();
                });
    }

    @Test
    void theAnalyzerIsRegistered() {
        assertThat(SpringFactoriesLoader.forDefaultResourceLocation()
                .load(FailureAnalyzer.class, (type, name, failure) -> {}))
                .hasAtLeastOneElementOfType(LlbFailureAnalyzer.class);
    }

    @Test
    void aShutdownClosesTheModel() {
        LlbModel[] model = new LlbModel[1];
        on("text.gguf").run(context -> model[0] = context.getBean(LlbModel.class));
        assertThat(model[0].isOpen()).isFalse();
    }
}
