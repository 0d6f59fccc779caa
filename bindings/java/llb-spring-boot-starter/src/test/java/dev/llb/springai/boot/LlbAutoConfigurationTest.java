package dev.llb.springai.boot;

import static org.assertj.core.api.Assertions.assertThat;

import dev.llb.ChatReply;
import dev.llb.ChatRequest;
import dev.llb.LlbEmbedder;
import dev.llb.LlbException;
import dev.llb.LlbModel;
import dev.llb.scripted.ScriptedServer;
import dev.llb.scripted.TestModels;
import dev.llb.springai.LlbChatModel;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.model.ChatModel;
import org.springframework.ai.embedding.EmbeddingModel;
import org.springframework.ai.model.chat.client.autoconfigure.ChatClientAutoConfiguration;
import org.springframework.ai.model.tool.autoconfigure.ToolCallingAutoConfiguration;
import org.springframework.boot.actuate.info.Info;
import org.springframework.boot.actuate.info.InfoContributor;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.diagnostics.FailureAnalysis;
import org.springframework.boot.diagnostics.FailureAnalyzer;
import org.springframework.boot.health.contributor.HealthIndicator;
import org.springframework.boot.health.contributor.Status;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.core.io.support.SpringFactoriesLoader;

/** Tests programs with the starter, on scripted models. */
class LlbAutoConfigurationTest {

    private final ApplicationContextRunner program = new ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(
                    LlbAutoConfiguration.class,
                    LlbEmbeddingAutoConfiguration.class,
                    LlbHealthAutoConfiguration.class,
                    LlbInfoAutoConfiguration.class,
                    ToolCallingAutoConfiguration.class,
                    ChatClientAutoConfiguration.class));

    private ApplicationContextRunner on(String file) {
        return program.withPropertyValues("spring.ai.llb.model=" + TestModels.scripted(file));
    }

    @Test
    void aModelIsOpenedWithItsOptions() {
        on("long.gguf").withPropertyValues(
                        "spring.ai.llb.parallel=2",
                        "spring.ai.llb.context-length=512",
                        "spring.ai.llb.options.n-batch=128",
                        "spring.ai.llb.options.flash-attn=auto",
                        "spring.ai.llb.options.use-mmap=true",
                        "spring.ai.llb.chat.temperature=0",
                        "spring.ai.llb.chat.max-tokens=3",
                        "spring.ai.llb.chat.options.top-n-sigma=1.5")
                .run(context -> {
                    Map<String, Object> values = context.getBean(LlbModel.class).options().values();
                    assertThat(values)
                            .containsEntry("n_parallel", 2)
                            .containsEntry("n_ctx", 512)
                            .containsEntry("n_batch", 128L)
                            .containsEntry("flash_attn", "auto")
                            .containsEntry("use_mmap", true);
                    LlbChatModel model = context.getBean(LlbChatModel.class);
                    assertThat(context.getBean(ChatModel.class)).isSameAs(model);
                    assertThat(model.getOptions().getOptions())
                            .isEqualTo(Map.of("top_n_sigma", 1.5));
                    String text = context.getBean(ChatClient.Builder.class).build()
                            .prompt("hi").call().chatResponse().getResult().getMetadata()
                            .getFinishReason();
                    assertThat(text).isEqualTo("length");
                });
    }

    @Test
    void aModelMakesVectors() {
        program.withPropertyValues(
                        "spring.ai.model.chat=none",
                        "spring.ai.llb.embedding.model=" + TestModels.scripted("embedding.gguf"),
                        "spring.ai.llb.embedding.prefix=the ",
                        "spring.ai.llb.embedding.pooling=cls",
                        "spring.ai.llb.embedding.options.n-threads=1")
                .run(context -> {
                    assertThat(context).doesNotHaveBean(LlbModel.class);
                    float[] vector = context.getBean(EmbeddingModel.class).embed("cat sits");
                    assertThat(vector).hasSize(32);
                    String reply = context.getBean(LlbEmbedder.class)
                            .embedJson("{\"input\":\"the cat sits\"}");
                    assertThat(reply).contains("\"pooling\":\"cls\"");
                });
        on("text.gguf").run(context -> assertThat(context).doesNotHaveBean(EmbeddingModel.class));
    }

    @Test
    void aRemoteEngineNeedsNoFile() {
        try (ScriptedServer server = new ScriptedServer()) {
            server.say(List.of("Hello World"));
            program.withPropertyValues(server.springProperties().toArray(String[]::new))
                    .run(context -> assertThat(context.getBean(ChatModel.class).call("hi"))
                            .isEqualTo("Hello World"));
        }
    }

    @Test
    void healthAndInfo() {
        on("text.gguf").run(context -> {
            HealthIndicator health = context.getBean(HealthIndicator.class);
            assertThat(health.health().getStatus()).isEqualTo(Status.UP);
            Info.Builder info = new Info.Builder();
            context.getBean("llbInfoContributor", InfoContributor.class).contribute(info);
            Map<?, ?> llb = (Map<?, ?>) info.build().get("llb");
            assertThat((String) llb.get("version")).startsWith("llb ");
            Map<?, ?> file = (Map<?, ?>) llb.get("model_info");
            assertThat(file.get("architecture")).isNotNull();
            assertThat(file.get("supports_tools")).isEqualTo(true);
            context.getBean(LlbModel.class).close();
            assertThat(health.health().getStatus()).isEqualTo(Status.OUT_OF_SERVICE);
        });
    }

    /** The only chat of the pool is busy. */
    @Test
    void healthWaitsForNoRequest() {
        on("text.gguf").withPropertyValues("spring.ai.llb.parallel=1").run(context -> {
            HealthIndicator health = context.getBean(HealthIndicator.class);
            Status status = context.getBean(LlbModel.class)
                    .with(chat -> health.health().getStatus());
            assertThat(status).isEqualTo(Status.UP);
        });
    }

    private CompletableFuture<ChatReply> shutDownWhileRunning(ChatRequest request, String grace) {
        AtomicReference<CompletableFuture<ChatReply>> reply = new AtomicReference<>();
        on("text.gguf").withPropertyValues(
                "spring.ai.llb.shutdown-grace=" + grace,
                "spring.ai.llb.options.context-overflow=shift").run(context -> {
            LlbModel model = context.getBean(LlbModel.class);
            CountDownLatch running = new CountDownLatch(1);
            reply.set(model.streamAsync(request, chunk -> {
                running.countDown();
                // Wait until the shutdown has begun.
                while (model.isOpen()) {
                    Thread.onSpinWait();
                }
            }));
            assertThat(running.await(60, TimeUnit.SECONDS)).isTrue();
        });
        return reply.get();
    }

    @Test
    void aShutdownWaitsForRequests() throws Exception {
        ChatRequest request = ChatRequest.of("hi");
        ChatReply reply = shutDownWhileRunning(request, "60s").get(60, TimeUnit.SECONDS);
        assertThat(reply.finishReason()).hasToString("stop");
    }

    @Test
    void aShutdownCancelsRequestsAtLast() throws Exception {
        ChatRequest endless = ChatRequest.builder()
                .user("hi")
                .maxTokens(Integer.MAX_VALUE)
                .set("logit_bias", Map.of("97", 100))
                .build();
        ChatReply reply = shutDownWhileRunning(endless, "0s").get(60, TimeUnit.SECONDS);
        assertThat(reply.finishReason()).hasToString("cancelled");
    }

    @Test
    void aModelIsNeededOnlyIfThisOneIsUsed() {
        program.run(context -> assertThat(context.getStartupFailure())
                .rootCause().hasMessageContaining("spring.ai.llb.model is not set"));
        program.withPropertyValues("spring.ai.model.chat=openai")
                .run(context -> assertThat(context).doesNotHaveBean(LlbModel.class));
    }

    @Test
    void aFailureSaysWhatToChange() {
        program.withPropertyValues("spring.ai.llb.model=/nowhere.gguf").run(context -> {
            FailureAnalysis analysis =
                    new LlbFailureAnalyzer().analyze(context.getStartupFailure());
            assertThat(analysis.getDescription()).contains("MODEL_NOT_FOUND", "/nowhere.gguf");
            assertThat(analysis.getAction()).startsWith("Set spring.ai.llb.model to the path");
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
    void aModelThatIsNeverPulledMustBeCached(@TempDir Path cache) {
        program.withPropertyValues(
                        "spring.ai.llb.model=hf:org/name",
                        "spring.ai.llb.cache-dir=" + cache,
                        "spring.ai.llb.pull-strategy=never")
                .run(context -> assertThat(context.getStartupFailure())
                        .rootCause()
                        .isInstanceOfSatisfying(
                                LlbException.class,
                                e -> assertThat(e.code()).isEqualTo("OFFLINE")));
    }

    @Test
    void thePropertiesHaveMetadata() throws IOException {
        String file = "META-INF/spring-configuration-metadata.json";
        try (InputStream in = LlbProperties.class.getClassLoader().getResourceAsStream(file)) {
            assertThat(new String(in.readAllBytes(), StandardCharsets.UTF_8))
                    .contains("\"spring.ai.llb.pull-strategy\"")
                    .contains("Path of a GGUF file, or hf:org\\/name")
                    .contains("\"spring.ai.llb.chat.max-tokens\"");
        }
    }
}
