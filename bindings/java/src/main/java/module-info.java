/** GGUF chat models in this process, with tools, through the {@code llb} shared library. */
module dev.llb {
    requires com.google.gson;

    exports dev.llb;
}
