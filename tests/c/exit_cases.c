/* Calls while the process exits, and exits while calls run. Each case is a child process, which
 * must end with the host's exit code, print nothing and not hang.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <signal.h>
#include <unistd.h>

/* The exit code of a child whose checks have all passed. */
enum { RIGHT = 7 };

#define ENDLESS ",\"logit_bias\":{\"258\":-100},\"max_tokens\":60000"

static llb_chat_t *the_chat;
static char *state_file;
static struct latch is_running = LATCH_CLOSED;
static pthread_t worker;
static bool calls_at_exit, join_at_exit, in_a_callback, destroyed, called;

/* The function of glibc that registers C++ thread_local destructors. */
#ifdef __GLIBC__
int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *library);
extern void *__dso_handle;
#endif

/* Ends the child as failed if `holds` is false. After an exit handler has started, nothing else
 * changes the exit code. */
static void must(bool holds, const char *what)
{
    if (holds)
        return;
    dprintf(STDOUT_FILENO, "%s\n", what);
    _exit(1);
}

static void note_destroy(const char *event, void *unused)
{
    (void)unused;
    destroyed = destroyed || strcmp(event, "destroy") == 0;
    must(strncmp(event, "log:error:state_file", 20) != 0, event);
}

static llb_chat_t *open_long(llb_event_cb on_event)
{
    char *options = json_format("{\"model\":\"%s\",\"n_threads\":1,\"n_ctx\":65536,\"log\":\"error\"%s%s%s}", model_path("long.gguf"),
                                state_file ? ",\"state_file\":\"" : "", state_file ? state_file : "", state_file ? "\"" : "");
    llb_chat_t *chat = llb_chat_create_with(options, on_event, NULL);
    free(options);
    return chat;
}

static void answers(const char *reply)
{
    must(reply && is_json(reply) && json_member(reply, "type"), reply ? reply : "NULL");
    llb_string_free(reply);
}

/* Calls every function. Each returns a reply or an error, and the destroy emits its event. */
static void call_all(void)
{
    called = true;
    must(llb_version() && llb_abi_version(), "no version");
    answers(llb_model_info(model_path("text.gguf")));
    answers(llb_template_render("{\"chat_template\":\"{{messages[0].content}}\",\"messages\":[{\"role\":\"user\",\"content\":\"y\"}]}"));
    answers(llb_template_info("{\"chat_template\":\"x\"}"));
    answers(llb_template_parse("{\"chat_template\":\"x\",\"output\":\"y\"}"));
    answers(llb_template_compose("{\"list\":true}"));
    answers(llb_model_fetch("{\"id\":\"a/b\",\"offline\":true,\"cache_dir\":\"/nowhere\"}", NULL, NULL));
    llb_model_fetch_cancel("a/b");
    llb_chat_cancel(the_chat);
    answers(llb_chat_explain(the_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}"));
    answers(infer(the_chat, ask(",\"max_tokens\":4")));
    llb_chat_t *other = open_chat("tool_call.gguf", "", NULL);
    answers(llb_last_error());
    if (other) {
        const char *reply = infer(other, ask(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
                                             "\"parameters\":{\"type\":\"object\"}}}],\"tool_choice\":\"required\""));
        must(member_is(reply, "type", "tool_call"), reply);
        llb_string_free(reply);
    } else {
        const char *error = llb_last_error();
        const char *code = in_a_callback ? "" : "ENGINE_CLOSED";
        must(!*code || member_is(json_member(error, "error"), "code", code), error);
        llb_string_free(error);
    }
    llb_chat_destroy(other);
    answers(llb_chat_infer(NULL, "{"));
    const char *error = llb_last_error();
    must(json_member(json_member(error, "error"), "code"), error);
    llb_string_free(error);
    llb_chat_destroy(the_chat);
    /* A destroy from a callback completes when the call ends, which never happens here. */
    must(destroyed || in_a_callback, "no event destroy");
    llb_chat_destroy(the_chat);
}

static void call_all_with(void *unused)
{
    (void)unused;
    call_all();
}

static void call_all_as_thread_local(void)
{
#ifdef __GLIBC__
    __cxa_thread_atexit_impl(call_all_with, NULL, &__dso_handle);
#else
    /* As LLVM's C++ library does with musl. */
    pthread_key_t key;
    pthread_key_create(&key, call_all_with);
    pthread_setspecific(key, &key);
#endif
}

static void *call_all_at_end_of_thread(void *key)
{
    if (key)
        pthread_setspecific(*(pthread_key_t *)key, key);
    else
        call_all_as_thread_local();
    /* The library's data for this thread is destroyed before this, or after it. */
    llb_string_free(llb_template_render("{\"chat_template\":\"x\",\"messages\":[]}"));
    return NULL;
}

__attribute__((destructor)) static void last(void)
{
    if (calls_at_exit)
        call_all();
    if (join_at_exit)
        join_thread(worker);
}

static void note(const char *piece, void *unused)
{
    (void)piece, (void)unused;
    latch_open(&is_running);
}

static void exit_here(const char *piece, void *unused)
{
    (void)piece, (void)unused;
    in_a_callback = true;
    exit(RIGHT);
}

/* Sends requests until the chat is closed. */
static void *generate(void *chat)
{
    for (bool closed = false; !closed;) {
        char *request = ask(ENDLESS);
        const char *reply = llb_chat_infer_stream(chat, request, note, NULL);
        closed = json_member(reply, "error") && !member_is(reply, "type", "assistant_text");
        llb_string_free(reply);
        free(request);
    }
    return NULL;
}

/* Opens chats until opening is refused. */
static void *open_and_destroy(void *unused)
{
    (void)unused;
    for (llb_chat_t *chat; (chat = open_chat("text.gguf", "", NULL));) {
        latch_open(&is_running);
        llb_chat_destroy(chat);
    }
    return NULL;
}

static void start(void *(*body)(void *), void *argument)
{
    worker = start_thread(body, argument);
    latch_wait(&is_running);
}

static void exit_plainly(void) { exit(RIGHT); }
static void exit_at_once(void) { _exit(RIGHT); }

static void in_destructor(void)
{
    calls_at_exit = true;
    exit(RIGHT);
}

static void in_early_handler(void) { exit(RIGHT); }

static void in_late_handler(void)
{
    atexit(call_all);
    exit(RIGHT);
}

static void in_quick_handler(void)
{
    at_quick_exit(call_all);
    quick_exit(RIGHT);
}

static void in_thread_local(void)
{
    call_all_as_thread_local();
    exit(RIGHT);
}

static void in_early_thread_local(void) { exit(RIGHT); }

static void in_thread_local_of_thread(void)
{
    join_thread(start_thread(call_all_at_end_of_thread, NULL));
    must(called, "not called");
    exit(RIGHT);
}

static void in_key_of_thread(void)
{
    pthread_key_t key;
    pthread_key_create(&key, call_all_with);
    join_thread(start_thread(call_all_at_end_of_thread, &key));
    must(called, "not called");
    exit(RIGHT);
}

static void exit_while_loading(const char *event, void *unused)
{
    (void)unused;
    if (strcmp(event, "load_progress:0.00") == 0)
        exit(RIGHT);
}

static void in_callback_of_create(void)
{
    calls_at_exit = in_a_callback = true;
    llb_chat_create(model_path("text.gguf"), exit_while_loading, NULL);
}

static void in_callback(void)
{
    char *request = ask(",\"max_tokens\":400");
    llb_chat_infer_stream(the_chat, request, exit_here, NULL);
}

static void in_callback_with_destructor(void)
{
    calls_at_exit = true;
    in_callback();
}

static void in_callback_with_late_handler(void)
{
    atexit(call_all);
    in_callback();
}

static void joins_a_request(void)
{
    join_at_exit = true;
    start(generate, the_chat);
    exit(RIGHT);
}

static void destroys_a_running_chat(void)
{
    calls_at_exit = true;
    start(generate, the_chat);
    exit(RIGHT);
}

static void exit_in_handler(int signal)
{
    (void)signal;
    exit(RIGHT);
}

static void *take_signals(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

/* The signal is delivered to any thread that does not block it. The library's threads must block
 * it. */
static void in_signal_handler(void)
{
    start_thread(take_signals, NULL);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGTERM, exit_in_handler);
    kill(getpid(), SIGTERM);
    pause();
}

static void joins_creations(void)
{
    join_at_exit = true;
    start(open_and_destroy, NULL);
    exit(RIGHT);
}

/* `saves`: whether the exit writes the state of the chat to the disk. */
static const struct {
    const char *name;
    void (*run)(void);
    bool saves;
} cases[] = {
#define CASE(function, saves) { #function, function, saves }
    CASE(exit_plainly, true),
    CASE(exit_at_once, false),
    CASE(in_destructor, true),
    CASE(in_early_handler, true),
    CASE(in_late_handler, true),
    CASE(in_quick_handler, true),
    CASE(in_thread_local, true),
    CASE(in_early_thread_local, true),
    CASE(in_thread_local_of_thread, true),
    CASE(in_key_of_thread, true),
    CASE(in_callback_of_create, true),
    CASE(in_callback, true),
    CASE(in_callback_with_destructor, true),
    CASE(in_callback_with_late_handler, true),
    CASE(joins_a_request, true),
    CASE(destroys_a_running_chat, true),
    CASE(joins_creations, true),
    CASE(in_signal_handler, true),
#undef CASE
};

/* `exit:NAME:STATE_FILE`, or `exit-busy:NAME:` with a second thread that generates all the time. */
void run_exit_child(const char *what)
{
    char name[64], path[256] = "";
    bool busy = strncmp(what, "exit-busy:", 10) == 0;
    if (sscanf(what, busy ? "exit-busy:%63[a-z_]:%255s" : "exit:%63[a-z_]:%255s", name, path) < 1)
        return;
    if (path[0])
        state_file = path;
    if (strcmp(name, "in_early_handler") == 0)
        atexit(call_all);
    if (strcmp(name, "in_early_thread_local") == 0)
        call_all_as_thread_local();
    the_chat = open_long(note_destroy);
    must(the_chat != NULL, "no chat");
    answers(infer(the_chat, ask(",\"max_tokens\":8")));
    if (busy) {
        state_file = NULL;
        llb_chat_t *other = open_long(NULL);
        start(generate, other);
    }
    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++)
        if (strcmp(name, cases[index].name) == 0)
            cases[index].run();
    _exit(2);
}

/* Whether a chat that opens a child's state file has cached tokens from the start. */
static bool restores(const char *path)
{
    state_file = (char *)path;
    llb_chat_t *chat = open_long(NULL);
    state_file = NULL;
    const char *reply = infer(chat, ask(",\"max_tokens\":1"));
    bool cached = member_number(json_member(json_member(reply, "usage"), "prompt_tokens_details"), "cached_tokens") > 0;
    llb_string_free(reply);
    llb_chat_destroy(chat);
    return cached;
}

static void check(size_t index, bool busy)
{
    char folder[] = "/tmp/llb-exit-XXXXXX", output[4096];
    if (!mkdtemp(folder))
        abort();
    char *path = json_format("%s/state", folder);
    char *what = json_format("%s:%s:%s", busy ? "exit-busy" : "exit", cases[index].name, path);
    int status = spawn(what, output, sizeof output);
    char *got = json_format("%s: status %d, output: %s", what, status, output);
    CHECK(status == RIGHT && !output[0], got);
    if (cases[index].saves)
        CHECK(restores(path), got);
    else
        CHECK(access(path, F_OK) != 0, got);
    unlink(path);
    rmdir(folder);
    free(got);
    free(what);
    free(path);
}

void exits(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* under valgrind, /proc/self/exe is valgrind */
    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++) {
        check(index, false);
        check(index, true);
    }
}
