/* call_bench MODEL REQUESTS: the calls of CallBench.java in C. Prints the nanoseconds of each call:
 * the mean of ten rounds of one second, like JMH, and the fastest and slowest rounds. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llb.h"

static llb_chat_t *chat;

static const char *render(const char *request) { return llb_template_render(request); }
static const char *explain(const char *request) { return llb_chat_explain(chat, request); }

static char *read_file(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    char *text = calloc(1, 1 << 16);
    if (!text || !fread(text, 1, (1 << 16) - 1, file)) exit(1);
    fclose(file);
    return text;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Returns the nanoseconds per call, measured over one second. The reply is copied, as by a host. */
static double round_of(const char *(*call)(const char *), const char *request) {
    double begin = now(), end = begin;
    long calls = 0;
    while (end - begin < 1e9) {
        for (int i = 0; i < 100; i++, calls++) {
            const char *reply = call(request);
            char *copy = strdup(reply);
            if (!copy) exit(1);
            free(copy);
            llb_string_free(reply);
        }
        end = now();
    }
    return (end - begin) / (double)calls;
}

static void measure(const char *name, const char *(*call)(const char *), const char *request) {
    const char *reply = call(request);
    size_t bytes = strlen(reply);
    llb_string_free(reply);
    for (int i = 0; i < 3; i++) round_of(call, request);
    double sum = 0, least = 1e18, most = 0;
    for (int i = 0; i < 10; i++) {
        double one = round_of(call, request);
        sum += one;
        least = one < least ? one : least;
        most = one > most ? one : most;
    }
    printf("%-8s C       %10.0f ns/op  (%.0f to %.0f, reply of %zu bytes)\n", name, sum / 10, least,
           most, bytes);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    chat = llb_chat_create(arguments[1], NULL, NULL);
    if (!chat) return 1;
    measure("render", render, read_file(arguments[2], "render.json"));
    measure("explain", explain, read_file(arguments[2], "explain.json"));
    llb_chat_destroy(chat);
    return 0;
}
