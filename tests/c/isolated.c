/* isolated MODEL: prints the reply of a chat whose model runs in a helper process. run.sh links it
 * with the shared and with the static library. */

#include <stdio.h>
#include <string.h>

#include "llb.h"

int main(int argc, char **argv)
{
    char options[4096];
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL\n", argv[0]);
        return 2;
    }
    /* The path of a test model needs no escapes. */
    snprintf(options, sizeof options, "{\"model\":\"%s\",\"n_ctx\":512,\"isolation\":\"process\"}", argv[1]);
    llb_chat_t *chat = llb_chat_create_with(options, NULL, NULL);
    const char *reply = chat ? llb_chat_infer(chat,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"temperature\":0}") : llb_last_error();
    puts(reply);
    const int failed = strstr(reply, "\"error\"") != NULL;
    llb_string_free(reply);
    llb_chat_destroy(chat);
    return failed;
}
