package dev.llb.langchain4j;

import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.agent.tool.ToolSpecification;
import dev.langchain4j.data.image.Image;
import dev.langchain4j.data.message.AiMessage;
import dev.langchain4j.data.message.ChatMessage;
import dev.langchain4j.data.message.Content;
import dev.langchain4j.data.message.ImageContent;
import dev.langchain4j.data.message.SystemMessage;
import dev.langchain4j.data.message.TextContent;
import dev.langchain4j.data.message.ToolExecutionResultMessage;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.exception.UnsupportedFeatureException;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.langchain4j.model.chat.request.ResponseFormat;
import dev.langchain4j.model.chat.request.ResponseFormatType;
import dev.langchain4j.model.chat.request.ToolChoice;
import dev.langchain4j.model.chat.request.json.JsonSchema;
import dev.llb.ChatRequest;
import dev.llb.ContentPart;
import dev.llb.Message;
import dev.llb.Tool;
import dev.llb.ToolCall;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Stream;

/** Converts requests of LangChain4j to requests of llb. */
final class Requests {

    private Requests() {}

    /** @throws UnsupportedFeatureException if a part of the request has no counterpart */
    static ChatRequest convert(
            dev.langchain4j.model.chat.request.ChatRequest request, String modelName) {
        ChatRequestParameters parameters = request.parameters();
        requireModelName(parameters, modelName);
        ChatRequest.Builder builder = ChatRequest.builder();
        request.messages().forEach(message -> builder.message(message(message)));
        List<ToolSpecification> tools = parameters.toolSpecifications();
        if (tools != null) {
            tools.forEach(tool -> builder.tool(tool(tool)));
        }
        set(builder, "temperature", parameters.temperature());
        set(builder, "top_p", parameters.topP());
        set(builder, "top_k", parameters.topK());
        set(builder, "frequency_penalty", parameters.frequencyPenalty());
        set(builder, "presence_penalty", parameters.presencePenalty());
        set(builder, "max_tokens", parameters.maxOutputTokens());
        if (parameters.stopSequences() != null && !parameters.stopSequences().isEmpty()) {
            builder.set("stop", parameters.stopSequences());
        }
        ToolChoice choice = parameters.toolChoice();
        // A tool loop repeats the parameters, so a call would be forced again after its result.
        if (choice != null && (choice == ToolChoice.NONE || !hasResults(request.messages()))) {
            builder.toolChoice(choice.name().toLowerCase(Locale.ROOT));
        }
        responseFormat(builder, parameters.responseFormat());
        if (parameters instanceof LlbChatRequestParameters own) {
            own.options().forEach(builder::set);
        }
        return builder.build();
    }

    /** Whether the conversation has results of tools after its last user message. */
    private static boolean hasResults(List<ChatMessage> messages) {
        boolean results = false;
        for (ChatMessage message : messages) {
            results = !(message instanceof UserMessage)
                    && (results || message instanceof ToolExecutionResultMessage);
        }
        return results;
    }

    /** Fails unless the name is the model's own. */
    static void requireModelName(ChatRequestParameters parameters, String modelName) {
        String asked = parameters.modelName();
        if (asked != null && !asked.equals(modelName)) {
            throw new UnsupportedFeatureException("modelName: \"" + asked + "\" is not supported"
                    + " by the model \"" + modelName + "\"; open a model for each file");
        }
    }

    private static void set(ChatRequest.Builder builder, String name, Object value) {
        if (value != null) {
            builder.set(name, value);
        }
    }

    private static void responseFormat(ChatRequest.Builder builder, ResponseFormat format) {
        if (format == null || format.type() == ResponseFormatType.TEXT) {
            return;
        }
        JsonSchema schema = format.jsonSchema();
        if (schema == null) {
            builder.jsonObject();
        } else {
            String name = schema.name() != null ? schema.name() : "response";
            builder.jsonSchema(name, Schemas.closed(schema.rootElement()));
        }
    }

    private static Tool tool(ToolSpecification tool) {
        Map<String, Object> parameters = new LinkedHashMap<>();
        if (tool.parameters() != null) {
            boolean strict = Boolean.TRUE.equals(tool.strict());
            parameters.putAll(
                    strict ? Schemas.closed(tool.parameters()) : Schemas.open(tool.parameters()));
        } else {
            parameters.put("type", "object");
            parameters.put("properties", Map.of());
        }
        return new Tool(tool.name(), tool.description(), parameters);
    }

    /** @throws UnsupportedFeatureException if a part of the message has no counterpart */
    static Message message(ChatMessage message) {
        if (message instanceof SystemMessage system) {
            return Message.system(system.text());
        }
        if (message instanceof UserMessage user) {
            return new Message("user", content(user.contents()), null, null, null, user.name());
        }
        if (message instanceof AiMessage reply) {
            List<ToolCall> calls =
                    reply.toolExecutionRequests().stream().map(Requests::call).toList();
            return new Message("assistant", reply.text(), reply.thinking(), calls, null, null);
        }
        if (message instanceof ToolExecutionResultMessage result) {
            return new Message(
                    "tool", content(result.contents()), null, null, result.id(), result.toolName());
        }
        throw new UnsupportedFeatureException(
                "messages of type " + message.type() + " are not supported");
    }

    /** @throws UnsupportedFeatureException if a message has an image */
    static void requireNoImages(List<ChatMessage> messages) {
        boolean images = messages.stream().flatMap(Requests::contents)
                .anyMatch(ImageContent.class::isInstance);
        if (images) {
            throw new UnsupportedFeatureException(
                    "images and other non-text content are not supported without a projector:"
                            + " name the model's mmproj file by ChatOptions.Builder.projector");
        }
    }

    private static Stream<Content> contents(ChatMessage message) {
        if (message instanceof UserMessage user) {
            return user.contents().stream();
        }
        return message instanceof ToolExecutionResultMessage result
                ? result.contents().stream()
                : Stream.empty();
    }

    private static String url(Image image) {
        if (image.base64Data() == null) {
            return image.url().toString();
        }
        String mediaType = image.mimeType() != null ? image.mimeType() : "image/png";
        return "data:" + mediaType + ";base64," + image.base64Data();
    }

    private static ToolCall call(ToolExecutionRequest request) {
        String arguments = request.arguments();
        boolean none = arguments == null || arguments.isBlank();
        return new ToolCall(request.id(), request.name(), none ? "{}" : arguments);
    }

    /** A single text is a string. Other contents are parts. */
    private static Object content(List<Content> contents) {
        if (contents.size() == 1 && contents.get(0) instanceof TextContent text) {
            return text.text();
        }
        return contents.stream().map(Requests::part).toList();
    }

    private static Map<String, Object> part(Content content) {
        if (content instanceof TextContent text) {
            return ContentPart.text(text.text());
        }
        if (content instanceof ImageContent image) {
            return ContentPart.image(url(image.image()));
        }
        throw new UnsupportedFeatureException("content of type "
                + content.type().name().toLowerCase(Locale.ROOT) + " is not supported");
    }
}
