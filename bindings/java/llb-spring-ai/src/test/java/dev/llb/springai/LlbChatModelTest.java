package dev.llb.springai;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import dev.llb.ChatChunk;
import dev.llb.ChatOptions;
import dev.llb.LlbException;
import dev.llb.LlbModel;
import dev.llb.Timings;
import dev.llb.scripted.ScriptedServer;
import dev.llb.scripted.TestModels;
import io.micrometer.observation.tck.TestObservationRegistry;
import io.micrometer.observation.tck.TestObservationRegistryAssert;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.messages.SystemMessage;
import org.springframework.ai.chat.messages.ToolResponseMessage;
import org.springframework.ai.chat.messages.UserMessage;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.prompt.Prompt;
import org.springframework.ai.content.Media;
import org.springframework.ai.converter.BeanOutputConverter;
import org.springframework.ai.model.tool.ToolCallingChatOptions;
import org.springframework.ai.support.ToolCallbacks;
import org.springframework.ai.tool.annotation.Tool;
import org.springframework.core.io.ByteArrayResource;
import org.springframework.util.MimeTypeUtils;
import reactor.core.Disposable;

/** Tests the chat model, also through Spring AI's client, on scripted models. */
class LlbChatModelTest {

    private static final ScriptedServer SERVER = new ScriptedServer();

    private static LlbModel model;

    @BeforeAll
    static void open() {
        model = SERVER.open();
    }

    @AfterAll
    static void close() {
        model.close();
        SERVER.close();
    }

    private static LlbChatModel chatModel() {
        return LlbChatModel.builder(model).build();
    }

    private static String call(String name, String arguments) {
        return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments
                + "}\n</tool_call>";
    }

    /** The tools of a test. Records the calls. */
    static final class Weather {

        final List<String> asked = new ArrayList<>();

        @Tool(description = "The current weather in a city")
        String weather(String city) {
            asked.add(city);
            return "sunny in " + city;
        }
    }

    record City(String name, List<String> rivers) {}

    @Test
    void aReplyHasTextUsageAndMetadata() {
        SERVER.say(List.of("Hello World"));
        ChatResponse response = chatModel().call(new Prompt(
                List.of(new SystemMessage("Be brief."), new UserMessage("Hi")),
                org.springframework.ai.chat.prompt.ChatOptions.builder().maxTokens(1).build()));
        assertThat(response.getResult().getOutput().getText()).isEqualTo("Hello");
        assertThat(response.getResult().getMetadata().getFinishReason()).isEqualTo("length");
        assertThat(response.getMetadata().getUsage().getCompletionTokens()).isEqualTo(1);
        assertThat(response.getMetadata().getUsage().getPromptTokens()).isEqualTo(7);
        assertThat(response.getMetadata().getModel()).isEqualTo("llb");
        assertThat(SERVER.lastPrompt()).contains("<|im_start|>system\nBe brief.");
    }

    @Test
    void aConversationWithToolsIsRendered() {
        SERVER.say(List.of("It is sunny."));
        AssistantMessage asked = AssistantMessage.builder()
                .content("")
                .toolCalls(List.of(
                        new AssistantMessage.ToolCall("a", "function", "weather",
                                "{\"city\":\"Rome\"}"),
                        new AssistantMessage.ToolCall("b", "function", "weather", "")))
                .build();
        ToolResponseMessage results = ToolResponseMessage.builder()
                .responses(List.of(
                        new ToolResponseMessage.ToolResponse("a", "weather", "25 degrees"),
                        new ToolResponseMessage.ToolResponse("b", "weather", "no city")))
                .build();
        chatModel().call(new Prompt(
                List.of(new UserMessage("Rome?"), asked, results),
                ToolCallingChatOptions.builder()
                        .toolCallbacks(ToolCallbacks.from(new Weather()))
                        .build()));
        assertThat(SERVER.lastPrompt())
                .contains("The current weather in a city")
                .contains("{\"city\":\"Rome\"}".replace(":", ": "))
                .contains("25 degrees")
                .contains("no city");
    }

    @Test
    void theClientRunsTools() {
        Weather weather = new Weather();
        SERVER.say(List.of(
                call("weather", "{\"city\": \"Paris\"}") + "\n"
                        + call("weather", "{\"city\": \"Rome\"}"),
                "Sunny in both."));
        String text =
                ChatClient.create(chatModel()).prompt("Weather?").tools(weather).call().content();
        assertThat(text).isEqualTo("Sunny in both.");
        assertThat(weather.asked).containsExactly("Paris", "Rome");
        assertThat(SERVER.lastPrompt()).contains("sunny in Rome");
    }

    @Test
    void theMetadataOfAReply() {
        SERVER.say(List.of("Hello World", "Hello World"));
        Prompt prompt = new Prompt(
                "Hi", LlbChatOptions.builder().option("temprature", 1).maxTokens(1).build());
        for (ChatResponse response :
                List.of(chatModel().call(prompt), chatModel().stream(prompt).blockLast())) {
            assertThat(response.getMetadata().<List<String>>get("ignoredKeys"))
                    .containsExactly("temprature");
            assertThat(response.getMetadata().<Timings>get("timings").promptMs())
                    .isNotNegative();
            assertThat(response.getMetadata().<List<Object>>get("diagnostics")).isNotNull();
        }
    }

    /**
     * A forced choice adds the beginning of a call to the prompt of an engine without grammars. It
     * is there until the first results, and again for the next user message.
     */
    @Test
    void aForcedChoiceHoldsUntilTheFirstResults() {
        Weather weather = new Weather();
        LlbChatOptions required = LlbChatOptions.builder().toolChoice("required").build();
        SERVER.say(List.of(call("weather", "{\"city\": \"Paris\"}"), "It is sunny."));
        ChatResponse last = ChatClient.create(chatModel())
                .prompt("Weather?").options(required.mutate()).tools(weather).call()
                .chatResponse();
        assertThat(last.getResult().getOutput().getText()).isEqualTo("It is sunny.");
        assertThat(weather.asked).containsExactly("Paris");
    }

    @Test
    void theClientRunsToolsOfAStream() {
        Weather weather = new Weather();
        SERVER.say(List.of(call("weather", "{\"city\": \"Paris\"}"), "It is sunny."));
        List<String> pieces = ChatClient.create(chatModel())
                .prompt("Weather?").tools(weather).stream().content().collectList().block();
        assertThat(String.join("", pieces)).isEqualTo("It is sunny.");
        assertThat(pieces).hasSizeGreaterThan(1);
        assertThat(weather.asked).containsExactly("Paris");
    }

    @Test
    void anEntityIsConstrainedByItsSchema() {
        SERVER.say(List.of("{\"name\": \"Paris\", \"rivers\": [\"Seine\"]}"));
        City city = ChatClient.create(chatModel())
                .prompt("Paris?")
                .call()
                .entity(City.class, spec -> spec.useProviderStructuredOutput());
        assertThat(city).isEqualTo(new City("Paris", List.of("Seine")));
        assertThat(SERVER.lastPrompt()).doesNotContain("Your response should be in JSON");
    }

    /** This real model's text is constrained while it is generated, so it fits the schema. */
    @Test
    void aSchemaBindsARealEngine() {
        try (LlbModel open = LlbModel.open(TestModels.scripted("text.gguf"))) {
            BeanOutputConverter<City> converter = new BeanOutputConverter<>(City.class);
            LlbChatModel chat = LlbChatModel.builder(open).build();
            String text = chat.call(new Prompt("Paris?", LlbChatOptions.builder()
                            .outputSchema(converter.getJsonSchema())
                            .maxTokens(400)
                            .temperature(0.0)
                            .build()))
                    .getResult().getOutput().getText();
            assertThat(text).startsWith("{").contains("\"name\"");
            LlbException e = org.junit.jupiter.api.Assertions.assertThrows(
                    LlbException.class,
                    () -> chat.call(new Prompt("a", LlbChatOptions.builder().topP(-5.0).build())));
            assertThat(e.code()).isEqualTo("INVALID_REQUEST");
        }
    }

    @Test
    void aStreamHasReasoningAndToolDeltas() {
        ChatOptions options =
                ChatOptions.builder(TestModels.scripted("reasoning.gguf")).toolPolicy("any")
                        .build();
        try (LlbModel open = LlbModel.open(options)) {
            List<ChatResponse> responses =
                    LlbChatModel.builder(open).build().stream(new Prompt("hi")).collectList()
                            .block();
            StringBuilder reasoning = new StringBuilder();
            responses.forEach(response -> reasoning.append(
                    response.getResult().getMetadata().getOrDefault("reasoningDelta", "")));
            ChatResponse last = responses.get(responses.size() - 1);
            assertThat(reasoning).isNotEmpty();
            assertThat(last.getResult().getOutput().getMetadata().get("reasoningContent"))
                    .isEqualTo(reasoning.toString());
        }
        try (LlbModel open = LlbModel.open(TestModels.scripted("tool_call.gguf"))) {
            List<ChatResponse> responses = LlbChatModel.builder(open).build().stream(new Prompt(
                            "weather?",
                            ToolCallingChatOptions.builder()
                                    .toolCallbacks(ToolCallbacks.from(new GetWeather()))
                                    .build()))
                    .collectList().block();
            StringBuilder arguments = new StringBuilder();
            for (ChatResponse response : responses) {
                List<ChatChunk.ToolCallDelta> deltas =
                        response.getResult().getMetadata()
                                .getOrDefault("toolCallDeltas", List.of());
                deltas.forEach(delta -> arguments.append(delta.arguments()));
            }
            ChatResponse last = responses.get(responses.size() - 1);
            assertThat(last.getResult().getMetadata().getFinishReason()).isEqualTo("tool_calls");
            assertThat(last.getMetadata().getUsage().getTotalTokens()).isPositive();
            AssistantMessage.ToolCall whole =
                    last.getResult().getOutput().getToolCalls().get(0);
            assertThat(whole.name()).isEqualTo("get_weather");
            assertThat(whole.arguments()).isEqualTo(arguments.toString());
        }
    }

    /** The tool that the scripted model calls. */
    static final class GetWeather {
        @Tool(name = "get_weather", description = "weather")
        String weather(String location) {
            return "sunny";
        }
    }

    /** With a single chat, the second request can run only after the first has ended. */
    @Test
    void cancellingAStreamEndsTheGeneration() throws Exception {
        try (LlbModel open = LlbModel.open(
                ChatOptions.builder(TestModels.scripted("long.gguf")).parallel(1).build())) {
            LlbChatModel chat = LlbChatModel.builder(open)
                    .options(LlbChatOptions.builder().maxTokens(100_000).build())
                    .build();
            CountDownLatch running = new CountDownLatch(1);
            Disposable stream = chat.stream(new Prompt("hi")).subscribe(r -> running.countDown());
            assertThat(running.await(60, TimeUnit.SECONDS)).isTrue();
            stream.dispose();
            ChatResponse second = chat.call(
                    new Prompt("hi", LlbChatOptions.builder().maxTokens(2).build()));
            assertThat(second.getResult().getMetadata().getFinishReason()).isEqualTo("length");
        }
    }

    @Test
    void requestsAreObserved() {
        TestObservationRegistry registry = TestObservationRegistry.create();
        LlbChatModel chat = LlbChatModel.builder(model)
                .options(LlbChatOptions.builder().temperature(0.5).build())
                .observationRegistry(registry)
                .build();
        SERVER.say(List.of("Hello", "Hello"));
        chat.call(new Prompt("Hi"));
        chat.stream(new Prompt("Hi")).blockLast();
        TestObservationRegistryAssert.assertThat(registry)
                .hasNumberOfObservationsWithNameEqualTo("gen_ai.client.operation", 2)
                .forAllObservationsWithNameEqualTo("gen_ai.client.operation", observation ->
                        observation.hasLowCardinalityKeyValue("gen_ai.operation.name", "chat")
                                .hasLowCardinalityKeyValue("gen_ai.system", "llb")
                                .hasLowCardinalityKeyValue("gen_ai.request.model", "llb")
                                .hasHighCardinalityKeyValue("gen_ai.request.temperature", "0.5")
                                .hasHighCardinalityKeyValue("gen_ai.usage.output_tokens", "1")
                                .hasHighCardinalityKeyValue(
                                        "gen_ai.response.finish_reasons", "[\"stop\"]"));
    }

    @Test
    void aFailedStreamIsAnErrorSignal() {
        assertThatThrownBy(() -> chatModel()
                .stream(new Prompt("hi", LlbChatOptions.builder().temperature(-1.0).build()))
                .blockLast())
                .isInstanceOfSatisfying(
                        LlbException.class, e -> assertThat(e.code()).isEqualTo("INVALID_REQUEST"));
    }

    @Test
    void whatLlbCannotCarryIsRefused() {
        assertThatThrownBy(() -> chatModel().call(
                new Prompt("hi", LlbChatOptions.builder().model("other").build())))
                .isInstanceOf(IllegalArgumentException.class)
                .hasMessageContaining("\"other\"");
        assertThatThrownBy(() -> chatModel().call(new Prompt(List.of(about("audio/wav")))))
                .isInstanceOf(IllegalArgumentException.class)
                .hasMessageContaining("audio/wav");
    }

    private static UserMessage about(String type) {
        Media media = new Media(
                MimeTypeUtils.parseMimeType(type), new ByteArrayResource(new byte[] {1}));
        return UserMessage.builder().text("see").media(media).build();
    }

    @Test
    void aPictureIsAPartBeforeTheText() {
        LlbChatOptions options = LlbChatOptions.builder().build();
        String json = Prompts.convert(new Prompt(List.of(about("image/png")), options), "m").toJson();
        assertThat(json).contains("""
                "content":[{"type":"image_url","image_url":{"url":\
                "data:application/octet-stream;base64,AQ=="}},\
                {"type":"text","text":"see"}]""");
        // The model of this test has no projector.
        assertThatThrownBy(() -> chatModel().call(new Prompt(List.of(about("image/png")))))
                .isInstanceOf(LlbException.class)
                .hasMessageContaining("messages[0].content[0]: the model takes text only");
    }
}
