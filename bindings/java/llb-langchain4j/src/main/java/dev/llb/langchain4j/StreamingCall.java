package dev.llb.langchain4j;

import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.model.chat.response.CompleteToolCall;
import dev.langchain4j.model.chat.response.PartialResponse;
import dev.langchain4j.model.chat.response.PartialResponseContext;
import dev.langchain4j.model.chat.response.PartialThinking;
import dev.langchain4j.model.chat.response.PartialThinkingContext;
import dev.langchain4j.model.chat.response.PartialToolCall;
import dev.langchain4j.model.chat.response.PartialToolCallContext;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.chat.response.StreamingHandle;
import dev.llb.ChatChunk;
import dev.llb.ChatReply;
import dev.llb.ChatRequest;
import dev.llb.LlbException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import org.jspecify.annotations.Nullable;

/**
 * One streamed request, which passes chunks to a handler of LangChain4j.
 *
 * <p>An exception of the handler is passed to its {@code onError}, and the generation continues, as
 * in all integrations of LangChain4j. Errors such as {@code OutOfMemoryError} end it.
 */
final class StreamingCall implements StreamingHandle {

    private final ModelBuilder.OpenModel open;
    private final ChatRequest request;
    private final StreamingChatResponseHandler handler;
    private final OpenCall call = new OpenCall();

    private CompletableFuture<ChatReply> running;
    private boolean cancelled;

    StreamingCall(
            ModelBuilder.OpenModel open,
            ChatRequest request,
            StreamingChatResponseHandler handler) {
        this.open = open;
        this.request = request;
        this.handler = handler;
    }

    /** Starts the request on a thread of the executor, or on a new one. */
    void start(@Nullable Executor executor) {
        CompletableFuture<ChatReply> reply = executor == null
                ? open.model().streamAsync(request, this::accept)
                : open.model().streamAsync(request, this::accept, executor);
        synchronized (this) {
            running = reply;
            if (cancelled) {
                reply.cancel(true);
            }
        }
        reply.whenComplete(this::end);
    }

    private void end(@Nullable ChatReply reply, @Nullable Throwable failure) {
        if (isCancelled()) {
            return;
        }
        if (reply == null) {
            onError(failure instanceof LlbException e ? Replies.failure(e) : failure);
            return;
        }
        for (int i = call.completed; i < reply.toolCalls().size() && !isCancelled(); i++) {
            complete(i, Replies.call(reply.toolCalls().get(i)));
        }
        if (!isCancelled()) {
            guarded(() -> handler.onCompleteResponse(Replies.convert(reply, open.name())));
        }
    }

    private void accept(ChatChunk chunk) {
        if (isCancelled()) {
            return;
        }
        if (!chunk.reasoningContent().isEmpty()) {
            PartialThinking thinking = new PartialThinking(chunk.reasoningContent());
            guarded(() -> handler.onPartialThinking(thinking, new PartialThinkingContext(this)));
        }
        if (!chunk.text().isEmpty() && !isCancelled()) {
            PartialResponse text = new PartialResponse(chunk.text());
            guarded(() -> handler.onPartialResponse(text, new PartialResponseContext(this)));
        }
        for (ChatChunk.ToolCallDelta delta : chunk.toolCalls()) {
            if (!isCancelled()) {
                call.accept(delta);
            }
        }
    }

    /**
     * The tool call that is being written. It is complete when the next call begins. The last call
     * may be cut off, so the reply tells whether it is complete.
     */
    private final class OpenCall {

        private int completed;
        private String id;
        private String name;
        private final StringBuilder arguments = new StringBuilder();
        /**
         * White space that is held until other text follows, because partial arguments must not be
         * blank.
         */
        private String blank = "";

        void accept(ChatChunk.ToolCallDelta delta) {
            if (delta.index() > completed) {
                end();
            }
            id = delta.id() != null ? delta.id() : id;
            name = delta.name() != null ? delta.name() : name;
            String fragment = blank + delta.arguments();
            if (fragment.isBlank()) {
                blank = fragment;
                return;
            }
            blank = "";
            arguments.append(fragment);
            PartialToolCall partial = PartialToolCall.builder()
                    .index(completed)
                    .id(id)
                    .name(name)
                    .partialArguments(fragment)
                    .build();
            guarded(() -> handler.onPartialToolCall(
                    partial, new PartialToolCallContext(StreamingCall.this)));
        }

        private void end() {
            ToolExecutionRequest whole = ToolExecutionRequest.builder()
                    .id(id)
                    .name(name)
                    .arguments(arguments + blank)
                    .build();
            complete(completed, whole);
            completed++;
            id = null;
            name = null;
            arguments.setLength(0);
            blank = "";
        }
    }

    private void complete(int index, ToolExecutionRequest request) {
        CompleteToolCall complete = new CompleteToolCall(index, request);
        guarded(() -> handler.onCompleteToolCall(complete));
    }

    private void guarded(Runnable callback) {
        try {
            callback.run();
        } catch (Exception e) {
            onError(e);
        }
    }

    private void onError(Throwable error) {
        try {
            handler.onError(error);
        } catch (Exception e) {
            System.getLogger("dev.llb").log(
                    System.Logger.Level.WARNING, "an exception of onError was ignored", e);
        }
    }

    @Override
    public synchronized void cancel() {
        cancelled = true;
        if (running != null) {
            running.cancel(true);
        }
    }

    @Override
    public synchronized boolean isCancelled() {
        return cancelled;
    }
}
