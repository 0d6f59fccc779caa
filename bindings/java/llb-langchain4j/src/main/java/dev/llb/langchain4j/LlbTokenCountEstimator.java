package dev.llb.langchain4j;

import dev.langchain4j.data.message.ChatMessage;
import dev.langchain4j.model.TokenCountEstimator;
import dev.llb.ChatRequest;
import dev.llb.LlbException;
import dev.llb.LlbModel;
import dev.llb.Message;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * Counts tokens with the vocabulary and the template of a model, for example for a {@code
 * TokenWindowChatMemory}. The owner of the {@link LlbModel} must close it. Failures are
 * LangChain4j's exceptions with an {@link LlbException} as cause.
 */
public final class LlbTokenCountEstimator implements TokenCountEstimator {

    private final LlbModel model;

    public LlbTokenCountEstimator(LlbModel model) {
        this.model = Objects.requireNonNull(model, "model");
    }

    @Override
    public int estimateTokenCountInText(String text) {
        try {
            return model.tokenize(text).ids().size();
        } catch (LlbException e) {
            throw Replies.failure(e);
        }
    }

    /**
     * The tokens of the text and calls of a message, without the markup of the template, because
     * few templates render every message alone.
     */
    @Override
    public int estimateTokenCountInMessage(ChatMessage message) {
        Message converted = Requests.message(message);
        StringBuilder text = new StringBuilder();
        Object content = converted.content();
        if (content instanceof List<?> parts) {
            parts.forEach(text::append);
        } else if (content != null) {
            text.append(content);
        }
        if (converted.reasoningContent() != null) {
            text.append(converted.reasoningContent());
        }
        converted.toolCalls().forEach(call -> text.append(call.name()).append(call.arguments()));
        return estimateTokenCountInText(text.toString());
    }

    /** The tokens of the whole prompt of a conversation; 0 for none. */
    @Override
    public int estimateTokenCountInMessages(Iterable<ChatMessage> messages) {
        List<Message> converted = new ArrayList<>();
        messages.forEach(message -> converted.add(Requests.message(message)));
        if (converted.isEmpty()) {
            return 0;
        }
        try {
            return model.countTokens(ChatRequest.of(converted));
        } catch (LlbException e) {
            throw Replies.failure(e);
        }
    }
}
