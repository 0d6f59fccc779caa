// Metadata on stdin -> the tensors that llama.cpp creates for it, on stdout, optional ones too. For
// architectures.py. llama.cpp's warnings go to stderr.
//
// In: lines of key, type and value, separated by tabs. The type of an array ends in [], and commas
// separate its values. Out: lines of a name and four extents. Exits with 1 if llama.cpp refuses the
// metadata.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml.h"
#include "gguf.h"
#include "llama.h"

static void print_tensor(struct ggml_tensor *tensor, void *data) {
    (void)data;
    const int64_t *extents = tensor->ne;
    printf("%s %lld %lld %lld %lld\n", tensor->name, (long long)extents[0], (long long)extents[1],
           (long long)extents[2], (long long)extents[3]);
    memset(tensor->data, 0, ggml_nbytes(tensor));
}

static void log_line(enum ggml_log_level level, const char *text, void *data) {
    (void)data;
    if (level >= GGML_LOG_LEVEL_WARN) fputs(text, stderr);
}

static enum gguf_type element_type(const char *type) {
    switch (type[0]) {
    case 'f': return GGUF_TYPE_FLOAT32;
    case 'b': return GGUF_TYPE_BOOL;
    case 'i': return GGUF_TYPE_INT32;
    default: return strncmp(type, "u64", 3) ? GGUF_TYPE_UINT32 : GGUF_TYPE_UINT64;
    }
}

static void add_array(struct gguf_context *metadata, const char *key, const char *type,
                      char *text) {
    static union {
        float floats[1024];
        uint32_t integers[1024];
        uint64_t long_integers[1024];
        int8_t bools[1024];
    } data;
    enum gguf_type element = element_type(type);
    size_t n = 0;
    for (char *item = strtok(text, ","); item && n < 1024; item = strtok(NULL, ","), n++) {
        if (element == GGUF_TYPE_FLOAT32) data.floats[n] = strtof(item, NULL);
        else if (element == GGUF_TYPE_BOOL) data.bools[n] = item[0] == '1';
        else if (element == GGUF_TYPE_UINT64) data.long_integers[n] = strtoull(item, NULL, 0);
        else data.integers[n] = (uint32_t)strtol(item, NULL, 0);
    }
    gguf_set_arr_data(metadata, key, element, &data, n);
}

static void add(struct gguf_context *metadata, const char *key, const char *type, char *text) {
    if (strchr(type, '[')) add_array(metadata, key, type, text);
    else if (!strcmp(type, "u32"))
        gguf_set_val_u32(metadata, key, (uint32_t)strtoul(text, NULL, 0));
    else if (!strcmp(type, "f32")) gguf_set_val_f32(metadata, key, strtof(text, NULL));
    else if (!strcmp(type, "bool")) gguf_set_val_bool(metadata, key, text[0] == '1');
    else gguf_set_val_str(metadata, key, text);
}

int main(void) {
    char line[4096];
    struct gguf_context *metadata = gguf_init_empty();
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *key = strtok(line, "\t");
        char *type = strtok(NULL, "\t");
        char *value = strtok(NULL, "\t");
        if (!value) return 2;
        add(metadata, key, type, value);
    }
    llama_log_set(log_line, NULL);
    struct llama_model_params params = llama_model_default_params();
    if (!llama_model_init_from_user(metadata, print_tensor, NULL, params)) return 1;
    return fflush(stdout) == 0 ? 0 : 1;
}
