package dev.llb.langchain4j;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.agent.tool.ToolSpecification;
import dev.langchain4j.data.message.AiMessage;
import dev.langchain4j.data.message.ChatMessage;
import dev.langchain4j.data.message.ToolExecutionResultMessage;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.data.message.VideoContent;
import dev.langchain4j.exception.InvalidRequestException;
import dev.langchain4j.exception.LangChain4jException;
import dev.langchain4j.exception.ModelNotFoundException;
import dev.langchain4j.exception.UnsupportedFeatureException;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.langchain4j.model.chat.request.ToolChoice;
import dev.langchain4j.model.chat.request.json.JsonObjectSchema;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.chat.response.PartialResponse;
import dev.langchain4j.model.chat.response.PartialResponseContext;
import dev.langchain4j.model.chat.response.PartialThinking;
import dev.langchain4j.model.chat.response.PartialToolCall;
import dev.langchain4j.model.chat.response.CompleteToolCall;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.chat.response.StreamingHandle;
import dev.langchain4j.model.output.FinishReason;
import dev.langchain4j.model.output.TokenUsage;
import dev.llb.ChatOptions;
import dev.llb.LlbException;
import dev.llb.LlbModel;
import dev.llb.scripted.TestModels;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Tests of the models on scripted files that LangChain4j's suites do not contain. */
class ModelsTest {

    /** Records what a handler receives. */
    private static class Recorder implements StreamingChatResponseHandler {

        final List<String> events = Collections.synchronizedList(new ArrayList<>());
        final StringBuffer thinking = new StringBuffer();
        final StringBuffer text = new StringBuffer();
        final CompletableFuture<ChatResponse> response = new CompletableFuture<>();

        @Override
        public void onPartialResponse(PartialResponse piece, PartialResponseContext context) {
            text.append(piece.text());
        }

        @Override
        public void onPartialThinking(PartialThinking piece) {
            thinking.append(piece.text());
        }

        @Override
        public void onPartialToolCall(PartialToolCall piece) {
            events.add("partial " + piece.name());
        }

        @Override
        public void onCompleteToolCall(CompleteToolCall call) {
            events.add("complete " + call.toolExecutionRequest().arguments());
        }

        @Override
        public void onCompleteResponse(ChatResponse complete) {
            response.complete(complete);
        }

        @Override
        public void onError(Throwable error) {
            response.completeExceptionally(error);
        }

        ChatResponse await() throws Exception {
            return response.get(60, TimeUnit.SECONDS);
        }
    }

    private static LlbChatModel open(String file) {
        return LlbChatModel.builder().modelPath(TestModels.scripted(file)).temperature(0.0).build();
    }

    private static LlbStreamingChatModel openStreaming(String file) {
        return LlbStreamingChatModel.builder()
                .modelPath(TestModels.scripted(file))
                .temperature(0.0)
                .build();
    }

    @Test
    void usageHasTheCachedTokens() {
        try (LlbChatModel model = open("text.gguf")) {
            ChatRequest request =
                    ChatRequest.builder().messages(UserMessage.from("hi there")).build();
            TokenUsage first = model.chat(request).tokenUsage();
            TokenUsage second = model.chat(request).tokenUsage();
            assertThat(second).isInstanceOf(LlbTokenUsage.class);
            assertThat(((LlbTokenUsage) second).cachedTokens()).isPositive();
            LlbTokenUsage sum = (LlbTokenUsage) first.add(second);
            assertThat(sum.inputTokenCount())
                    .isEqualTo(first.inputTokenCount() + second.inputTokenCount());
            assertThat(sum.cachedTokens())
                    .isEqualTo(((LlbTokenUsage) first).cachedTokens()
                            + ((LlbTokenUsage) second).cachedTokens());
            assertThat(new TokenUsage(1, 1).add(second)).isInstanceOf(LlbTokenUsage.class);
        }
    }

    @Test
    void theBuilderSetsDefaults() {
        try (LlbModel shared = LlbModel.open(TestModels.scripted("long.gguf"));
                LlbChatModel model = LlbChatModel.builder()
                        .model(shared)
                        .topK(5)
                        .topP(0.5)
                        .seed(7)
                        .stop(List.of("END"))
                        .maxOutputTokens(3)
                        .timeout(Duration.ofMinutes(5))
                        .build()) {
            dev.llb.ChatRequest converted = Requests.convert(
                    ChatRequest.builder()
                            .messages(UserMessage.from("hi"))
                            .parameters(model.defaultRequestParameters())
                            .build(),
                    "long");
            assertThat(converted.options())
                    .containsEntry("top_k", 5)
                    .containsEntry("top_p", 0.5)
                    .containsEntry("seed", 7L)
                    .containsEntry("stop", List.of("END"))
                    .containsEntry("timeout_ms", 300_000L);
            ChatResponse response = model.chat(UserMessage.from("hi"));
            assertThat(response.finishReason()).isEqualTo(FinishReason.LENGTH);
            assertThat(((LlbChatResponseMetadata) response.metadata()).ignoredKeys()).isEmpty();
        }
    }

    @Test
    void tokensAreCountedAsByTheModel() {
        try (LlbModel shared = LlbModel.open(TestModels.scripted("text.gguf"));
                LlbChatModel model = LlbChatModel.builder().model(shared).build()) {
            LlbTokenCountEstimator estimator = new LlbTokenCountEstimator(shared);
            UserMessage message = UserMessage.from("hi there");
            int prompt = model.chat(message).tokenUsage().inputTokenCount();
            assertThat(estimator.estimateTokenCountInMessages(List.of(message)))
                    .isEqualTo(prompt);
            int text = estimator.estimateTokenCountInText("hi there");
            assertThat(text).isPositive().isLessThan(prompt);
            assertThat(estimator.estimateTokenCountInMessage(message)).isEqualTo(text);
            assertThat(estimator.estimateTokenCountInMessages(List.of())).isZero();
        }
    }

    @Test
    void theMetadataOfAReply() throws Exception {
        ChatRequest request = ChatRequest.builder()
                .messages(UserMessage.from("hi"))
                .parameters(LlbChatRequestParameters.builder().option("temprature", 1).build())
                .build();
        try (LlbModel shared = LlbModel.open(TestModels.scripted("text.gguf"));
                LlbChatModel model = LlbChatModel.builder().model(shared).build();
                LlbStreamingChatModel streaming =
                        LlbStreamingChatModel.builder().model(shared).build()) {
            Recorder recorder = new Recorder();
            streaming.chat(request, recorder);
            for (ChatResponse response : List.of(model.chat(request), recorder.await())) {
                LlbChatResponseMetadata metadata = (LlbChatResponseMetadata) response.metadata();
                assertThat(metadata.ignoredKeys()).containsExactly("temprature");
                assertThat(metadata.timings().predictedMs()).isPositive();
                assertThat(metadata.toBuilder().build()).isEqualTo(metadata);
            }
        }
    }

    @Test
    void aForcedChoiceHoldsUntilTheFirstResults() {
        LlbChatRequestParameters required = LlbChatRequestParameters.builder()
                .toolChoice(ToolChoice.REQUIRED)
                .build();
        ToolExecutionRequest call = ToolExecutionRequest.builder()
                .id("a").name("get_weather").arguments("{\"city\":\"Paris\"}").build();
        ToolSpecification tool = ToolSpecification.builder().name("get_weather").build();
        List<ChatMessage> messages =
                new ArrayList<>(List.of(UserMessage.from("Paris?"), AiMessage.from(call)));
        assertThat(choice(messages, required, tool)).isEqualTo("required");
        messages.add(ToolExecutionResultMessage.from(call, "sunny"));
        assertThat(choice(messages, required, tool)).isNull();
        messages.add(AiMessage.from("It is sunny."));
        messages.add(UserMessage.from("Rome?"));
        assertThat(choice(messages, required, tool)).isEqualTo("required");
    }

    private static Object choice(
            List<ChatMessage> messages, LlbChatRequestParameters parameters, ToolSpecification tool) {
        ChatRequest request = ChatRequest.builder()
                .messages(messages)
                .parameters(parameters.overrideWith(
                        ChatRequestParameters.builder().toolSpecifications(tool).build()))
                .build();
        return Requests.convert(request, "text").options().get("tool_choice");
    }

    @Test
    void thinking() throws Exception {
        Path file = TestModels.scripted("reasoning.gguf");
        ChatOptions options = ChatOptions.builder(file).toolPolicy("any").build();
        try (LlbModel shared = LlbModel.open(options);
                LlbChatModel model = LlbChatModel.builder().model(shared).build();
                LlbStreamingChatModel streaming =
                        LlbStreamingChatModel.builder().model(shared).build()) {
            ChatResponse whole = model.chat(UserMessage.from("hi"));
            assertThat(whole.aiMessage().thinking()).isNotBlank();
            Recorder recorder = new Recorder();
            streaming.chat("hi", recorder);
            ChatResponse streamed = recorder.await();
            assertThat(recorder.thinking.toString()).isEqualTo(streamed.aiMessage().thinking());
            assertThat(recorder.text.toString()).isEqualTo(streamed.aiMessage().text());
            // A reply with thinking can be sent back as part of the conversation.
            assertThat(
                    model.chat(UserMessage.from("hi"), whole.aiMessage(), UserMessage.from("and?"))
                            .finishReason())
                    .isEqualTo(FinishReason.STOP);
        }
    }

    @Test
    void aCallThatIsCutOffIsNotComplete() throws Exception {
        ToolSpecification tool = ToolSpecification.builder()
                .name("get_weather")
                .parameters(JsonObjectSchema.builder().addStringProperty("city").build())
                .build();
        ChatRequest.Builder request = ChatRequest.builder()
                .messages(UserMessage.from("weather in Paris?"))
                .toolSpecifications(tool);
        try (LlbStreamingChatModel model = openStreaming("tool_call.gguf")) {
            Recorder whole = new Recorder();
            model.chat(request.build(), whole);
            int tokens = whole.await().tokenUsage().outputTokenCount();
            assertThat(whole.events).contains("partial get_weather")
                    .endsWith("complete {\"city\": \"Paris\"}");
            int begun = 0;
            for (int most = 1; most < tokens; most++) {
                Recorder cut = new Recorder();
                model.chat(request.maxOutputTokens(most).build(), cut);
                int calls = cut.await().aiMessage().toolExecutionRequests().size();
                assertThat(cut.events.stream().filter(event -> event.startsWith("complete"))
                        .count())
                        .isEqualTo(calls);
                begun += calls == 0 && cut.events.contains("partial get_weather") ? 1 : 0;
            }
            assertThat(begun).isPositive();
        }
    }

    @Test
    void cancelEndsTheGeneration() throws Exception {
        try (LlbStreamingChatModel model = openStreaming("long.gguf")) {
            CountDownLatch cancelled = new CountDownLatch(1);
            StreamingHandle[] handle = new StreamingHandle[1];
            Recorder recorder = new Recorder() {
                @Override
                public void onPartialResponse(PartialResponse piece,
                        PartialResponseContext context) {
                    super.onPartialResponse(piece, context);
                    handle[0] = context.streamingHandle();
                    handle[0].cancel();
                    cancelled.countDown();
                }
            };
            model.chat(ChatRequest.builder()
                    .messages(UserMessage.from("hi"))
                    .maxOutputTokens(100_000)
                    .build(), recorder);
            assertThat(cancelled.await(60, TimeUnit.SECONDS)).isTrue();
            assertThat(handle[0].isCancelled()).isTrue();
            // The next request runs immediately, so the cancelled one has ended.
            Recorder next = new Recorder();
            model.chat(ChatRequest.builder()
                    .messages(UserMessage.from("hi"))
                    .maxOutputTokens(3)
                    .build(), next);
            assertThat(next.await().finishReason()).isEqualTo(FinishReason.LENGTH);
            assertThat(recorder.response).isNotDone();
            handle[0].cancel();
        }
    }

    @Test
    void failuresAreThoseOfLangChain4j() throws Exception {
        assertThatThrownBy(() -> LlbChatModel.builder().modelPath(Path.of("/nowhere.gguf")).build())
                .isExactlyInstanceOf(ModelNotFoundException.class)
                .hasCauseExactlyInstanceOf(LlbException.class);
        LlbChatModel model = open("text.gguf");
        assertThatThrownBy(() -> model.chat("x ".repeat(20_000)))
                .isExactlyInstanceOf(InvalidRequestException.class)
                .hasMessageContaining("CONTEXT_OVERFLOW");
        assertThatThrownBy(() -> model.chat(UserMessage.from(VideoContent.from("http://x/y.mp4"))))
                .isExactlyInstanceOf(UnsupportedFeatureException.class)
                .hasMessageContaining("video");
        model.close();
        model.close();
        assertThatThrownBy(() -> model.chat("hi"))
                .isInstanceOf(LangChain4jException.class)
                .hasMessageContaining("ENGINE_CLOSED");
        assertThatThrownBy(() -> LlbChatModel.builder().build())
                .isInstanceOf(IllegalArgumentException.class)
                .hasMessageContaining("modelPath");
    }
}
