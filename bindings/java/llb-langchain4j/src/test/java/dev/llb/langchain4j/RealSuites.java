package dev.llb.langchain4j;

import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.langchain4j.service.common.AbstractAiServiceWithJsonSchemaIT;
import dev.llb.ChatOptions;
import dev.llb.LlbModel;
import dev.llb.scripted.TestModels;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;

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

    @Nested
    class Chat extends ChatModelSuite {

        private static final String NO_TAGS =
                "the model writes a call as JSON text, without the tags of its template";

        @Override
        ChatModel open(ChatRequestParameters parameters) {
            return chatModel(parameters);
        }

        @Test
        @Override
        @Disabled(NO_TAGS)
        protected void should_execute_a_tool_then_answer(ChatModel model) {}

        @Test
        @Override
        @Disabled(NO_TAGS)
        protected void should_execute_a_tool_then_answer_respecting_JSON_response_format_with_schema(
                ChatModel model) {}

        @Test
        @Override
        @Disabled(NO_TAGS)
        protected void should_execute_a_tool_without_arguments_then_answer(ChatModel model) {}

        @Test
        @Override
        @Disabled("the model makes one call of two")
        protected void should_execute_multiple_tools_in_parallel_then_answer(ChatModel model) {}
    }

    @Nested
    class Schemas extends AbstractAiServiceWithJsonSchemaIT {

        @Override
        protected List<ChatModel> models() {
            return List.of(chatModel(null));
        }

        @Override
        protected boolean supportsRecursion() {
            return true;
        }

        @Test
        @Override
        @Disabled("the model takes a single man for a married one")
        protected void should_extract_enum(ChatModel model) {}

        @Test
        @Override
        @Disabled("the model repeats the values without end")
        protected void should_extract_list_of_enums(ChatModel model) {}

        @Test
        @Override
        @Disabled("the model invents what is missing")
        protected void should_extract_pojo_with_missing_data(ChatModel model) {}

        @Test
        @Override
        @Disabled("the model leaves the dog out")
        protected void should_extract_pojo_with_nested_polymorphic_field(ChatModel model) {}

        @Test
        @Override
        @Disabled("the model does not build the tree")
        protected void should_extract_recursive_polymorphic_type(ChatModel model) {}
    }
}
