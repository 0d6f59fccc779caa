/* Hosts with small stacks, cancelled threads, floating-point traps, their own fault handlers, and
 * callbacks that do not return.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE

#include "check.h"

#include <fenv.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls every function, with requests that recurse in every layer: nested JSON, tool schemas, a
 * template. */
static void *use_all(void *unused)
{
    (void)unused;
    struct record events, pieces;
    record_init(&events);
    record_init(&pieces);
    llb_chat_t *chat = open_chat("tool_call.gguf", "", &events);
    CHECK(chat, "no chat");
    char deep[121];
    memset(deep, '[', 60);
    memset(deep + 60, ']', 60);
    deep[120] = '\0';
    char *members = json_format(",\"strange\":%s,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
                                "\"parameters\":{\"type\":\"object\"}}}],\"tool_choice\":\"required\"",
                                deep);
    char *request = ask(members);
    const char *reply = llb_chat_infer_stream(chat, request, on_piece, &pieces);
    CHECK(member_is(reply, "type", "tool_call"), reply);
    llb_string_free(reply);
    reply = llb_chat_explain(chat, request);
    CHECK(member_is(reply, "type", "explanation"), reply);
    llb_string_free(reply);
    llb_string_free(llb_model_info(model_path("text.gguf")));
    reply = llb_template_render("{\"chat_template\":\"{{ messages[0].content }}\",\"messages\":[{\"role\":\"user\",\"content\":\"y\"}]}");
    CHECK(member_is(reply, "prompt", "y"), reply);
    llb_string_free(reply);
    llb_string_free(llb_template_info("{\"chat_template\":\"{% for message in messages %}{{ message.content }}{% endfor %}\"}"));
    llb_string_free(llb_template_parse("{\"chat_template\":\"x\",\"output\":\"y\"}"));
    llb_string_free(llb_template_compose("{\"list\":true}"));
    reply_is_error(llb_model_fetch("{\"id\":\"a/b\",\"offline\":true,\"cache_dir\":\"/nowhere\"}", on_event, &events), "OFFLINE", "");
    llb_model_fetch_cancel("a/b");
    llb_chat_cancel(chat);
    llb_chat_destroy(chat);
    CHECK(strstr(events.text, "destroy"), events.text);
    record_free(&events);
    record_free(&pieces);
    free(request);
    free(members);
    return NULL;
}

void small_stacks(void)
{
    /* Valgrind needs more stack for its own frames. */
    static const int kibibytes[] = {256, 128, 64, 40};
    for (int index = 0; index < rounds(4, 1); index++) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, (size_t)rounds(kibibytes[index], 1024) * 1024);
        pthread_t thread;
        if (pthread_create(&thread, &attributes, use_all, NULL) != 0)
            abort();
        join_thread(thread);
        pthread_attr_destroy(&attributes);
    }
}

/* A cancellation point. Afterwards the library masks cancellation again. */
static void sleep_here(struct record *record, const char *text)
{
    (void)record, (void)text;
    usleep(1);
    pthread_testcancel();
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}

static void *call_while_cancelled(void *unused)
{
    (void)unused;
    struct record events, pieces;
    record_init(&events);
    record_init(&pieces);
    events.then = pieces.then = sleep_here;
    /* The thread is cancelled before its first call, and has not reached a cancellation point
     * yet. */
    pthread_cancel(pthread_self());
    llb_chat_t *chat = open_chat("text.gguf", "", &events);
    char *request = ask("");
    const char *reply = llb_chat_infer_stream(chat, request, on_piece, &pieces);
    CHECK(chat && member_is(reply, "text", expected("text")), reply);
    llb_string_free(reply);
    llb_string_free(llb_last_error());
    llb_string_free(llb_template_render(request));
    llb_string_free(llb_model_info(model_path("text.gguf")));
    llb_chat_cancel(chat);
    llb_chat_destroy(chat);
    CHECK(strstr(events.text, "destroy"), events.text);
    free(request);
    record_free(&events);
    record_free(&pieces);
    int state = -1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    CHECK(state == PTHREAD_CANCEL_ENABLE, "still masked");
    pthread_testcancel();
    CHECK(false, "the cancellation is lost");
    return NULL;
}

void cancelled_threads(void)
{
    pthread_t thread = start_thread(call_while_cancelled, NULL);
    void *result = NULL;
    pthread_join(thread, &result);
    CHECK(result == PTHREAD_CANCELED, "not cancelled");
}

#ifndef __GLIBC__
/* The functions of glibc, for x86-64. A set bit masks a trap; those of MXCSR begin at 7. The status
 * is cleared, because printf of musl leaves exceptions in it, which would trap at once. */
static int fegetexcept(void)
{
    fenv_t floats;
    fegetenv(&floats);
    return ~(floats.__mxcsr >> 7) & FE_ALL_EXCEPT;
}

static void feenableexcept(int exceptions)
{
    fenv_t floats;
    fegetenv(&floats);
    floats.__status_word = 0;
    floats.__control_word &= (unsigned short)~exceptions;
    floats.__mxcsr &= ~((unsigned)exceptions << 7);
    fesetenv(&floats);
}
#endif

static int in_callback;

static void note_traps(struct record *record, const char *text)
{
    (void)record, (void)text;
    in_callback |= fegetexcept() | fegetround();
    feenableexcept(FE_ALL_EXCEPT);
    fesetround(FE_UPWARD);
}

static void *call_with_traps(void *unused)
{
    (void)unused;
    struct record events, pieces;
    record_init(&events);
    record_init(&pieces);
    events.then = pieces.then = note_traps;
    in_callback = 0;
    feenableexcept(FE_ALL_EXCEPT);
    fesetround(FE_UPWARD);
    llb_chat_t *chat = open_chat("text.gguf", "", &events);
    const char *reply = infer(chat, ask(""));
    CHECK(member_is(reply, "text", expected("text")), reply);
    llb_string_free(reply);
    char *request = ask(",\"temperature\":1.5,\"top_p\":0.9,\"logprobs\":true,\"max_tokens\":20");
    reply = llb_chat_infer_stream(chat, request, on_piece, &pieces);
    CHECK(!json_member(reply, "error"), reply);
    llb_string_free(reply);
    free(request);
    llb_string_free(llb_template_render("{\"chat_template\":\"{{ 1 / 3 }}\",\"messages\":[]}"));
    llb_string_free(llb_model_info(model_path("text.gguf")));
    llb_chat_destroy(chat);
    CHECK(fegetexcept() == FE_ALL_EXCEPT && fegetround() == FE_UPWARD, "the host's settings are lost");
    CHECK(in_callback == 0, "a callback has the host's settings");
    record_free(&events);
    record_free(&pieces);
    return NULL;
}

void floating_point_traps(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* valgrind does not emulate traps */
    join_thread(start_thread(call_with_traps, NULL));
}

static jmp_buf before_call;

static void jump(const char *piece, void *unused)
{
    (void)piece, (void)unused;
    longjmp(before_call, 1);
}

static void stream_and_jump(llb_chat_t *chat, char *request)
{
    if (setjmp(before_call) == 0)
        llb_chat_infer_stream(chat, request, jump, NULL);
}

void jumps_out_of_callbacks(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* what the call had allocated leaks */
    char *request = ask(",\"max_tokens\":400");
    llb_chat_t *chat = open_chat("long.gguf", "", NULL);
    stream_and_jump(chat, request);
    reply_text_is(llb_chat_infer(chat, request), expected("long"), "stop");
    stream_and_jump(chat, request);
    llb_chat_destroy(chat);
    reply_is_error(llb_chat_infer(chat, request), "ENGINE_CLOSED", "");
    free(request);
}

static struct latch has_ended;

static void end_thread(const char *piece, void *unused)
{
    (void)piece, (void)unused;
    latch_open(&has_ended);
    pthread_exit(NULL);
}

static void *stream_and_end(void *chat)
{
    llb_chat_infer_stream(chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}", end_thread, NULL);
    return NULL;
}

void threads_that_end_in_callbacks(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* the thread stays */
    has_ended = (struct latch)LATCH_CLOSED;
    llb_chat_t *chat = open_chat("long.gguf", "", NULL);
    pthread_detach(start_thread(stream_and_end, chat));
    latch_wait(&has_ended);
    reply_text_is(infer(chat, ask(",\"max_tokens\":400")), expected("long"), "stop");
    llb_chat_destroy(chat);
}

/* The host's handler jumps back to here. */
static sigjmp_buf before_fault;
static volatile sig_atomic_t last_signal;

static void jump_back(int signal, siginfo_t *info, void *unused)
{
    (void)info, (void)unused;
    last_signal = signal;
    siglongjmp(before_fault, 1);
}

/* Returns the signal that the host's handler received, or 0. */
static int read_null(void)
{
    const volatile int *volatile nowhere = NULL;
    last_signal = 0;
    if (sigsetjmp(before_fault, 1) == 0)
        (void)*nowhere;
    return last_signal;
}

static int send_to_self(int signal)
{
    last_signal = 0;
    if (sigsetjmp(before_fault, 1) == 0)
        raise(signal);
    return last_signal;
}

static void read_null_in_callback(const char *piece, void *right)
{
    (void)piece;
    *(int *)right += read_null() == SIGSEGV ? 1 : -1000;
}

/* The library handles the same signals while a model is loaded. */
void faults_of_the_host(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* valgrind reports the faults */
    static const int signals[] = { SIGSEGV, SIGFPE, SIGBUS };
    struct sigaction before[3], action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = jump_back;
    action.sa_flags = SA_SIGINFO;
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &action, &before[i]);
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    int right = 0;
    char *request = ask("");
    llb_string_free(llb_chat_infer_stream(chat, request, read_null_in_callback, &right));
    free(request);
    CHECK(right > 0, "a fault in a callback is not the host's");
    CHECK(read_null() == SIGSEGV, "a fault of the host is not the host's");
    for (int i = 0; i < 3; i++)
        CHECK(send_to_self(signals[i]) == signals[i], "a signal did not reach the host");
    llb_chat_destroy(chat);
    for (int i = 0; i < 3; i++)
        CHECK(send_to_self(signals[i]) == signals[i], "a signal did not reach the host");
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &before[i], NULL);
}
