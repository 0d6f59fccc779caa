package dev.llb.langchain4j;

import dev.langchain4j.model.chat.listener.ChatModelListener;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.llb.LlbModel;
import dev.llb.scripted.ScriptedServer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * The replies of the scripted model in each test of LangChain4j's suites. A test fails if it makes
 * more requests than its script has replies.
 */
final class Scripts implements BeforeEachCallback {

    private static final ScriptedServer SERVER = new ScriptedServer();
    private static final LlbModel MODEL = SERVER.open();

    private static final String BERLIN = "The capital of Germany is Berlin.";
    private static final String BERLIN_JSON = "{\"city\": \"Berlin\"}";
    private static final String KLAUS_AND_FRANNY =
            "{\"values\": [{\"name\": \"Klaus\", \"age\": 37, \"height\": 1.78, \"married\": false}, "
                    + "{\"name\": \"Franny\", \"age\": 35, \"height\": 1.65, \"married\": true}]}";
    private static final String COLORS =
            "{\"name\": \"Klaus\", \"favouriteColors\": [\"orange\", \"green\"]}";
    private static final String PETS =
            "{\"name\": \"Klaus\", \"pets\": [{\"name\": \"Peanut\"}, {\"name\": \"Muffin\"}]}";
    private static final String GROUPS = "{\"name\": \"Klaus\", \"groups\": [\"A\", \"C\"]}";
    private static final String NAMES = "{\"values\": [\"Klaus\", \"Franny\"]}";
    private static final String REX =
            "{\"type\": \"Dog\", \"name\": \"Rex\", \"breed\": \"Labrador\"}";
    private static final String ADD_37_87 = call("add", "{\"arg0\": 37, \"arg1\": 87}");
    private static final String SUM = "37 + 87 = 124";

    private static final Map<String, List<String>> REPLIES = new HashMap<>();

    static {
        chatModels();
        services();
        tools();
        schemas();
    }

    private static void chatModels() {
        say("should_respect_user_message", BERLIN);
        say("should_respect_system_message", "Ich liebe dich");
        say("should_respect_multiple_messages", "Your favorite color is green.");
        for (String test : List.of(
                "should_respect_maxOutputTokens_in_chat_request",
                "should_respect_maxOutputTokens_in_default_model_parameters",
                "should_respect_common_parameters_wrapped_in_integration_specific_class_in_chat_request",
                "should_respect_common_parameters_wrapped_in_integration_specific_class_in_"
                        + "default_model_parameters")) {
            say(test, "The capital of Germany is Berlin, and 2 + 2 is 4.");
        }
        say("should_respect_stopSequences_in_chat_request", "Hello World");
        say("should_respect_stopSequences_in_default_model_parameters", "Hello World");
        String weather = call("getWeather", "{\"city\": \"Munich\"}");
        say("should_execute_a_tool_then_answer", weather, "It is sunny in Munich.");
        say("should_execute_a_tool_without_arguments_then_answer",
                call("get_current_time", "{}"), "The time is 10:14.");
        say("should_execute_multiple_tools_in_parallel_then_answer",
                weather + "\n" + call("getTime", "{\"country\": \"France\"}"),
                "It is sunny in Munich, and 14:35 in France.");
        say("should_force_LLM_to_execute_any_tool", weather);
        say("should_force_LLM_to_execute_specific_tool", weather);
        say("should_respect_JSON_response_format", BERLIN_JSON);
        say("should_respect_JSON_response_format_with_schema", BERLIN_JSON);
        say("should_respect_JsonRawSchema_responseFormat", BERLIN_JSON);
        say("should_execute_a_tool_then_answer_respecting_JSON_response_format_with_schema",
                weather, "{\"weather\": \"sunny\"}");
        say("should_cancel_streaming", "Once upon a time ".repeat(500));
        say("should_propagate_user_exceptions_thrown_from_onPartialResponse", BERLIN);
        say("should_propagate_user_exceptions_thrown_from_onCompleteResponse", BERLIN);
        say("should_ignore_user_exceptions_thrown_from_onError", BERLIN);
        say("should_listen_request_and_response", "Hello! How are you?");
    }

    private static void services() {
        say("should_answer_simple_question", BERLIN);
        say("should_execute_tool_then_return_structured_output",
                call("getWeather", "{\"arg0\": \"Munich\"}"),
                "{\"city\": \"Munich\", \"weather\": \"SUNNY\"}");
        say("should_execute_tool_without_arguments", call("currentDate", "{}"), "It is today.");
        say("should_keep_memory_consistent_when_streaming_using_immediate_tool",
                ADD_37_87, call("add", "{\"arg0\": 124, \"arg1\": 47}"));
    }

    private static void tools() {
        for (String test : List.of(
                "should_execute_tool_with_primitive_parameters",
                "should_execute_normal_tool_with_primitive_parameters",
                "should_execute_immediate_tool_with_primitive_parameters",
                "should_throw_using_immediate_tool_on_service_not_returning_Result")) {
            say(test, ADD_37_87, SUM);
        }
        String twoSums = ADD_37_87 + "\n" + call("add", "{\"arg0\": 73, \"arg1\": 78}");
        for (String kind : List.of("normal", "immediate")) {
            say("should_execute_" + kind + "_tool_in_parallel_with_primitive_parameters",
                    twoSums, "The results are 124 and 151.");
        }
        String twoAndThree = call("add", "{\"arg0\": 2, \"arg1\": 3}");
        say("should_return_to_LLM",
                twoAndThree, call("multiply", "{\"arg0\": 5, \"arg1\": 4}"), "The result is 20.",
                ADD_37_87, SUM);
        say("should_return_immediately_from_first_tool_when_not_called_in_parallel",
                twoAndThree, ADD_37_87);
        say("should_keep_memory_consistent_using_return_immediate",
                ADD_37_87, call("add", "{\"arg0\": 124, \"arg1\": 47}"));
        process("should_execute_tool_with_pojo_with_primitives",
                "{\"name\": \"Klaus\", \"age\": 37, \"height\": 1.78, \"married\": false}");
        process("should_execute_tool_with_pojo_with_nested_pojo",
                "{\"name\": \"Klaus\", \"address\": {\"city\": \"Langley Falls\"}}");
        process("should_execute_tool_with_pojo_with_recursion",
                "{\"name\": \"Francine\", \"children\": [{\"name\": \"Steve\", \"children\": []}, "
                        + "{\"name\": \"Hayley\", \"children\": []}]}");
        process("should_execute_tool_with_map_parameter", "{\"Klaus\": 42, \"Francine\": 47}");
        process("should_execute_tool_with_set_of_enums_parameter", "[\"RED\", \"GREEN\"]");
        process("should_execute_tool_with_list_of_POJOs_parameter",
                "[{\"name\": \"Klaus\"}, {\"name\": \"Franny\"}]");
        say("should_execute_tool_without_parameters",
                call("currentTime", "{}"), "The time is 17:11:45.");
        say("should_execute_tool_with_enum_parameter",
                call("currentTemperature", "{\"arg0\": \"Munich\", \"arg1\": \"CELSIUS\"}"),
                "It is 19 degrees.");
        say("should_execute_tool_with_list_of_strings_parameter",
                call("processNames", "{\"arg0\": [\"Klaus\", \"Franny\"]}"), "Done.");
        say("should_execute_tool_with_collection_of_integers_parameter",
                call("processNumbers", "{\"arg0\": [37, 73]}"), "Done.");
        say("should_execute_tool_with_uuid_parameter",
                call("getUsernameFromId", "{\"arg0\": \"62dbcc27-aaf3-449a-b12d-5a904271a57f\"}"),
                "The username is Alice.");
        say("should_allow_empty_tool_result", call("modify", "{\"arg0\": 7}"), "Done.");
        say("should_allow_blank_tool_result", call("modify", "{\"arg0\": 7}"), "Done.");
        say("should_fail_when_tool_returns_image_and_provider_does_not_support_it",
                call("takePhoto", "{}"), "Done.");
    }

    private static void process(String test, String argument) {
        say(test, call("process", "{\"arg0\": " + argument + "}"), "Done.");
    }

    private static void schemas() {
        say("should_extract_pojo_with_primitives",
                "{\"name\": \"Klaus\", \"age\": 37, \"height\": 1.78, \"married\": false}");
        say("should_extract_pojo_with_missing_data", "{\"name\": \"Klaus\"}");
        say("should_extract_pojo_with_nested_pojo",
                "{\"name\": \"Klaus\", \"shippingAddress\": {\"city\": \"Langley Falls\"}, "
                        + "\"billingAddress\": {\"city\": \"New York\"}}");
        say("should_extract_pojo_with_enum",
                "{\"name\": \"Klaus\", \"maritalStatus\": \"SINGLE\"}");
        for (String container : List.of("array", "list", "set")) {
            say("should_extract_pojo_with_" + container + "_of_primitives", COLORS);
            say("should_extract_pojo_with_" + container + "_of_pojos", PETS);
            say("should_extract_pojo_with_" + container + "_of_enums", GROUPS);
        }
        String date = "{\"year\": 1976, \"month\": 8, \"day\": 12}";
        String time = "{\"hour\": 14, \"minute\": 43, \"second\": 0, \"nano\": 0}";
        say("should_extract_pojo_with_local_date_time_fields",
                "{\"name\": \"Klaus\", \"birthDate\": " + date + ", \"birthTime\": " + time
                        + ", \"birthDateTime\": {\"date\": " + date + ", \"time\": " + time + "}}");
        say("should_return_result_with_pojo", "{\"name\": \"Klaus\"}");
        say("should_extract_pojo_with_recursion",
                "{\"name\": \"Francine\", \"children\": [{\"name\": \"Steve\", \"children\": []}, "
                        + "{\"name\": \"Hayley\", \"children\": []}]}");
        say("should_extract_pojo_with_uuid",
                "{\"name\": \"Klaus\", \"id\": \"567b229a-6b0a-4f1e-9006-448cd9dfbfda\"}");
        for (String kind : List.of("primitive", "boxed")) {
            say("should_extract_boolean_" + kind, "{\"value\": true}");
            say("should_extract_int_" + kind, "{\"value\": 2}");
            say("should_extract_long_" + kind, "{\"value\": 2}");
            say("should_extract_float_" + kind, "{\"value\": -0.5}");
            say("should_extract_double_" + kind, "{\"value\": -0.5}");
        }
        say("should_extract_list_of_pojo", KLAUS_AND_FRANNY);
        say("should_extract_set_of_pojo", KLAUS_AND_FRANNY);
        say("should_return_result_with_list_of_pojo",
                "{\"values\": [{\"name\": \"Klaus\"}, {\"name\": \"Francine\"}]}");
        say("should_extract_list_of_strings", NAMES);
        say("should_extract_set_of_strings", NAMES);
        say("should_extract_enum", "{\"value\": \"SINGLE\"}");
        say("should_extract_list_of_enums",
                "{\"values\": [\"SINGLE\", \"MARRIED\", \"MARRIED\"]}");
        say("should_extract_set_of_enums",
                "{\"values\": [\"SUNNY\", \"WINDY\", \"RAINY\", \"CLOUDY\"]}");
        say("should_extract_polymorphic_type", "{\"value\": " + REX + "}");
        say("should_extract_list_of_polymorphic_types",
                "{\"values\": [" + REX + ", {\"type\": \"Cat\", \"name\": \"Whiskers\", "
                        + "\"indoor\": true}]}");
        say("should_extract_pojo_with_nested_polymorphic_field",
                "{\"name\": \"Alice\", \"pet\": " + REX + "}");
        say("should_extract_recursive_polymorphic_type", "{\"value\": {\"type\": \"Addition\", "
                + "\"left\": {\"type\": \"Addition\", "
                + "\"left\": {\"type\": \"Constant\", \"value\": 1}, "
                + "\"right\": {\"type\": \"Constant\", \"value\": 2}}, "
                + "\"right\": {\"type\": \"Constant\", \"value\": 3}}}");
    }

    private static void say(String test, String... replies) {
        REPLIES.put(test, List.of(replies));
    }

    private static String call(String name, String arguments) {
        return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments
                + "}\n</tool_call>";
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        String test = context.getRequiredTestMethod().getName();
        SERVER.say(REPLIES.getOrDefault(test, List.of()));
    }

    static LlbChatModel chatModel(ChatRequestParameters defaults, ChatModelListener... listeners) {
        var builder = LlbChatModel.builder().model(MODEL).modelName("scripted");
        if (defaults != null) {
            builder.defaultRequestParameters(defaults);
        }
        return builder.listeners(List.of(listeners)).build();
    }

    static LlbStreamingChatModel streamingChatModel(
            ChatRequestParameters defaults, ChatModelListener... listeners) {
        var builder = LlbStreamingChatModel.builder().model(MODEL).modelName("scripted");
        if (defaults != null) {
            builder.defaultRequestParameters(defaults);
        }
        return builder.listeners(List.of(listeners)).build();
    }
}
