/* Asks a model one question and prints the reply.
 *
 *     cc -std=c11 simple.c $(pkg-config --cflags --libs llb) -o simple
 *     ./simple model.gguf "What is the capital of France?"
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llb.h>

#include "json_text.h"

/* Prints the last error of this thread. */
static int failed(const char *what)
{
    const char *error = llb_last_error();
    char *message = json_string(json_member(json_member(error, "error"), "message"));
    fprintf(stderr, "simple: %s: %s\n", what, message ? message : error);
    free(message);
    llb_string_free(error);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: simple MODEL.gguf QUESTION\n"
                        "Loads a model, asks it one question and prints the reply.\n");
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? EXIT_SUCCESS : 2;
    }

    /* By default create refuses a model that cannot call tools. "any" accepts every model. */
    char *model = json_quote(argv[1]);
    char *options = json_format("{\"model\":%s,\"tool_policy\":\"any\"}", model);
    llb_chat_t *chat = llb_chat_create_with(options, NULL, NULL);
    free(options);
    free(model);
    if (!chat)
        return failed("create");

    char *question = json_quote(argv[2]);
    char *request = json_format("{\"messages\":[{\"role\":\"user\",\"content\":%s}]}", question);
    const char *reply = llb_chat_infer(chat, request);
    free(request);
    free(question);

    /* The reply is never NULL. A failure is a reply of type "error" without `text`. */
    char *text = json_string(json_member(reply, "text"));
    int status = text ? EXIT_SUCCESS : failed("infer");
    if (text)
        puts(text);
    free(text);

    llb_string_free(reply);
    llb_chat_destroy(chat);
    return status;
}
