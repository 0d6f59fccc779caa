import org.jspecify.annotations.NullMarked;

/**
 * Runs local GGUF chat models in this process, through the shared library {@code llb}. Anything
 * that is not {@code @Nullable} is never null.
 */
@NullMarked
module dev.llb {
    requires com.google.gson;
    requires static transitive org.jspecify;

    exports dev.llb;
}
