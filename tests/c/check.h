/* What every test file uses: checks that count, events that are recorded, requests and replies as text. */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <llb.h>

#include "json_text.h"

/* A check that fails is printed with what there was instead, and the test goes on. Any thread. */
#define CHECK(condition, got) check_that((condition), __FILE__, __LINE__, #condition, (got))
void check_that(bool holds, const char *file, int line, const char *condition, const char *got);

/* Checks so far, and those that failed. */
extern atomic_int checks, failures;

/* How often to repeat what is repeated: fewer times under valgrind (LLB_TEST_SLOW). */
int rounds(int normally, int slow);

/* Path of a scripted model; lives as long as the program. */
const char *model_path(const char *name);
/* What a scripted model answers: "text", "tool_call" or "long" of expected.json. */
const char *expected(const char *name);
/* A real model, or NULL where LLB_MODELS is not set or has none. */
const char *real_model(void);

/* Texts one after another: pieces of a stream, or events, each on a line of its own. */
struct record {
    pthread_mutex_t lock;
    char *text;
    size_t length;
    int count;
    bool all_valid_utf8;
    /* Called for each one, outside the lock. */
    void (*then)(struct record *record, const char *text);
    void *context;
};
void record_init(struct record *record);
/* The record's text since the start or the last call; the caller frees it. */
char *record_take(struct record *record);
void record_free(struct record *record);
void on_event(const char *event, void *record);
void on_piece(const char *piece, void *record);

/* Opens a model with further members of the options, written `,"n_ctx":64`, or "". The events go to `record`, if any. */
llb_chat_t *open_chat(const char *model, const char *members, struct record *record);
/* A request of one user message and further members; greedy. The caller frees it. */
char *ask(const char *members);
/* Infers, and frees the request. */
const char *infer(llb_chat_t *chat, char *request);

/* Frees a reply after looking at it. The looks are checks of their own. */
void reply_is_error(const char *reply, const char *code, const char *in_message);
void reply_text_is(const char *reply, const char *text, const char *finish_reason);
void last_error_is(const char *code, const char *in_message);

bool is_valid_utf8(const char *text);
/* Whether the whole text is one JSON value. */
bool is_json(const char *text);
bool member_is(const char *object, const char *name, const char *text);
long member_number(const char *object, const char *name);

/* Starts a thread that must start, and waits for one that must end. */
pthread_t start_thread(void *(*body)(void *), void *argument);
void join_thread(pthread_t thread);

/* A gate that opens once. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
};
#define GATE_CLOSED { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false }
void gate_open(struct gate *gate);
void gate_wait(struct gate *gate);

/* Groups of cases, in the order they run. */
void version(void);
void null_arguments(void);
void invalid_utf8(void);
void broken_json(void);
void wrong_requests(void);
void wrong_options(void);
void wrong_template_requests(void);
void create_events(void);
void create_failures(void);
void replies(void);
void streams(void);
void stops_and_lengths(void);
void usage(void);
void tool_calls(void);
void constraints(void);
void templates(void);
void chat_events(void);
void made_up_handles(void);
void destroyed_handles(void);
void calls_from_callbacks(void);
void cancels(void);
void cancels_with_a_real_model(void);
void threads_on_one_chat(void);
void threads_on_one_model(void);
void destroy_against_infer(void);
void last_errors_of_threads(void);
void small_stacks(void);
void repeated_chats(void);
void silence(void);
void forks(void);
void exits(void);

/* The child process of `silence` and `exits`. */
int run_child(const char *what);

#endif
