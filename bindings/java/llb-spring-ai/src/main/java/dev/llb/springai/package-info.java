/**
 * Local GGUF models for Spring AI. Anything that is not {@code @Nullable} is never null. Models and
 * options are thread-safe; builders are not.
 */
@NullMarked
package dev.llb.springai;

import org.jspecify.annotations.NullMarked;
