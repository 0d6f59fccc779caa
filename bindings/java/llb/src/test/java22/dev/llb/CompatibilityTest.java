package dev.llb;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Tests compatibility with programs older than this binding. Such programs load the library
 * themselves and use only the earliest functions. They read replies as strictly as this test: they
 * bind them to types that refuse unknown members of {@code usage} and {@code error}. These must
 * keep working.
 *
 * <p>Uses no class of this package except {@link TestFiles}.
 */
@SuppressWarnings("restricted")
class CompatibilityTest {

    private static final String HI =
            """
            {"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}],
             "temperature":0.0,"top_k":40,"top_p":0.95,"min_p":0.05,"max_tokens":64,"repeat_penalty":1.0,
             "seed":7,"stop":["</never>"]}""";

    private static final String WEATHER =
            """
            {"messages":[{"role":"user","content":"weather in Paris?"}],"tools":[{"type":"function","function":{
               "name":"get_weather","description":"The weather at a place","parameters":{"type":"object",
                 "properties":{"city":{"type":"string"}},"required":["city"]}}}],
             "tool_choice":"auto","temperature":0.0,"max_tokens":128}""";

    /** Values that such a program may send. The library corrects or ignores them. */
    private static final String LENIENT =
            """
            {"messages":[{"role":"user","content":"hi"}],"temperature":-1.0,"top_k":-1,"max_tokens":0,
             "seed":1762345678901,"stop":["","</never>"]}""";

    /** Jackson refuses unknown members unless the type says otherwise. */
    private static final ObjectMapper STRICT = new ObjectMapper();

    /** A reply as such a program binds it. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    record StrictReply(
            @JsonProperty("type") String type,
            @JsonProperty("text") String text,
            @JsonProperty("finish_reason") String finishReason,
            @JsonProperty("usage") StrictUsage usage,
            @JsonProperty("error") StrictError error) {

        static StrictReply of(JsonObject reply) throws Exception {
            return STRICT.readValue(reply.toString(), StrictReply.class);
        }
    }

    record StrictUsage(
            @JsonProperty("prompt_tokens") int promptTokens,
            @JsonProperty("completion_tokens") int completionTokens,
            @JsonProperty("total_tokens") int totalTokens) {}

    record StrictError(@JsonProperty("code") String code, @JsonProperty("message") String message) {}

    /** The functions as such a program declares them. */
    private static final class Bridge {

        static final Linker LINKER = Linker.nativeLinker();
        static final SymbolLookup SYMBOLS = SymbolLookup.libraryLookup(libraryPath(), Arena.global());
        static final MethodHandle VERSION = function("llb_version", FunctionDescriptor.of(ADDRESS));
        static final MethodHandle MODEL_INFO = function("llb_model_info", FunctionDescriptor.of(ADDRESS, ADDRESS));
        static final MethodHandle CREATE =
                function("llb_chat_create", FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS, ADDRESS));
        static final MethodHandle INFER =
                function("llb_chat_infer", FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS));
        static final MethodHandle INFER_STREAM = function(
                "llb_chat_infer_stream", FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS));
        static final MethodHandle STRING_FREE = function("llb_string_free", FunctionDescriptor.ofVoid(ADDRESS));
        static final MethodHandle DESTROY = function("llb_chat_destroy", FunctionDescriptor.ofVoid(ADDRESS));

        private static Path libraryPath() {
            String property = System.getProperty("llb.library", "");
            return Path.of(property.isBlank() ? System.getenv("LLB_LIBRARY") : property).toAbsolutePath();
        }

        private static MethodHandle function(String name, FunctionDescriptor type) {
            return LINKER.downcallHandle(SYMBOLS.find(name).orElseThrow(), type);
        }

        static String text(MemorySegment address) {
            return address.reinterpret(Long.MAX_VALUE).getString(0);
        }

        static JsonObject take(MemorySegment address) throws Throwable {
            assertNotEquals(0, address.address(), "a reply is never NULL");
            String json = text(address);
            STRING_FREE.invokeExact(address);
            return JsonParser.parseString(json).getAsJsonObject();
        }
    }

    /** Records the arguments of a callback. */
    private static final class Recorder {

        final List<String> texts = new ArrayList<>();
        final List<Long> userData = new ArrayList<>();

        @SuppressWarnings("unused")
        void record(MemorySegment text, MemorySegment data) {
            texts.add(Bridge.text(text));
            userData.add(data.address());
        }

        MemorySegment stub(Arena arena) throws ReflectiveOperationException {
            MethodType type = MethodType.methodType(void.class, MemorySegment.class, MemorySegment.class);
            MethodHandle record =
                    MethodHandles.lookup().findVirtual(Recorder.class, "record", type).bindTo(this);
            FunctionDescriptor descriptor = FunctionDescriptor.ofVoid(ADDRESS, ADDRESS);
            return Bridge.LINKER.upcallStub(record, descriptor, arena);
        }
    }

    @Test
    void version() throws Throwable {
        TestFiles.library();
        MemorySegment first = (MemorySegment) Bridge.VERSION.invokeExact();
        MemorySegment second = (MemorySegment) Bridge.VERSION.invokeExact();
        assertFalse(Bridge.text(first).isBlank());
        assertEquals(first.address(), second.address(), "the string is static");
    }

    @Test
    void freeingNullDoesNothing() throws Throwable {
        TestFiles.library();
        Bridge.STRING_FREE.invokeExact(MemorySegment.NULL);
        Bridge.DESTROY.invokeExact(MemorySegment.NULL);
    }

    @Test
    void modelInfo() throws Throwable {
        JsonObject info = info(TestFiles.scripted("text.gguf").toString());
        checkBoolean(info, "supports_tools", true);
        checkBoolean(info, "supports_tool_calls", true);
        checkBoolean(info, "has_tool_use_template", false);
        string(info, "chat_format");
        assertTrue(info.has("error") && info.get("error").isJsonNull());

        checkBoolean(info(TestFiles.scripted("no_tools.gguf").toString()), "supports_tools", false);
        checkBoolean(info(TestFiles.scripted("tool_use.gguf").toString()), "has_tool_use_template", true);
    }

    @Test
    void modelInfoOfInvalidFiles(@TempDir Path folder) throws Throwable {
        checkInfoError("model_not_found", "/nowhere/at-all.gguf");
        checkInfoError("null_path", null);
        Path text = Files.writeString(folder.resolve("text.gguf"), "not a model");
        checkInfoError("load_model", text.toString());
        checkInfoError("chat_template", TestFiles.scripted("bad_template.gguf").toString());
    }

    private static void checkInfoError(String error, String path) throws Throwable {
        JsonObject info = info(path);
        assertEquals(error, string(info, "error"));
        for (String flag : List.of("supports_tools", "supports_tool_calls", "has_tool_use_template")) {
            checkBoolean(info, flag, false);
        }
    }

    private static JsonObject info(String path) throws Throwable {
        TestFiles.library();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment argument = path == null ? MemorySegment.NULL : arena.allocateFrom(path);
            return Bridge.take((MemorySegment) Bridge.MODEL_INFO.invokeExact(argument));
        }
    }

    @Test
    void refusals() throws Throwable {
        checkRefused("create_failure:null_path", null);
        checkRefused("create_failure:model_not_found", "/nowhere/at-all.gguf");
        checkRefused("create_failure:tools_unsupported", TestFiles.scripted("no_tools.gguf").toString());
        checkRefused("create_failure:load_model", TestFiles.scripted("truncated.gguf").toString());
        checkRefused("create_failure:chat_template", TestFiles.scripted("bad_template.gguf").toString());
    }

    private static void checkRefused(String lastEvent, String path) throws Throwable {
        TestFiles.library();
        try (Arena arena = Arena.ofConfined()) {
            Recorder events = new Recorder();
            MemorySegment argument = path == null ? MemorySegment.NULL : arena.allocateFrom(path);
            MemorySegment chat =
                    (MemorySegment) Bridge.CREATE.invokeExact(argument, events.stub(arena), MemorySegment.NULL);
            assertEquals(0, chat.address());
            assertEquals(List.of("create_start", lastEvent), events.texts);
        }
    }

    @Test
    void aWholeConversation() throws Throwable {
        String path = TestFiles.scripted("text.gguf").toString();
        try (Arena arena = Arena.ofShared()) {
            Recorder events = new Recorder();
            MemorySegment data = arena.allocate(8);
            MemorySegment chat =
                    (MemorySegment) Bridge.CREATE.invokeExact(arena.allocateFrom(path), events.stub(arena), data);
            assertNotEquals(0, chat.address());
            checkCreateEvents(events.texts);
            events.texts.clear();

            JsonObject reply = infer(chat, HI);
            checkReply(reply, "assistant_text", Set.of("stop"));
            assertEquals(TestFiles.expected("text"), string(reply, "text"));
            assertEquals(0, reply.getAsJsonArray("tool_calls").size());
            assertEquals(List.of("infer_start", "infer_success"), events.texts);
            events.texts.clear();

            Recorder pieces = new Recorder();
            MemorySegment pieceData = arena.allocate(8);
            JsonObject streamed = Bridge.take((MemorySegment) Bridge.INFER_STREAM.invokeExact(
                    chat, arena.allocateFrom(HI), pieces.stub(arena), pieceData));
            checkReply(streamed, "assistant_text", Set.of("stop"));
            assertEquals(string(streamed, "text"), String.join("", pieces.texts));
            assertTrue(pieces.texts.size() > 1);
            assertTrue(pieces.userData.stream().allMatch(address -> address == pieceData.address()));
            assertEquals(string(reply, "text"), string(streamed, "text"));
            events.texts.clear();

            MemorySegment request = arena.allocateFrom(HI);
            JsonObject withoutCallback = Bridge.take((MemorySegment) Bridge.INFER_STREAM.invokeExact(
                    chat, request, MemorySegment.NULL, MemorySegment.NULL));
            checkReply(withoutCallback, "assistant_text", Set.of("stop"));
            events.texts.clear();

            JsonObject lenient = infer(chat, LENIENT);
            checkReply(lenient, "assistant_text", Set.of("stop"));
            assertEquals(TestFiles.expected("text"), string(lenient, "text"));
            events.texts.clear();

            String tooLong = HI.replace("hi", "x".repeat(10_000));
            checkError("CONTEXT_OVERFLOW", infer(chat, tooLong));
            checkError("INVALID_REQUEST", infer(chat, "{\"messages\":"));
            checkError("INVALID_REQUEST", infer(chat, "{}"));
            checkError("INVALID_REQUEST", infer(chat, null));
            assertEquals("infer_failure", events.texts.getLast());
            events.texts.clear();

            Bridge.DESTROY.invokeExact(chat);
            assertEquals(List.of("destroy"), events.texts);
            assertTrue(events.userData.stream().allMatch(address -> address == data.address()));

            checkError("ENGINE_CLOSED", infer(chat, HI));
            Bridge.DESTROY.invokeExact(chat);
            assertEquals(List.of("destroy"), events.texts);
        }
    }

    @Test
    void aToolCallWithoutAnEventCallback() throws Throwable {
        String path = TestFiles.scripted("tool_call.gguf").toString();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment chat = (MemorySegment)
                    Bridge.CREATE.invokeExact(arena.allocateFrom(path), MemorySegment.NULL, MemorySegment.NULL);
            assertNotEquals(0, chat.address());
            JsonObject reply = infer(chat, WEATHER);
            checkReply(reply, "tool_call", Set.of("tool_calls"));
            assertEquals(1, reply.getAsJsonArray("tool_calls").size());
            JsonObject call = reply.getAsJsonArray("tool_calls").get(0).getAsJsonObject();
            assertFalse(string(call, "id").isEmpty());
            assertEquals("get_weather", string(call, "name"));
            assertTrue(JsonParser.parseString(string(call, "arguments")).isJsonObject());
            Bridge.DESTROY.invokeExact(chat);
        }
    }

    @Test
    void invalidHandles() throws Throwable {
        TestFiles.library();
        checkError("ENGINE_CLOSED", infer(MemorySegment.NULL, HI));
        checkError("ENGINE_CLOSED", infer(MemorySegment.ofAddress(0x1234_5678), HI));
    }

    @Test
    void invalidUtf8() throws Throwable {
        TestFiles.library();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment broken = arena.allocate(4);
            broken.set(java.lang.foreign.ValueLayout.JAVA_BYTE, 0, (byte) 0xff);
            JsonObject info = Bridge.take((MemorySegment) Bridge.MODEL_INFO.invokeExact(broken));
            assertFalse(info.get("error").isJsonNull());
        }
    }

    private static JsonObject infer(MemorySegment chat, String request) throws Throwable {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment argument = request == null ? MemorySegment.NULL : arena.allocateFrom(request);
            return Bridge.take((MemorySegment) Bridge.INFER.invokeExact(chat, argument));
        }
    }

    private static void checkCreateEvents(List<String> events) {
        assertEquals("create_start", events.getFirst());
        assertEquals("create_success", events.getLast());
        double last = 0;
        for (String event : events.subList(1, events.size() - 1)) {
            assertTrue(event.matches("load_progress:(0\\.\\d\\d|1\\.00)"), event);
            double progress = Double.parseDouble(event.substring("load_progress:".length()));
            assertTrue(progress >= last, events.toString());
            last = progress;
        }
        assertTrue(events.size() > 2, events.toString());
    }

    private static void checkReply(JsonObject reply, String type, Set<String> finishReasons) throws Exception {
        assertEquals(type, string(reply, "type"), reply.toString());
        string(reply, "text");
        assertTrue(reply.get("tool_calls").isJsonArray());
        assertTrue(finishReasons.contains(string(reply, "finish_reason")), reply.toString());
        JsonObject members = reply.getAsJsonObject("usage");
        int prompt = integer(members, "prompt_tokens");
        int completion = integer(members, "completion_tokens");
        assertTrue(prompt > 0 && completion > 0, members.toString());
        assertEquals(new StrictUsage(prompt, completion, prompt + completion), StrictReply.of(reply).usage());
    }

    private static void checkError(String code, JsonObject reply) throws Exception {
        assertEquals("error", string(reply, "type"), reply.toString());
        StrictError error = StrictReply.of(reply).error();
        assertEquals(code, error.code());
        assertFalse(error.message().isBlank());
    }

    private static void checkBoolean(JsonObject object, String key, boolean expected) {
        JsonElement value = object.get(key);
        assertTrue(value instanceof JsonPrimitive flag && flag.isBoolean(), key + ": " + value);
        assertEquals(expected, value.getAsBoolean(), key);
    }

    private static String string(JsonObject object, String key) {
        JsonElement value = object.get(key);
        assertTrue(value instanceof JsonPrimitive text && text.isString(), key + ": " + value);
        return value.getAsString();
    }

    /** Reads a number as such a program does: without fraction or exponent. */
    private static int integer(JsonObject object, String key) {
        JsonElement value = object.get(key);
        assertTrue(value instanceof JsonPrimitive number && number.isNumber(), key + ": " + value);
        assertTrue(value.toString().matches("\\d+"), key + ": " + value);
        return value.getAsInt();
    }
}
