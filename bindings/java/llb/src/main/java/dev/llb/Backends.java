package dev.llb;

import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The kernels and devices with which the chats of this process compute.
 *
 * @param architecture the architecture of the processor, such as {@code x86_64}
 * @param features the features of the processor that variants need
 * @param name the variant that computes, or would; null if the processor can run none
 * @param inUse whether a chat has been opened, so that the variant is chosen
 * @param backends the variants found, the fastest first, and then what cannot be used
 * @param devices the names of the devices, such as {@code CPU}
 * @param deviceFiles the files of devices that were found
 * @param raw the whole reply, with the folders and reasons
 */
public record Backends(
        @Nullable String architecture,
        List<String> features,
        @Nullable String name,
        boolean inUse,
        List<Backend> backends,
        List<String> devices,
        List<Backend> deviceFiles,
        Map<String, Object> raw) {

    /**
     * A variant of the kernels, or a file of devices.
     *
     * @param name its name, such as {@code haswell} or {@code vulkan}; null if its file does not
     *     tell
     * @param file its file, or null for the kernels in the library
     * @param usable whether this machine can run it
     * @param reason why it is not used, or null
     */
    public record Backend(
            @Nullable String name, @Nullable String file, boolean usable, @Nullable String reason) {

        static Backend of(Map<String, Object> backend) {
            return new Backend(
                    Json.string(backend.get("name")),
                    Json.string(backend.get("file")),
                    Json.bool(backend.get("usable")),
                    Json.string(backend.get("reason")));
        }
    }

    static Backends of(Map<String, Object> reply) {
        Map<String, Object> processor = Json.object(reply.get("processor"));
        Map<String, Object> chosen = Json.object(reply.get("backend"));
        return new Backends(
                Json.string(processor.get("architecture")),
                Json.strings(processor.get("features")),
                Json.string(chosen.get("name")),
                Json.bool(chosen.get("in_use")),
                backends(reply.get("backends")),
                Json.objects(reply.get("devices")).stream()
                        .map(device -> Json.string(device.get("name")))
                        .toList(),
                backends(reply.get("device_files")),
                reply);
    }

    private static List<Backend> backends(@Nullable Object list) {
        return Json.objects(list).stream().map(Backend::of).toList();
    }
}
