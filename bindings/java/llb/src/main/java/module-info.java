/** Runs local GGUF chat models in this process, through the shared library {@code llb}. */
module dev.llb {
    requires com.google.gson;
    // For pictures in memory only.
    requires static transitive java.desktop;
    requires static transitive org.jspecify;

    exports dev.llb;
}
