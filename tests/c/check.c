/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

atomic_int checks, failures;

void check_that(bool holds, const char *file, int line, const char *condition, const char *got)
{
    checks++;
    if (holds)
        return;
    failures++;
    const char *name = strrchr(file, '/');
    printf("  %s:%d: check failed: %s\n    got: %.2000s\n", name ? name + 1 : file, line, condition,
           got ? got : "NULL");
    fflush(stdout);
}

int rounds(int normally, int slow)
{
    return getenv("LLB_TEST_SLOW") ? slow : normally;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    char *text = calloc(1, 1 << 16);
    if (!text || fread(text, 1, (1 << 16) - 1, file) == 0)
        exit(2);
    fclose(file);
    return text;
}

/* Without a lock, which a forked child could inherit from another thread. */
const char *model_path(const char *name)
{
    enum { MOST = 32 };
    static _Atomic(char *) paths[MOST];
    char *path = json_format("%s/%s", getenv("LLB_TEST_MODELS"), name);
    for (int index = 0; index < MOST; index++) {
        char *known = NULL;
        if (atomic_compare_exchange_strong(&paths[index], &known, path))
            return path;
        if (strcmp(known, path) == 0) {
            free(path);
            return known;
        }
    }
    abort();
}

const char *expected(const char *name)
{
    static char *text, *values[3];
    const char *names[] = {"text", "tool_call", "long"};
    if (!text) {
        text = read_file(model_path("expected.json"));
        for (int index = 0; index < 3; index++)
            values[index] = json_string(json_member(text, names[index]));
    }
    for (int index = 0; index < 3; index++)
        if (strcmp(names[index], name) == 0 && values[index])
            return values[index];
    fprintf(stderr, "expected.json has no %s\n", name);
    exit(2);
}

const char *real_model(void)
{
    static char *path;
    const char *folder = getenv("LLB_MODELS");
    DIR *listing = folder && !path ? opendir(folder) : NULL;
    for (struct dirent *entry; listing && (entry = readdir(listing));)
        /* The smallest model that CI downloads. */
        if (!path && strncmp(entry->d_name, "smollm2-135m", 12) == 0 && strstr(entry->d_name, ".gguf"))
            path = json_format("%s/%s", folder, entry->d_name);
    if (listing)
        closedir(listing);
    return path;
}

void record_init(struct record *record)
{
    *record = (struct record){.text = json_format("%s", ""), .all_valid_utf8 = true};
    pthread_mutex_init(&record->lock, NULL);
}

static void record_add(struct record *record, const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    pthread_mutex_lock(&record->lock);
    char *grown = realloc(record->text, record->length + length + end_length + 1);
    if (!grown)
        abort();
    memcpy(grown + record->length, text, length);
    memcpy(grown + record->length + length, end, end_length + 1);
    record->text = grown;
    record->length += length + end_length;
    record->count++;
    record->all_valid_utf8 = record->all_valid_utf8 && is_valid_utf8(text);
    pthread_mutex_unlock(&record->lock);
    if (record->then)
        record->then(record, text);
}

char *record_take(struct record *record)
{
    pthread_mutex_lock(&record->lock);
    char *text = record->text;
    record->text = json_format("%s", "");
    record->length = 0;
    record->count = 0;
    pthread_mutex_unlock(&record->lock);
    return text;
}

void record_free(struct record *record)
{
    free(record->text);
    pthread_mutex_destroy(&record->lock);
}

void on_event(const char *event, void *record)
{
    record_add(record, event, "\n");
}

void on_piece(const char *piece, void *record)
{
    record_add(record, piece, "");
}

llb_chat_t *open_chat(const char *model, const char *members, struct record *record)
{
    char *path = json_quote(strchr(model, '/') ? model : model_path(model));
    char *options = json_format("{\"model\":%s,\"n_threads\":1%s}", path, members);
    llb_chat_t *chat = llb_chat_create_with(options, record ? on_event : NULL, record);
    free(options);
    free(path);
    return chat;
}

char *ask(const char *members)
{
    return json_format("{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"temperature\":0%s}", members);
}

const char *infer(llb_chat_t *chat, char *request)
{
    const char *reply = llb_chat_infer(chat, request);
    free(request);
    return reply;
}

static void error_is(const char *reply, const char *code, const char *in_message)
{
    const char *error = json_member(reply, "error");
    char *message = json_string(json_member(error, "message"));
    CHECK(reply && is_json(reply) && member_is(reply, "type", "error"), reply);
    CHECK(member_is(error, "code", code), reply);
    CHECK(message && strstr(message, in_message), reply);
    free(message);
}

void last_error_is(const char *code, const char *in_message)
{
    const char *error = llb_last_error();
    error_is(error, code, in_message);
    llb_string_free(error);
}

void reply_is_error(const char *reply, const char *code, const char *in_message)
{
    error_is(reply, code, in_message);
    const char *last = llb_last_error();
    CHECK(strcmp(last, reply) == 0, last);
    llb_string_free(last);
    llb_string_free(reply);
}

void reply_text_is(const char *reply, const char *text, const char *finish_reason)
{
    CHECK(is_json(reply) && is_valid_utf8(reply), reply);
    CHECK(member_is(reply, "type", "assistant_text"), reply);
    CHECK(member_is(reply, "text", text), reply);
    CHECK(member_is(reply, "finish_reason", finish_reason), reply);
    CHECK(member_is(json_member(reply, "message"), "content", text), reply);
    llb_string_free(reply);
}

bool is_valid_utf8(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        int more = *at < 0x80 ? 0 : *at >= 0xC2 && *at < 0xE0 ? 1 : *at >= 0xE0 && *at < 0xF0 ? 2 : *at >= 0xF0 && *at < 0xF5 ? 3 : -1;
        if (more < 0 || (*at == 0xE0 && at[1] < 0xA0) || (*at == 0xED && at[1] >= 0xA0) || (*at == 0xF0 && at[1] < 0x90)
            || (*at == 0xF4 && at[1] >= 0x90))
            return false;
        for (at++; more > 0; more--, at++)
            if ((*at & 0xC0) != 0x80)
                return false;
    }
    return true;
}

/* Returns the end of a JSON value by the grammar of RFC 8259. NULL if there is no value at `at`. */
static const char *valid_value(const char *at, int depth)
{
    at += strspn(at, " \t\r\n");
    if (depth > 100)
        return NULL;
    if (*at == '"') {
        for (at++; *at != '"'; at++) {
            if ((unsigned char)*at < 0x20)
                return NULL;
            if (*at != '\\')
                continue;
            at++;
            if (!*at || !strchr("\"\\/bfnrtu", *at))
                return NULL;
            if (*at == 'u' && strspn(at + 1, "0123456789abcdefABCDEF") < 4)
                return NULL;
        }
        at++;
    } else if (*at == '{' || *at == '[') {
        bool object = *at == '{';
        char close = object ? '}' : ']';
        at++;
        at += strspn(at, " \t\r\n");
        for (bool first = true; *at != close; first = false) {
            if (!first && *at++ != ',')
                return NULL;
            if (object) {
                at += strspn(at, " \t\r\n");
                if (*at != '"' || !(at = valid_value(at, depth + 1)) || *at++ != ':')
                    return NULL;
            }
            if (!(at = valid_value(at, depth + 1)))
                return NULL;
        }
        at++;
    } else if (strncmp(at, "true", 4) == 0 || strncmp(at, "null", 4) == 0) {
        at += 4;
    } else if (strncmp(at, "false", 5) == 0) {
        at += 5;
    } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
        at += strspn(at, "0123456789+-.eE");
    } else {
        return NULL;
    }
    return at + strspn(at, " \t\r\n");
}

bool is_json(const char *text)
{
    const char *end = valid_value(text, 0);
    return end && !*end;
}

bool member_is(const char *object, const char *name, const char *text)
{
    char *value = json_string(json_member(object, name));
    bool same = value && strcmp(value, text) == 0;
    free(value);
    return same;
}

long member_number(const char *object, const char *name)
{
    const char *value = json_member(object, name);
    return value ? strtol(value, NULL, 10) : -1;
}

pthread_t start_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0)
        abort();
    return thread;
}

void join_thread(pthread_t thread)
{
    if (pthread_join(thread, NULL) != 0)
        abort();
}

void latch_open(struct latch *latch)
{
    pthread_mutex_lock(&latch->lock);
    latch->open = true;
    pthread_cond_broadcast(&latch->changed);
    pthread_mutex_unlock(&latch->lock);
}

void latch_wait(struct latch *latch)
{
    pthread_mutex_lock(&latch->lock);
    while (!latch->open)
        pthread_cond_wait(&latch->changed, &latch->lock);
    pthread_mutex_unlock(&latch->lock);
}

int spawn(const char *what, char *output, size_t size)
{
    char path[] = "/tmp/llb-abi-test-XXXXXX";
    int file = mkstemp(path);
    unlink(path);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(file, STDOUT_FILENO);
        dup2(file, STDERR_FILENO);
        execl("/proc/self/exe", "abi_test", "--child", what, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ssize_t length = pread(file, output, size - 1, 0);
    output[length < 0 ? 0 : length] = '\0';
    close(file);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
