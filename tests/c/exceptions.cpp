// Callbacks of a C++ host that throw. The call ends with an error, and the chat stays usable.
//
// Usage: exceptions FOLDER, the folder of the scripted models.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include <llb.h>

namespace {

#if defined(_LIBCPP_VERSION) && !defined(_WIN32)
// A C++ library that is linked statically, as LLVM's is in the tests with musl, shows nothing of its
// exceptions to llb.
const bool is_text_known = false;
#else
const bool is_text_known = true;
#endif

// Nor does one of Windows show its count of exceptions.
#ifdef _WIN32
const bool is_count_known = false;
#else
const bool is_count_known = is_text_known;
#endif

const char REQUEST[] = R"({"messages":[{"role":"user","content":"Hello"}],"temperature":0})";

std::string model;
// The event whose callback throws, and how often it has thrown.
std::string thrown_event;
int thrown = 0;

void check(bool holds, const std::string & got) {
    if (!holds) {
        std::printf("check failed: %s\n", got.c_str());
        std::exit(1);
    }
}

void on_event(const char * event, void *) {
    if (event == thrown_event) {
        thrown++;
        throw std::runtime_error("thrown by " + thrown_event);
    }
}

void throw_text(const char *, void *) {
    thrown++;
    throw std::runtime_error("thrown by a piece");
}

void throw_number(const char *, void *) {
    thrown++;
    throw 42;
}

std::string take(const char * text) {
    const std::string copy = text;
    llb_string_free(text);
    return copy;
}

bool contains(const std::string & text, const char * part) {
    return text.find(part) != std::string::npos;
}

bool is_thrown_by(const std::string & text, const char * event) {
    return !is_text_known || contains(text, event);
}

void check_stream(llb_chat_t * chat, llb_token_cb callback, const char * message) {
    thrown = 0;
    const std::string reply = take(llb_chat_infer_stream(chat, REQUEST, callback, nullptr));
    if (!is_text_known) {
        message = "of a type that is not known to llb";
    }
    check(contains(reply, "\"CANCELLED\"") && contains(reply, message) && thrown == 1, reply);
    check(contains(take(llb_last_error()), message), "the last error");
    check(!is_count_known || std::uncaught_exceptions() == 0, "an uncaught exception is left");
}

void check_infer(llb_chat_t * chat, const char * event) {
    thrown = 0;
    thrown_event = event;
    const std::string reply = take(llb_chat_infer(chat, REQUEST));
    check(contains(reply, "\"CANCELLED\"") && is_thrown_by(reply, event) && thrown == 1, reply);
    thrown_event.clear();
}

void check_create(const char * event) {
    thrown = 0;
    thrown_event = event;
    llb_chat_t * const chat = llb_chat_create(model.c_str(), on_event, nullptr);
    check(chat == nullptr && thrown == 1, event);
    const std::string error = take(llb_last_error());
    check(contains(error, "\"CANCELLED\"") && is_thrown_by(error, event), error);
    thrown_event.clear();
}

void check_answers(llb_chat_t * chat) {
    const std::string reply = take(llb_chat_infer(chat, REQUEST));
    check(contains(reply, "\"finish_reason\":\"stop\""), reply);
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        return 2;
    }
    model = std::string(argv[1]) + "/text.gguf";
    for (const char * event : {"create_start", "load_progress:0.00", "create_success"}) {
        check_create(event);
    }
    llb_chat_t * const chat = llb_chat_create(model.c_str(), on_event, nullptr);
    check(chat != nullptr, "no chat");
    for (int round = 0; round < 3; round++) {
        check_stream(chat, throw_text, "thrown by a piece");
        check_stream(chat, throw_number, "not a std::exception");
        for (const char * event : {"infer_start", "infer_success"}) {
            check_infer(chat, event);
        }
        check_answers(chat);
    }
    thrown = 0;
    thrown_event = "destroy";
    llb_chat_destroy(chat);
    check(thrown == 1, "destroy did not throw");
    const std::string reply = take(llb_chat_infer(chat, REQUEST));
    check(contains(reply, "\"ENGINE_CLOSED\""), reply);
    thrown_event = "fetch_start";
    const std::string fetched = take(llb_model_fetch(R"({"id":"a/b","offline":true})", on_event, nullptr));
    check(contains(fetched, "\"CANCELLED\"") && is_thrown_by(fetched, "fetch_start"), fetched);
    check(!is_count_known || std::uncaught_exceptions() == 0, "an uncaught exception is left");
}
