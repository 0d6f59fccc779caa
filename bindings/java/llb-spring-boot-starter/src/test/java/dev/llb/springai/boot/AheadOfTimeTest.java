package dev.llb.springai.boot;

import static org.assertj.core.api.Assertions.assertThat;
import static org.springframework.aot.hint.predicate.RuntimeHintsPredicates.reflection;
import static org.springframework.aot.hint.predicate.RuntimeHintsPredicates.resource;

import dev.llb.scripted.ScriptedServer;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.model.chat.client.autoconfigure.ChatClientAutoConfiguration;
import org.springframework.ai.model.tool.autoconfigure.ToolCallingAutoConfiguration;
import org.springframework.aot.hint.ExecutableHint;
import org.springframework.aot.hint.RuntimeHints;
import org.springframework.aot.hint.TypeReference;
import org.springframework.aot.test.generate.TestGenerationContext;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.ImportAutoConfiguration;
import org.springframework.boot.test.util.TestPropertyValues;
import org.springframework.context.ApplicationContextInitializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.aot.ApplicationContextAotGenerator;
import org.springframework.context.support.GenericApplicationContext;
import org.springframework.core.test.tools.CompileWithForkedClassLoader;
import org.springframework.core.test.tools.TestCompiler;

/** A program with the starter, processed ahead of time as for a native image. */
class AheadOfTimeTest {

    @SpringBootConfiguration
    @ImportAutoConfiguration({
        LlbAutoConfiguration.class,
        LlbHealthAutoConfiguration.class,
        LlbInfoAutoConfiguration.class,
        ToolCallingAutoConfiguration.class,
        ChatClientAutoConfiguration.class
    })
    static class Program {}

    private static TestGenerationContext process() {
        TestGenerationContext generation = new TestGenerationContext(Program.class);
        AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext();
        context.register(Program.class);
        new ApplicationContextAotGenerator().processAheadOfTime(context, generation);
        generation.writeGeneratedContent();
        return generation;
    }

    /** Opens no model before the program runs, and then runs as from its own classes. */
    @Test
    @CompileWithForkedClassLoader
    void theGeneratedProgramRuns() {
        try (ScriptedServer server = new ScriptedServer()) {
            server.say(List.of("Hello World"));
            TestCompiler.forSystem().with(process()).compile(compiled -> {
                try (GenericApplicationContext program = new GenericApplicationContext()) {
                    TestPropertyValues.of(server.springProperties()).applyTo(program);
                    @SuppressWarnings("unchecked")
                    ApplicationContextInitializer<GenericApplicationContext> initializer =
                            compiled.getInstance(ApplicationContextInitializer.class);
                    initializer.initialize(program);
                    program.refresh();
                    ChatClient client = program.getBean(ChatClient.Builder.class).build();
                    assertThat(client.prompt("hi").call().content()).isEqualTo("Hello World");
                }
            });
        }
    }

    @Test
    void theHintsHaveTheProperties() {
        RuntimeHints hints = process().getRuntimeHints();
        assertThat(reflection().onType(LlbProperties.class)).accepts(hints);
        assertThat(reflection().onType(LlbProperties.Chat.class)).accepts(hints);
    }

    @Test
    void theHintsHaveTheLibrary() throws Exception {
        RuntimeHints hints = process().getRuntimeHints();
        assertThat(resource().forResource("dev/llb/natives/linux-x86_64/libllb.so")).accepts(hints);
        assertThat(reflection().onMethodInvocation("dev.llb.PanamaAccess", "load")).accepts(hints);
        assertThat(hints.jni().getTypeHint(TypeReference.of("dev.llb.Callback")).methods())
                .extracting(ExecutableHint::getName)
                .containsExactlyInAnyOrder("receive", "fail");
    }
}
