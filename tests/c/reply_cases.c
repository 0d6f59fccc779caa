/* Replies: text, streams, stops, lengths, usage and tool calls; templates without a model.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"

#define WEATHER                                                                                                           \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","      \
    "\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":30}},\"required\":[\"city\"]}}}]"

void replies(void)
{
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    for (int round = 0; round < 3; round++)
        reply_text_is(infer(chat, ask("")), expected("text"), "stop");
    reply_text_is(infer(chat, ask(",\"temperature\":0.7,\"seed\":7")), expected("text"), "stop");
    llb_chat_destroy(chat);
    chat = open_chat("long.gguf", "", NULL);
    reply_text_is(infer(chat, ask(",\"max_tokens\":400")), expected("long"), "stop");
    llb_chat_destroy(chat);
    chat = open_chat("tool_call.gguf", "", NULL);
    reply_text_is(infer(chat, ask("")), expected("tool_call"), "stop");
    llb_chat_destroy(chat);
}

static void stream_is(llb_chat_t *chat, char *request, const char *text, const char *finish_reason)
{
    struct record pieces;
    record_init(&pieces);
    const char *reply = llb_chat_infer_stream(chat, request, on_piece, &pieces);
    CHECK(strcmp(pieces.text, text) == 0, pieces.text);
    CHECK(pieces.all_valid_utf8, pieces.text);
    CHECK(pieces.count > 1, pieces.text);
    reply_text_is(reply, text, finish_reason);
    record_free(&pieces);
    free(request);
}

/* The members of the received chunks, with all `content` concatenated. */
struct chunks {
    char *content, *finish_reason, *usage;
};

static void take_chunk(struct record *record, const char *chunk)
{
    struct chunks *chunks = record->context;
    const char *choice = json_first(json_member(chunk, "choices"));
    CHECK(is_json(chunk) && member_is(chunk, "object", "chat.completion.chunk"), chunk);
    CHECK(!chunks->finish_reason, chunk);
    char *content = json_string(json_member(json_member(choice, "delta"), "content"));
    if (content) {
        char *both = json_format("%s%s", chunks->content ? chunks->content : "", content);
        free(chunks->content);
        chunks->content = both;
    }
    free(content);
    chunks->finish_reason = json_string(json_member(choice, "finish_reason"));
    chunks->usage = json_copy(json_member(chunk, "usage"));
}

void streams(void)
{
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    stream_is(chat, ask(""), expected("text"), "stop");
    char *request = ask(",\"stream_format\":\"chunks\",\"stream_options\":{\"include_usage\":true}");
    struct chunks chunks = {0};
    struct record record;
    record_init(&record);
    record.then = take_chunk;
    record.context = &chunks;
    const char *reply = llb_chat_infer_stream(chat, request, on_piece, &record);
    CHECK(chunks.content && strcmp(chunks.content, expected("text")) == 0, chunks.content);
    CHECK(chunks.finish_reason && strcmp(chunks.finish_reason, "stop") == 0, chunks.finish_reason);
    CHECK(chunks.usage && strncmp(chunks.usage, json_member(reply, "usage"), strlen(chunks.usage)) == 0, chunks.usage);
    reply_text_is(reply, expected("text"), "stop");
    free(chunks.content);
    free(chunks.finish_reason);
    free(chunks.usage);
    record_free(&record);
    free(request);
    llb_chat_destroy(chat);

    chat = open_chat("long.gguf", "", NULL);
    stream_is(chat, ask(",\"max_tokens\":400"), expected("long"), "stop");
    llb_chat_destroy(chat);
}

void stops_and_lengths(void)
{
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    reply_text_is(infer(chat, ask(",\"stop\":\"na\\u00efve\"")), "Grüße aus Köln: ", "stop");
    reply_text_is(infer(chat, ask(",\"stop\":[\"nowhere\",\"K\"]")), "Grüße aus ", "stop");
    reply_text_is(infer(chat, ask(",\"stop\":\"Gr\"")), "", "stop");
    stream_is(chat, ask(",\"stop\":[\"\\ud83d\\ude00 cut\"]"), "Grüße aus Köln: naïve 東京, and an emoji ", "stop");

    /* The script has 12 tokens: "Gr\xC3", "\xBC\xC3", "\x9Fe aus", " Köln:", ... */
    static const struct {
        int max_tokens;
        const char *text;
    } lengths[] = {{3, "Grüße aus"}, {4, "Grüße aus Köln:"}, {1, "Gr\xEF\xBF\xBD"}, {11, "Grüße aus Köln: naïve 東京, and an emoji 😀 cut"}};
    for (size_t index = 0; index < sizeof lengths / sizeof *lengths; index++) {
        char *members = json_format(",\"max_tokens\":%d", lengths[index].max_tokens);
        const char *reply = infer(chat, ask(members));
        CHECK(member_number(json_member(reply, "usage"), "completion_tokens") == lengths[index].max_tokens, reply);
        reply_text_is(reply, lengths[index].text, "length");
        free(members);
    }
    const char *reply = infer(chat, ask(",\"max_tokens\":1,\"max_completion_tokens\":13"));
    CHECK(member_number(json_member(reply, "usage"), "completion_tokens") == 12, reply);
    reply_text_is(reply, expected("text"), "stop");
    llb_chat_destroy(chat);

    /* A context that is too small for the prompt, then one that is too small for the reply. */
    chat = open_chat("text.gguf", ",\"n_ctx\":16", NULL);
    reply_is_error(infer(chat, ask("")), "CONTEXT_OVERFLOW", "n_ctx");
    llb_chat_destroy(chat);
    chat = open_chat("long.gguf", ",\"n_ctx\":256", NULL);
    reply = infer(chat, ask(",\"max_tokens\":400"));
    CHECK(member_is(reply, "finish_reason", "length"), reply);
    CHECK(member_number(json_member(reply, "usage"), "total_tokens") <= 257, reply);
    llb_string_free(reply);
    llb_chat_destroy(chat);
}

static void usage_is(const char *reply, long prompt, long completion, bool cached)
{
    const char *usage = json_member(reply, "usage");
    long cached_tokens = member_number(json_member(usage, "prompt_tokens_details"), "cached_tokens");
    CHECK(member_number(usage, "prompt_tokens") == prompt, reply);
    CHECK(member_number(usage, "completion_tokens") == completion, reply);
    CHECK(member_number(usage, "total_tokens") == prompt + completion, reply);
    CHECK(cached ? cached_tokens > 0 && cached_tokens < prompt : cached_tokens == 0, reply);
    llb_string_free(reply);
}

void usage(void)
{
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    char *request = ask("");
    const char *explanation = llb_chat_explain(chat, request);
    CHECK(is_json(explanation) && member_is(explanation, "type", "explanation"), explanation);
    long prompt = member_number(explanation, "prompt_tokens");
    CHECK(prompt > 0, explanation);
    CHECK(member_is(explanation, "prompt", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"), explanation);
    llb_string_free(explanation);
    free(request);
    usage_is(infer(chat, ask("")), prompt, 12, false);
    usage_is(infer(chat, ask("")), prompt, 12, true);
    usage_is(infer(chat, ask(",\"cache_prompt\":false")), prompt, 12, false);
    usage_is(infer(chat, ask(",\"stop\":\"K\"")), prompt, 4, true);
    llb_chat_destroy(chat);
}

static void reply_is_call(const char *reply, const char *name, const char *city)
{
    CHECK(is_json(reply) && member_is(reply, "type", "tool_call"), reply);
    CHECK(member_is(reply, "finish_reason", "tool_calls"), reply);
    const char *call = json_first(json_member(reply, "tool_calls"));
    char *id = json_string(json_member(call, "id"));
    char *arguments = json_string(json_member(call, "arguments"));
    CHECK(member_is(call, "name", name), reply);
    CHECK(id && strncmp(id, "call_", 5) == 0 && strlen(id) > 5, reply);
    CHECK(arguments && is_json(arguments) && arguments[0] == '{', reply);
    CHECK(!city || member_is(arguments, "city", city), reply);
    const char *same = json_first(json_member(json_member(reply, "message"), "tool_calls"));
    CHECK(member_is(json_member(same, "function"), "arguments", arguments), reply);
    CHECK(member_is(same, "id", id), reply);
    free(arguments);
    free(id);
    llb_string_free(reply);
}

void tool_calls(void)
{
    llb_chat_t *chat = open_chat("tool_call.gguf", "", NULL);
    reply_is_call(infer(chat, ask(WEATHER)), "get_weather", "Paris");
    reply_is_call(infer(chat, ask(WEATHER ",\"tool_choice\":\"required\"")), "get_weather", "Paris");
    reply_is_call(infer(chat, ask(WEATHER ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}}")),
                  "get_weather", "Paris");
    reply_text_is(infer(chat, ask(WEATHER ",\"tool_choice\":\"none\"")), expected("tool_call"), "stop");
    /* The stream of a tool call contains no markup. */
    struct record pieces;
    record_init(&pieces);
    char *request = ask(WEATHER);
    reply_is_call(llb_chat_infer_stream(chat, request, on_piece, &pieces), "get_weather", "Paris");
    CHECK(pieces.count == 0, pieces.text);
    free(request);
    record_free(&pieces);
    llb_chat_destroy(chat);

    /* A model that prefers text to calls. */
    chat = open_chat("text.gguf", "", NULL);
    reply_text_is(infer(chat, ask(WEATHER)), expected("text"), "stop");
    reply_is_call(infer(chat, ask(WEATHER ",\"tool_choice\":\"required\"")), "get_weather", NULL);
    llb_chat_destroy(chat);
    /* The template has no known call format, so the format of the tools polyfill is used. */
    chat = open_chat("text.gguf",
                     ",\"tool_policy\":\"any\",\"chat_template\":\"{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
                     "CALL {{ c.function.name }} {% for k, v in c.function.arguments|items %}{{ k }} IS {{ v }}{% endfor %}"
                     "{% endfor %}{% endfor %}\"",
                     NULL);
    reply_is_call(infer(chat, ask(WEATHER ",\"tool_choice\":\"required\"")), "get_weather", NULL);
    llb_chat_destroy(chat);
}

void constraints(void)
{
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    const char *reply = infer(chat, ask(",\"response_format\":{\"type\":\"json_object\"}"));
    char *text = json_string(json_member(reply, "text"));
    CHECK(text && text[0] == '{' && is_json(text), reply);
    free(text);
    llb_string_free(reply);
    reply = infer(chat, ask(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":"
                            "{\"enum\":[\"red\"]}}}"));
    reply_text_is(reply, "\"red\"", "stop");
    reply_text_is(infer(chat, ask(",\"grammar\":\"start: \\\"yes\\\"\"")), "yes", "stop");
    reply_is_error(infer(chat, ask(",\"grammar\":\"start: (\"")), "SCHEMA_UNSUPPORTED", "grammar: ");
    reply_is_error(infer(chat, ask(",\"grammar\":\"\"")), "SCHEMA_UNSUPPORTED", "grammar: ");
    reply_is_error(infer(chat, ask(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":true,\"schema\":"
                                   "{\"type\":\"fish\"}}}")),
                   "SCHEMA_UNSUPPORTED", "response_format.json_schema.schema: ");
    llb_chat_destroy(chat);
}

void templates(void)
{
    const char *reply = llb_template_render("{\"chat_template\":\"{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}\","
                                            "\"messages\":[{\"role\":\"user\",\"content\":\"\\u00fc\"}]}");
    CHECK(is_json(reply) && member_is(reply, "type", "rendered") && member_is(reply, "prompt", "[user]ü"), reply);
    llb_string_free(reply);
    reply_is_error(llb_template_render("{\"chat_template\":\"{{ raise_exception('not so') }}\","
                                       "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"),
                   "TEMPLATE_ERROR", "not so");
    reply_is_error(llb_template_render("{\"chat_template\":\"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}\","
                                       "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"),
                   "TEMPLATE_LIMIT", "");
    char *path = json_quote(model_path("tool_call.gguf"));
    char *output = json_quote(expected("tool_call"));
    char *request = json_format("{\"gguf\":%s,\"output\":%s%s}", path, output, WEATHER);
    reply = llb_template_parse(request);
    const char *call = json_first(json_member(json_member(reply, "message"), "tool_calls"));
    CHECK(is_json(reply) && member_is(json_member(call, "function"), "name", "get_weather"), reply);
    llb_string_free(reply);
    free(request);
    request = json_format("{\"gguf\":%s}", path);
    reply = llb_template_info(request);
    CHECK(is_json(reply) && member_is(reply, "type", "template_info") && member_is(reply, "tool_support", "native"), reply);
    llb_string_free(reply);
    free(request);
    free(output);
    free(path);
    reply = llb_model_info(model_path("text.gguf"));
    CHECK(is_json(reply) && member_is(reply, "architecture", "llama") && !member_is(reply, "error", ""), reply);
    CHECK(strncmp(json_member(reply, "supports_tools"), "true", 4) == 0, reply);
    llb_string_free(reply);
}

void chat_events(void)
{
    struct record events;
    record_init(&events);
    llb_chat_t *chat = open_chat("text.gguf", "", &events);
    free(record_take(&events));
    llb_string_free(infer(chat, ask("")));
    CHECK(strcmp(events.text, "infer_start\ninfer_success\n") == 0, events.text);
    free(record_take(&events));
    llb_string_free(infer(chat, ask(",\"max_tokens\":0")));
    CHECK(strcmp(events.text, "infer_start\ninfer_failure\n") == 0, events.text);
    free(record_take(&events));
    llb_chat_destroy(chat);
    CHECK(strcmp(events.text, "destroy\n") == 0, events.text);
    llb_string_free(infer(chat, ask("")));
    llb_chat_destroy(chat);
    CHECK(strcmp(events.text, "destroy\n") == 0, events.text);
    record_free(&events);
}
