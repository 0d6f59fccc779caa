/* Shared by all test files: counted checks, recorded events, and requests and replies as text. */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <llb.h>

#include "json_text.h"

/* Prints a failed condition with `got` and continues. May be used from any thread. */
#define CHECK(condition, got) check_that((condition), __FILE__, __LINE__, #condition, (got))
void check_that(bool holds, const char *file, int line, const char *condition, const char *got);

/* The number of checks so far, and of failed ones. */
extern atomic_int checks, failures;

/* The number of repetitions: `slow` under valgrind (LLB_TEST_SLOW), otherwise `normally`. */
int rounds(int normally, int slow);

/* The path of a scripted model. Must not be freed. */
const char *model_path(const char *name);
/* The output of a scripted model: "text", "tool_call" or "long" of expected.json. */
const char *expected(const char *name);
/* The path of a real model, or NULL if LLB_MODELS is unset or contains none. */
const char *real_model(void);

/* Collected texts: the pieces of a stream, or events, one per line. */
struct record {
    pthread_mutex_t lock;
    char *text;
    size_t length;
    int count;
    bool all_valid_utf8;
    /* Is called for each text, without holding the lock. */
    void (*then)(struct record *record, const char *text);
    void *context;
};
void record_init(struct record *record);
/* Returns the text recorded since the last call, and clears it. The caller frees it. */
char *record_take(struct record *record);
void record_free(struct record *record);
void on_event(const char *event, void *record);
void on_piece(const char *piece, void *record);

/* Opens a model. `members` are more members of the options, such as `,"n_ctx":64`, or "". `record`
 * receives the events and may be NULL. */
llb_chat_t *open_chat(const char *model, const char *members, struct record *record);
/* Returns a greedy request with one user message and more members. The caller frees it. */
char *ask(const char *members);
/* Runs a request and frees the request. */
const char *infer(llb_chat_t *chat, char *request);

/* These check a reply and free it. */
void reply_is_error(const char *reply, const char *code, const char *in_message);
void reply_text_is(const char *reply, const char *text, const char *finish_reason);
void last_error_is(const char *code, const char *in_message);

bool is_valid_utf8(const char *text);
/* Whether the text is exactly one JSON value. */
bool is_json(const char *text);
bool member_is(const char *object, const char *name, const char *text);
long member_number(const char *object, const char *name);

/* These start or join a thread, and abort on failure. */
pthread_t start_thread(void *(*body)(void *), void *argument);
void join_thread(pthread_t thread);

/* A latch: opens once and stays open. */
struct latch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
};
#define LATCH_CLOSED { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false }
void latch_open(struct latch *latch);
void latch_wait(struct latch *latch);

/* The groups of cases, in the order in which they run. */
void version(void);
void null_arguments(void);
void invalid_utf8(void);
void broken_json(void);
void wrong_requests(void);
void wrong_options(void);
void wrong_template_requests(void);
void wrong_token_requests(void);
void create_events(void);
void create_failures(void);
void replies(void);
void streams(void);
void stops_and_lengths(void);
void usage(void);
void classic_replies(void);
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
void exits(void);
void exit_handlers(void);
void exits_during_the_first_load(void);
void forks(void);
void forks_of_busy_processes(void);
void forks_of_first_chats(void);
void forks_in_callbacks(void);
void cancelled_threads(void);
void floating_point_traps(void);
void jumps_out_of_callbacks(void);
void faults_of_the_host(void);
void threads_that_end_in_callbacks(void);
void wrong_embed_requests(void);
void embed_handles(void);
void destroy_against_embed(void);
void forks_with_embeddings(void);
void exit_during_embed(void);

/* Runs this program as `--child WHAT` and captures its output. Returns its exit status, or -1 if a
 * signal ended it. */
int spawn(const char *what, char *output, size_t size);

/* The children that each file defines. The function ends the process if `what` names one of
 * them. */
void run_process_child(const char *what);
void run_exit_child(const char *what);
void run_exit_order_child(const char *what);
void run_fork_child(const char *what);
void run_embed_child(const char *what);

#endif
