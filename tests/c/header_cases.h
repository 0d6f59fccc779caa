/* Assigns each function to a pointer of its documented type. Valid C and C++. */
#ifndef HEADER_CASES_H
#define HEADER_CASES_H

typedef const char *(*text_of_text)(const char *);

const char *(*const of_nothing[])(void) = {llb_version, llb_last_error, llb_backends};
uint32_t (*const abi_version)(void) = llb_abi_version;
const text_of_text of_text[] = {llb_model_info,     llb_template_info,    llb_template_render,
                                llb_template_parse, llb_template_compose, llb_tokenize,
                                llb_detokenize,     llb_count,            llb_memory,
                                llb_model_unload};
llb_chat_t *(*const creates[])(const char *, llb_event_cb, void *) = {llb_chat_create, llb_chat_create_with};
const char *(*const infers[])(llb_chat_t *, const char *) = {llb_chat_infer, llb_chat_explain};
const char *(*const stream)(llb_chat_t *, const char *, llb_token_cb, void *) = llb_chat_infer_stream;
void (*const ends[])(llb_chat_t *) = {llb_chat_cancel, llb_chat_end_reasoning, llb_chat_destroy};
const char *(*const fetch)(const char *, llb_event_cb, void *) = llb_model_fetch;
llb_embedder_t *(*const create_embedder)(const char *) = llb_embed_create;
const char *(*const embeds[])(llb_embedder_t *, const char *) = {llb_embed, llb_rank};
void (*const embed_ends[])(llb_embedder_t *) = {llb_embed_cancel, llb_embed_destroy};
void (*const takes_text[])(const char *) = {llb_model_fetch_cancel, llb_string_free};

static void event(const char *text, void *user_data) { (void)text, (void)user_data; }
const llb_event_cb on_event = event;
const llb_token_cb on_token = event;

#if LLB_ABI_VERSION != 2
#error "new ABI version: check that all functions are listed above"
#endif

int main(void)
{
    (void)of_nothing, (void)of_text, (void)creates, (void)infers, (void)stream, (void)ends, (void)fetch, (void)takes_text;
    (void)create_embedder, (void)embeds, (void)embed_ends;
    (void)on_event, (void)on_token;
    return abi_version() == LLB_ABI_VERSION ? 0 : 1;
}

#endif
