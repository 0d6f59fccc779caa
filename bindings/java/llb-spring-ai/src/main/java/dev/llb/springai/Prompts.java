package dev.llb.springai;

import dev.llb.ChatRequest;
import dev.llb.ContentPart;
import dev.llb.Message;
import dev.llb.Tool;
import dev.llb.ToolCall;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.messages.ToolResponseMessage;
import org.springframework.ai.chat.messages.UserMessage;
import org.springframework.ai.chat.prompt.ChatOptions;
import org.springframework.ai.chat.prompt.Prompt;
import org.springframework.ai.content.Media;
import org.springframework.ai.tool.ToolCallback;
import org.springframework.ai.tool.definition.ToolDefinition;
import org.springframework.ai.util.JsonHelper;

/** Converts Spring AI's prompts to requests of llb. */
final class Prompts {

    private static final JsonHelper JSON = new JsonHelper();

    private Prompts() {}

    /** The options of {@code prompt} must be {@link LlbChatOptions}. */
    static ChatRequest convert(Prompt prompt, String modelName) {
        LlbChatOptions options = (LlbChatOptions) prompt.getOptions();
        requireModelName(options, modelName);
        ChatRequest.Builder builder = ChatRequest.builder();
        prompt.getInstructions().forEach(message -> add(builder, message));
        if (options.getToolCallbacks() != null) {
            for (ToolCallback callback : options.getToolCallbacks()) {
                ToolDefinition tool = callback.getToolDefinition();
                builder.tool(Tool.of(tool.name(), tool.description(), tool.inputSchema()));
            }
        }
        set(builder, "temperature", options.getTemperature());
        set(builder, "top_p", options.getTopP());
        set(builder, "top_k", options.getTopK());
        set(builder, "frequency_penalty", options.getFrequencyPenalty());
        set(builder, "presence_penalty", options.getPresencePenalty());
        set(builder, "max_tokens", options.getMaxTokens());
        set(builder, "stop", options.getStopSequences());
        if (options.getOutputSchema() != null) {
            builder.jsonSchema("response", JSON.fromJsonToMap(options.getOutputSchema()));
        }
        options.getOptions().forEach((name, value) -> {
            boolean forces = name.equals("tool_choice") && !"none".equals(value);
            if (!forces || !hasResults(prompt)) {
                builder.set(name, value);
            }
        });
        return builder.build();
    }

    /**
     * Whether the conversation has results of tools after its last user message. The client repeats
     * the options in each round of a tool loop, so a forced call would be forced again after its
     * result.
     */
    private static boolean hasResults(Prompt prompt) {
        boolean results = false;
        for (var message : prompt.getInstructions()) {
            results = !(message instanceof UserMessage)
                    && (results || message instanceof ToolResponseMessage);
        }
        return results;
    }

    /** Fails unless the name is the model's own. */
    static void requireModelName(ChatOptions options, String modelName) {
        String asked = options.getModel();
        if (asked != null && !asked.equals(modelName)) {
            throw new IllegalArgumentException("model: \"" + asked + "\" is not the open model \""
                    + modelName + "\"; open a model for each file");
        }
    }

    private static void set(ChatRequest.Builder builder, String name, @Nullable Object value) {
        if (value != null) {
            builder.set(name, value);
        }
    }

    private static void add(
            ChatRequest.Builder builder, org.springframework.ai.chat.messages.Message message) {
        if (message instanceof ToolResponseMessage results) {
            for (ToolResponseMessage.ToolResponse result : results.getResponses()) {
                builder.message(new Message(
                        "tool", result.responseData(), null, List.of(), result.id(),
                        result.name()));
            }
        } else if (message instanceof AssistantMessage reply) {
            builder.message(assistant(reply));
        } else {
            String role = message.getMessageType().name().toLowerCase(Locale.ROOT);
            builder.message(new Message(role, content(message), null, List.of(), null, null));
        }
    }

    /** The text, or parts: the pictures, then the text. */
    private static @Nullable Object content(org.springframework.ai.chat.messages.Message message) {
        String text = message.getText();
        if (!(message instanceof UserMessage user) || user.getMedia().isEmpty()) {
            return text;
        }
        List<Map<String, Object>> parts = new ArrayList<>();
        user.getMedia().forEach(media -> parts.add(picture(media)));
        if (text != null && !text.isEmpty()) {
            parts.add(ContentPart.text(text));
        }
        return parts;
    }

    private static Map<String, Object> picture(Media media) {
        if (!media.getMimeType().getType().equals("image")) {
            throw new IllegalArgumentException(
                    "media of type " + media.getMimeType() + " is not supported");
        }
        return media.getData() instanceof String url
                ? ContentPart.image(url)
                : ContentPart.image(media.getDataAsByteArray());
    }

    private static Message assistant(AssistantMessage reply) {
        List<ToolCall> calls = reply.getToolCalls().stream().map(Prompts::call).toList();
        Object reasoning = reply.getMetadata().get(Responses.REASONING);
        boolean reasoned = reasoning instanceof String text && !text.isEmpty();
        return new Message(
                "assistant",
                reply.getText(),
                reasoned ? (String) reasoning : null,
                calls,
                null,
                null);
    }

    private static ToolCall call(AssistantMessage.ToolCall call) {
        String arguments = call.arguments();
        boolean none = arguments == null || arguments.isBlank();
        return new ToolCall(call.id(), call.name(), none ? "{}" : arguments);
    }
}
