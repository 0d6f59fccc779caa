/* Lets a model call a function of this program. The first request returns the call; the second
 * passes its result to the model.
 *
 *     cc -std=c11 tools.c $(pkg-config --cflags --libs llb) -o tools
 *     ./tools model.gguf "What is the weather in Paris?"
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llb.h>

#include "json_text.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Current weather of a city\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":40}},"
    "\"required\":[\"city\"],\"additionalProperties\":false}}}]";

/* The function. The arguments of a forced call always satisfy the schema above. */
static char *get_weather(const char *arguments)
{
    const char *city = json_member(arguments, "city");
    char *name = city ? json_copy(city) : json_quote("unknown");
    char *result = json_format("{\"city\":%s,\"sky\":\"clear\",\"temperature_c\":21}", name);
    free(name);
    return result;
}

static int failed(const char *what)
{
    const char *error = llb_last_error();
    char *message = json_string(json_member(json_member(error, "error"), "message"));
    fprintf(stderr, "tools: %s: %s\n", what, message ? message : error);
    free(message);
    llb_string_free(error);
    return EXIT_FAILURE;
}

/* Prints whether the model can call tools. Reads only the header of the file. */
static int print_model_info(const char *path)
{
    const char *info = llb_model_info(path);
    const char *supports_tools = json_member(info, "supports_tools");
    char *architecture = json_string(json_member(info, "architecture"));
    char *problem = json_string(json_member(info, "message"));
    if (problem)
        fprintf(stderr, "tools: %s\n", problem);
    else
        printf("model: %s, supports_tools: %s\n", architecture ? architecture : "unknown",
               supports_tools && *supports_tools == 't' ? "true" : "false");
    int status = problem ? EXIT_FAILURE : EXIT_SUCCESS;
    free(problem);
    free(architecture);
    llb_string_free(info);
    return status;
}

/* Sends the second request: the question, the model's message with the call, and the result. */
static int answer(llb_chat_t *chat, const char *question, const char *message, const char *id, const char *result)
{
    char *content = json_quote(result);
    char *request = json_format("{\"messages\":[{\"role\":\"user\",\"content\":%s},%s,"
                                "{\"role\":\"tool\",\"tool_call_id\":%s,\"content\":%s}],"
                                "\"tools\":%s,\"tool_choice\":\"none\"}",
                                question, message, id, content, tools);
    const char *reply = llb_chat_infer(chat, request);
    free(request);
    free(content);

    char *text = json_string(json_member(reply, "text"));
    int status = text ? EXIT_SUCCESS : failed("second request");
    if (text)
        printf("answer: %s\n", text);
    free(text);
    llb_string_free(reply);
    return status;
}

static int converse(llb_chat_t *chat, const char *question)
{
    char *request = json_format("{\"messages\":[{\"role\":\"user\",\"content\":%s}],"
                                "\"tools\":%s,\"tool_choice\":\"required\"}",
                                question, tools);
    const char *reply = llb_chat_infer(chat, request);
    free(request);

    const char *call = json_first(json_member(reply, "tool_calls"));
    char *name = json_string(json_member(call, "name"));
    char *arguments = json_string(json_member(call, "arguments"));
    char *id = json_copy(json_member(call, "id"));
    char *message = json_copy(json_member(reply, "message"));
    int status = EXIT_FAILURE;
    if (name && arguments && id && message) {
        printf("call: %s(%s)\n", name, arguments);
        char *result = get_weather(arguments);
        printf("result: %s\n", result);
        status = answer(chat, question, message, id, result);
        free(result);
    } else if (json_member(reply, "error")) {
        failed("first request");
    } else {
        fprintf(stderr, "tools: max_tokens ended the reply before the call was complete\n");
    }
    free(message);
    free(id);
    free(arguments);
    free(name);
    llb_string_free(reply);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3 || strcmp(argv[1], "--help") == 0) {
        fprintf(stderr, "usage: tools MODEL.gguf [QUESTION]\n"
                        "Forces a call of get_weather and prints the answer to its result.\n");
        return argc == 2 ? EXIT_SUCCESS : 2;
    }
    if (print_model_info(argv[1]) != EXIT_SUCCESS)
        return EXIT_FAILURE;
    llb_chat_t *chat = llb_chat_create(argv[1], NULL, NULL);
    if (!chat)
        return failed("create");
    char *question = json_quote(argc == 3 ? argv[2] : "What is the weather in Paris?");
    int status = converse(chat, question);
    free(question);
    llb_chat_destroy(chat);
    return status;
}
