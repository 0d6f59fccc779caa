package dev.llb.langchain4j;

import static org.assertj.core.api.Assertions.assertThat;

import dev.langchain4j.agent.tool.ToolSpecification;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.request.ResponseFormat;
import dev.langchain4j.model.chat.request.ResponseFormatType;
import dev.langchain4j.model.chat.request.ToolChoice;
import dev.langchain4j.model.chat.request.json.JsonObjectSchema;
import dev.langchain4j.model.chat.request.json.JsonSchema;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.output.FinishReason;
import dev.llb.ChatOptions;
import dev.llb.scripted.TestModels;
import org.junit.jupiter.api.Test;

/** Tests a real model with few tokens. */
class RealModelTest {

    @Test
    void aRealModelObeys() {
        try (LlbChatModel model = LlbChatModel.builder()
                .options(ChatOptions.builder(TestModels.real()).contextLength(1024).build())
                .defaultRequestParameters(LlbChatRequestParameters.builder()
                        .temperature(0.0)
                        .maxOutputTokens(48)
                        .parallelToolCalls(false)
                        .build())
                .build()) {
            JsonObjectSchema city = JsonObjectSchema.builder().addStringProperty("city").build();
            ChatResponse json = model.chat(ChatRequest.builder()
                    .messages(UserMessage.from("What is the capital of Germany?"))
                    .responseFormat(ResponseFormat.builder()
                            .type(ResponseFormatType.JSON)
                            .jsonSchema(JsonSchema.builder().name("a").rootElement(city).build())
                            .build())
                    .build());
            assertThat(json.aiMessage().text())
                    .isEqualToIgnoringWhitespace("{\"city\": \"Berlin\"}");
            ChatResponse call = model.chat(ChatRequest.builder()
                    .messages(UserMessage.from("I live in Munich"))
                    .toolSpecifications(
                            ToolSpecification.builder().name("getWeather").parameters(city).build())
                    .toolChoice(ToolChoice.REQUIRED)
                    .build());
            assertThat(call.finishReason()).isEqualTo(FinishReason.TOOL_EXECUTION);
            assertThat(call.aiMessage().toolExecutionRequests().get(0).arguments())
                    .isEqualToIgnoringWhitespace("{\"city\": \"Munich\"}");
        }
    }
}
