package dev.llb.example;

import static org.assertj.core.api.Assertions.assertThat;

import dev.llb.scripted.TestModels;
import org.junit.jupiter.api.Test;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.boot.SpringApplication;
import org.springframework.context.ConfigurableApplicationContext;

/** The program on a real model of 0.5 billion parameters, for make test-java-frameworks. */
class RealModelIT {

    record Capital(String country, String city) {}

    @Test
    void aRealModelAnswers() {
        try (ConfigurableApplicationContext program = SpringApplication.run(
                WeatherApplication.class,
                "--server.port=0",
                "--spring.ai.llb.model=" + TestModels.real(),
                "--spring.ai.llb.chat.max-tokens=60")) {
            ChatClient client = program.getBean(ChatClient.Builder.class).build();
            Capital capital = client.prompt("What is the capital of Germany?")
                    .call()
                    .entity(Capital.class, spec -> spec.useProviderStructuredOutput());
            assertThat(capital.city()).isEqualTo("Berlin");
            String text = client.prompt("What is the capital of Germany?").stream().content()
                    .reduce("", String::concat).block();
            assertThat(text).contains("Berlin");
        }
    }
}
