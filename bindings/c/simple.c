/* Asks a model one question and prints its reply.
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

/* Says what this thread's last error was. */
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
                        "Loads the model, asks it the question, prints the reply.\n");
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? EXIT_SUCCESS : 2;
    }

    /* A model whose chat template cannot carry tools is refused here; tool_policy "any" takes every model. */
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

    /* Never NULL: a failure is a reply too, of type "error", and has no text. */
    char *text = json_string(json_member(reply, "text"));
    int status = text ? EXIT_SUCCESS : failed("infer");
    if (text)
        puts(text);
    free(text);

    llb_string_free(reply);
    llb_chat_destroy(chat);
    return status;
}
