package dev.llb.scripted;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import dev.llb.ChatOptions;
import dev.llb.LlbModel;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;

/**
 * A completions server with known text. As for any model (docs/remote.md), llb renders the prompts
 * and parses the replies, so everything is real except the choice of words.
 */
public final class ScriptedServer implements AutoCloseable {

    private static final ObjectMapper JSON = new ObjectMapper();

    private final HttpServer server;
    private final Deque<String> replies = new ArrayDeque<>();
    private String lastPrompt = "";
    private CountDownLatch gate = new CountDownLatch(0);

    /** Listens on a free port of the loopback interface. */
    public ScriptedServer() {
        try {
            server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0),
                    0);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        server.createContext("/v1/completions", this::complete);
        server.setExecutor(Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        }));
        server.start();
    }

    /** Replaces the texts of the following replies. */
    public synchronized void say(List<String> texts) {
        replies.clear();
        replies.addAll(texts);
    }

    /** From now on, replies stop after their first word until {@code gate} is open. */
    public synchronized void pauseAt(CountDownLatch gate) {
        this.gate = gate;
    }

    /** The prompt of the last request. */
    public synchronized String lastPrompt() {
        return lastPrompt;
    }

    /** Opens a model with the template of Qwen 2.5 that gets its text from this server. */
    public LlbModel open() {
        return LlbModel.open(chatOptions().build());
    }

    /** A builder with the options of that model. */
    public ChatOptions.Builder chatOptions() {
        ChatOptions.Builder builder = ChatOptions.builder();
        options().forEach(builder::set);
        return builder;
    }

    /** The options of that model. */
    public Map<String, Object> options() {
        Map<String, Object> engine = Map.of(
                "type", "openai_completions",
                "base_url", url(),
                "server", "openai",
                "model", "scripted");
        return Map.of("components", "qwen2.5", "engine", engine);
    }

    /** The same as properties of a Spring Boot program, {@code name=value}. */
    public List<String> springProperties() {
        return List.of(
                "spring.ai.llb.options.components=qwen2.5",
                "spring.ai.llb.options.engine.type=openai_completions",
                "spring.ai.llb.options.engine.base-url=" + url(),
                "spring.ai.llb.options.engine.server=openai",
                "spring.ai.llb.options.engine.model=scripted");
    }

    private String url() {
        return "http://127.0.0.1:" + server.getAddress().getPort() + "/v1";
    }

    private void complete(HttpExchange exchange) throws IOException {
        JsonNode request = JSON.readTree(exchange.getRequestBody());
        String text;
        CountDownLatch pause;
        synchronized (this) {
            lastPrompt = request.path("prompt").asText();
            text = replies.poll();
            pause = gate;
        }
        if (text == null) {
            byte[] body =
                    "{\"error\":{\"message\":\"the script of this test has no further reply\"}}"
                    .getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(400, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
            return;
        }
        exchange.getResponseHeaders().set("Content-Type", "text/event-stream");
        exchange.sendResponseHeaders(200, 0);
        try (OutputStream out = exchange.getResponseBody()) {
            int maxTokens = request.path("max_tokens").asInt(Integer.MAX_VALUE);
            stream(out, untilStop(text, request.path("stop")), maxTokens, pause);
        } catch (InterruptedException | IOException disconnected) {
            // The client has cancelled.
        }
        exchange.close();
    }

    private static String untilStop(String text, JsonNode stops) {
        int end = text.length();
        for (JsonNode stop : stops) {
            int at = text.indexOf(stop.asText());
            end = at >= 0 ? Math.min(end, at) : end;
        }
        return text.substring(0, end);
    }

    /**
     * Each word counts as a token. The counts are in each event, because llb closes the connection
     * at a stop string of the answer.
     */
    private static void stream(OutputStream out, String text, int maxTokens, CountDownLatch pause)
            throws IOException, InterruptedException {
        String[] words = text.split("(?= )");
        int tokens = Math.min(words.length, maxTokens);
        for (int i = 0; i < tokens; i++) {
            event(out, Map.of(
                    "choices", List.of(Map.of("index", 0, "text", words[i])),
                    "usage", usage(i + 1)));
            pause.await();
        }
        String reason = tokens < words.length ? "length" : "stop";
        event(out, Map.of(
                "choices", List.of(Map.of("index", 0, "text", "", "finish_reason", reason))));
        event(out, Map.of("choices", List.of(), "usage", usage(tokens)));
        out.write("data: [DONE]\n\n".getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, Object> usage(int completionTokens) {
        return Map.of("prompt_tokens", 7, "completion_tokens", completionTokens);
    }

    private static void event(OutputStream out, Object event) throws IOException {
        out.write(("data: " + JSON.writeValueAsString(event) + "\n\n")
                .getBytes(StandardCharsets.UTF_8));
        out.flush();
    }

    @Override
    public void close() {
        server.stop(0);
    }
}
