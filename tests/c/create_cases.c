/* Opening a model: the order of events, and every kind of failure.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <unistd.h>

/* Checks that the `load_progress:` events increase from 0.00 to 1.00. */
static void check_progress(const char *events)
{
    double last = -1;
    int count = 0;
    for (const char *at = events; (at = strstr(at, "load_progress:")); count++) {
        double done;
        int length = 0;
        CHECK(sscanf(at, "load_progress:%lf%n", &done, &length) == 1 && at[length] == '\n', events);
        CHECK(done > last && done <= 1, events);
        last = done;
        at += length;
    }
    CHECK(count > 0 && last == 1, events);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static int occurrences(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

void create_events(void)
{
    struct record events;
    record_init(&events);
    llb_chat_t *chat = llb_chat_create(model_path("text.gguf"), on_event, &events);
    CHECK(chat, "no chat");
    CHECK(strncmp(events.text, "create_start\nload_progress:", 27) == 0, events.text);
    CHECK(ends_with(events.text, "\ncreate_success\n"), events.text);
    CHECK(occurrences(events.text, "create_") == 2, events.text);
    check_progress(events.text);
    free(record_take(&events));
    llb_chat_destroy(chat);
    CHECK(strcmp(events.text, "destroy\n") == 0, events.text);
    free(record_take(&events));

    /* Other templates, tool policies and load options. */
    static const char *const variants[][2] = {
        {"tool_use.gguf", ""},
        {"no_tools.gguf", ",\"tool_policy\":\"any\""},
        {"no_tools.gguf", ",\"tool_policy\":\"any\",\"log\":\"debug\""},
        {"text.gguf", ",\"n_ctx\":64,\"n_batch\":64,\"n_parallel\":1,\"n_gpu_layers\":\"auto\",\"use_mmap\":false"},
        {"text.gguf", ",\"flash_attn\":\"on\",\"cache_type_k\":\"q8_0\",\"cache_type_v\":\"q8_0\""},
    };
    for (size_t index = 0; index < sizeof variants / sizeof *variants; index++) {
        chat = open_chat(variants[index][0], variants[index][1], &events);
        CHECK(chat, events.text);
        CHECK(ends_with(events.text, "create_success\n"), events.text);
        free(record_take(&events));
        llb_chat_destroy(chat);
        free(record_take(&events));
    }
    record_free(&events);
}

static void create_fails(const char *options, const char *event, const char *code, const char *in_message)
{
    struct record events;
    record_init(&events);
    CHECK(!llb_chat_create_with(options, on_event, &events), options);
    last_error_is(code, in_message);
    char *last = json_format("\ncreate_failure:%s\n", event);
    CHECK(strncmp(events.text, "create_start\n", 13) == 0, events.text);
    CHECK(ends_with(events.text, last), events.text);
    CHECK(occurrences(events.text, "create_") == 2, events.text);
    free(last);
    record_free(&events);
    /* The same without a callback. */
    CHECK(!llb_chat_create_with(options, NULL, NULL), options);
}

static void model_fails(const char *model, const char *members, const char *event, const char *code, const char *in_message)
{
    char *path = json_quote(strchr(model, '/') ? model : model_path(model));
    char *options = json_format("{\"model\":%s%s}", path, members);
    create_fails(options, event, code, in_message);
    free(options);
    free(path);
}

/* Writes the bytes to a temporary file and opens it as a model. */
static void garbage_fails(const char *bytes, size_t length)
{
    char path[] = "/tmp/llb-abi-test-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, bytes, length) == (ssize_t)length, path);
    close(file);
    model_fails(path, "", "load_model", "MODEL_INVALID", "");
    unlink(path);
}

void create_failures(void)
{
    create_fails("{}", "null_path", "INVALID_REQUEST", "NULL");
    create_fails("{\"model\":null}", "null_path", "INVALID_REQUEST", "NULL");
    create_fails("[]", "invalid_options", "INVALID_REQUEST", "an object");
    create_fails("{\"model\":\"x\",\"surprise\":1}", "invalid_options", "INVALID_REQUEST", "surprise");
    create_fails("{\"model\":\"\"}", "model_not_found", "MODEL_NOT_FOUND", "model: the path is empty");
    create_fails("{\"model\":\"/nowhere/model.gguf\"}", "model_not_found", "MODEL_NOT_FOUND", "/nowhere/model.gguf");

    model_fails("truncated.gguf", "", "load_model", "MODEL_INVALID", "cut short");
    model_fails("expected.json", "", "load_model", "MODEL_INVALID", "not a GGUF file");
    garbage_fails("", 0);
    garbage_fails("GGUF", 4);
    garbage_fails("GGUF\3\0\0\0\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377", 24);
    garbage_fails("GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\377\377\377\377\377\377\377\177", 32);

    model_fails("bad_template.gguf", "", "chat_template", "TEMPLATE_ERROR", "");
    model_fails("text.gguf", ",\"chat_template\":\"{% if %}\"", "chat_template", "TEMPLATE_ERROR", "");
    model_fails("no_tools.gguf", "", "tools_unsupported", "MODEL_NOT_TOOL_CAPABLE", "default chat template");
    model_fails("no_template.gguf", "", "tools_unsupported", "MODEL_NOT_TOOL_CAPABLE", "no chat template");
    model_fails("text.gguf", ",\"chat_template\":\"{{ messages[0].content }}\"", "tools_unsupported",
                "MODEL_NOT_TOOL_CAPABLE", "");
    /* llama.cpp quantizes V only with flash attention. */
    model_fails("text.gguf", ",\"flash_attn\":\"off\",\"cache_type_v\":\"q8_0\"", "init_context", "INFERENCE_FAILED", "");
    model_fails("text.gguf", ",\"n_ctx\":2147483647,\"cache_type_k\":\"f32\",\"cache_type_v\":\"f32\"", "oom", "OUT_OF_MEMORY",
                "n_ctx");

    /* Both functions with NULL arguments. */
    struct record events;
    record_init(&events);
    CHECK(!llb_chat_create(NULL, on_event, &events), "a chat");
    CHECK(strcmp(events.text, "create_start\ncreate_failure:null_path\n") == 0, events.text);
    free(record_take(&events));
    CHECK(!llb_chat_create_with(NULL, on_event, &events), "a chat");
    CHECK(strcmp(events.text, "create_start\ncreate_failure:invalid_options\n") == 0, events.text);
    record_free(&events);
}
