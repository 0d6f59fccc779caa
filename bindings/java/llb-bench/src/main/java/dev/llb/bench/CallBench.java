package dev.llb.bench;

import dev.llb.ChatOptions;
import dev.llb.Llb;
import dev.llb.LlbChat;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/**
 * Calls with a reply of 1 KB. {@code call_bench.c} makes the same calls in C. The system properties
 * {@code model} and {@code requests} name the model and the folder with the requests.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 2)
@Measurement(iterations = 10, time = 1)
@Fork(1)
public class CallBench {

    private String render;
    private String explain;
    private LlbChat chat;

    @Setup
    public void open() throws IOException {
        Path requests = Path.of(System.getProperty("requests"));
        render = Files.readString(requests.resolve("render.json"));
        explain = Files.readString(requests.resolve("explain.json"));
        Path model = Path.of(System.getProperty("model"));
        chat = LlbChat.open(ChatOptions.builder(model).build());
    }

    @TearDown
    public void close() {
        chat.close();
    }

    @Benchmark
    public String render() {
        return Llb.templateRenderJson(render);
    }

    @Benchmark
    public String explain() {
        return chat.explainJson(explain);
    }
}
