/* Effects on the process: stack use, descriptors, memory maps, output, fork and exit.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs a request that recurses in every layer: nested JSON, tool schemas, a template. */
static void *use_all(void *unused)
{
    (void)unused;
    llb_chat_t *chat = open_chat("tool_call.gguf", "", NULL);
    CHECK(chat, "no chat");
    char deep[121];
    memset(deep, '[', 60);
    memset(deep + 60, ']', 60);
    deep[120] = '\0';
    char *members = json_format(",\"strange\":%s,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
                                "\"parameters\":{\"type\":\"object\"}}}],\"tool_choice\":\"required\"",
                                deep);
    const char *reply = infer(chat, ask(members));
    CHECK(member_is(reply, "type", "tool_call"), reply);
    llb_string_free(reply);
    llb_string_free(llb_model_info(model_path("text.gguf")));
    llb_chat_destroy(chat);
    free(members);
    return NULL;
}

void small_stacks(void)
{
    /* The thread stack size of some systems. Valgrind needs more for its own frames. */
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)rounds(256, 1024) * 1024);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, use_all, NULL) != 0)
        abort();
    join_thread(thread);
    pthread_attr_destroy(&attributes);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *listing = opendir("/proc/self/fd");
    while (listing && readdir(listing))
        count++;
    if (listing)
        closedir(listing);
    return count;
}

static int memory_maps(void)
{
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; maps && (c = getc(maps)) != EOF;)
        count += c == '\n';
    if (maps)
        fclose(maps);
    return count;
}

static int threads(void)
{
    int count = -1;
    FILE *status = fopen("/proc/self/status", "r");
    for (char line[256]; status && fgets(line, sizeof line, status);)
        if (sscanf(line, "Threads: %d", &count) == 1)
            break;
    if (status)
        fclose(status);
    return count;
}

static void open_and_destroy(int times)
{
    for (; times > 0; times--) {
        llb_chat_t *chat = open_chat("text.gguf", "", NULL);
        reply_text_is(infer(chat, ask("")), expected("text"), "stop");
        llb_chat_destroy(chat);
        CHECK(!open_chat("no_tools.gguf", "", NULL), "a chat");
        CHECK(!open_chat("truncated.gguf", "", NULL), "a chat");
    }
}

void repeated_chats(void)
{
    open_and_destroy(rounds(10, 2));
    int descriptors = open_descriptors(), maps = memory_maps(), running = threads();
    open_and_destroy(rounds(50, 4));
    char *got = json_format("%d descriptors, were %d; %d maps, were %d; %d threads, were %d", open_descriptors(), descriptors,
                            memory_maps(), maps, threads(), running);
    CHECK(open_descriptors() == descriptors, got);
    /* The allocator may add a few maps, but not one per chat. Under valgrind the count includes
     * maps of valgrind, and memcheck finds leaks. */
    CHECK(memory_maps() < maps + 10 || getenv("LLB_TEST_SLOW"), got);
    CHECK(threads() == running, got);
    free(got);
}

/* Runs this program as `--child WHAT` and captures its output. Returns its exit status, or -1 if a
 * signal ended it. */
static int spawn(const char *what, char *output, size_t size)
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

void silence(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* under valgrind, /proc/self/exe is valgrind */
    char output[4096];
    int status = spawn("silence", output, sizeof output);
    CHECK(status == 0, output);
    CHECK(strcmp(output, "start\nend\n") == 0, output);
}

/* Exercises success and failure. Only the library could print anything between the two lines. */
static void be_silent(void)
{
    puts("start");
    fflush(stdout);
    static const char *const options[] = {"", ",\"log\":\"debug\"", ",\"flash_attn\":\"off\",\"cache_type_v\":\"q8_0\"",
                                          ",\"n_ctx\":2147483647,\"cache_type_k\":\"f32\"", ",\"n_ctx\":1"};
    static const char *const models[] = {"text.gguf", "truncated.gguf", "bad_template.gguf", "expected.json", "nothing"};
    static const char *const requests[] = {
        "", ",\"max_tokens\":0", ",\"response_format\":{\"type\":\"json_object\"}", ",\"grammar\":\"start: (\"",
        ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"string\",\"format\":\"x\"}}}",
        ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"string\",\"pattern\":\"(\"}}}",
    };
    for (size_t model = 0; model < sizeof models / sizeof *models; model++)
        for (size_t option = 0; option < sizeof options / sizeof *options; option++) {
            llb_chat_t *chat = open_chat(models[model], options[option], NULL);
            for (size_t request = 0; chat && request < sizeof requests / sizeof *requests; request++)
                llb_string_free(infer(chat, ask(requests[request])));
            llb_chat_destroy(chat);
        }
    llb_string_free(llb_model_info("/nowhere"));
    llb_string_free(llb_template_render("{\"chat_template\":\"{% bad\"}"));
    puts("end");
}

void forks(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* valgrind would report the parent's memory as leaked in the child */
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    llb_string_free(infer(chat, ask("")));
    fflush(NULL);
    for (int variant = 0; variant < 3; variant++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            if (variant == 1) {
                /* Functions that use no chat work in a forked child. */
                const char *reply = llb_template_render("{\"chat_template\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"y\"}]}");
                bool right = member_is(reply, "prompt", "x") && strncmp(llb_version(), "llb ", 4) == 0;
                llb_string_free(reply);
                _exit(!right);
            }
            if (variant == 2)
                execl("/bin/true", "true", (char *)NULL);
            exit(0); /* runs the exit handlers of the library's dependencies */
        }
        int status = -1;
        waitpid(child, &status, 0);
        char *got = json_format("variant %d: status %d, signal %d", variant, WEXITSTATUS(status), WTERMSIG(status));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, got);
        free(got);
    }
    reply_text_is(infer(chat, ask("")), expected("text"), "stop");
    llb_chat_destroy(chat);
}

void exits(void)
{
    if (getenv("LLB_TEST_SLOW"))
        return; /* under valgrind, /proc/self/exe is valgrind */
    char output[4096];
    static const char *const variants[] = {"exit_with_a_chat", "exit_while_it_runs"};
    for (int variant = 0; variant < 2; variant++)
        for (int round = 10; round > 0; round--) {
            int status = spawn(variants[variant], output, sizeof output);
            CHECK(status == 0 && !output[0], output);
        }
}

static struct latch running;

static void note(const char *piece, void *unused)
{
    (void)piece, (void)unused;
    latch_open(&running);
}

static void *generate(void *chat)
{
    char *request = ask(",\"logit_bias\":{\"258\":-100},\"max_tokens\":60000");
    llb_string_free(llb_chat_infer_stream(chat, request, note, NULL));
    free(request);
    return NULL;
}

int run_child(const char *what)
{
    alarm(120);
    if (strcmp(what, "silence") == 0) {
        be_silent();
        return 0;
    }
    llb_chat_t *chat = open_chat("long.gguf", ",\"n_ctx\":65536", NULL);
    llb_string_free(infer(chat, ask("")));
    if (strcmp(what, "exit_while_it_runs") == 0) {
        running = (struct latch)LATCH_CLOSED;
        start_thread(generate, chat);
        latch_wait(&running);
    }
    exit(chat ? 0 : 1);
}
