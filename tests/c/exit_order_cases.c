/* The order of exit handlers. The library's own handler must run before the destructors of
 * llama.cpp's static objects, so it must be registered after each of them. llama.cpp creates most of
 * them on first use, so each case is a child process.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE

#include "check.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Handlers that destroy no object, as those of `atexit`, and destructors of objects that were
 * registered after the first of them, by anyone in this process. */
static atomic_int handlers, destructors;
/* Whether the last one is a destructor. */
static atomic_bool destroys_last;

/* Takes the place of the C library's function, which `atexit` and the constructors of static objects
 * call. */
int __cxa_atexit(void (*handler)(void *), void *object, void *library);
int __cxa_atexit(void (*handler)(void *), void *object, void *library)
{
    static int (*original)(void (*)(void *), void *, void *);
    if (!original)
        *(void **)&original = dlsym(RTLD_NEXT, "__cxa_atexit");
    if (!object)
        handlers++;
    else if (handlers > 0)
        destructors++;
    destroys_last = object != NULL;
    return original ? original(handler, object, library) : -1;
}

static void is_open(const void *handle)
{
    if (handle)
        return;
    const char *error = llb_last_error();
    dprintf(STDOUT_FILENO, "%s\n", error ? error : "NULL");
    _exit(1);
}

static void takes_a_reply(const char *reply, const char *type)
{
    if (!member_is(reply, "type", type)) {
        dprintf(STDOUT_FILENO, "%s\n", reply);
        _exit(1);
    }
    llb_string_free(reply);
}

static void destroys_nothing(const char *after)
{
    if (!destroys_last && handlers > destructors)
        return;
    dprintf(STDOUT_FILENO, "after %s: %d handlers, %d destructors, %s is the last\n", after, handlers, destructors,
            destroys_last ? "a destructor" : "a handler");
    _exit(1);
}

static void chats(const char *model)
{
    char *options = json_format("{\"model\":\"%s\",\"n_threads\":2,\"n_ctx\":512,\"tool_policy\":\"any\"}", model);
    llb_chat_t *chat = llb_chat_create_with(options, NULL, NULL);
    free(options);
    is_open(chat);
    destroys_nothing("create");
    takes_a_reply(infer(chat, ask(",\"max_tokens\":4")), "assistant_text");
    destroys_nothing("the first reply");
    takes_a_reply(infer(chat, ask(",\"max_tokens\":4,\"response_format\":{\"type\":\"json_object\"}")), "assistant_text");
    destroys_nothing("the first constraint");
    llb_chat_destroy(chat);
}

static void embeds(const char *model)
{
    char *options = json_format("{\"model\":\"%s\",\"n_threads\":2}", model);
    llb_embedder_t *embedder = llb_embed_create(options);
    free(options);
    is_open(embedder);
    destroys_nothing("create");
    takes_a_reply(llb_embed(embedder, "{\"input\":[\"Grüße 1\"]}"), "embeddings");
    destroys_nothing("the first vector");
    llb_embed_destroy(embedder);
}

static void tokenizes(const char *model)
{
    char *options = json_format("{\"model_path\":\"%s\",\"text\":\"Grüße 1\"}", model);
    takes_a_reply(llb_tokenize(options), "tokens");
    destroys_nothing("the first text");
    free(options);
}

static void *open_first(void *model)
{
    llb_chat_create(model, NULL, NULL);
    return NULL;
}

/* `exit-load:MICROSECONDS`: exits while another thread opens the first chat of the process. */
static void exit_during_load(const char *what)
{
    long pause_us;
    if (sscanf(what, "exit-load:%ld", &pause_us) != 1)
        return;
    start_thread(open_first, (void *)model_path("text.gguf"));
    struct timespec pause = {pause_us / 1000000, pause_us % 1000000 * 1000};
    nanosleep(&pause, NULL);
    exit(0);
}

static const struct {
    const char *name;
    void (*run)(const char *model);
} cases[] = {{"chats", chats}, {"embeds", embeds}, {"tokenizes", tokenizes}};

void run_exit_order_child(const char *what)
{
    exit_during_load(what);
    char name[16];
    int length = 0;
    if (sscanf(what, "exit-order:%15[a-z]:%n", name, &length) < 1)
        return;
    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++)
        if (strcmp(name, cases[index].name) == 0) {
            cases[index].run(what + length);
            _exit(0);
        }
}

void exits_during_the_first_load(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* under valgrind, /proc/self/exe is valgrind */
    for (int step = 0; step < 60; step++) {
        char output[4096];
        char *what = json_format("exit-load:%d", step % 30 * 1000);
        int status = spawn(what, output, sizeof output);
        char *got = json_format("%s: status %d, output: %s", what, status, output);
        CHECK(status == 0 && !output[0], got);
        free(got);
        free(what);
    }
}

static void check(const char *name, const char *model)
{
    char output[4096];
    char *what = json_format("exit-order:%s:%s", name, model);
    int status = spawn(what, output, sizeof output);
    char *got = json_format("%s: status %d, output: %s", what, status, output);
    CHECK(status == 0 && !output[0], got);
    free(got);
    free(what);
}

void exit_handlers(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* under valgrind, /proc/self/exe is valgrind */
#ifndef __GLIBC__
    return; /* the `atexit` of musl calls its own function */
#endif
    check("chats", model_path("text.gguf"));
    check("embeds", model_path("embedding.gguf"));
    check("tokenizes", model_path("text.gguf"));
    check("tokenizes", model_path("embedding.gguf"));
    if (real_model())
        check("chats", real_model());
}
