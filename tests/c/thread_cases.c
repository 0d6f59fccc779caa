/* Invalid handles, calls from callbacks, cancellation, and concurrent use.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"

#include <stdint.h>

/* Bans the end-of-turn token (258 in every scripted model), so that generation does not stop by
 * itself. */
#define ENDLESS ",\"logit_bias\":{\"258\":-100},\"max_tokens\":2147483647"
#define ROOM ",\"context_overflow\":\"shift\",\"n_parallel\":2"

static void is_closed(llb_chat_t *chat)
{
    char *request = ask("");
    reply_is_error(llb_chat_infer(chat, request), "ENGINE_CLOSED", "");
    reply_is_error(llb_chat_infer_stream(chat, request, NULL, NULL), "ENGINE_CLOSED", "");
    reply_is_error(llb_chat_explain(chat, request), "ENGINE_CLOSED", "");
    llb_chat_cancel(chat);
    llb_chat_destroy(chat);
    free(request);
}

static llb_chat_t *handle_of(uintptr_t number)
{
    return (llb_chat_t *)number;
}

void made_up_handles(void)
{
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    uintptr_t key = (uintptr_t)chat;
    int local;
    for (int bit = 0; bit < (int)(sizeof key * 8); bit++) {
        if ((uintptr_t)1 << bit != key) is_closed(handle_of((uintptr_t)1 << bit));
        is_closed(handle_of(key ^ (uintptr_t)1 << bit));
    }
    is_closed(handle_of(UINTPTR_MAX));
    is_closed(handle_of(key + 1));
    is_closed(handle_of(key - 1));
    is_closed(handle_of((uintptr_t)&local));
    is_closed(handle_of((uintptr_t)chat_events));
    reply_text_is(infer(chat, ask("")), expected("text"), "stop");
    llb_chat_destroy(chat);
}

void destroyed_handles(void)
{
    llb_chat_t *old[8];
    for (int index = 0; index < 8; index++) {
        old[index] = open_chat("text.gguf", "", NULL);
        llb_chat_destroy(old[index]);
        is_closed(old[index]);
    }
    /* The slot is reused, but the old handles stay invalid. */
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    for (int index = 0; index < 8; index++) {
        CHECK(old[index] != chat, "the same handle twice");
        is_closed(old[index]);
    }
    reply_text_is(infer(chat, ask("")), expected("text"), "stop");
    llb_chat_destroy(chat);
    is_closed(chat);
}

static llb_chat_t *the_chat;

static void call_back_in(struct record *record, const char *text)
{
    (void)record, (void)text;
    char *request = ask("");
    reply_is_error(llb_chat_infer(the_chat, request), "BUSY", "");
    reply_is_error(llb_chat_infer_stream(the_chat, request, NULL, NULL), "BUSY", "");
    reply_is_error(llb_chat_explain(the_chat, request), "BUSY", "");
    free(request);
    /* These functions are allowed in a callback. */
    CHECK(llb_version() && llb_abi_version(), "no version");
    const char *reply = llb_template_render("{\"chat_template\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"y\"}]}");
    CHECK(member_is(reply, "prompt", "x"), reply);
    llb_string_free(reply);
}

static void cancel_here(struct record *record, const char *text)
{
    (void)record, (void)text;
    llb_chat_cancel(the_chat);
}

static void destroy_here(struct record *record, const char *text)
{
    (void)record, (void)text;
    llb_chat_destroy(the_chat);
}

/* Streams a request, and calls `then` for each piece. */
static const char *stream_with(void (*then)(struct record *, const char *), char *request, struct record *pieces)
{
    record_init(pieces);
    pieces->then = then;
    const char *reply = llb_chat_infer_stream(the_chat, request, on_piece, pieces);
    free(request);
    return reply;
}

void calls_from_callbacks(void)
{
    struct record pieces, events;
    record_init(&events);
    the_chat = open_chat("text.gguf", "", &events);
    reply_text_is(stream_with(call_back_in, ask(""), &pieces), expected("text"), "stop");
    record_free(&pieces);
    events.then = call_back_in;
    reply_text_is(infer(the_chat, ask("")), expected("text"), "stop");
    events.then = NULL;
    llb_chat_destroy(the_chat);
    record_free(&events);

    the_chat = open_chat("long.gguf", ROOM, NULL);
    const char *reply = stream_with(destroy_here, ask(ENDLESS), &pieces);
    CHECK(is_json(reply) && member_is(reply, "finish_reason", "cancelled"), reply);
    CHECK(member_is(reply, "text", pieces.text), reply);
    llb_string_free(reply);
    record_free(&pieces);
    is_closed(the_chat);

    /* The chat is destroyed in infer_start: nothing is generated, and `destroy` follows when the
     * call ends. */
    record_init(&events);
    the_chat = open_chat("text.gguf", "", &events);
    free(record_take(&events));
    events.then = destroy_here;
    reply_text_is(infer(the_chat, ask("")), "", "cancelled");
    CHECK(strcmp(events.text, "infer_start\ninfer_success\ndestroy\n") == 0, events.text);
    is_closed(the_chat);
    record_free(&events);
}

static struct latch piece_seen, go_on;

static void announce(struct record *record, const char *text)
{
    (void)record, (void)text;
    latch_open(&piece_seen);
    latch_wait(&go_on);
}

static void *cancel_after_a_piece(void *chat)
{
    latch_wait(&piece_seen);
    llb_chat_cancel(chat);
    latch_open(&go_on);
    return NULL;
}

static void *destroy_after_a_piece(void *chat)
{
    latch_wait(&piece_seen);
    latch_open(&go_on);
    llb_chat_destroy(chat);
    is_closed(chat);
    return NULL;
}

static void *infer_after_a_piece(void *chat)
{
    latch_wait(&piece_seen);
    const char *reply = infer(chat, ask(ENDLESS));
    CHECK(is_json(reply) && (member_is(reply, "finish_reason", "cancelled")), reply);
    llb_string_free(reply);
    return NULL;
}

static void reset_latches(void)
{
    piece_seen = (struct latch)LATCH_CLOSED;
    go_on = (struct latch)LATCH_CLOSED;
}

static void is_cancelled(const char *reply, struct record *pieces)
{
    CHECK(is_json(reply) && member_is(reply, "finish_reason", "cancelled"), reply);
    CHECK(member_is(reply, "text", pieces->text), reply);
    CHECK(pieces->all_valid_utf8, pieces->text);
    long completion = member_number(json_member(reply, "usage"), "completion_tokens");
    CHECK(completion >= pieces->count, reply);
    llb_string_free(reply);
    record_free(pieces);
}

void cancels(void)
{
    struct record pieces;
    the_chat = open_chat("long.gguf", ROOM, NULL);
    is_cancelled(stream_with(cancel_here, ask(ENDLESS), &pieces), &pieces);

    reset_latches();
    pthread_t thread = start_thread(cancel_after_a_piece, the_chat);
    is_cancelled(stream_with(announce, ask(ENDLESS), &pieces), &pieces);
    join_thread(thread);

    /* A cancel without a running request does not affect the next request. */
    llb_chat_cancel(the_chat);
    reply_text_is(infer(the_chat, ask(",\"max_tokens\":400")), expected("long"), "stop");

    /* The request reaches its time-out. */
    const char *reply = infer(the_chat, ask(ENDLESS ",\"timeout_ms\":50"));
    CHECK(member_is(reply, "finish_reason", "cancelled"), reply);
    llb_string_free(reply);

    /* Another thread destroys the chat: the request is cancelled, and destroy waits until it has
     * ended. */
    reset_latches();
    thread = start_thread(destroy_after_a_piece, the_chat);
    is_cancelled(stream_with(announce, ask(ENDLESS), &pieces), &pieces);
    join_thread(thread);
    is_closed(the_chat);
}

static void *cancel_until_open(void *latch)
{
    struct latch *done = latch;
    for (bool open = false; !open;) {
        llb_chat_cancel(the_chat);
        pthread_mutex_lock(&done->lock);
        open = done->open;
        pthread_mutex_unlock(&done->lock);
    }
    return NULL;
}

void cancels_with_a_real_model(void)
{
    const char *model = real_model();
    if (!model || getenv("LLB_TEST_SLOW"))
        return; /* run.sh reports the skip */
    the_chat = open_chat(model, ",\"tool_policy\":\"any\",\"n_ctx\":2048", NULL);
    CHECK(the_chat, model);
    /* About 1500 prompt tokens take over a second to prefill. The cancel arrives during prefill. */
    char words[7 * 1500 + 1];
    for (int index = 0; index < 1500; index++)
        memcpy(words + 7 * index, " apples", 8);
    char *request = json_format("{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":300}", words);
    struct latch done = LATCH_CLOSED;
    pthread_t thread = start_thread(cancel_until_open, &done);
    const char *reply = infer(the_chat, request);
    latch_open(&done);
    join_thread(thread);
    CHECK(is_json(reply) && member_is(reply, "finish_reason", "cancelled") && member_is(reply, "text", ""), reply);
    CHECK(member_number(json_member(reply, "usage"), "prompt_tokens") == 0
              || member_number(json_member(reply, "usage"), "completion_tokens") == 0,
          reply);
    llb_string_free(reply);

    reset_latches();
    struct record pieces;
    thread = start_thread(cancel_after_a_piece, the_chat);
    is_cancelled(stream_with(announce, ask(",\"max_tokens\":300,\"logit_bias\":{\"2\":-100}"), &pieces), &pieces);
    join_thread(thread);
    llb_chat_destroy(the_chat);
}

static void *infer_in_turn(void *chat)
{
    for (int round = rounds(10, 2); round > 0; round--)
        reply_text_is(infer(chat, ask(",\"max_tokens\":400")), expected("long"), "stop");
    return NULL;
}

void threads_on_one_chat(void)
{
    expected("long");
    llb_chat_t *chat = open_chat("long.gguf", "", NULL);
    pthread_t threads[2];
    for (int index = 0; index < 2; index++)
        threads[index] = start_thread(infer_in_turn, chat);
    for (int index = 0; index < 2; index++)
        join_thread(threads[index]);
    llb_chat_destroy(chat);

    /* A cancel ends both the running and the waiting request. */
    chat = open_chat("long.gguf", ROOM, NULL);
    the_chat = chat;
    reset_latches();
    pthread_t waiting = start_thread(infer_after_a_piece, chat);
    struct record pieces;
    struct latch done = LATCH_CLOSED;
    latch_open(&go_on);
    pthread_t canceller = start_thread(cancel_after_a_piece, chat);
    const char *reply = stream_with(announce, ask(ENDLESS), &pieces);
    is_cancelled(reply, &pieces);
    /* The second request may have arrived after that cancel, so cancel until it ends. */
    pthread_t again = start_thread(cancel_until_open, &done);
    join_thread(waiting);
    latch_open(&done);
    join_thread(again);
    join_thread(canceller);
    llb_chat_destroy(chat);
}

static void *open_infer_destroy(void *unused)
{
    (void)unused;
    struct record events;
    record_init(&events);
    llb_chat_t *chat = open_chat("text.gguf", "", &events);
    CHECK(chat, "no chat");
    for (int round = rounds(10, 2); round > 0; round--) {
        struct record pieces;
        record_init(&pieces);
        char *request = ask("");
        const char *reply = llb_chat_infer_stream(chat, request, on_piece, &pieces);
        CHECK(strcmp(pieces.text, expected("text")) == 0 && pieces.all_valid_utf8, pieces.text);
        reply_text_is(reply, expected("text"), "stop");
        record_free(&pieces);
        free(request);
    }
    llb_chat_destroy(chat);
    record_free(&events);
    return NULL;
}

void threads_on_one_model(void)
{
    expected("text");
    pthread_t threads[8];
    for (int index = 0; index < 8; index++)
        threads[index] = start_thread(open_infer_destroy, NULL);
    for (int index = 0; index < 8; index++)
        join_thread(threads[index]);
}

/* Every reply must be complete, cancelled, or `ENGINE_CLOSED`. */
static void *infer_until_closed(void *chat)
{
    for (bool closed = false; !closed;) {
        const char *reply = infer(chat, ask(",\"max_tokens\":400"));
        closed = member_is(json_member(reply, "error"), "code", "ENGINE_CLOSED");
        CHECK(closed || member_is(reply, "finish_reason", "cancelled") || member_is(reply, "text", expected("long")), reply);
        llb_string_free(reply);
    }
    return NULL;
}

/* Checks that no callback runs after destroy has returned. */
static void not_after_destroy(struct record *record, const char *event)
{
    CHECK(!*(atomic_bool *)record->context, event);
}

void destroy_against_infer(void)
{
    expected("long");
    for (int round = rounds(30, 3); round > 0; round--) {
        atomic_bool destroyed = false;
        struct record events;
        record_init(&events);
        events.context = &destroyed;
        llb_chat_t *chat = open_chat("long.gguf", "", &events);
        events.then = not_after_destroy;
        pthread_t threads[3];
        for (int index = 0; index < 3; index++)
            threads[index] = start_thread(infer_until_closed, chat);
        if (round % 3 == 0)
            llb_string_free(infer(chat, ask("")));
        llb_chat_destroy(chat);
        destroyed = true;
        for (int index = 0; index < 3; index++)
            join_thread(threads[index]);
        CHECK(events.length > 8 && strcmp(events.text + events.length - 9, "\ndestroy\n") == 0, events.text);
        record_free(&events);
    }
}

static void *fail_here(void *unused)
{
    (void)unused;
    const char *error = llb_last_error();
    CHECK(strcmp(error, "{\"type\":\"error\",\"error\":null}") == 0, error);
    llb_string_free(error);
    llb_string_free(llb_template_info("{"));
    last_error_is("INVALID_REQUEST", "not valid JSON");
    return NULL;
}

void last_errors_of_threads(void)
{
    char *request = ask("");
    llb_string_free(llb_chat_infer(NULL, request));
    last_error_is("ENGINE_CLOSED", "");
    join_thread(start_thread(fail_here, NULL));
    last_error_is("ENGINE_CLOSED", "");
    /* A success does not clear the last error. */
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    llb_string_free(llb_chat_infer(chat, request));
    llb_chat_destroy(chat);
    last_error_is("ENGINE_CLOSED", "");
    free(request);
}
