/* Streams a reply to the terminal. Ctrl-C ends the reply, not the program.
 *
 *     cc -std=c11 stream.c -pthread $(pkg-config --cflags --libs llb) -o stream
 *     ./stream model.gguf "Tell me a long story."
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llb.h>

#include "json_text.h"

static _Atomic(llb_chat_t *) chat;
static atomic_bool finished;

/* Waits for SIGINT, which is blocked in every thread. A signal handler could not call
 * llb_chat_cancel, because it takes locks. */
static void *wait_for_interrupts(void *unused)
{
    (void)unused;
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    for (int number;;) {
        sigwait(&interrupt, &number);
        if (finished)
            return NULL;
        if (!chat)
            _Exit(130); /* still loading: there is no reply to cancel */
        llb_chat_cancel(chat);
    }
}

/* A piece is a whole number of characters and is valid only during the call. */
static void print_piece(const char *piece, void *user_data)
{
    (void)user_data;
    fputs(piece, stdout);
    fflush(stdout);
}

static int failed(const char *what)
{
    const char *error = llb_last_error();
    char *message = json_string(json_member(json_member(error, "error"), "message"));
    fprintf(stderr, "stream: %s: %s\n", what, message ? message : error);
    free(message);
    llb_string_free(error);
    return EXIT_FAILURE;
}

static long count(const char *usage, const char *name)
{
    const char *value = json_member(usage, name);
    return value ? strtol(value, NULL, 10) : 0;
}

static int ask(const char *text)
{
    char *question = json_quote(text);
    char *request = json_format("{\"messages\":[{\"role\":\"user\",\"content\":%s}],\"max_tokens\":1024}", question);
    const char *reply = llb_chat_infer_stream(chat, request, print_piece, NULL);
    free(request);
    free(question);

    char *reason = json_string(json_member(reply, "finish_reason"));
    const char *usage = json_member(reply, "usage");
    int status = reason ? EXIT_SUCCESS : failed("infer");
    if (reason)
        fprintf(stderr, "\n[%s: %ld prompt tokens, %ld completion tokens]\n", reason, count(usage, "prompt_tokens"),
                count(usage, "completion_tokens"));
    free(reason);
    llb_string_free(reply);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: stream MODEL.gguf QUESTION\n"
                        "Streams the reply and prints its token usage. Ctrl-C ends the reply.\n");
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? EXIT_SUCCESS : 2;
    }

    /* Block SIGINT before any thread starts: all new threads inherit the mask, those of llb too. */
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, NULL);
    pthread_t waiter;
    if (pthread_create(&waiter, NULL, wait_for_interrupts, NULL) != 0) {
        fprintf(stderr, "stream: cannot start a thread\n");
        return EXIT_FAILURE;
    }

    char *model = json_quote(argv[1]);
    char *options = json_format("{\"model\":%s,\"tool_policy\":\"any\"}", model);
    chat = llb_chat_create_with(options, NULL, NULL);
    free(options);
    free(model);
    int status = chat ? ask(argv[2]) : failed("create");

    finished = true;
    pthread_kill(waiter, SIGINT);
    pthread_join(waiter, NULL);
    llb_chat_destroy(chat);
    return status;
}
