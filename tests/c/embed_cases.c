/* Vectors and scores: wrong input, handles, threads, a fork and an exit.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define TEXT "{\"input\":\"the cat\"}"

static llb_embedder_t *open_embedder(const char *model)
{
    char *options = json_format("{\"model\":\"%s\",\"n_threads\":1}", model_path(model));
    llb_embedder_t *embedder = llb_embed_create(options);
    free(options);
    return embedder;
}

static bool embeds(llb_embedder_t *embedder)
{
    const char *reply = llb_embed(embedder, TEXT);
    bool right = member_is(reply, "type", "embeddings");
    llb_string_free(reply);
    return right;
}

void wrong_embed_requests(void)
{
    static const char *const not_utf8[] = {"\xFF", "{\"input\":\"\xC0\xAF\"}", "\xED\xA0\x80"};
    static const char *const broken[] = {"", "{", "nul", "{\"input\":\"\\ud800\"}", "{\"input\":[1,}"};
    static const char *const wrong[][2] = {
        {"{}", "input: "},
        {"[]", "request: "},
        {"{\"input\":null}", "input: "},
        {"{\"input\":{}}", "input: "},
        {"{\"input\":[]}", "input: "},
        {"{\"input\":[[]]}", "input[0]: "},
        {"{\"input\":[\"a\",null]}", "input[1]: "},
        {"{\"input\":\"a\",\"dimensions\":0}", "dimensions: "},
        {"{\"input\":\"a\",\"dimensions\":1e9}", "dimensions: "},
        {"{\"input\":\"a\",\"dimensions\":1e99}", "dimensions: "},
        {"{\"input\":\"a\",\"encoding_format\":1}", "encoding_format: "},
        {"{\"input\":\"a\",\"prefix\":[]}", "prefix: "},
        {"{\"input\":\"a\",\"timeout_ms\":-1}", "timeout_ms: "},
    };
    static const char *const ranks[][2] = {
        {"{}", "query: "},
        {"{\"query\":\"a\"}", "documents: "},
        {"{\"query\":\"a\",\"documents\":{}}", "documents: "},
        {"{\"query\":\"a\",\"documents\":[]}", "documents: "},
        {"{\"query\":\"a\",\"documents\":[{\"text\":1}]}", "documents[0]: "},
        {"{\"query\":\"a\",\"documents\":[\"b\"],\"top_n\":-1}", "top_n: "},
    };
    CHECK(!llb_embed_create(NULL), "a model");
    last_error_is("INVALID_REQUEST", "options_json");
    CHECK(!llb_embed_create("{\"model\":\"\xFF\"}"), "a model");
    last_error_is("INVALID_REQUEST", "options_json: not valid UTF-8");
    CHECK(!llb_embed_create("{\"model\":\"/nowhere\",\"pooling\":7}"), "a model");
    last_error_is("INVALID_REQUEST", "pooling: ");
    CHECK(!llb_embed_create("{\"model\":\"/nowhere\"}"), "a model");
    last_error_is("MODEL_NOT_FOUND", "/nowhere");
    CHECK(!open_embedder("truncated.gguf"), "a model");
    last_error_is("MODEL_INVALID", "truncated.gguf");

    llb_embedder_t *embedder = open_embedder("embedding.gguf"), *ranker = open_embedder("reranker.gguf");
    CHECK(embedder && ranker, "no model");
    reply_is_error(llb_embed(embedder, NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_rank(ranker, NULL), "INVALID_REQUEST", "request_json");
    for (size_t index = 0; index < COUNT(not_utf8); index++) {
        reply_is_error(llb_embed(embedder, not_utf8[index]), "INVALID_REQUEST", "request_json: not valid UTF-8");
        reply_is_error(llb_rank(ranker, not_utf8[index]), "INVALID_REQUEST", "request_json: not valid UTF-8");
    }
    for (size_t index = 0; index < COUNT(broken); index++) {
        reply_is_error(llb_embed(embedder, broken[index]), "INVALID_REQUEST", "request_json: not valid JSON");
        reply_is_error(llb_rank(ranker, broken[index]), "INVALID_REQUEST", "request_json: not valid JSON");
    }
    for (size_t index = 0; index < COUNT(wrong); index++)
        reply_is_error(llb_embed(embedder, wrong[index][0]), "INVALID_REQUEST", wrong[index][1]);
    for (size_t index = 0; index < COUNT(ranks); index++)
        reply_is_error(llb_rank(ranker, ranks[index][0]), "INVALID_REQUEST", ranks[index][1]);
    CHECK(embeds(embedder), "it works after all errors");
    llb_embed_destroy(embedder);
    llb_embed_destroy(ranker);
}

void embed_handles(void)
{
    llb_embedder_t *embedder = open_embedder("embedding.gguf");
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    llb_embedder_t *made_up[] = {NULL, (llb_embedder_t *)1, (llb_embedder_t *)-1, (llb_embedder_t *)chat};
    for (size_t index = 0; index < COUNT(made_up); index++) {
        reply_is_error(llb_embed(made_up[index], TEXT), "ENGINE_CLOSED", "not an open embedding model");
        reply_is_error(llb_rank(made_up[index], "{}"), "ENGINE_CLOSED", "not an open embedding model");
        llb_embed_cancel(made_up[index]);
        llb_embed_destroy(made_up[index]);
    }
    reply_is_error(llb_chat_infer((llb_chat_t *)embedder, "{}"), "ENGINE_CLOSED", "not an open chat");
    llb_chat_destroy((llb_chat_t *)embedder);
    reply_text_is(infer(chat, ask("")), expected("text"), "stop");
    CHECK(embeds(embedder), "neither ends the other");
    llb_chat_destroy(chat);
    llb_embed_destroy(embedder);
    llb_embed_destroy(embedder);
    reply_is_error(llb_embed(embedder, TEXT), "ENGINE_CLOSED", "destroyed");
}

/* A request that takes several seconds. */
static char *long_request(void)
{
    static const char text[] = ",\"the cat sits\"";
    enum { TEXTS = 60000 };
    char *request = malloc(TEXTS * sizeof text + 64), *end = request;
    end += sprintf(end, "{\"dimensions\":1,\"input\":[\"a\"");
    for (int index = 0; index < TEXTS; index++)
        end += sprintf(end, "%s", text);
    sprintf(end, "]}");
    return request;
}

static void *embed_long(void *embedder)
{
    char *request = long_request();
    const char *reply = llb_embed(embedder, request);
    free(request);
    return (void *)reply;
}

void destroy_against_embed(void)
{
    for (int round = 0; round < rounds(5, 1); round++) {
        llb_embedder_t *embedder = open_embedder("embedding.gguf");
        pthread_t threads[3];
        const char *replies[COUNT(threads)];
        for (size_t index = 0; index < COUNT(threads); index++)
            threads[index] = start_thread(embed_long, embedder);
        llb_embed_destroy(embedder);
        for (size_t index = 0; index < COUNT(threads); index++) {
            void *reply;
            pthread_join(threads[index], &reply);
            replies[index] = reply;
            const char *error = json_member(replies[index], "error");
            CHECK(error && (member_is(error, "code", "CANCELLED") || member_is(error, "code", "ENGINE_CLOSED")), replies[index]);
            llb_string_free(replies[index]);
        }
    }
}

/* In the child, the parent's model is closed, and a new one works. */
void forks_with_embeddings(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* under valgrind, the child would report the parent's memory */
    llb_embedder_t *embedder = open_embedder("embedding.gguf");
    CHECK(embeds(embedder), "before the fork");
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        const char *reply = llb_embed(embedder, TEXT);
        bool closed = member_is(json_member(reply, "error"), "code", "ENGINE_CLOSED");
        llb_string_free(reply);
        llb_embed_destroy(embedder);
        llb_embedder_t *own = open_embedder("embedding.gguf");
        bool works = own && embeds(own);
        llb_embed_destroy(own);
        _exit(closed && works ? 7 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child");
    CHECK(embeds(embedder), "after the fork");
    llb_embed_destroy(embedder);
}

void exit_during_embed(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* under valgrind, /proc/self/exe is valgrind */
    char output[4096];
    CHECK(spawn("embed_exit", output, sizeof output) == 0, output);
    CHECK(strcmp(output, "") == 0, output);
}

void run_embed_child(const char *what)
{
    if (strcmp(what, "embed_exit") != 0)
        return;
    llb_embedder_t *embedder = open_embedder("embedding.gguf");
    start_thread(embed_long, embedder);
    struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL);
    exit(embedder ? 0 : 3);
}
