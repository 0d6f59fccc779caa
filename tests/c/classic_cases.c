/* The classic shape of replies, for programs that refuse unknown members of `usage` and `error`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"

static llb_chat_t *chat;

/* Checks that `object` consists of exactly these members, in this order. */
static void members_are(const char *object, const char *const *names, size_t count, const char *reply)
{
    char *text = json_copy(object);
    char *built = json_format("{");
    for (size_t index = 0; index < count; index++) {
        char *value = json_copy(json_member(object, names[index]));
        CHECK(value, reply);
        char *longer = json_format("%s%s\"%s\":%s", built, index ? "," : "", names[index], value ? value : "");
        free(value);
        free(built);
        built = longer;
    }
    char *whole = json_format("%s}", built);
    CHECK(text && strcmp(text, whole) == 0, reply);
    free(whole);
    free(built);
    free(text);
}

static void usage_is_strict(const char *reply)
{
    static const char *const names[] = {"prompt_tokens", "completion_tokens", "total_tokens"};
    CHECK(is_json(reply), reply);
    members_are(json_member(reply, "usage"), names, 3, reply);
    CHECK(member_number(json_member(reply, "usage_details"), "cached_tokens") >= 0, reply);
}

/* Checks an error and frees the reply. `detail` is a member of `error_details`, or NULL if there
 * are none. */
static void error_is_strict(const char *reply, const char *code, const char *detail)
{
    static const char *const names[] = {"code", "message"};
    const char *error = json_member(reply, "error");
    CHECK(is_json(reply) && member_is(reply, "type", "error"), reply);
    CHECK(member_is(error, "code", code), reply);
    members_are(error, names, 2, reply);
    const char *details = json_member(reply, "error_details");
    CHECK(detail ? json_member(details, detail) != NULL : details == NULL, reply);
    llb_string_free(reply);
}

static void last_usage_is_strict(struct record *pieces, const char *text)
{
    (void)pieces;
    if (json_member(text, "usage"))
        usage_is_strict(text);
}

static void call_back(struct record *events, const char *text)
{
    (void)events, (void)text;
    error_is_strict(llb_chat_infer(chat, "{}"), "BUSY", NULL);
}

void classic_replies(void)
{
    struct record events, pieces;
    record_init(&events);
    record_init(&pieces);
    chat = llb_chat_create(model_path("text.gguf"), on_event, &events);
    CHECK(chat, "no chat");
    const char *reply = infer(chat, ask(""));
    usage_is_strict(reply);
    reply_text_is(reply, expected("text"), "stop");

    char *request = ask(",\"stream_format\":\"chunks\",\"stream_options\":{\"include_usage\":true}");
    pieces.then = last_usage_is_strict;
    reply = llb_chat_infer_stream(chat, request, on_piece, &pieces);
    CHECK(strstr(pieces.text, "\"usage_details\""), pieces.text);
    usage_is_strict(reply);
    reply_text_is(reply, expected("text"), "stop");
    free(request);

    /* Requests that an older program may send. */
    static const char *const sent[] = {
        ",\"max_tokens\":0", ",\"max_tokens\":-1", ",\"temperature\":-1", ",\"top_k\":-1", ",\"stop\":[\"\"]",
        ",\"seed\":4294967303", ",\"seed\":-7", ",\"seed\":18446744073709551623",
    };
    for (size_t index = 0; index < sizeof sent / sizeof *sent; index++)
        reply_text_is(infer(chat, ask(sent[index])), expected("text"), "stop");

    error_is_strict(llb_chat_infer(chat, "{"), "INVALID_REQUEST", NULL);
    error_is_strict(llb_chat_infer(chat, NULL), "INVALID_REQUEST", NULL);
    error_is_strict(llb_chat_explain(chat, "{\"messages\":\"\xff\"}"), "INVALID_REQUEST", NULL);
    error_is_strict(llb_chat_infer_stream(chat, "[]", on_piece, &pieces), "INVALID_REQUEST", NULL);
    static char long_text[10001];
    memset(long_text, 'x', 10000);
    request = json_format("{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", long_text);
    error_is_strict(llb_chat_infer(chat, request), "CONTEXT_OVERFLOW", "n_ctx");
    error_is_strict(llb_chat_explain(chat, request), "CONTEXT_OVERFLOW", "prompt_tokens");
    const char *last = llb_last_error();
    CHECK(json_member(json_member(json_member(last, "error"), "details"), "n_ctx"), last);
    llb_string_free(last);
    free(request);
    events.then = call_back;
    llb_string_free(infer(chat, ask("")));
    events.then = NULL;
    llb_chat_destroy(chat);
    error_is_strict(llb_chat_infer(chat, "{}"), "ENGINE_CLOSED", NULL);
    error_is_strict(llb_chat_infer(NULL, "{}"), "ENGINE_CLOSED", NULL);
    record_free(&pieces);
    record_free(&events);
}
