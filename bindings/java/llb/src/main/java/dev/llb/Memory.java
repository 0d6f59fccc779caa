package dev.llb;

import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** What a chat takes in memory, in bytes, on all devices. */
public final class Memory extends JsonReply {

    Memory(Map<String, Object> raw) {
        super(raw);
    }

    /** The context, in tokens. */
    public int contextLength() {
        return (int) Json.integer(raw.get("n_ctx"));
    }

    /** The number of chats that are decoded together. */
    public int parallel() {
        return (int) Json.integer(raw.get("n_parallel"));
    }

    /** Whether all chats share the context; if not, each has one of its own. */
    public boolean sharesContext() {
        return Json.bool(raw.get("kv_unified"));
    }

    /** The number of layers on GPUs; null if llama.cpp decides. */
    public @Nullable Integer gpuLayers() {
        return number(raw.get("n_gpu_layers"));
    }

    /**
     * The number of layers whose experts are in main memory; null without GPUs, or without experts.
     */
    public @Nullable Integer cpuMoe() {
        return number(raw.get("n_cpu_moe"));
    }

    /** The tensors of the model. */
    public long weights() {
        return Json.integer(raw.get("weights"));
    }

    /** The KV cache, and the states of recurrent layers. */
    public long cache() {
        return Json.integer(raw.get("cache"));
    }

    /** The buffers of a decode. */
    public long compute() {
        return Json.integer(raw.get("compute"));
    }

    /** The sum of these. */
    public long total() {
        return Json.integer(raw.get("total"));
    }

    /**
     * Whether that much is free now, without a reserve; false, too, if it is unknown what is free.
     */
    public boolean fits() {
        return Json.bool(raw.get("fits"));
    }

    /**
     * The largest context with which everything fits now, in tokens; null if none does, if it is
     * unknown what is free, or in one of several contexts.
     */
    public @Nullable Integer largestContextLength() {
        return number(raw.get("largest_n_ctx"));
    }

    /** The same for each device. */
    public List<Device> devices() {
        return Json.objects(raw.get("devices")).stream().map(Device::of).toList();
    }

    /** What was asked for with {@link Llb#memory(ChatOptions, List)}, in the same order. */
    public List<Context> contexts() {
        return Json.objects(raw.get("contexts")).stream().map(Context::of).toList();
    }

    /**
     * A part of it.
     *
     * @param name {@code CPU}, which is main memory, or llama.cpp's name
     * @param layers the number of layers on it, the output included; null if llama.cpp decides
     * @param free what is free there now, or null if the system does not tell
     */
    public record Device(
            String name,
            @Nullable Integer layers,
            long weights,
            long cache,
            long compute,
            long total,
            @Nullable Long free) {

        static Device of(Map<String, Object> device) {
            return new Device(
                    Json.string(device.get("name")),
                    number(device.get("layers")),
                    Json.integer(device.get("weights")),
                    Json.integer(device.get("cache")),
                    Json.integer(device.get("compute")),
                    Json.integer(device.get("total")),
                    device.get("free") instanceof Number free ? free.longValue() : null);
        }
    }

    /**
     * One of several contexts of a model.
     *
     * @param memory what a chat with it takes, or null if llama.cpp cannot make it
     * @param failure why it cannot, or null
     */
    public record Context(@Nullable Memory memory, @Nullable LlbException failure) {

        static Context of(Map<String, Object> reply) {
            return "error".equals(reply.get("type"))
                    ? new Context(null, LlbException.of(Json.object(reply.get("error")), List.of()))
                    : new Context(new Memory(reply), null);
        }

        /** The memory. Throws the failure, if there is one. */
        public Memory orThrow() {
            if (failure != null) {
                throw failure;
            }
            return memory;
        }
    }

    private static @Nullable Integer number(@Nullable Object value) {
        return value instanceof Number number ? number.intValue() : null;
    }
}
