/**
 * Runs local GGUF chat models in this process, through the shared library {@code llb}.
 *
 * <p>{@link dev.llb.LlbChat} is a conversation, {@link dev.llb.LlbModel} a model for many threads,
 * {@link dev.llb.LlbEmbedder} a model that makes vectors, and {@link dev.llb.Llb} has what needs
 * none of them. Anything that is not {@code @Nullable} is never null. Records and options are
 * immutable and thread-safe; builders are not thread-safe.
 */
@NullMarked
package dev.llb;

import org.jspecify.annotations.NullMarked;
