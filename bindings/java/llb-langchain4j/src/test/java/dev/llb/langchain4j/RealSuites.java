package dev.llb.langchain4j;

import static java.util.Map.entry;

import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.langchain4j.service.common.AbstractAiServiceWithJsonSchemaIT;
import dev.llb.ChatOptions;
import dev.llb.LlbModel;
import dev.llb.scripted.TestModels;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Runs LangChain4j's suites on a real model of 0.5 billion parameters, for {@code make
 * test-java-frameworks}. Tests beyond its abilities are disabled here; {@link Scripts} covers all
 * of them.
 */
class RealSuites {

    private static LlbModel opened;

    private static synchronized LlbModel model() {
        if (opened == null) {
            opened = LlbModel.open(
                    ChatOptions.builder(TestModels.real()).contextLength(2048).parallel(1).build());
        }
        return opened;
    }

    @AfterAll
    static void close() {
        if (opened != null) {
            opened.close();
        }
    }

    private static ChatModel chatModel(ChatRequestParameters parameters) {
        LlbChatModel.Builder builder =
                LlbChatModel.builder().model(model()).temperature(0.0).maxOutputTokens(160);
        return parameters == null
                ? builder.build()
                : builder.defaultRequestParameters(parameters).build();
    }

    /** The tests that this model fails, by their names, and why. */
    private static final class Beyond implements ExecutionCondition {

        private static final String NO_TAGS =
                "the model writes a call as JSON text, without the tags of its template";

        private static final Map<String, String> REASONS = Map.ofEntries(
                // Chat models
                entry("should_execute_a_tool_then_answer", NO_TAGS),
                entry("should_execute_a_tool_then_answer_respecting_JSON_response_format_with_schema",
                        NO_TAGS),
                entry("should_execute_a_tool_without_arguments_then_answer", NO_TAGS),
                entry("should_execute_multiple_tools_in_parallel_then_answer",
                        "the model makes one call of two"),
                // AI services with a JSON schema
                entry("should_extract_enum", "the model takes a single man for a married one"),
                entry("should_extract_list_of_enums", "the model repeats the values without end"),
                entry("should_extract_pojo_with_missing_data", "the model invents what is missing"),
                entry("should_extract_pojo_with_nested_polymorphic_field",
                        "the model leaves the dog out"),
                entry("should_extract_recursive_polymorphic_type",
                        "the model does not build the tree"));

        @Override
        public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
            return context.getTestMethod()
                    .map(test -> REASONS.get(test.getName()))
                    .map(ConditionEvaluationResult::disabled)
                    .orElse(ConditionEvaluationResult.enabled("the model can do it"));
        }
    }

    @Nested
    @ExtendWith(Beyond.class)
    class Chat extends ChatModelSuite {

        @Override
        ChatModel open(ChatRequestParameters parameters) {
            return chatModel(parameters);
        }
    }

    @Nested
    @ExtendWith(Beyond.class)
    class Schemas extends AbstractAiServiceWithJsonSchemaIT {

        @Override
        protected List<ChatModel> models() {
            return List.of(chatModel(null));
        }

        @Override
        protected boolean supportsRecursion() {
            return true;
        }
    }
}
