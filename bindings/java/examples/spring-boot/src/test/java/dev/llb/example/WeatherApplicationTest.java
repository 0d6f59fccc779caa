package dev.llb.example;

import static org.assertj.core.api.Assertions.assertThat;

import dev.llb.scripted.ScriptedServer;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.web.server.context.WebServerApplicationContext;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.event.ContextClosedEvent;

/** Starts the program as its main does, on a free port, with a model whose text is known. */
class WeatherApplicationTest {

    private static final ScriptedServer SERVER = new ScriptedServer();
    private static final String CALL =
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";

    private static ConfigurableApplicationContext program;

    @BeforeAll
    static void start() {
        program = run();
    }

    private static ConfigurableApplicationContext run() {
        List<String> arguments = new ArrayList<>(List.of(
                "--server.port=0",
                "--spring.main.banner-mode=off",
                "--logging.level.root=warn",
                "--spring.ai.llb.model="));
        SERVER.springProperties().forEach(property -> arguments.add("--" + property));
        return SpringApplication.run(WeatherApplication.class, arguments.toArray(String[]::new));
    }

    @AfterAll
    static void stop() {
        program.close();
        SERVER.close();
    }

    private static HttpResponse<String> get(String path) throws IOException, InterruptedException {
        return HttpClient.newHttpClient().send(
                request(program, path), HttpResponse.BodyHandlers.ofString());
    }

    private static HttpRequest request(ConfigurableApplicationContext context, String path) {
        int port = ((WebServerApplicationContext) context).getWebServer().getPort();
        return HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)).build();
    }

    private static String question() {
        return URLEncoder.encode("Is it warm in Paris?", StandardCharsets.UTF_8);
    }

    @Test
    void answersWithTheTool() throws Exception {
        SERVER.say(List.of(CALL, "Yes, it is 21 degrees."));
        assertThat(get("/ask?question=" + question()).body()).isEqualTo("Yes, it is 21 degrees.");
        assertThat(SERVER.lastPrompt()).contains("It is 21 degrees and sunny in Paris.");
    }

    @Test
    void streamsEvents() throws Exception {
        SERVER.say(List.of(CALL, "Yes, it is warm."));
        HttpResponse<String> response = get("/stream?question=" + question());
        assertThat(response.headers().firstValue("content-type").orElse(""))
                .startsWith("text/event-stream");
        assertThat(response.body().lines().filter(line -> line.startsWith("data:")).toList())
                .containsExactly("data:Yes,", "data: it", "data: is", "data: warm.");
    }

    /** The rest of the reply is generated only after the shutdown has begun. */
    @Test
    void aShutdownWaitsForAStream() throws Exception {
        CountDownLatch gate = new CountDownLatch(1);
        SERVER.say(List.of("Yes, it is warm."));
        SERVER.pauseAt(gate);
        ConfigurableApplicationContext other = run();
        CountDownLatch closing = new CountDownLatch(1);
        other.addApplicationListener(event -> {
            if (event instanceof ContextClosedEvent) {
                closing.countDown();
            }
        });
        Thread shutdown = new Thread(other::close);
        try (Stream<String> lines = HttpClient.newHttpClient()
                .send(request(other, "/stream?question=" + question()),
                        HttpResponse.BodyHandlers.ofLines())
                .body()) {
            Iterator<String> data = lines.filter(line -> line.startsWith("data:")).iterator();
            assertThat(data.next()).isEqualTo("data:Yes,");
            shutdown.start();
            assertThat(closing.await(60, TimeUnit.SECONDS)).isTrue();
            gate.countDown();
            List<String> rest = new ArrayList<>();
            data.forEachRemaining(rest::add);
            assertThat(rest).containsExactly("data: it", "data: is", "data: warm.");
        } finally {
            gate.countDown();
            other.close();
        }
        shutdown.join();
    }

    @Test
    void theActuatorKnowsTheModel() throws Exception {
        assertThat(get("/actuator/health").body())
                .contains("\"llb\":{\"details\":{\"model\":\"llb\"},\"status\":\"UP\"}");
        assertThat(get("/actuator/info").body()).contains("\"version\":\"llb ");
    }
}
