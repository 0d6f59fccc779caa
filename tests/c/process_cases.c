/* Effects on the process: descriptors, memory maps, output.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

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

/* The system counts a thread that has been joined for a moment more. */
static int threads_after(int before)
{
    int count = threads();
    for (int tries = 0; count > before && tries < 1000; tries++) {
        const struct timespec pause = {0, 10000000};
        nanosleep(&pause, NULL);
        count = threads();
    }
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
    int still_running = threads_after(running);
    char *got = json_format("%d descriptors, were %d; %d maps, were %d; %d threads, were %d", open_descriptors(), descriptors,
                            memory_maps(), maps, still_running, running);
    CHECK(open_descriptors() == descriptors, got);
    /* The allocator may add a few maps, but not one per chat. Under valgrind the count includes
     * valgrind's own maps, and memcheck finds leaks. */
    CHECK(memory_maps() < maps + 10 || getenv("LLB_TEST_SLOW"), got);
    CHECK(still_running <= running, got);
    free(got);
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

/* Exercises success and failure. Anything between the two lines would be printed by the library. */
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

void run_process_child(const char *what)
{
    if (strcmp(what, "silence") != 0)
        return;
    be_silent();
    exit(0);
}
