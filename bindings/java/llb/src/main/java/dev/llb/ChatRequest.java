package dev.llb;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * One request, in the shape of an OpenAI chat completion.
 *
 * @param messages the conversation so far
 * @param tools the tools that the model may call; may be empty
 * @param options all other members by the library's names, such as {@code temperature}; an absent
 *     member has the library's default
 */
public record ChatRequest(List<Message> messages, List<Tool> tools, Map<String, Object> options) {

    public ChatRequest {
        messages = List.copyOf(messages);
        tools = List.copyOf(tools);
        options = Collections.unmodifiableMap(new LinkedHashMap<>(options));
    }

    /** Returns a request with one user message. */
    public static ChatRequest of(String userText) {
        return of(List.of(Message.user(userText)));
    }

    /** Returns a request with these messages, without tools or options. */
    public static ChatRequest of(List<Message> messages) {
        return new ChatRequest(messages, List.of(), Map.of());
    }

    /** Returns an empty builder. */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * Returns the request as JSON for the library.
     *
     * @throws IllegalArgumentException if a number is NaN or infinite
     */
    public String toJson() {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("messages", messages.stream().map(Message::toMap).toList());
        if (!tools.isEmpty()) {
            fields.put("tools", tools.stream().map(Tool::toMap).toList());
        }
        options.forEach(fields::putIfAbsent);
        return Json.write(fields);
    }

    static Map<String, Object> format(String name, Map<String, Object> schema) {
        Fields named = new Fields().with("name", name).with("schema", schema).with("strict", true);
        return new Fields().with("type", "json_schema").with("json_schema", named);
    }

    /**
     * Builds a {@link ChatRequest}. {@link #set} sets options without a method. Not thread-safe.
     */
    public static final class Builder {

        private final List<Message> messages = new ArrayList<>();
        private final List<Tool> tools = new ArrayList<>();
        private final Map<String, Object> options = new LinkedHashMap<>();

        private Builder() {}

        /** Appends a message. */
        public Builder message(Message message) {
            messages.add(Objects.requireNonNull(message, "message"));
            return this;
        }

        /** Appends messages. */
        public Builder messages(List<Message> all) {
            messages.addAll(all);
            return this;
        }

        /** Appends a system message. */
        public Builder system(String text) {
            return message(Message.system(text));
        }

        /** Appends a user message. */
        public Builder user(String text) {
            return message(Message.user(text));
        }

        /** Adds a tool. */
        public Builder tool(Tool tool) {
            tools.add(Objects.requireNonNull(tool, "tool"));
            return this;
        }

        /** Adds tools. */
        public Builder tools(List<Tool> all) {
            tools.addAll(all);
            return this;
        }

        /**
         * The skills to list in the prompt: maps with {@code name}, {@code description} and any
         * other member that the template shows. Templates composed from components show skills; few
         * templates of model files do.
         */
        public Builder skills(List<? extends Map<String, ?>> all) {
            return set("skills", all);
        }

        /** Sets any option by the library's name. */
        public Builder set(String name, Object value) {
            options.put(Objects.requireNonNull(name, "name"), Json.copy(value));
            return this;
        }

        /** {@code auto}, {@code none} or {@code required}. */
        public Builder toolChoice(String choice) {
            return set("tool_choice", choice);
        }

        /** Forces a call of this tool. */
        public Builder toolChoice(Tool tool) {
            Fields function = new Fields().with("name", tool.name());
            Fields choice = new Fields().with("type", "function").with("function", function);
            return set("tool_choice", choice);
        }

        /** Whether a reply may have more than one tool call. Default: true. */
        public Builder parallelToolCalls(boolean allowed) {
            return set("parallel_tool_calls", allowed);
        }

        /**
         * Whether text that is plainly tool calls, but lacks the tags of the model's format, is
         * calls. Default: true.
         */
        public Builder untaggedCalls(boolean accepted) {
            return set("untagged_calls", accepted);
        }

        /** Constrains the text to a JSON object. */
        public Builder jsonObject() {
            return set("response_format", Map.of("type", "json_object"));
        }

        /** Constrains the text to JSON that satisfies the schema. */
        public Builder jsonSchema(String name, Map<String, Object> schema) {
            return set("response_format", format(name, schema));
        }

        /** The maximum number of tokens to generate. Default: what fits the context. */
        public Builder maxTokens(int tokens) {
            return set("max_tokens", tokens);
        }

        /** The sampling temperature. 0 is greedy. Default: 0.7. */
        public Builder temperature(double temperature) {
            return set("temperature", temperature);
        }

        /** Samples from the {@code k} most likely tokens. Default: 40. */
        public Builder topK(int k) {
            return set("top_k", k);
        }

        /** Samples from the most likely tokens with total probability {@code p}. Default: 0.95. */
        public Builder topP(double p) {
            return set("top_p", p);
        }

        /** Drops tokens less likely than {@code p} times the most likely one. Default: 0.05. */
        public Builder minP(double p) {
            return set("min_p", p);
        }

        /** The samplers in order, by llama.cpp's names. A sampler that is not listed is off. */
        public Builder samplers(String... names) {
            return set("samplers", List.of(names));
        }

        /** The strength of DRY, which penalizes tokens that continue a repetition. Default: 0. */
        public Builder dryMultiplier(double multiplier) {
            return set("dry_multiplier", multiplier);
        }

        /** The probability that XTC removes the most likely tokens. Default: 0. */
        public Builder xtcProbability(double p) {
            return set("xtc_probability", p);
        }

        /** The seed of the sampler, 0 to 4294967295. Default: random. */
        public Builder seed(long seed) {
            return set("seed", seed);
        }

        /** Stop strings. The reply ends before the first one that occurs in its answer. */
        public Builder stop(String... texts) {
            return set("stop", List.of(texts));
        }

        /** Switches reasoning on or off, if the template supports it. */
        public Builder enableThinking(boolean thinking) {
            return set("enable_thinking", thinking);
        }

        /** The maximum number of tokens in each reasoning block. -1 is no limit. */
        public Builder reasoningBudget(int tokens) {
            return set("reasoning_budget", tokens);
        }

        /**
         * Text at the end of a reasoning block that the budget or {@link LlbChat#endReasoning}
         * ends.
         */
        public Builder reasoningBudgetMessage(String text) {
            return set("reasoning_budget_message", text);
        }

        /**
         * Adds log probabilities to the {@code raw} map of the reply, and for each token the
         * {@code top} most likely alternatives (0 to 20).
         */
        public Builder logprobs(int top) {
            return set("logprobs", true).set("top_logprobs", top);
        }

        /**
         * The scales of the chat's adapters, by their index in its option {@code lora}. Adapters
         * that are not listed are off.
         */
        public Builder lora(Map<Integer, Double> scales) {
            List<Map<String, ?>> adapters = new ArrayList<>();
            scales.forEach((id, scale) -> adapters.add(Map.of("id", id, "scale", scale)));
            return set("lora", adapters);
        }

        /**
         * {@code off} guesses no token of the reply. {@code auto} does as the chat's option
         * {@code speculative} says. Default: auto.
         */
        public Builder speculative(String choice) {
            return set("speculative", choice);
        }

        /** Cancels the request after this time. The reply has the output so far. */
        public Builder timeout(Duration timeout) {
            return set("timeout_ms", timeout.toMillis());
        }

        public ChatRequest build() {
            return new ChatRequest(messages, tools, options);
        }
    }
}
