import com.fasterxml.jackson.databind.ObjectMapper;
import dev.langchain4j.agent.tool.ToolSpecification;
import dev.langchain4j.data.embedding.Embedding;
import dev.langchain4j.data.message.AiMessage;
import dev.langchain4j.data.message.ToolExecutionResultMessage;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.data.segment.TextSegment;
import dev.langchain4j.exception.ModelNotFoundException;
import dev.langchain4j.model.catalog.ModelDescription;
import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.request.ResponseFormat;
import dev.langchain4j.model.chat.request.ResponseFormatType;
import dev.langchain4j.model.chat.request.json.JsonObjectSchema;
import dev.langchain4j.model.chat.request.json.JsonSchema;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.chat.response.CompleteToolCall;
import dev.langchain4j.model.chat.response.PartialThinking;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.openai.OpenAiChatModel;
import dev.langchain4j.model.openai.OpenAiEmbeddingModel;
import dev.langchain4j.model.openai.OpenAiModelCatalog;
import dev.langchain4j.model.openai.OpenAiResponsesChatModel;
import dev.langchain4j.model.openai.OpenAiResponsesStreamingChatModel;
import dev.langchain4j.model.openai.OpenAiStreamingChatModel;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Sends requests with LangChain4j's OpenAI classes, and prints the results as one JSON object. */
public class Client {
    private static String url;
    private static final Map<String, Object> came = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        url = arguments[0];
        texts();
        calls();
        schemas();
        others();
        System.out.println(new ObjectMapper().writeValueAsString(came));
    }

    private static void texts() throws Exception {
        ChatResponse reply = chat("text").chat(ask("Hello"));
        came.put("text", reply.aiMessage().text());
        came.put("finish", reply.finishReason().name());
        came.put("tokens", reply.tokenUsage().outputTokenCount());
        came.put("stream", stream(streaming("text"), ask("Hello")));
        came.put("thinking", chat("reasoning").chat(ask("Hello")).aiMessage().thinking());
        came.put("thinking_stream", stream(streaming("reasoning"), ask("Hello")));
        ChatModel responses = OpenAiResponsesChatModel.builder()
                .baseUrl(url).apiKey("none").modelName("text").build();
        came.put("response", responses.chat(ask("Hello")).aiMessage().text());
        StreamingChatModel events = OpenAiResponsesStreamingChatModel.builder()
                .baseUrl(url).apiKey("none").modelName("text").build();
        came.put("response_stream", stream(events, ask("Hello")));
    }

    private static void calls() throws Exception {
        ToolSpecification tool = ToolSpecification.builder()
                .name("get_weather")
                .parameters(JsonObjectSchema.builder()
                        .addStringProperty("city").required("city").build())
                .build();
        UserMessage question = UserMessage.from("Weather in Paris?");
        ChatRequest first =
                ChatRequest.builder().messages(question).toolSpecifications(tool).build();
        AiMessage message = chat("tool_call").chat(first).aiMessage();
        came.put("call", call(message));
        came.put("call_stream", stream(streaming("tool_call"), first));
        ToolExecutionResultMessage result =
                ToolExecutionResultMessage.from(message.toolExecutionRequests().get(0), "sunny");
        ChatRequest second = ChatRequest.builder()
                .messages(question, message, result).toolSpecifications(tool).build();
        // The scripted model calls the tool in every turn.
        came.put("second_call", call(chat("tool_call").chat(second).aiMessage()));
    }

    private static void schemas() {
        JsonSchema schema = JsonSchema.builder().name("place")
                .rootElement(JsonObjectSchema.builder()
                        .addBooleanProperty("is_city").required("is_city").build())
                .build();
        ResponseFormat format = ResponseFormat.builder()
                .type(ResponseFormatType.JSON).jsonSchema(schema).build();
        ChatRequest request = ChatRequest.builder()
                .messages(UserMessage.from("Is Paris a city?")).responseFormat(format).build();
        ChatModel strict = OpenAiChatModel.builder()
                .baseUrl(url).apiKey("none").modelName("text").strictJsonSchema(true).build();
        came.put("schema", strict.chat(request).aiMessage().text());
    }

    private static void others() {
        OpenAiEmbeddingModel embeddings = OpenAiEmbeddingModel.builder()
                .baseUrl(url).apiKey("none").modelName("embedding").build();
        List<Embedding> vectors = embeddings.embedAll(
                List.of(TextSegment.from("a"), TextSegment.from("b"))).content();
        came.put("vectors", vectors.stream().map(Embedding::dimension).toList());
        OpenAiModelCatalog catalog =
                OpenAiModelCatalog.builder().baseUrl(url).apiKey("none").build();
        came.put("models", catalog.listModels().stream().map(ModelDescription::name).toList());
        try {
            chat("none").chat(ask("Hello"));
        } catch (ModelNotFoundException expected) {
            came.put("unknown_model", expected.getMessage());
        }
    }

    private static ChatModel chat(String model) {
        return OpenAiChatModel.builder().baseUrl(url).apiKey("none").modelName(model)
                .returnThinking(true).maxRetries(0).build();
    }

    private static StreamingChatModel streaming(String model) {
        return OpenAiStreamingChatModel.builder().baseUrl(url).apiKey("none").modelName(model)
                .returnThinking(true).build();
    }

    private static ChatRequest ask(String text) {
        return ChatRequest.builder().messages(UserMessage.from(text)).build();
    }

    private static List<String> call(AiMessage message) {
        List<String> calls = new ArrayList<>();
        message.toolExecutionRequests().forEach(call -> {
            calls.add(call.name());
            calls.add(call.arguments());
        });
        return calls;
    }

    /** The pieces of a stream, and the end of its complete reply. */
    private static Map<String, Object> stream(StreamingChatModel model, ChatRequest request)
            throws Exception {
        StringBuilder text = new StringBuilder();
        StringBuilder thinking = new StringBuilder();
        List<String> calls = new ArrayList<>();
        CompletableFuture<ChatResponse> whole = new CompletableFuture<>();
        model.chat(request, new StreamingChatResponseHandler() {
            @Override
            public void onPartialResponse(String piece) {
                text.append(piece);
            }

            @Override
            public void onPartialThinking(PartialThinking piece) {
                thinking.append(piece.text());
            }

            @Override
            public void onCompleteToolCall(CompleteToolCall call) {
                calls.add(call.toolExecutionRequest().name());
                calls.add(call.toolExecutionRequest().arguments());
            }

            @Override
            public void onCompleteResponse(ChatResponse response) {
                whole.complete(response);
            }

            @Override
            public void onError(Throwable error) {
                whole.completeExceptionally(error);
            }
        });
        ChatResponse response = whole.get(5, TimeUnit.MINUTES);
        Map<String, Object> came = new LinkedHashMap<>();
        came.put("text", text.toString());
        came.put("thinking", thinking.toString());
        came.put("calls", calls);
        came.put("finish", String.valueOf(response.finishReason()));
        came.put("tokens", response.tokenUsage().outputTokenCount());
        return came;
    }
}
