package dev.llb.langchain4j;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.ObjectMapper;
import dev.langchain4j.data.message.ImageContent;
import dev.langchain4j.data.message.TextContent;
import dev.langchain4j.data.message.ToolExecutionResultMessage;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.model.chat.request.ChatRequestParameters;
import dev.langchain4j.model.chat.request.json.JsonAnyOfSchema;
import dev.langchain4j.model.chat.request.json.JsonArraySchema;
import dev.langchain4j.model.chat.request.json.JsonEnumSchema;
import dev.langchain4j.model.chat.request.json.JsonNullSchema;
import dev.langchain4j.model.chat.request.json.JsonObjectSchema;
import dev.langchain4j.model.chat.request.json.JsonRawSchema;
import dev.langchain4j.model.chat.request.json.JsonReferenceSchema;
import dev.langchain4j.model.chat.request.json.JsonSchemaElement;
import dev.langchain4j.model.chat.request.json.JsonStringSchema;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Tests schemas and parameters, without a model. */
class ConversionTest {

    private static final ObjectMapper JSON = new ObjectMapper();

    private static final JsonObjectSchema PERSON = JsonObjectSchema.builder()
            .description("A person")
            .addStringProperty("name")
            .addProperty("kind", JsonEnumSchema.builder().enumValues("A", "B").build())
            .addProperty("ages", JsonObjectSchema.builder().build())
            .addProperty("friend", JsonReferenceSchema.builder().reference("p").build())
            .required("name")
            .definitions(Map.of("p", JsonObjectSchema.builder().addStringProperty("n").build()))
            .build();

    private static void check(Map<String, Object> schema, String expected) throws Exception {
        assertThat(JSON.valueToTree(schema).toString())
                .isEqualTo(JSON.readTree(expected).toString());
    }

    @Test
    void aClosedObjectHasExactlyItsProperties() throws Exception {
        check(Schemas.closed(PERSON), """
                {"type":"object","properties":{
                   "name":{"type":"string"},
                   "kind":{"type":["string","null"],"enum":["A","B",null]},
                   "ages":{"type":["object","null"],"properties":{}},
                   "friend":{"anyOf":[{"$ref":"#/$defs/p"},{"type":"null"}]}},
                 "required":["name","kind","ages","friend"],"additionalProperties":false,
                 "$defs":{"p":{"type":"object","properties":{"n":{"type":["string","null"]}},
                   "required":["n"],"additionalProperties":false}},
                 "description":"A person"}""");
    }

    @Test
    void anOpenObjectIsAsWritten() throws Exception {
        check(Schemas.open(PERSON), """
                {"type":"object","properties":{
                   "name":{"type":"string"},
                   "kind":{"type":"string","enum":["A","B"]},
                   "ages":{"type":"object","properties":{}},
                   "friend":{"$ref":"#/$defs/p"}},
                 "required":["name"],
                 "$defs":{"p":{"type":"object","properties":{"n":{"type":"string"}}}},
                 "description":"A person"}""");
    }

    @Test
    void otherElements() throws Exception {
        JsonSchemaElement any = JsonAnyOfSchema.builder()
                .anyOf(List.of(new JsonStringSchema(), new JsonNullSchema()))
                .build();
        check(Schemas.closed(any), "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}");
        check(
                Schemas.closed(JsonArraySchema.builder().items(any).description("d").build()),
                "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"string\"},"
                        + "{\"type\":\"null\"}]},\"description\":\"d\"}");
        String raw = "{\"type\":\"object\",\"maxProperties\":3}";
        check(Schemas.closed(JsonRawSchema.from(raw)), raw);
        check(
                Schemas.closed(JsonObjectSchema.builder()
                        .addStringProperty("a")
                        .additionalProperties(true)
                        .build()),
                "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}},"
                        + "\"additionalProperties\":true}");
    }

    @Test
    void imagesAreParts() {
        UserMessage about = UserMessage.from(
                TextContent.from("see"), ImageContent.from("AQ==", "image/png"));
        Map<String, Object> image = Map.of(
                "type", "image_url", "image_url", Map.of("url", "data:image/png;base64,AQ=="));
        assertThat(Requests.message(about).content())
                .isEqualTo(List.of(Map.of("type", "text", "text", "see"), image));
        ToolExecutionResultMessage result = ToolExecutionResultMessage.builder()
                .id("1")
                .toolName("look")
                .contents(List.of(ImageContent.from("AQ==", "image/png")))
                .build();
        assertThat(Requests.message(result).content()).isEqualTo(List.of(image));
        UserMessage far = UserMessage.from(ImageContent.from("https://example.org/a.png"));
        assertThat(Requests.message(far).content().toString()).contains("https://example.org/a.png");
    }

    @Test
    void ownParametersSurviveMerging() {
        LlbChatRequestParameters defaults =
                LlbChatRequestParameters.builder().temperature(0.5).seed(1).minP(0.1).build();
        ChatRequestParameters plain = ChatRequestParameters.builder().temperature(0.9).build();
        LlbChatRequestParameters merged = defaults.overrideWith(plain);
        assertThat(merged.temperature()).isEqualTo(0.9);
        assertThat(merged.options()).isEqualTo(Map.of("seed", 1L, "min_p", 0.1));
        LlbChatRequestParameters own = LlbChatRequestParameters.builder().seed(2).build();
        assertThat(defaults.overrideWith(own).options())
                .isEqualTo(Map.of("seed", 2L, "min_p", 0.1));
        assertThat(plain.overrideWith(own)).isInstanceOf(LlbChatRequestParameters.class);
        assertThat(own.defaultedBy(defaults)).isEqualTo(defaults.overrideWith(own));
    }
}
