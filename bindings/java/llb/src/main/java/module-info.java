/** Runs local GGUF chat models in this process, through the shared library {@code llb}. */
module dev.llb {
    requires com.google.gson;
    requires static transitive org.jspecify;

    exports dev.llb;
}
