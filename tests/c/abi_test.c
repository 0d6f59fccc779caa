/* Tests the C ABI from C. `abi_test` runs all groups, `abi_test GROUP...` the named ones.
 *
 * tests/c/run.sh sets the environment: LLB_TEST_MODELS (the scripted models), LLB_MODELS (real
 * models, optional), LLB_TEST_SLOW (set under valgrind and emulators).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <unistd.h>

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
#define GROUP(function) { #function, function }
    GROUP(version),
    GROUP(null_arguments),
    GROUP(invalid_utf8),
    GROUP(broken_json),
    GROUP(wrong_requests),
    GROUP(wrong_options),
    GROUP(wrong_template_requests),
    GROUP(wrong_token_requests),
    GROUP(create_events),
    GROUP(create_failures),
    GROUP(replies),
    GROUP(streams),
    GROUP(stops_and_lengths),
    GROUP(usage),
    GROUP(classic_replies),
    GROUP(tool_calls),
    GROUP(constraints),
    GROUP(templates),
    GROUP(chat_events),
    GROUP(made_up_handles),
    GROUP(destroyed_handles),
    GROUP(calls_from_callbacks),
    GROUP(cancels),
    GROUP(cancels_with_a_real_model),
    GROUP(threads_on_one_chat),
    GROUP(threads_on_one_model),
    GROUP(destroy_against_infer),
    GROUP(last_errors_of_threads),
    GROUP(small_stacks),
    GROUP(repeated_chats),
    GROUP(silence),
    GROUP(exits),
    GROUP(exit_handlers),
    GROUP(exits_during_the_first_load),
    GROUP(forks),
    GROUP(forks_of_busy_processes),
    GROUP(forks_of_first_chats),
    GROUP(forks_in_callbacks),
    GROUP(cancelled_threads),
    GROUP(floating_point_traps),
    GROUP(jumps_out_of_callbacks),
    GROUP(faults_of_the_host),
    GROUP(threads_that_end_in_callbacks),
    GROUP(wrong_embed_requests),
    GROUP(embed_handles),
    GROUP(destroy_against_embed),
    GROUP(forks_with_embeddings),
    GROUP(exit_during_embed),
#undef GROUP
};

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int index = 1; index < argc; index++)
        if (strcmp(argv[index], name) == 0)
            return true;
    return argc == 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--child") == 0) {
        alarm(600);
        run_process_child(argv[2]);
        run_exit_child(argv[2]);
        run_exit_order_child(argv[2]);
        run_fork_child(argv[2]);
        run_embed_child(argv[2]);
        return 2;
    }
    if (!getenv("LLB_TEST_MODELS")) {
        fprintf(stderr, "LLB_TEST_MODELS is not set; run tests/c/run.sh\n");
        return 2;
    }
    int run = 0;
    for (size_t index = 0; index < sizeof groups / sizeof *groups; index++) {
        if (!is_wanted(groups[index].name, argc, argv))
            continue;
        int checks_before = checks, failures_before = failures;
        groups[index].run();
        run++;
        /* "-" marks a group without checks: it does not run under valgrind, or it needs a real
         * model. */
        const char *result = failures > failures_before ? "FAILED" : checks > checks_before ? "ok" : "-";
        printf("%-6s  %s (%d checks)\n", result, groups[index].name, checks - checks_before);
        fflush(stdout);
    }
    if (run == 0)
        fprintf(stderr, "no such group\n");
    return run == 0 ? 2 : failures > 0;
}
