/* The minimum of JSON that the examples need: escape text, find members of a reply.
 *
 * Not a parser: it expects the valid JSON that llb returns. It never reads past the terminating NUL
 * of any text. A program with a JSON library does not need this file.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef JSON_TEXT_H
#define JSON_TEXT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Formats into a new string. The caller frees it. */
static inline char *json_format(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (!text)
        abort(); /* out of memory */
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

/* Returns UTF-8 text as a JSON string with its quotes. The caller frees it. */
static inline char *json_quote(const char *text)
{
    char *json = malloc(strlen(text) * 6 + 3), *at = json;
    if (!json)
        abort();
    *at++ = '"';
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            *at++ = '\\';
            *at++ = *text;
        } else if ((unsigned char)*text < 0x20) {
            at += sprintf(at, "\\u%04x", (unsigned char)*text);
        } else {
            *at++ = *text;
        }
    }
    *at++ = '"';
    *at = '\0';
    return json;
}

/* Returns a pointer to the first character after a value. */
static inline const char *json_end(const char *value)
{
    size_t depth = 0;
    do {
        if (*value == '"') {
            for (value++; *value && *value != '"'; value++)
                if (*value == '\\' && value[1])
                    value++;
            value += *value == '"';
        } else if (*value == '{' || *value == '[') {
            depth++, value++;
        } else if (depth > 0) {
            depth -= *value == '}' || *value == ']';
            value++;
        } else {
            return value + strcspn(value, ",]} \t\r\n");
        }
    } while (*value && depth > 0);
    return value;
}

/* Returns a member of an object, as a pointer into its text. NULL if the member is missing or
 * `object` is not an object. */
static inline const char *json_member(const char *object, const char *name)
{
    if (!object || *object != '{')
        return NULL;
    for (const char *at = object + 1;;) {
        at += strspn(at, ", \t\r\n");
        if (*at != '"')
            return NULL;
        const char *end = json_end(at);
        size_t length = strlen(name);
        int found = (size_t)(end - at) == length + 2 && strncmp(at + 1, name, length) == 0;
        at = end + strspn(end, ": \t\r\n");
        if (found)
            return at;
        at = json_end(at);
    }
}

/* Returns the first value of an array. NULL if the array is empty or `array` is not an array. */
static inline const char *json_first(const char *array)
{
    if (!array || *array != '[')
        return NULL;
    array++;
    array += strspn(array, " \t\r\n");
    return *array && *array != ']' ? array : NULL;
}

/* Copies the JSON text of a value. The caller frees it. NULL for NULL. */
static inline char *json_copy(const char *value)
{
    return value ? json_format("%.*s", (int)(json_end(value) - value), value) : NULL;
}

/* Decodes a JSON string to UTF-8. The caller frees it. NULL if the value is not a string. */
static inline char *json_string(const char *value)
{
    if (!value || *value != '"')
        return NULL;
    char *text = malloc(strlen(value) + 1), *at = text;
    if (!text)
        abort();
    for (value++; *value && *value != '"'; value++) {
        if (*value != '\\') {
            *at++ = *value;
            continue;
        }
        value++;
        unsigned code = 0, low = 0;
        const char *letters = "b\bf\fn\nr\rt\t", *letter = *value ? strchr(letters, *value) : NULL;
        if (*value == 'u' && sscanf(value + 1, "%4x", &code) == 1 && strspn(value + 1, "0123456789abcdefABCDEF") >= 4) {
            value += 4;
            if (code >> 10 == 0x36 && sscanf(value + 1, "\\u%4x", &low) == 1 && low >> 10 == 0x37) {
                code = 0x10000 + ((code & 0x3FF) << 10) + (low & 0x3FF);
                value += 6;
            }
            if (code == 0)
                code = 0xFFFD; /* a C string cannot contain NUL */
            if (code < 0x80) {
                *at++ = (char)code;
            } else {
                int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
                *at++ = (char)((0xFF00 >> (more + 1) & 0xFF) | code >> 6 * more);
                while (more-- > 0)
                    *at++ = (char)(0x80 | (code >> 6 * more & 0x3F));
            }
        } else if (letter) {
            *at++ = letter[1];
        } else if (*value) {
            *at++ = *value;
        } else {
            break;
        }
    }
    *at = '\0';
    return text;
}

#endif
