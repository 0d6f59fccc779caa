package dev.llb.example;

import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.tool.annotation.Tool;
import org.springframework.ai.tool.annotation.ToolParam;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import reactor.core.publisher.Flux;

/**
 * Answers questions about the weather, with a tool.
 *
 * <p>{@code GET /ask?question=…} returns the whole answer. {@code GET /stream?question=…} sends it
 * as server-sent events while it is generated, and ends the generation when the client disconnects.
 */
@SpringBootApplication
public class WeatherApplication {

    public static void main(String[] args) {
        SpringApplication.run(WeatherApplication.class, args);
    }

    /** The tools of the model. */
    static final class Weather {

        @Tool(name = "get_weather", description = "The current weather in a city")
        String weather(@ToolParam(description = "the name of the city") String city) {
            return "It is 21 degrees and sunny in " + city + ".";
        }
    }

    @RestController
    static final class Questions {

        private final ChatClient client;

        Questions(ChatClient.Builder builder) {
            client = builder.defaultTools(new Weather()).build();
        }

        @GetMapping("/ask")
        String ask(@RequestParam String question) {
            return client.prompt(question).call().content();
        }

        @GetMapping(path = "/stream", produces = MediaType.TEXT_EVENT_STREAM_VALUE)
        Flux<String> stream(@RequestParam String question) {
            return client.prompt(question).stream().content();
        }
    }
}
