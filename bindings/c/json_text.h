/* Just enough JSON for the examples: text is escaped on the way in, members are found in what llb replies.
 *
 * This is no parser. It trusts llb to write valid JSON; whatever the text is, it reads no further than its NUL.
 * A program that has a JSON library does not need this file. SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef JSON_TEXT_H
#define JSON_TEXT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* printf into a string of its own, which the caller frees. */
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

/* UTF-8 text as a JSON string, quotes included; the caller frees it. */
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

/* The first character after a value. */
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

/* The value of an object's member, inside the object's text; NULL when there is none, or no object. */
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

/* The first value of an array; NULL when it is empty, or no array. */
static inline const char *json_first(const char *array)
{
    if (!array || *array != '[')
        return NULL;
    array++;
    array += strspn(array, " \t\r\n");
    return *array && *array != ']' ? array : NULL;
}

/* A value's own text, to be sent back as it is; the caller frees it. */
static inline char *json_copy(const char *value)
{
    return value ? json_format("%.*s", (int)(json_end(value) - value), value) : NULL;
}

/* What a JSON string says, in UTF-8; the caller frees it. NULL when the value is no string. */
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
                code = 0xFFFD; /* a C string cannot hold it */
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
