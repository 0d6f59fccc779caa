package dev.llb.langchain4j;

import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.llb.ChatOptions;
import dev.llb.LlbException;
import dev.llb.LlbModel;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * What the builders of both models have in common.
 *
 * @param <B> the builder
 */
public abstract class ModelBuilder<B extends ModelBuilder<B>> {

    private @Nullable LlbModel model;
    private @Nullable ChatOptions options;
    private @Nullable String hubId;
    private @Nullable String modelName;
    private List<ChatModelListener> listeners = List.of();
    private final LlbChatRequestParameters.Builder parameters = LlbChatRequestParameters.builder();

    ModelBuilder() {}

    abstract B self();

    /** The GGUF file of the model. The builder opens it, and it is closed with the chat model. */
    public B modelPath(Path path) {
        return options(ChatOptions.builder(path).build());
    }

    /** Like {@link #modelPath}, with options. */
    public B options(ChatOptions options) {
        this.options = Objects.requireNonNull(options, "options");
        return self();
    }

    /** A model of the Hugging Face hub, {@code org/name} or {@code org/name:Q8_0}. */
    public B modelId(String id) {
        hubId = Objects.requireNonNull(id, "id");
        return self();
    }

    /** An open model, which chat models may share. The caller closes it. */
    public B model(LlbModel model) {
        this.model = Objects.requireNonNull(model, "model");
        return self();
    }

    /** The model name in replies. Default: the name of the file. */
    public B modelName(@Nullable String name) {
        modelName = name;
        return self();
    }

    /** Parameters for requests that omit them. */
    public B defaultRequestParameters(ChatRequestParameters defaults) {
        parameters.overrideWith(defaults);
        return self();
    }

    /** The default temperature. 0 means greedy sampling. */
    public B temperature(@Nullable Double temperature) {
        parameters.temperature(temperature);
        return self();
    }

    /** The default maximum number of generated tokens. If not set, it is what fits the context. */
    public B maxOutputTokens(@Nullable Integer tokens) {
        parameters.maxOutputTokens(tokens);
        return self();
    }

    /** Listeners of requests, responses and errors. */
    public B listeners(List<ChatModelListener> listeners) {
        this.listeners = List.copyOf(listeners);
        return self();
    }

    /** Opens the model, unless an open one was given. */
    OpenModel open() {
        int given = (model == null ? 0 : 1) + (options == null ? 0 : 1) + (hubId == null ? 0 : 1);
        if (given != 1) {
            throw new IllegalArgumentException(
                    "set exactly one of modelPath or options, modelId, and model");
        }
        // Checked before the weights are read.
        LlbChatRequestParameters defaults = parameters.build();
        if (modelName != null) {
            Requests.requireModelName(defaults, modelName);
        }
        LlbModel opened = null;
        try {
            LlbModel used = model;
            if (used == null) {
                opened = hubId != null ? LlbModel.fromHub(hubId) : LlbModel.open(options);
                used = opened;
            }
            String name = modelName != null ? modelName : used.name();
            Requests.requireModelName(defaults, name);
            defaults = LlbChatRequestParameters.builder()
                    .overrideWith(defaults)
                    .modelName(name)
                    .build();
            OpenModel result = new OpenModel(used, opened != null, name, defaults, listeners);
            opened = null;
            return result;
        } catch (LlbException e) {
            throw Replies.failure(e);
        } finally {
            if (opened != null) {
                opened.close();
            }
        }
    }

    /** The model that a chat model uses, and what it needs to know about it. */
    record OpenModel(
            LlbModel model,
            boolean owned,
            String name,
            LlbChatRequestParameters defaults,
            List<ChatModelListener> listeners) {

        void close() {
            if (owned) {
                model.close();
            }
        }
    }
}
