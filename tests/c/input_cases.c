/* Invalid input: NULL, invalid UTF-8, invalid JSON, and JSON of the wrong shape. The cases are in
 * one file so that they can be compared.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"


#define COUNT(array) (sizeof(array) / sizeof *(array))

void version(void)
{
    /* llb X.Y.Z (llama.cpp bBUILD), followed by the variant of the kernels if they come from a
     * file */
    const char *version = llb_version();
    int major = -1, minor = -1, patch = -1, build = -1, length = 0;
    int read = sscanf(version, "llb %d.%d.%d (llama.cpp b%d)%n", &major, &minor, &patch, &build, &length);
    CHECK(read == 4 && length > 0 && (!version[length] || version[length] == ' '), version);
    CHECK(build > 0, version);
    CHECK(llb_version() == version, version);
    CHECK(llb_abi_version() == LLB_ABI_VERSION, version);
}

static void info_fails(const char *path, const char *error, const char *in_message)
{
    const char *info = llb_model_info(path);
    char *message = json_string(json_member(info, "message"));
    CHECK(is_json(info) && member_is(info, "type", "model_info"), info);
    CHECK(member_is(info, "error", error), info);
    CHECK(message && strstr(message, in_message), info);
    const char *supports_tools = json_member(info, "supports_tools");
    CHECK(supports_tools && strncmp(supports_tools, "false", 5) == 0, info);
    free(message);
    llb_string_free(info);
}

void null_arguments(void)
{
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    CHECK(chat, "no chat");
    char *request = ask("");

    info_fails(NULL, "null_path", "NULL");
    CHECK(!llb_chat_create(NULL, NULL, NULL), "a chat");
    last_error_is("INVALID_REQUEST", "NULL");
    CHECK(!llb_chat_create_with(NULL, NULL, NULL), "a chat");
    last_error_is("INVALID_REQUEST", "options_json");

    reply_is_error(llb_chat_infer(NULL, NULL), "ENGINE_CLOSED", "");
    reply_is_error(llb_chat_infer(NULL, request), "ENGINE_CLOSED", "");
    reply_is_error(llb_chat_infer(chat, NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_chat_infer_stream(NULL, NULL, NULL, NULL), "ENGINE_CLOSED", "");
    reply_is_error(llb_chat_infer_stream(chat, NULL, NULL, NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_chat_explain(NULL, NULL), "ENGINE_CLOSED", "");
    reply_is_error(llb_chat_explain(chat, NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_template_info(NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_template_render(NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_template_parse(NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_template_compose(NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_tokenize(NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_detokenize(NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_count(NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_memory(NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_model_unload(NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_model_fetch(NULL, NULL, NULL), "INVALID_REQUEST", "request_json");
    reply_is_error(llb_model_fetch("{}", NULL, NULL), "INVALID_REQUEST", "id");
    reply_is_error(llb_model_fetch("{\"id\":\"../x\"}", NULL, NULL), "INVALID_REQUEST", "id");
    reply_is_error(llb_model_fetch("{\"id\":\"o/n\",\"offline\":true,\"cache_dir\":\"/nonexistent/cache\"}", NULL, NULL), "OFFLINE", "");
    llb_model_fetch_cancel(NULL);
    llb_chat_cancel(NULL);
    llb_chat_end_reasoning(NULL);
    llb_chat_destroy(NULL);
    llb_string_free(NULL);

    /* The callback may be NULL. */
    reply_text_is(llb_chat_infer_stream(chat, request, NULL, NULL), expected("text"), "stop");
    free(request);
    llb_chat_destroy(chat);
}

/* An invalid byte, an overlong slash, a lone surrogate, a code point above U+10FFFF, and a
 * truncated character. */
static const char *const not_utf8[] = {"\xFF", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE4\xBA"};

void invalid_utf8(void)
{
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    for (size_t index = 0; index < COUNT(not_utf8); index++) {
        char *path = json_format("/tmp/%s.gguf", not_utf8[index]);
        char *options = json_format("{\"model\":\"%s\"}", not_utf8[index]);
        char *quoted = json_format(",\"stop\":\"%s\"", not_utf8[index]);
        char *request = ask(quoted);
        const char *requests[] = {not_utf8[index], request};

        info_fails(path, "model_not_found", "not valid UTF-8");
        CHECK(!llb_chat_create(path, NULL, NULL), "a chat");
        last_error_is("INVALID_REQUEST", "gguf_path: not valid UTF-8");
        CHECK(!llb_chat_create_with(options, NULL, NULL), "a chat");
        last_error_is("INVALID_REQUEST", "options_json: not valid UTF-8");
        for (size_t which = 0; which < COUNT(requests); which++) {
            const char *problem = "request_json: not valid UTF-8";
            reply_is_error(llb_chat_infer(chat, requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_chat_infer_stream(chat, requests[which], NULL, NULL), "INVALID_REQUEST", problem);
            reply_is_error(llb_chat_explain(chat, requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_template_info(requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_template_render(requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_template_parse(requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_template_compose(requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_tokenize(requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_detokenize(requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_count(requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_memory(requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_model_unload(requests[which]), "INVALID_REQUEST", problem);
            reply_is_error(llb_model_fetch(requests[which], NULL, NULL), "INVALID_REQUEST", problem);
        }
        llb_model_fetch_cancel(not_utf8[index]);
        free(request);
        free(quoted);
        free(options);
        free(path);
    }
    llb_chat_destroy(chat);
}

void broken_json(void)
{
    static const char *const texts[] = {
        "", " ", "{", "}", "{\"messages\":", "{\"messages\":[}", "{'messages':[]}", "{\"a\":1}{", "nul",
        "{\"a\":\"\\ud800\"}", "{\"a\":\"\n\"}", "{\"a\":01}", "{\"a\":NaN}", "\xEF\xBB\xBF{}", "// {}",
    };
    char deep[20001];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    for (size_t index = 0; index <= COUNT(texts); index++) {
        const char *text = index < COUNT(texts) ? texts[index] : deep;
        const char *problem = "request_json: not valid JSON";
        CHECK(!llb_chat_create_with(text, NULL, NULL), text);
        last_error_is("INVALID_REQUEST", "options_json: not valid JSON");
        reply_is_error(llb_chat_infer(chat, text), "INVALID_REQUEST", problem);
        reply_is_error(llb_chat_infer_stream(chat, text, NULL, NULL), "INVALID_REQUEST", problem);
        reply_is_error(llb_chat_explain(chat, text), "INVALID_REQUEST", problem);
        reply_is_error(llb_template_info(text), "INVALID_REQUEST", problem);
        reply_is_error(llb_template_render(text), "INVALID_REQUEST", problem);
        reply_is_error(llb_template_parse(text), "INVALID_REQUEST", problem);
        reply_is_error(llb_tokenize(text), "INVALID_REQUEST", problem);
        reply_is_error(llb_detokenize(text), "INVALID_REQUEST", problem);
        reply_is_error(llb_count(text), "INVALID_REQUEST", problem);
        reply_is_error(llb_memory(text), "INVALID_REQUEST", problem);
        reply_is_error(llb_model_unload(text), "INVALID_REQUEST", problem);
    }
    llb_chat_destroy(chat);
}

/* Members of a request, and the expected start of the error message. */
struct wrong {
    const char *json, *path;
};

#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define MESSAGE(members) "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{" members "}]"

static const struct wrong requests[] = {
    {"\"messages\":null", "messages: "},
    {"\"messages\":null,\"prompt\":{}", "prompt: "},
    {"\"prompt\":\"x\"", "prompt: "},
    {"\"messages\":null,\"prompt\":[1,true]", "prompt[1]: "},
    {"\"suffix\":1", "suffix: "},
    {"\"suffix\":\"x\"", "suffix: "},
    {"\"messages\":{}", "messages: "},
    {"\"messages\":\"x\"", "messages: "},
    {"\"messages\":[]", "messages: "},
    {"\"messages\":[7]", "messages[0]: "},
    {"\"messages\":[null]", "messages[0]: "},
    {"\"messages\":[[]]", "messages[0]: "},
    {MESSAGE(""), "messages[1].role: "},
    {MESSAGE("\"role\":1,\"content\":\"x\""), "messages[1].role: "},
    {MESSAGE("\"role\":\"assistent\",\"content\":\"x\""), "messages[1].role: "},
    {MESSAGE("\"role\":\"user\""), "messages[1].content: "},
    {MESSAGE("\"role\":\"user\",\"content\":1"), "messages[1].content: "},
    {MESSAGE("\"role\":\"user\",\"content\":{}"), "messages[1].content: "},
    {MESSAGE("\"role\":\"user\",\"content\":[1]"), "messages[1].content[0]: "},
    {MESSAGE("\"role\":\"user\",\"content\":[{}]"), "messages[1].content[0].type: "},
    {MESSAGE("\"role\":\"user\",\"content\":[{\"type\":1}]"), "messages[1].content[0].type: "},
    {MESSAGE("\"role\":\"user\",\"content\":[{\"type\":\"text\"}]"), "messages[1].content[0].text: "},
    {MESSAGE("\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]"), "messages[1].content[0].text: "},
    {MESSAGE("\"role\":\"user\",\"content\":\"x\",\"name\":1"), "messages[1].name: "},
    {MESSAGE("\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":1"), "messages[1].tool_call_id: "},
    {MESSAGE("\"role\":\"assistant\",\"reasoning_content\":1"), "messages[1].reasoning_content: "},
    {MESSAGE("\"role\":\"assistant\",\"tool_calls\":{}"), "messages[1].tool_calls: "},
    {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[1]"), "messages[1].tool_calls[0]: "},
    {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{}]"), "messages[1].tool_calls[0].function: "},
    {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{\"id\":1}]"), "messages[1].tool_calls[0].id: "},
    {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"x\"}]"), "messages[1].tool_calls[0].type: "},
    {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{\"function\":1}]"), "messages[1].tool_calls[0].function: "},
    {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]"), "messages[1].tool_calls[0].function.name: "},
    {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":1}}]"),
     "messages[1].tool_calls[0].function.arguments: "},
    {"\"tools\":1", "tools: "},
    {"\"tools\":[1]", "tools[0]: "},
    {"\"tools\":[{\"type\":1}]", "tools[0].type: "},
    {"\"tools\":[{\"type\":\"retrieval\"}]", "tools[0].type: "},
    {"\"tools\":[{}]", "tools[0].function: "},
    {"\"tools\":[{\"function\":1}]", "tools[0].function: "},
    {"\"tools\":[{\"function\":{}}]", "tools[0].function.name: "},
    {"\"tools\":[{\"function\":{\"name\":1}}]", "tools[0].function.name: "},
    {"\"tools\":[{\"function\":{\"name\":\"\"}}]", "tools[0].function.name: "},
    {"\"tools\":[{\"function\":{\"name\":\"f\",\"description\":1}}]", "tools[0].function.description: "},
    {"\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":1}}]", "tools[0].function.parameters: "},
    {"\"tools\":[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"f\"}}]", "tools[1].function.name: "},
    {"\"tool_choice\":\"required\"", "tool_choice: "},
    {TOOLS ",\"tool_choice\":1", "tool_choice: "},
    {TOOLS ",\"tool_choice\":\"any\"", "tool_choice: "},
    {TOOLS ",\"tool_choice\":{}", "tool_choice.function: "},
    {TOOLS ",\"tool_choice\":{\"type\":\"x\"}", "tool_choice.type: "},
    {TOOLS ",\"tool_choice\":{\"function\":1}", "tool_choice.function: "},
    {TOOLS ",\"tool_choice\":{\"function\":{}}", "tool_choice.function.name: "},
    {TOOLS ",\"tool_choice\":{\"function\":{\"name\":\"g\"}}", "tool_choice.function.name: "},
    {"\"parallel_tool_calls\":1", "parallel_tool_calls: "},
    {"\"untagged_calls\":1", "untagged_calls: "},
    {"\"response_format\":1", "response_format: "},
    {"\"response_format\":{}", "response_format.type: "},
    {"\"response_format\":{\"type\":1}", "response_format.type: "},
    {"\"response_format\":{\"type\":\"xml\"}", "response_format.type: "},
    {"\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema: "},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":1}", "response_format.json_schema: "},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}", "response_format.json_schema.schema: "},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":1}}", "response_format.json_schema.schema: "},
    {"\"grammar\":1", "grammar: "},
    {"\"grammar\":\"start: \\\"a\\\"\",\"response_format\":{\"type\":\"json_object\"}", "grammar: "},
    {"\"max_tokens\":\"1\"", "max_tokens: "},
    {"\"max_tokens\":0", "max_tokens: "},
    {"\"max_tokens\":-1", "max_tokens: "},
    {"\"max_tokens\":1.5", "max_tokens: "},
    {"\"max_tokens\":1e300", "max_tokens: "},
    {"\"max_tokens\":18446744073709551617", "max_tokens: "},
    {"\"max_completion_tokens\":[]", "max_completion_tokens: "},
    {"\"max_completion_tokens\":1,\"max_tokens\":\"x\"", "max_tokens: "},
    {"\"temperature\":\"hot\"", "temperature: "},
    {"\"temperature\":-0.1", "temperature: "},
    {"\"temperature\":1e300", "temperature: "},
    {"\"top_k\":true", "top_k: "},
    {"\"top_k\":-2", "top_k: "},
    {"\"top_p\":\"x\"", "top_p: "},
    {"\"top_p\":1.1", "top_p: "},
    {"\"min_p\":[]", "min_p: "},
    {"\"min_p\":-1", "min_p: "},
    {"\"typical_p\":{}", "typical_p: "},
    {"\"typical_p\":2", "typical_p: "},
    {"\"repeat_last_n\":\"all\"", "repeat_last_n: "},
    {"\"repeat_last_n\":-2", "repeat_last_n: "},
    {"\"samplers\":\"top_k\"", "samplers: "},
    {"\"samplers\":[1]", "samplers[0]: "},
    {"\"samplers\":[\"top_k\",\"beam\"]", "samplers[1]: "},
    {"\"dry_multiplier\":-1", "dry_multiplier: "},
    {"\"dry_base\":\"x\"", "dry_base: "},
    {"\"dry_allowed_length\":0.5", "dry_allowed_length: "},
    {"\"dry_penalty_last_n\":-2", "dry_penalty_last_n: "},
    {"\"dry_sequence_breakers\":\"x\"", "dry_sequence_breakers: "},
    {"\"dry_sequence_breakers\":[1]", "dry_sequence_breakers[0]: "},
    {"\"top_n_sigma\":true", "top_n_sigma: "},
    {"\"xtc_probability\":2", "xtc_probability: "},
    {"\"xtc_threshold\":-1", "xtc_threshold: "},
    {"\"dynatemp_range\":-1", "dynatemp_range: "},
    {"\"dynatemp_exponent\":-1", "dynatemp_exponent: "},
    {"\"mirostat\":1", "mirostat: "},
    {"\"mirostat\":3", "mirostat: "},
    {"\"mirostat_tau\":-1", "mirostat_tau: "},
    {"\"mirostat_eta\":2", "mirostat_eta: "},
    {"\"adaptive_target\":2", "adaptive_target: "},
    {"\"adaptive_decay\":1", "adaptive_decay: "},
    {"\"repeat_penalty\":\"x\"", "repeat_penalty: "},
    {"\"repeat_penalty\":0", "repeat_penalty: "},
    {"\"presence_penalty\":\"x\"", "presence_penalty: "},
    {"\"presence_penalty\":1e9", "presence_penalty: "},
    {"\"frequency_penalty\":\"x\"", "frequency_penalty: "},
    {"\"frequency_penalty\":-1e9", "frequency_penalty: "},
    {"\"seed\":\"x\"", "seed: "},
    {"\"seed\":1.5", "seed: "},
    {"\"stop\":1", "stop: "},
    {"\"stop\":[1]", "stop[0]: "},
    {"\"stop_scope\":\"text\"", "stop_scope: "},
    {"\"logit_bias\":[]", "logit_bias: "},
    {"\"logit_bias\":{\"x\":1}", "logit_bias.x: "},
    {"\"logit_bias\":{\"-1\":1}", "logit_bias.-1: "},
    {"\"logit_bias\":{\"1\":\"x\"}", "logit_bias.1: "},
    {"\"logit_bias\":{\"1\":101}", "logit_bias.1: "},
    {"\"logprobs\":1", "logprobs: "},
    {"\"top_logprobs\":1", "top_logprobs: "},
    {"\"logprobs\":true,\"top_logprobs\":21", "top_logprobs: "},
    {"\"reasoning_budget\":\"x\"", "reasoning_budget: "},
    {"\"reasoning_budget\":-2", "reasoning_budget: "},
    {"\"reasoning_budget\":1,\"thinking_budget_tokens\":2", "thinking_budget_tokens: "},
    {"\"reasoning_budget_message\":1", "reasoning_budget_message: "},
    {"\"n_keep\":\"all\"", "n_keep: "},
    {"\"n_keep\":-2", "n_keep: "},
    {"\"n_keep\":1.5", "n_keep: "},
    {"\"n_keep\":2147483647", "n_keep: "},
    {"\"context_overflow\":\"shift\"", "context_overflow: "},
    {"\"enable_thinking\":\"yes\"", "enable_thinking: "},
    {"\"reasoning_effort\":1", "reasoning_effort: "},
    {"\"chat_template_kwargs\":[]", "chat_template_kwargs: "},
    {"\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs.messages: "},
    {"\"add_generation_prompt\":\"x\"", "add_generation_prompt: "},
    {"\"cache_prompt\":0", "cache_prompt: "},
    {"\"lora\":{}", "lora: "},
    {"\"lora\":[1]", "lora[0]: "},
    {"\"lora\":[{\"id\":0.5,\"scale\":1}]", "lora[0].id: "},
    {"\"lora\":[{\"id\":0,\"scale\":1}]", "lora[0].id: "},
    {"\"lora\":[{\"id\":0}]", "lora[0].scale: "},
    {"\"speculative\":1", "speculative: "},
    {"\"speculative\":\"ngram\"", "speculative: "},
    {"\"stream_format\":1", "stream_format: "},
    {"\"stream_format\":\"xml\"", "stream_format: "},
    {"\"stream_options\":1", "stream_options: "},
    {"\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage: "},
    {"\"now\":1", "now: "},
    {"\"now\":\"yesterday\"", "now: "},
    {"\"reasoning_budget_tokens\":\"x\"", "reasoning_budget_tokens: "},
    {"\"preserve_reasoning\":1", "preserve_reasoning: "},
    {"\"skills\":1", "skills: "},
    {"\"continue_final_message\":1", "continue_final_message: "},
    {"\"schema_in_prompt\":1", "schema_in_prompt: "},
    {"\"bound_schema\":1", "bound_schema: "},
    {"\"parse_special_in_messages\":1", "parse_special_in_messages: "},
    {"\"polyfills\":1", "polyfills: "},
    {"\"timeout_ms\":\"x\"", "timeout_ms: "},
    {"\"timeout_ms\":0", "timeout_ms: "},
    {"\"timeout_ms\":-1", "timeout_ms: "},
};

void wrong_requests(void)
{
    llb_chat_t *chat = open_chat("text.gguf", "", NULL);
    struct record pieces;
    record_init(&pieces);
    for (size_t index = 0; index < COUNT(requests); index++) {
        const struct wrong *wrong = &requests[index];
        bool complete = strncmp(wrong->json, "\"messages\"", 10) == 0;
        const char *messages = "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],";
        char *request = json_format("{%s%s}", complete ? "" : messages, wrong->json);
        reply_is_error(llb_chat_infer(chat, request), "INVALID_REQUEST", wrong->path);
        reply_is_error(llb_chat_infer_stream(chat, request, on_piece, &pieces), "INVALID_REQUEST", wrong->path);
        reply_is_error(llb_chat_explain(chat, request), "INVALID_REQUEST", wrong->path);
        free(request);
    }
    static const char *const no_objects[] = {"[]", "1", "null", "\"x\"", "true"};
    for (size_t index = 0; index < COUNT(no_objects); index++)
        reply_is_error(llb_chat_infer(chat, no_objects[index]), "INVALID_REQUEST", "request: ");
    CHECK(pieces.count == 0, "an invalid request streamed pieces");
    record_free(&pieces);
    /* An unknown member is listed in `ignored_keys`. A null member counts as absent. */
    const char *reply = infer(chat, ask(",\"strange\":1,\"tools\":null,\"stop\":null"));
    char *ignored = json_copy(json_member(reply, "ignored_keys"));
    CHECK(ignored && strcmp(ignored, "[\"strange\"]") == 0, reply);
    free(ignored);
    reply_text_is(reply, expected("text"), "stop");
    llb_chat_destroy(chat);
}

static const struct wrong options[] = {
    {"\"model\":1", "model: "},
    {"\"modle\":\"x\"", "modle: "},
    {"\"n_ctx\":\"x\"", "n_ctx: "},
    {"\"n_ctx\":0", "n_ctx: "},
    {"\"n_ctx\":-1", "n_ctx: "},
    {"\"n_ctx\":2147483648", "n_ctx: "},
    {"\"n_parallel\":[]", "n_parallel: "},
    {"\"n_parallel\":0", "n_parallel: "},
    {"\"n_parallel\":65", "n_parallel: "},
    {"\"n_batch\":true", "n_batch: "},
    {"\"n_batch\":1", "n_batch: "},
    {"\"n_threads\":{}", "n_threads: "},
    {"\"n_threads\":0", "n_threads: "},
    {"\"n_threads\":\"all\"", "n_threads: "},
    {"\"n_threads\":513", "n_threads: "},
    {"\"n_gpu_layers\":\"all\"", "n_gpu_layers: "},
    {"\"n_gpu_layers\":-1", "n_gpu_layers: "},
    {"\"n_cpu_moe\":\"all\"", "n_cpu_moe: "},
    {"\"override_tensor\":\"x=CPU\"", "override_tensor: "},
    {"\"override_tensor\":[[\"x\"]]", "override_tensor[0]: "},
    {"\"split_mode\":\"rows\"", "split_mode: "},
    {"\"main_gpu\":-1", "main_gpu: "},
    {"\"tensor_split\":[0]", "tensor_split: "},
    {"\"devices\":\"gpu\"", "devices: "},
    {"\"devices\":[1]", "devices[0]: "},
    {"\"flash_attn\":true", "flash_attn: "},
    {"\"flash_attn\":\"maybe\"", "flash_attn: "},
    {"\"cache_type_k\":\"q2_k\"", "cache_type_k: "},
    {"\"cache_type_v\":8", "cache_type_v: "},
    {"\"use_mmap\":1", "use_mmap: "},
    {"\"use_mlock\":\"x\"", "use_mlock: "},
    {"\"backend\":7", "backend: "},
    {"\"n_ctx\":\"fit\",\"draft_model\":\"x\"", "n_ctx: "},
    {"\"chat_template\":1", "chat_template: "},
    {"\"tool_policy\":\"maybe\"", "tool_policy: "},
    {"\"log\":\"loud\"", "log: "},
    {"\"context_overflow\":\"wrap\"", "context_overflow: "},
    {"\"kv_unified\":1", "kv_unified: "},
    {"\"keep_alive\":\"5m\"", "keep_alive: "},
    {"\"isolation\":1", "isolation: "},
    {"\"defaults\":1", "defaults: "},
    {"\"engine\":1", "engine: "},
    {"\"lora\":1", "lora: "},
    {"\"speculative\":1", "speculative: "},
    {"\"state_file\":1", "state_file: "},
    {"\"cache_dir\":1", "cache_dir: "},
    {"\"projector\":[1]", "projector: "},
    {"\"cache_bytes\":0", "cache_bytes: "},
    {"\"polyfills\":1", "polyfills: "},
    {"\"template_limits\":1", "template_limits: "},
    {"\"media_limits\":1", "media_limits: "},
    {"\"media_folders\":\"/srv\"", "media_folders: "},
    {"\"media_folders\":[\"/srv\",1]", "media_folders[1]: "},
    {"\"media_folders\":[\"\"]", "media_folders[0]: "},
    {"\"media_urls\":true", "media_urls: "},
    {"\"media_urls\":\"private\"", "media_urls: "},
    {"\"components\":{},\"chat_template\":\"\"", "components: "},
};

void wrong_options(void)
{
    for (size_t index = 0; index < COUNT(options); index++) {
        const char *model = strncmp(options[index].json, "\"model\"", 7) == 0 ? "" : "\"model\":\"/nowhere\",";
        char *json = json_format("{%s%s}", model, options[index].json);
        struct record events;
        record_init(&events);
        CHECK(!llb_chat_create_with(json, on_event, &events), json);
        last_error_is("INVALID_REQUEST", options[index].path);
        CHECK(strcmp(events.text, "create_start\ncreate_failure:invalid_options\n") == 0, events.text);
        record_free(&events);
        free(json);
    }
}

#define TEMPLATE "\"chat_template\":\"{{ messages[0].content }}\""
#define RENDER TEMPLATE ",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"

void wrong_template_requests(void)
{
    static const struct wrong all[] = {
        {"\"chat_template\":1", "chat_template: "},
        {"\"chat_template\":[1]", "chat_template[0]: "},
        {"\"chat_template\":[{}]", "chat_template[0].name: "},
        {"\"chat_template\":[{\"name\":\"default\"}]", "chat_template[0].template: "},
        {"\"gguf\":1", "gguf: "},
        {TEMPLATE ",\"gguf\":\"x\"", "gguf: "},
        {TEMPLATE ",\"bos_token\":1", "bos_token: "},
        {TEMPLATE ",\"eos_token\":1", "eos_token: "},
        {"\"messages\":[]", "chat_template: missing"},
    };
    for (size_t index = 0; index < COUNT(all); index++) {
        char *json = json_format("{%s}", all[index].json);
        reply_is_error(llb_template_info(json), "INVALID_REQUEST", all[index].path);
        reply_is_error(llb_template_render(json), "INVALID_REQUEST", all[index].path);
        reply_is_error(llb_template_parse(json), "INVALID_REQUEST", all[index].path);
        free(json);
    }
    static const struct wrong renders[] = {
        {TEMPLATE, "messages: missing"},
        {RENDER ",\"tools\":1", "tools: "},
        {RENDER ",\"documents\":1", "documents: "},
        {RENDER ",\"add_generation_prompt\":1", "add_generation_prompt: "},
        {RENDER ",\"chat_template_kwargs\":1", "chat_template_kwargs: "},
        {RENDER ",\"now\":\"x\"", "now: "},
        {RENDER ",\"polyfills\":1", "polyfills: "},
        {RENDER ",\"raw\":1", "raw: "},
        {RENDER ",\"spans\":1", "spans: "},
        {RENDER ",\"mask\":1", "mask: "},
        {RENDER ",\"vision\":1", "vision: "},
    };
    for (size_t index = 0; index < COUNT(renders); index++) {
        char *json = json_format("{%s}", renders[index].json);
        reply_is_error(llb_template_render(json), "INVALID_REQUEST", renders[index].path);
        free(json);
    }
    static const struct wrong parses[] = {
        {TEMPLATE, "output: missing"},
        {TEMPLATE ",\"output\":1", "output: "},
        {TEMPLATE ",\"output\":\"x\",\"tools\":1", "tools: "},
        {TEMPLATE ",\"output\":\"x\",\"tool_choice\":1", "tool_choice: "},
        {TEMPLATE ",\"output\":\"x\",\"prompt\":1", "prompt: "},
        {TEMPLATE ",\"output\":\"x\",\"partial\":1", "partial: "},
        {TEMPLATE ",\"output\":\"x\",\"parallel_tool_calls\":1", "parallel_tool_calls: "},
        {TEMPLATE ",\"output\":\"x\",\"untagged_calls\":1", "untagged_calls: "},
    };
    for (size_t index = 0; index < COUNT(parses); index++) {
        char *json = json_format("{%s}", parses[index].json);
        reply_is_error(llb_template_parse(json), "INVALID_REQUEST", parses[index].path);
        free(json);
    }
    reply_is_error(llb_template_render("[]"), "INVALID_REQUEST", "request: ");
    reply_is_error(llb_template_info("{\"gguf\":\"/nowhere.gguf\"}"), "MODEL_NOT_FOUND", "/nowhere.gguf");
}

void wrong_token_requests(void)
{
    static const struct {
        const char *(*call)(const char *);
        struct wrong wrong;
    } all[] = {
        {llb_tokenize, {"\"add_special\":1", "add_special: "}},
        {llb_tokenize, {"\"parse_special\":\"no\"", "parse_special: "}},
        {llb_tokenize, {"\"details\":{}", "details: "}},
        {llb_tokenize, {"\"isolation\":\"thread\"", "isolation: "}},
        {llb_tokenize, {"\"text\":7", "text: expected a string"}},
        {llb_tokenize, {"\"text\":[\"x\"]", "text: expected a string"}},
        {llb_tokenize, {"\"text\":null", "text: missing; pass a string"}},
        {llb_detokenize, {"\"ids\":null", "ids: missing; pass an array of tokens"}},
        {llb_detokenize, {"\"ids\":7", "ids: expected an array"}},
        {llb_detokenize, {"\"ids\":[1,\"2\"]", "ids[1]: expected a whole number"}},
        {llb_detokenize, {"\"ids\":[1.5]", "ids[0]: expected a whole number"}},
        {llb_detokenize, {"\"ids\":[1,-1]", "ids[1]: no such token: -1"}},
        {llb_detokenize, {"\"ids\":[9000000000]", "ids[0]: no such token: 9000000000"}},
        {llb_detokenize, {"\"ids\":[],\"remove_special\":1", "remove_special: "}},
        {llb_detokenize, {"\"ids\":[],\"unparse_special\":1", "unparse_special: "}},
        {llb_count, {"\"messages\":null", "messages: "}},
        {llb_count, {"\"messages\":[]", "messages: "}},
        {llb_count, {"\"messages\":[7]", "messages[0]: "}},
        {llb_count, {"\"chat_template\":1", "chat_template: "}},
        {llb_count, {"\"template_limits\":1", "template_limits: "}},
        {llb_memory, {"\"n_ctx\":\"all\"", "n_ctx: "}},
        {llb_memory, {"\"n_ctx\":0", "n_ctx: must be from 16"}},
        {llb_memory, {"\"n_parallel\":65", "n_parallel: must be from 1 to 64"}},
        {llb_memory, {"\"n_batch\":\"x\"", "n_batch: "}},
        {llb_memory, {"\"n_gpu_layers\":-1", "n_gpu_layers: "}},
        {llb_memory, {"\"n_cpu_moe\":-1", "n_cpu_moe: "}},
        {llb_memory, {"\"cache_type_k\":\"q2_k\"", "cache_type_k: "}},
        {llb_memory, {"\"flash_attn\":true", "flash_attn: "}},
        {llb_memory, {"\"use_mmap\":1", "use_mmap: "}},
        {llb_memory, {"\"backend\":7", "backend: "}},
    };
    const char *models = getenv("LLB_TEST_MODELS");
    for (size_t index = 0; index < COUNT(all); index++) {
        /* Of duplicate members, the last one counts. */
        char *json = json_format("{\"model_path\":\"%s/text.gguf\",\"text\":\"x\",\"messages\":"
                                 "[{\"role\":\"user\",\"content\":\"x\"}],%s}", models, all[index].wrong.json);
        reply_is_error(all[index].call(json), "INVALID_REQUEST", all[index].wrong.path);
        free(json);
    }
    static const struct wrong paths[] = {
        {"\"model_path\":7", "model_path: expected a string"},
        {"\"model_path\":\"\"", "model_path: is empty"},
        {"\"model_path\":null", "model_path: missing; pass the path of a GGUF file"},
        {"\"model\":\"x.gguf\"", "model_path: missing"},
    };
    const char *(*const calls[])(const char *) = {llb_tokenize, llb_detokenize, llb_count, llb_memory, llb_model_unload};
    for (size_t call = 0; call < COUNT(calls); call++) {
        for (size_t index = 0; index < COUNT(paths); index++) {
            char *json = json_format("{%s}", paths[index].json);
            reply_is_error(calls[call](json), "INVALID_REQUEST", paths[index].path);
            free(json);
        }
        reply_is_error(calls[call]("[]"), "INVALID_REQUEST", "request: ");
    }
    reply_is_error(llb_tokenize("{\"model_path\":\"/nowhere.gguf\",\"text\":\"x\"}"), "MODEL_NOT_FOUND", "/nowhere.gguf");
    reply_is_error(llb_memory("{\"model_path\":\"/nowhere.gguf\"}"), "MODEL_NOT_FOUND", "/nowhere.gguf");
    reply_is_error(llb_model_unload("{\"model_path\":\"/nowhere.gguf\"}"), "MODEL_NOT_FOUND", "/nowhere.gguf");
    reply_is_error(llb_model_unload("{\"model_path\":\"/\"}"), "MODEL_NOT_FOUND", "model_path: /: is a directory");
    reply_is_error(llb_memory("{\"model_path\":\"/etc/passwd\"}"), "MODEL_INVALID", "/etc/passwd");
    reply_is_error(llb_tokenize("{\"model_path\":\"/etc/passwd\",\"text\":\"x\"}"), "MODEL_INVALID", "/etc/passwd");
}
