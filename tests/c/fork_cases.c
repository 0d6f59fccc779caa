/* Children of fork. They have only the thread that forked, and must neither hang nor use the
 * parent's chats.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The exit code of a child whose checks have passed. The others identify the check that failed. */
enum { RIGHT = 7, OLD_CHAT = 1, NEW_CHAT, TEMPLATE, REPLY };

#define ENDLESS ",\"logit_bias\":{\"258\":-100},\"max_tokens\":60000"

static atomic_bool stop;
static struct latch is_running;

static bool is_closed(llb_chat_t *chat)
{
    const char *reply = infer(chat, ask(""));
    bool closed = member_is(json_member(reply, "error"), "code", "ENGINE_CLOSED");
    llb_string_free(reply);
    reply = llb_chat_explain(chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}");
    closed = closed && member_is(json_member(reply, "error"), "code", "ENGINE_CLOSED");
    llb_string_free(reply);
    return closed;
}

static bool works(const char *options)
{
    llb_chat_t *chat = open_chat("text.gguf", options, NULL);
    const char *reply = infer(chat, ask(""));
    bool right = member_is(reply, "text", expected("text"));
    llb_string_free(reply);
    llb_chat_destroy(chat);
    return right;
}

static bool renders(void)
{
    const char *reply = llb_template_render("{\"chat_template\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"y\"}]}");
    bool right = member_is(reply, "prompt", "x") && strncmp(llb_version(), "llb ", 4) == 0;
    llb_string_free(reply);
    return right;
}

/* Checks what a child may do: its parent's chats are closed, and new ones work. */
static int use_in_child(llb_chat_t *old)
{
    llb_chat_cancel(old);
    if (!is_closed(old))
        return OLD_CHAT;
    llb_chat_destroy(old);
    if (!works(""))
        return NEW_CHAT;
    llb_chat_destroy(old);
    if (!is_closed(old))
        return OLD_CHAT;
    return renders() ? RIGHT : TEMPLATE;
}

static int end_of(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void ends_right(pid_t child, const char *what)
{
    int end = end_of(child);
    char *got = json_format("%s: %d", what, end);
    CHECK(end == RIGHT, got);
    free(got);
}

/* Forks. The alarm kills a child that hangs. */
static pid_t fork_with_alarm(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        alarm(120);
    return child;
}

void forks(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* valgrind would report the parent's memory as leaked in the child */
    char path[] = "/tmp/llb-fork-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    char *options = json_format(",\"state_file\":\"%s\"", path);
    llb_chat_t *chat = open_chat("text.gguf", options, NULL);
    llb_string_free(infer(chat, ask("")));
    pid_t child;
    if ((child = fork_with_alarm()) == 0)
        exit(RIGHT);
    ends_right(child, "exit");
    CHECK(access(path, F_OK) != 0, "the child wrote the parent's state");
    if ((child = fork_with_alarm()) == 0)
        exit(use_in_child(chat));
    ends_right(child, "use");
    if ((child = fork_with_alarm()) == 0) {
        int used = use_in_child(chat);
        llb_chat_t *own = open_chat("text.gguf", "", NULL);
        pid_t grandchild = fork();
        if (grandchild == 0)
            exit(is_closed(own) ? use_in_child(chat) : OLD_CHAT);
        int end = end_of(grandchild);
        exit(end != RIGHT ? end : !is_closed(own) ? used : NEW_CHAT);
    }
    ends_right(child, "child of a child");
    if ((child = fork_with_alarm()) == 0)
        _exit(execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL));
    ends_right(child, "exec");
    reply_text_is(infer(chat, ask("")), expected("text"), "stop");
    llb_chat_destroy(chat);
    CHECK(access(path, F_OK) == 0, "no state");
    unlink(path);
    free(options);
}

static void note(const char *piece, void *unused)
{
    (void)piece, (void)unused;
    latch_open(&is_running);
}

static void *generate(void *chat)
{
    char *request = ask(ENDLESS);
    while (!stop)
        llb_string_free(llb_chat_infer_stream(chat, request, note, NULL));
    free(request);
    return NULL;
}

static void *open_and_destroy(void *unused)
{
    (void)unused;
    while (!stop)
        works("");
    return NULL;
}

static void *render(void *unused)
{
    (void)unused;
    while (!stop) {
        renders();
        llb_string_free(llb_model_info(model_path("text.gguf")));
    }
    return NULL;
}

void forks_of_busy_processes(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return;
    expected("text");
    stop = false;
    is_running = (struct latch)LATCH_CLOSED;
    /* Several loads. Each registers an exit handler. */
    llb_chat_t *chats[3];
    static const char *const sizes[] = {",\"n_ctx\":65536", ",\"n_ctx\":65535", ",\"n_ctx\":65534"};
    for (int index = 0; index < 3; index++)
        chats[index] = open_chat("long.gguf", sizes[index], NULL);
    pthread_t threads[3] = {start_thread(generate, chats[0]), start_thread(open_and_destroy, NULL), start_thread(render, NULL)};
    latch_wait(&is_running);
    for (int round = 0; round < 40; round++) {
        pid_t child = fork_with_alarm();
        if (child == 0)
            exit(round % 2 ? RIGHT : use_in_child(chats[0]));
        ends_right(child, round % 2 ? "exit" : "use");
    }
    stop = true;
    for (int index = 0; index < 3; index++)
        llb_chat_destroy(chats[index]);
    for (int index = 0; index < 3; index++)
        join_thread(threads[index]);
    CHECK(works(""), "the parent");
}

static void *open_once(void *unused)
{
    (void)unused;
    works("");
    stop = true;
    return NULL;
}

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Whether the child of a fork that took so long could open the first model. A fork waits a second
 * for the parent's load, and a load that takes longer leaves an error to the child. */
static bool opens_after(long fork_ms)
{
    if (works(""))
        return true;
    const char *error = llb_last_error();
    if (fork_ms >= 1000 && error && strstr(error, "was forked while another thread loaded the first model"))
        return true;
    printf("%s after %ld ms\n", error ? error : "another reply", fork_ms);
    fflush(stdout);
    return false;
}

/* Forks while another thread opens the first chat of the process. The child opens the same
 * model. */
void run_fork_child(const char *what)
{
    unsigned pause_us;
    if (sscanf(what, "fork:%u", &pause_us) != 1)
        return;
    expected("text");
    pthread_t thread = start_thread(open_once, NULL);
    for (int round = 0; round < 20 && !stop; round++) {
        struct timespec pause = {0, pause_us * 1000};
        nanosleep(&pause, NULL);
        long start = milliseconds();
        pid_t child = fork_with_alarm();
        if (child == 0)
            _exit(opens_after(milliseconds() - start) ? RIGHT : NEW_CHAT);
        int end = end_of(child);
        if (end != RIGHT)
            _exit(end < 0 ? 100 - end : end);
    }
    join_thread(thread);
    exit(RIGHT);
}

void forks_of_first_chats(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return;
    char output[1024];
    for (unsigned round = 0; round < 12; round++) {
        char *what = json_format("fork:%u", round % 6 * 40);
        int status = spawn(what, output, sizeof output);
        char *got = json_format("%s: status %d, output: %s", what, status, output);
        CHECK(status == RIGHT, got);
        free(got);
        free(what);
    }
}

static pid_t forked;

/* Forks once. The child continues inside the library. */
static void fork_here(const char *text, void *unused)
{
    (void)text, (void)unused;
    if (forked < 0)
        forked = fork_with_alarm();
}

void forks_in_callbacks(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return;
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    forked = -1;
    char *request = ask("");
    const char *reply = llb_chat_infer_stream(chat, request, fork_here, NULL);
    if (forked == 0)
        exit(member_is(json_member(reply, "error"), "code", "ENGINE_CLOSED") ? use_in_child(chat) : REPLY);
    ends_right(forked, "infer");
    reply_text_is(reply, expected("text"), "stop");
    llb_chat_destroy(chat);
    free(request);

    forked = -1;
    chat = llb_chat_create(model_path("text.gguf"), fork_here, NULL);
    if (forked == 0)
        exit(!chat ? use_in_child(chat) : REPLY);
    ends_right(forked, "create");
    reply_text_is(infer(chat, ask("")), expected("text"), "stop");
    llb_chat_destroy(chat);
}
