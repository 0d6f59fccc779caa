package dev.llb;

import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * What a chat takes in memory, in bytes, on all devices.
 *
 * @param contextLength the context, in tokens
 * @param parallel the number of chats that are decoded together
 * @param sharesContext whether all chats share the context; if not, each has one of its own
 * @param gpuLayers the number of layers on GPUs; null if llama.cpp decides
 * @param cpuMoe the number of layers whose experts are in main memory; null without GPUs, or
 *     without experts
 * @param weights the tensors of the model
 * @param cache the KV cache, and the states of recurrent layers
 * @param compute the buffers of a decode
 * @param total the sum of these
 * @param fits whether that much is free now, without a reserve; false, too, if it is unknown what
 *     is free
 * @param largestContextLength the largest context with which everything fits now, in tokens; null
 *     if none does, if it is unknown what is free, or in one of several contexts
 * @param devices the same for each device
 * @param contexts what was asked for with {@link Llb#memory(ChatOptions, List)}, in the same order
 * @param raw the whole reply
 */
public record Memory(
        int contextLength,
        int parallel,
        boolean sharesContext,
        @Nullable Integer gpuLayers,
        @Nullable Integer cpuMoe,
        long weights,
        long cache,
        long compute,
        long total,
        boolean fits,
        @Nullable Integer largestContextLength,
        List<Device> devices,
        List<Context> contexts,
        Map<String, Object> raw) {

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
                    : new Context(Memory.of(reply), null);
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

    static Memory of(Map<String, Object> reply) {
        return new Memory(
                (int) Json.integer(reply.get("n_ctx")),
                (int) Json.integer(reply.get("n_parallel")),
                Json.bool(reply.get("kv_unified")),
                number(reply.get("n_gpu_layers")),
                number(reply.get("n_cpu_moe")),
                Json.integer(reply.get("weights")),
                Json.integer(reply.get("cache")),
                Json.integer(reply.get("compute")),
                Json.integer(reply.get("total")),
                Json.bool(reply.get("fits")),
                number(reply.get("largest_n_ctx")),
                Json.objects(reply.get("devices")).stream().map(Device::of).toList(),
                Json.objects(reply.get("contexts")).stream().map(Context::of).toList(),
                reply);
    }
}
