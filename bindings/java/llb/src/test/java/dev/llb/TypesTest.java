package dev.llb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Tests records as replies and as arguments of tools. */
class TypesTest {

    enum Color {
        RED,
        GREEN
    }

    record Address(String city) {}

    @Description("A person")
    record Person(
            String name,
            @Description("in years") int age,
            Optional<Address> home,
            Set<Color> colors,
            Map<String, Double> scores) {}

    record Tree(String label, List<Tree> children) {}

    record Endless(String name, Inner inner) {
        record Inner(Endless again) {}
    }

    record Generic<T>(T value) {}

    record OfGeneric(Generic<String> generic) {}

    record WithDate(Address address, java.time.LocalDate birth) {}

    private static final String PERSON_JSON =
            """
            {"name":"Ada","age":36,"home":{"city":"London"},"colors":["RED"],"scores":{"x":1}}""";

    private static final Person ADA = new Person(
            "Ada", 36, Optional.of(new Address("London")), Set.of(Color.RED), Map.of("x", 1.0));

    @Test
    void theSchemaOfARecord() {
        assertEquals(
                Json.readObject(
                        """
                        {"type":"object","description":"A person","properties":{
                           "name":{"type":"string"},
                           "age":{"type":"integer","description":"in years"},
                           "home":{"anyOf":[{"type":"object","properties":{"city":{"type":"string"}},
                              "required":["city"],"additionalProperties":false},{"type":"null"}]},
                           "colors":{"type":"array","items":{"type":"string","enum":["RED","GREEN"]}},
                           "scores":{"type":"object","additionalProperties":{"type":"number"}}},
                         "required":["name","age","home","colors","scores"],
                         "additionalProperties":false}"""),
                Json.readObject(Json.write(TypeSchema.of(Person.class))));
    }

    @Test
    void theSchemaOfARecursiveRecord() {
        String tree =
                """
                {"type":"object","properties":{"label":{"type":"string"},
                   "children":{"type":"array","items":{"$ref":"#/$defs/Tree"}}},
                 "required":["label","children"],"additionalProperties":false""";
        assertEquals(
                Json.readObject(tree + ",\"$defs\":{\"Tree\":" + tree + "}}}"),
                Json.readObject(Json.write(TypeSchema.of(Tree.class))));
    }

    @Test
    void aTypeWithoutSchemaIsNamed() {
        IllegalArgumentException e = assertThrows(
                IllegalArgumentException.class, () -> TypeSchema.of(WithDate.class));
        assertTrue(
                e.getMessage().startsWith("WithDate.birth: java.time.LocalDate has no schema"),
                e.getMessage());
    }

    @Test
    void aTypeThatCannotBeWrittenIsNamed() {
        checkNoSchema(Endless.class, "Endless.inner.again: a Endless always contains another one");
        checkNoSchema(OfGeneric.class, "OfGeneric.generic.value: T has no schema");
    }

    private static void checkNoSchema(Class<? extends Record> type, String message) {
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> TypeSchema.of(type));
        assertTrue(e.getMessage().startsWith(message), e.getMessage());
    }

    @Test
    void values() {
        assertEquals(ADA, TypeSchema.read(Json.readObject(PERSON_JSON), Person.class, "p"));
        checkFails("p.age: 1.5 is no int", "\"age\":36", "\"age\":1.5");
        checkFails("p.age: 3000000000 is no int", "\"age\":36", "\"age\":3000000000");
        checkFails("p.name: missing or null", "\"name\":\"Ada\",", "");
        checkFails("p.colors[0]: expected ", "\"RED\"", "\"BLUE\"");
        checkFails("p.home.city: expected java.lang.String, not 1", "\"London\"", "1");
        String homeless = PERSON_JSON.replace("{\"city\":\"London\"}", "null");
        Person read = (Person) TypeSchema.read(Json.readObject(homeless), Person.class, "p");
        assertEquals(Optional.empty(), read.home());
    }

    private static void checkFails(String message, String part, String replacement) {
        Map<String, Object> json = Json.readObject(PERSON_JSON.replace(part, replacement));
        IllegalArgumentException e = assertThrows(
                IllegalArgumentException.class, () -> TypeSchema.read(json, Person.class, "p"));
        assertTrue(e.getMessage().startsWith(message), e.getMessage());
    }

    @Test
    void aReplyIsARecord() {
        // No word of this model's text fits, so the JSON comes from the constraint alone.
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("text.gguf"))) {
            ChatRequest.Builder request = ChatRequest.builder().user("hi").temperature(0);
            record Answer(boolean yes, Color color) {}
            Answer answer = chat.infer(request.maxTokens(200).build(), Answer.class);
            assertTrue(List.of(Color.values()).contains(answer.color()));
            LlbException cut = assertThrows(
                    LlbException.class,
                    () -> chat.infer(request.maxTokens(2).build(), Answer.class));
            assertEquals("REPLY_INVALID", cut.code());
            assertTrue(cut.getMessage().contains("length"), cut.getMessage());
            assertTrue(cut.details().containsKey("text"));
        }
    }

    /** Methods as tools. The tests are compiled without parameter names. */
    static final class Weather {

        final List<String> asked = new ArrayList<>();

        record Place(@Description("a city") String city) {}

        @ToolMethod(value = "The weather at a place", name = "get_weather")
        Map<String, Integer> weather(Place place) {
            asked.add(place.city());
            return Map.of("celsius", 22);
        }

        @ToolMethod("Fails")
        void fail() {
            throw new IllegalStateException("on purpose");
        }
    }

    @Test
    void toolsOfAnObject() {
        Weather weather = new Weather();
        ToolSet tools = ToolSet.of(weather)
                .with("length", "The length of a city's name", Weather.Place.class,
                        place -> place.city().length());
        assertEquals(
                Set.of("get_weather", "fail", "length"),
                Set.copyOf(tools.tools().stream().map(Tool::name).toList()));
        checkCall(tools, "get_weather", "{\"city\":\"Paris\"}", "{\"celsius\":22}");
        assertEquals(List.of("Paris"), weather.asked);
        checkCall(tools, "length", "{\"city\":\"Paris\"}", "5");
        checkCall(tools, "fail", "{}", "error: on purpose");
        checkCall(tools, "nothing", "{}", "error: no tool is named nothing");
        checkCall(tools, "get_weather", "{\"city\":1}",
                "error: get_weather.city: expected java.lang.String, not 1");
        assertThrows(IllegalArgumentException.class, () -> ToolSet.of("no tools"));
        assertThrows(IllegalArgumentException.class, () -> ToolSet.of(weather, weather));
    }

    @Test
    void failuresOfTools() {
        List<String> failed = new ArrayList<>();
        ToolSet tools = ToolSet.of(new Weather())
                .onFailure((call, e) -> failed.add(call.name() + " " + e.getMessage()))
                .with("length", "Fails", Weather.Place.class, place -> Thread.currentThread());
        checkCall(tools, "fail", "{}", "error: on purpose");
        checkCall(tools, "nothing", "{}", "error: no tool is named nothing");
        tools.call(new ToolCall("id", "length", "{\"city\":\"Rome\"}"));
        tools.call(new ToolCall("id", "get_weather", "{\"city\":\"Rome\"}"));
        assertEquals(
                List.of(
                        "fail on purpose",
                        "nothing no tool is named nothing",
                        "length java.lang.Thread has no JSON form; use records, maps, collections,"
                                + " strings, numbers and booleans"),
                failed);
        ToolSet fatal = ToolSet.of(new Weather()).onFailure((call, e) -> {
            throw new IllegalStateException("ends the run", e);
        });
        IllegalStateException e = assertThrows(
                IllegalStateException.class,
                () -> fatal.call(new ToolCall("id", "fail", "{}")));
        assertEquals("on purpose", e.getCause().getMessage());
    }

    private interface Asks<A> {
        Object ask(A about);
    }

    /** Its methods are those of a proxy: without annotations, and with a bridge. */
    static class Results implements Asks<Results.Name> {

        record Name(String name) {}

        record Found(
                Optional<String> place, java.time.LocalDate day, List<Optional<Integer>> all) {}

        @Override
        @ToolMethod("Returns what its argument names")
        public Object ask(Name about) {
            return switch (about.name()) {
                case "found" -> new Found(
                        Optional.of("here"),
                        java.time.LocalDate.of(2026, 1, 2),
                        List.of(Optional.of(1), Optional.empty()));
                case "array" -> new double[] {1.5};
                case "text" -> "text";
                case "thread" -> Thread.currentThread();
                case "cycle" -> {
                    List<Object> cycle = new ArrayList<>();
                    cycle.add(cycle);
                    yield cycle;
                }
                default -> null;
            };
        }

        @ToolMethod("Returns nothing")
        void act() {}

        @ToolMethod("Returns null")
        String absent() {
            return null;
        }
    }

    static final class Proxy extends Results {

        @Override
        public Object ask(Name about) {
            return about.name().equals("proxy") ? "proxied" : super.ask(about);
        }
    }

    @Test
    void resultsOfTools() {
        ToolSet tools = ToolSet.of(new Proxy());
        assertEquals(
                List.of("absent", "act", "ask"), tools.tools().stream().map(Tool::name).toList());
        checkAsk(tools, "found", "{\"place\":\"here\",\"day\":\"2026-01-02\",\"all\":[1,null]}");
        checkAsk(tools, "array", "[1.5]");
        checkAsk(tools, "text", "text");
        checkAsk(tools, "nothing", "null");
        checkAsk(tools, "proxy", "proxied");
        checkAsk(tools, "cycle", "error: a value that contains itself has no JSON form");
        checkAsk(tools, "thread", "error: java.lang.Thread has no JSON form; use records, maps,"
                + " collections, strings, numbers and booleans");
        checkCall(tools, "act", "{}", "done");
        checkCall(tools, "absent", "{}", "null");
    }

    private static ToolCall asking(String name) {
        return new ToolCall("id", "ask", "{\"name\":\"" + name + "\"}");
    }

    private static void checkAsk(ToolSet tools, String name, String result) {
        assertEquals(result, tools.call(asking(name)).content());
    }

    static final class Overloaded {

        @ToolMethod("One")
        void one() {}

        @ToolMethod("Another one")
        void one(Results.Name name) {}
    }

    @Test
    void overloadedToolsAreRefused() {
        IllegalArgumentException e = assertThrows(
                IllegalArgumentException.class, () -> ToolSet.of(new Overloaded()));
        assertEquals("two tools are named one", e.getMessage());
    }

    static final class Waiting {

        @ToolMethod("Is interrupted")
        void sleep() throws InterruptedException {
            throw new InterruptedException("on purpose");
        }
    }

    @Test
    void anInterruptOfAToolStaysPending() {
        checkCall(ToolSet.of(new Waiting()), "sleep", "{}", "error: on purpose");
        assertTrue(Thread.interrupted());
    }

    /** The model gets the whole result; a prompt that does not fit is an error of the request. */
    @Test
    void aHugeResult() {
        try (LlbChat chat = LlbChat.open(ChatOptions.builder(TestFiles.scripted("tool_call.gguf"))
                .contextLength(512)
                .build())) {
            ToolSet tools = ToolSet.empty().with(
                    "get_weather",
                    "The weather at a place",
                    Weather.Place.class,
                    place -> "rain ".repeat(100_000));
            LlbException e = assertThrows(
                    LlbException.class,
                    () -> chat.run(ChatRequest.of("weather in Paris?"), tools, 2));
            assertEquals("CONTEXT_OVERFLOW", e.code());
            assertEquals(FinishReason.STOP, chat.infer(ChatRequest.of("hi")).finishReason());
        }
    }

    private static void checkCall(ToolSet tools, String name, String arguments, String result) {
        assertEquals(result, tools.call(new ToolCall("id", name, arguments)).content());
    }

    /** The scripted model calls the tool in every round, so the number of rounds is limited. */
    @Test
    void theRoundsAreBounded() {
        Weather weather = new Weather();
        try (LlbChat chat = LlbChat.open(TestFiles.scripted("tool_call.gguf"))) {
            ChatRequest request =
                    ChatRequest.builder().user("weather in Paris?").temperature(0).build();
            ToolRun run = chat.run(request, ToolSet.of(weather), 2);
            assertEquals(List.of("Paris", "Paris"), weather.asked);
            List<String> roles = run.messages().stream().map(Message::role).toList();
            assertEquals(
                    List.of("user", "assistant", "tool", "assistant", "tool", "assistant"), roles);
            assertEquals("{\"celsius\":22}", run.messages().get(2).content());
            // The last request was made without calls.
            assertEquals(List.of(), run.reply().toolCalls());
            assertEquals(
                    run.messages().get(1).toolCalls().get(0).id(),
                    run.messages().get(2).toolCallId());
            assertThrows(
                    IllegalArgumentException.class,
                    () -> chat.run(request, ToolSet.empty(), 0));
        }
    }
}
