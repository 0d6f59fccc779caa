/* What only Windows has: the library is loaded and freed by its path, and the process ends while
 * another thread streams a reply.
 *
 *     windows llb.dll CASE model.gguf
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <windows.h>

#include <llb.h>

static HMODULE library;

/* A function of the library. A union, because C has no cast from a function to another. */
#define FUNCTION(name) ((union { FARPROC found; __typeof__(&name) typed; }){GetProcAddress(library, #name)}.typed)

static llb_chat_t *chat;
static HANDLE first_piece;

static void on_piece(const char *piece, void *user_data)
{
    (void)piece;
    (void)user_data;
    SetEvent(first_piece);
    Sleep(20);
}

static DWORD WINAPI stream(void *user_data)
{
    (void)user_data;
    const char *request = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":2000}";
    const char *reply = FUNCTION(llb_chat_infer_stream)(chat, request, on_piece, NULL);
    puts(reply);
    FUNCTION(llb_string_free)(reply);
    return 0;
}

static llb_chat_t *open_chat(const char *model)
{
    char options[1000];
    snprintf(options, sizeof options, "{\"model\":\"%s\",\"n_threads\":2}", model);
    return FUNCTION(llb_chat_create_with)(options, NULL, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 4 || !(library = LoadLibraryA(argv[1])))
        return EXIT_FAILURE;
    chat = open_chat(argv[3]);
    if (!chat) {
        puts(FUNCTION(llb_last_error)());
        return EXIT_FAILURE;
    }
    first_piece = CreateEventA(NULL, TRUE, FALSE, NULL);
    HANDLE thread = CreateThread(NULL, 0, stream, NULL, 0, NULL);
    WaitForSingleObject(first_piece, INFINITE);
    if (!strcmp(argv[2], "exit")) {
        puts("exits during a reply");
        return EXIT_SUCCESS;
    }
    if (!strcmp(argv[2], "cancel"))
        FUNCTION(llb_chat_cancel)(chat);
    if (!strcmp(argv[2], "free"))
        FreeLibrary(library); /* the thread goes on */
    WaitForSingleObject(thread, INFINITE);
    FUNCTION(llb_chat_destroy)(chat);
    return EXIT_SUCCESS;
}
