/**
 * Local GGUF models for LangChain4j. Anything that is not {@code @Nullable} is never null. Models
 * and parameters are thread-safe; builders are not.
 */
@NullMarked
package dev.llb.langchain4j;

import org.jspecify.annotations.NullMarked;
