/* The native methods of dev.llb.JniAccess, through which Java 17 and later call llb.
 *
 * This is a separate library that opens libllb.so at run time, so that C programs link a file
 * without any Java. The only exported symbol is JNI_OnLoad.
 *
 * Text is passed as UTF-8 in byte arrays. Java is not called while one of its strings is held. No
 * thread is attached, because callbacks run on the thread of the call. */

#include <dlfcn.h>
#include <jni.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "llb.h"

/* The functions of llb, looked up by `bind`: first the one that tells what the others are. */
#define FUNCTIONS(F)                                                                               \
    F(abi_version) F(version) F(backends) F(model_info) F(chat_create_with) F(chat_infer)          \
    F(chat_infer_stream) F(chat_explain) F(chat_cancel) F(chat_end_reasoning) F(chat_destroy)      \
    F(template_info) F(template_render) F(template_parse) F(template_compose) F(tokenize)          \
    F(detokenize) F(count) F(memory) F(model_unload) F(embed_create) F(embed) F(rank)              \
    F(embed_cancel) F(embed_destroy) F(model_fetch) F(model_fetch_cancel) F(last_error)            \
    F(string_free)

static struct {
#define FIELD(name) __typeof__(&llb_##name) name;
    FUNCTIONS(FIELD)
} llb;

static void *library;

/* dev.llb.Callback and its methods receive(long, byte[]) and fail(long, Throwable). The reference
 * is weak, so that the class loader of a web application that was stopped can be collected. While
 * a call runs, its frames in Java keep the class. */
static jweak callback_class;
static jmethodID callback_receive;
static jmethodID callback_fail;

/* A call from Java to llb that may call back. It is on the stack of its thread. */
struct call {
    JNIEnv *env;
    jlong chat;         /* to be cancelled after a failure, or 0 */
    jthrowable failure; /* one that Java could not store; thrown when the call returns */
    struct call *outer; /* the call whose callback made this one, or NULL */
};

static __thread struct call *current;

static llb_embedder_t *embedder_of(jlong handle) { return (llb_embedder_t *)(intptr_t)handle; }

static llb_chat_t *chat_of(jlong handle) { return (llb_chat_t *)(intptr_t)handle; }

/* Returns a copy of `bytes` with a NUL, to be freed, or NULL with an exception pending. */
static char *copy_in(JNIEnv *env, jbyteArray bytes) {
    jsize length = (*env)->GetArrayLength(env, bytes);
    char *text = malloc((size_t)length + 1);
    if (!text) {
        jclass error = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
        if (error) (*env)->ThrowNew(env, error, "llb: no memory for a request");
        return NULL;
    }
    (*env)->GetByteArrayRegion(env, bytes, 0, length, (jbyte *)text);
    text[length] = 0;
    return text;
}

/* Returns NULL with an exception pending if memory runs out. */
static jbyteArray copy_out(JNIEnv *env, const char *text) {
    size_t length = strlen(text);
    if (length > INT32_MAX - 8) {
        jclass error = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
        if (error) (*env)->ThrowNew(env, error, "llb: a reply of more than 2 GB");
        return NULL;
    }
    jbyteArray bytes = (*env)->NewByteArray(env, (jsize)length);
    if (bytes) (*env)->SetByteArrayRegion(env, bytes, 0, (jsize)length, (const jbyte *)text);
    return bytes;
}

/* Removes the pending exception and returns it, or returns NULL. */
static jthrowable take_exception(JNIEnv *env) {
    jthrowable thrown = (*env)->ExceptionOccurred(env);
    if (thrown) (*env)->ExceptionClear(env);
    return thrown;
}

/* A callback from llb. `user_data` is the id of the callback in Java. */
static void receive(const char *text, void *user_data) {
    struct call *call = current;
    if (!call || call->failure) return;
    JNIEnv *env = call->env;
    jlong id = (jlong)(intptr_t)user_data;
    jbyteArray bytes = copy_out(env, text);
    if (bytes) (*env)->CallStaticVoidMethod(env, callback_class, callback_receive, id, bytes);
    jthrowable thrown = take_exception(env);
    if (bytes) (*env)->DeleteLocalRef(env, bytes);
    if (!thrown) return;

    /* Java catches exceptions of the consumer. This one was thrown on the way to the consumer. */
    (*env)->CallStaticVoidMethod(env, callback_class, callback_fail, id, thrown);
    jthrowable again = take_exception(env);
    if (again) {
        (*env)->DeleteLocalRef(env, again);
        call->failure = thrown;
        if (call->chat) llb.chat_cancel(chat_of(call->chat));
    } else {
        (*env)->DeleteLocalRef(env, thrown);
    }
}

static void begin(struct call *call, JNIEnv *env, jlong chat) {
    *call = (struct call){env, chat, NULL, current};
    current = call;
}

/* Ends the call. Returns whether an exception is pending. */
static int end(struct call *call) {
    current = call->outer;
    if (call->failure) (*call->env)->Throw(call->env, call->failure);
    return call->failure != NULL;
}

/* Ends the call and frees its reply. Returns the reply, or NULL with an exception pending. */
static jbyteArray end_with(struct call *call, const char *reply) {
    jbyteArray bytes = end(call) ? NULL : copy_out(call->env, reply);
    llb.string_free(reply);
    return bytes;
}

static jbyteArray jni_open(JNIEnv *env, jclass type, jbyteArray path_utf8) {
    (void)type;
    char *path = copy_in(env, path_utf8);
    if (!path) return NULL;
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    free(path);
    if (!opened) {
        const char *problem = dlerror();
        return copy_out(env, problem ? problem : "unknown error");
    }
    library = opened;
    return NULL;
}

static jbyteArray jni_bind(JNIEnv *env, jclass type) {
    (void)type;
#define LOOK_UP(name)                                                                              \
    llb.name = (__typeof__(&llb_##name))dlsym(library, "llb_" #name);                              \
    if (!llb.name) return copy_out(env, "llb_" #name);
    FUNCTIONS(LOOK_UP)
    return NULL;
}

static jbyteArray jni_version(JNIEnv *env, jobject self) {
    (void)self;
    return copy_out(env, llb.version());
}

/* 0 if the library lacks the function. */
static jint jni_abi_version(JNIEnv *env, jobject self) {
    (void)env, (void)self;
    return llb.abi_version ? (jint)llb.abi_version() : 0;
}

static jbyteArray jni_backends(JNIEnv *env, jobject self) {
    (void)self;
    struct call call;
    begin(&call, env, 0);
    return end_with(&call, llb.backends());
}

/* Does nothing without glibc. */
static void jni_set_trim_threshold(JNIEnv *env, jobject self, jint bytes) {
    (void)env, (void)self;
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, bytes);
#else
    (void)bytes;
#endif
}

/* `function` is an index into Access.TEXT_FUNCTIONS. */
static jbyteArray jni_call_with_text(JNIEnv *env, jobject self, jint function, jbyteArray utf8) {
    (void)self;
    const char *(*const functions[])(const char *) = {
        llb.model_info, llb.template_info, llb.template_render, llb.template_parse,
        llb.template_compose, llb.tokenize, llb.detokenize, llb.count, llb.memory,
        llb.model_unload};
    char *text = copy_in(env, utf8);
    if (!text) return NULL;
    struct call call;
    begin(&call, env, 0);
    const char *reply = functions[function](text);
    free(text);
    return end_with(&call, reply);
}

static jbyteArray jni_chat_create(JNIEnv *env, jobject self, jbyteArray options, jlong on_event,
                                  jlongArray handle) {
    (void)self;
    char *text = copy_in(env, options);
    if (!text) return NULL;
    struct call call;
    begin(&call, env, 0);
    llb_chat_t *chat = llb.chat_create_with(text, receive, (void *)(intptr_t)on_event);
    free(text);
    if (!chat) return end_with(&call, llb.last_error());
    if (call.failure) {
        llb.chat_destroy(chat);
        end(&call);
        return NULL;
    }
    end(&call);
    jlong value = (jlong)(intptr_t)chat;
    (*env)->SetLongArrayRegion(env, handle, 0, 1, &value);
    return NULL;
}

static jbyteArray call_chat(JNIEnv *env, jlong chat, jbyteArray request,
                            __typeof__(&llb_chat_infer) function) {
    char *text = copy_in(env, request);
    if (!text) return NULL;
    struct call call;
    begin(&call, env, chat);
    const char *reply = function(chat_of(chat), text);
    free(text);
    return end_with(&call, reply);
}

static jbyteArray jni_chat_infer(JNIEnv *env, jobject self, jlong chat, jbyteArray request) {
    (void)self;
    return call_chat(env, chat, request, llb.chat_infer);
}

static jbyteArray jni_chat_infer_stream(JNIEnv *env, jobject self, jlong chat, jbyteArray request,
                                        jlong on_piece) {
    (void)self;
    char *text = copy_in(env, request);
    if (!text) return NULL;
    struct call call;
    begin(&call, env, chat);
    const char *reply =
        llb.chat_infer_stream(chat_of(chat), text, receive, (void *)(intptr_t)on_piece);
    free(text);
    return end_with(&call, reply);
}

static jbyteArray jni_chat_explain(JNIEnv *env, jobject self, jlong chat, jbyteArray request) {
    (void)self;
    return call_chat(env, chat, request, llb.chat_explain);
}

static void jni_chat_cancel(JNIEnv *env, jobject self, jlong chat) {
    (void)self;
    struct call call;
    begin(&call, env, chat);
    llb.chat_cancel(chat_of(chat));
    end(&call);
}

static void jni_chat_end_reasoning(JNIEnv *env, jobject self, jlong chat) {
    (void)self;
    struct call call;
    begin(&call, env, chat);
    llb.chat_end_reasoning(chat_of(chat));
    end(&call);
}

static void jni_chat_destroy(JNIEnv *env, jobject self, jlong chat) {
    (void)self;
    struct call call;
    begin(&call, env, 0);
    llb.chat_destroy(chat_of(chat));
    end(&call);
}

static jbyteArray jni_embed_create(JNIEnv *env, jobject self, jbyteArray options,
                                   jlongArray handle) {
    (void)self;
    char *text = copy_in(env, options);
    if (!text) return NULL;
    struct call call;
    begin(&call, env, 0);
    llb_embedder_t *embedder = llb.embed_create(text);
    free(text);
    if (!embedder) return end_with(&call, llb.last_error());
    end(&call);
    jlong value = (jlong)(intptr_t)embedder;
    (*env)->SetLongArrayRegion(env, handle, 0, 1, &value);
    return NULL;
}

static jbyteArray call_embedder(JNIEnv *env, jlong embedder, jbyteArray request,
                                __typeof__(&llb_embed) function) {
    char *text = copy_in(env, request);
    if (!text) return NULL;
    struct call call;
    begin(&call, env, 0);
    const char *reply = function(embedder_of(embedder), text);
    free(text);
    return end_with(&call, reply);
}

static jbyteArray jni_embed(JNIEnv *env, jobject self, jlong embedder, jbyteArray request) {
    (void)self;
    return call_embedder(env, embedder, request, llb.embed);
}

static jbyteArray jni_rank(JNIEnv *env, jobject self, jlong embedder, jbyteArray request) {
    (void)self;
    return call_embedder(env, embedder, request, llb.rank);
}

static void jni_embed_cancel(JNIEnv *env, jobject self, jlong embedder) {
    (void)env, (void)self;
    llb.embed_cancel(embedder_of(embedder));
}

static void jni_embed_destroy(JNIEnv *env, jobject self, jlong embedder) {
    (void)env, (void)self;
    llb.embed_destroy(embedder_of(embedder));
}

static jbyteArray jni_model_fetch(JNIEnv *env, jobject self, jbyteArray request, jlong on_event) {
    (void)self;
    char *text = copy_in(env, request);
    if (!text) return NULL;
    struct call call;
    begin(&call, env, 0);
    const char *reply = llb.model_fetch(text, receive, (void *)(intptr_t)on_event);
    free(text);
    return end_with(&call, reply);
}

static void jni_model_fetch_cancel(JNIEnv *env, jobject self, jbyteArray id) {
    (void)self;
    char *text = copy_in(env, id);
    if (!text) return;
    llb.model_fetch_cancel(text);
    free(text);
}

static const JNINativeMethod methods[] = {
    {"open", "([B)[B", (void *)jni_open},
    {"bind", "()[B", (void *)jni_bind},
    {"version", "()[B", (void *)jni_version},
    {"abiVersion", "()I", (void *)jni_abi_version},
    {"backends", "()[B", (void *)jni_backends},
    {"setTrimThreshold", "(I)V", (void *)jni_set_trim_threshold},
    {"callWithText", "(I[B)[B", (void *)jni_call_with_text},
    {"chatCreate", "([BJ[J)[B", (void *)jni_chat_create},
    {"chatInfer", "(J[B)[B", (void *)jni_chat_infer},
    {"chatInferStream", "(J[BJ)[B", (void *)jni_chat_infer_stream},
    {"chatExplain", "(J[B)[B", (void *)jni_chat_explain},
    {"chatCancel", "(J)V", (void *)jni_chat_cancel},
    {"chatEndReasoning", "(J)V", (void *)jni_chat_end_reasoning},
    {"chatDestroy", "(J)V", (void *)jni_chat_destroy},
    {"embedCreate", "([B[J)[B", (void *)jni_embed_create},
    {"embed", "(J[B)[B", (void *)jni_embed},
    {"rank", "(J[B)[B", (void *)jni_rank},
    {"embedCancel", "(J)V", (void *)jni_embed_cancel},
    {"embedDestroy", "(J)V", (void *)jni_embed_destroy},
    {"modelFetch", "([BJ)[B", (void *)jni_model_fetch},
    {"modelFetchCancel", "([B)V", (void *)jni_model_fetch_cancel},
};

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    (void)reserved;
    JNIEnv *env;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_10) != JNI_OK) return JNI_ERR;
    jclass access = (*env)->FindClass(env, "dev/llb/JniAccess");
    if (!access) return JNI_ERR;
    jint count = sizeof methods / sizeof *methods;
    if ((*env)->RegisterNatives(env, access, methods, count) != JNI_OK) return JNI_ERR;
    (*env)->DeleteLocalRef(env, access);
    jclass callback = (*env)->FindClass(env, "dev/llb/Callback");
    if (!callback) return JNI_ERR;
    callback_class = (*env)->NewWeakGlobalRef(env, callback);
    if (!callback_class) return JNI_ERR;
    callback_receive = (*env)->GetStaticMethodID(env, callback, "receive", "(J[B)V");
    if (!callback_receive) return JNI_ERR;
    callback_fail =
        (*env)->GetStaticMethodID(env, callback, "fail", "(JLjava/lang/Throwable;)V");
    (*env)->DeleteLocalRef(env, callback);
    return callback_fail ? JNI_VERSION_10 : JNI_ERR;
}

/* Called when the class loader of JniAccess is collected. */
JNIEXPORT void JNICALL JNI_OnUnload(JavaVM *vm, void *reserved) {
    (void)reserved;
    JNIEnv *env;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_10) == JNI_OK && callback_class) {
        (*env)->DeleteWeakGlobalRef(env, callback_class);
    }
}
