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
 * @param tools what the model may call; empty for none
 * @param options everything else by the library's names, as {@code temperature}; what is absent has its default
 */
public record ChatRequest(List<Message> messages, List<Tool> tools, Map<String, Object> options) {

    public ChatRequest {
        messages = List.copyOf(messages);
        tools = List.copyOf(tools);
        options = Collections.unmodifiableMap(new LinkedHashMap<>(options));
    }

    /** A conversation of one user message. */
    public static ChatRequest of(String userText) {
        return of(List.of(Message.user(userText)));
    }

    public static ChatRequest of(List<Message> messages) {
        return new ChatRequest(messages, List.of(), Map.of());
    }

    public static Builder builder() {
        return new Builder();
    }

    /** The request as the library reads it. */
    public String toJson() {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("messages", messages.stream().map(Message::toMap).toList());
        if (!tools.isEmpty()) {
            fields.put("tools", tools.stream().map(Tool::toMap).toList());
        }
        options.forEach(fields::putIfAbsent);
        return Json.write(fields);
    }

    /** Builds a {@link ChatRequest}; an option without a method of its own goes through {@link #set}. */
    public static final class Builder {

        private final List<Message> messages = new ArrayList<>();
        private final List<Tool> tools = new ArrayList<>();
        private final Map<String, Object> options = new LinkedHashMap<>();

        private Builder() {}

        public Builder message(Message message) {
            messages.add(message);
            return this;
        }

        public Builder messages(List<Message> all) {
            messages.addAll(all);
            return this;
        }

        public Builder system(String text) {
            return message(Message.system(text));
        }

        public Builder user(String text) {
            return message(Message.user(text));
        }

        public Builder tool(Tool tool) {
            tools.add(tool);
            return this;
        }

        public Builder tools(List<Tool> all) {
            tools.addAll(all);
            return this;
        }

        /**
         * What the model is told it can look up, each a map with {@code name}, {@code description} and what else a row of the
         * template shows. Templates of components have a place for them, and few others.
         */
        public Builder skills(List<? extends Map<String, ?>> all) {
            return set("skills", all);
        }

        /** Any option of the library, by its name there. */
        public Builder set(String name, Object value) {
            options.put(Objects.requireNonNull(name, "name"), value);
            return this;
        }

        /** {@code auto}, {@code none} or {@code required}. */
        public Builder toolChoice(String choice) {
            return set("tool_choice", choice);
        }

        /** This tool must be called. */
        public Builder toolChoice(Tool tool) {
            Fields function = new Fields().with("name", tool.name());
            return set("tool_choice", new Fields().with("type", "function").with("function", function));
        }

        public Builder parallelToolCalls(boolean allowed) {
            return set("parallel_tool_calls", allowed);
        }

        /** The text will be a JSON object. */
        public Builder jsonObject() {
            return set("response_format", Map.of("type", "json_object"));
        }

        /** The text will be JSON that the schema accepts. */
        public Builder jsonSchema(String name, Map<String, Object> schema) {
            Fields named = new Fields().with("name", name).with("schema", schema).with("strict", true);
            return set("response_format", new Fields().with("type", "json_schema").with("json_schema", named));
        }

        public Builder maxTokens(int tokens) {
            return set("max_tokens", tokens);
        }

        public Builder temperature(double temperature) {
            return set("temperature", temperature);
        }

        public Builder topK(int k) {
            return set("top_k", k);
        }

        public Builder topP(double p) {
            return set("top_p", p);
        }

        public Builder minP(double p) {
            return set("min_p", p);
        }

        public Builder seed(long seed) {
            return set("seed", seed);
        }

        public Builder stop(String... texts) {
            return set("stop", List.of(texts));
        }

        public Builder enableThinking(boolean thinking) {
            return set("enable_thinking", thinking);
        }

        /** Tokens that each block of reasoning may have; -1 sets no limit. */
        public Builder reasoningBudget(int tokens) {
            return set("reasoning_budget", tokens);
        }

        /** The reply's {@code raw} map has log probabilities, with this many of the likeliest tokens (0 to 20) beside each. */
        public Builder logprobs(int likeliest) {
            return set("logprobs", true).set("top_logprobs", likeliest);
        }

        /** The reply is cancelled after this time. */
        public Builder timeout(Duration time) {
            return set("timeout_ms", time.toMillis());
        }

        public ChatRequest build() {
            return new ChatRequest(messages, tools, options);
        }
    }
}
