package dev.llb.langchain4j;

import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.llb.ChatOptions;
import dev.llb.LlbException;
import dev.llb.LlbModel;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
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
    private boolean logRequests;
    private boolean logResponses;
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

    /** The default number of most likely tokens to sample from. */
    public B topK(@Nullable Integer k) {
        parameters.topK(k);
        return self();
    }

    /** The default total probability of the most likely tokens to sample from. */
    public B topP(@Nullable Double p) {
        parameters.topP(p);
        return self();
    }

    /** The default seed of the sampler, 0 to 4294967295. If not set, it is random. */
    public B seed(long seed) {
        parameters.seed(seed);
        return self();
    }

    /** The default texts that end a reply. */
    public B stop(List<String> texts) {
        parameters.stopSequences(List.copyOf(texts));
        return self();
    }

    /** The default time after which a request ends. The reply has the output so far. */
    public B timeout(Duration timeout) {
        parameters.timeout(timeout);
        return self();
    }

    /**
     * Whether requests, with the whole conversation, are logged at the level {@code INFO} as {@code
     * dev.llb.langchain4j}. Default: false.
     */
    public B logRequests(boolean log) {
        logRequests = log;
        return self();
    }

    /** As {@link #logRequests}, for responses and failures. Default: false. */
    public B logResponses(boolean log) {
        logResponses = log;
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
            OpenModel result =
                    new OpenModel(used, opened != null, name, defaults, allListeners());
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

    private List<ChatModelListener> allListeners() {
        if (!logRequests && !logResponses) {
            return listeners;
        }
        List<ChatModelListener> all = new ArrayList<>(listeners);
        all.add(new LoggingListener(logRequests, logResponses));
        return List.copyOf(all);
    }

    /** The model that a chat model uses, and what it needs to know about it. */
    record OpenModel(
            LlbModel model,
            boolean owned,
            String name,
            LlbChatRequestParameters defaults,
            List<ChatModelListener> listeners) {

        /**
         * Converts a request for this model.
         *
         * @throws dev.langchain4j.exception.UnsupportedFeatureException if a part has no
         *     counterpart, or for an image if the model was opened without a projector
         */
        dev.llb.ChatRequest convert(ChatRequest request) {
            // The library refuses images too, but a stream has begun by then.
            if (!model.options().values().containsKey("projector")) {
                Requests.requireNoImages(request.messages());
            }
            return Requests.convert(request, name);
        }

        void close() {
            if (owned) {
                model.close();
            }
        }
    }
}
