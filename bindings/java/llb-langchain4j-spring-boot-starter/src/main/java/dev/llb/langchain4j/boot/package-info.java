/** Auto-configuration of LangChain4j's models by the properties {@code langchain4j.llb.*}. */
@NullMarked
package dev.llb.langchain4j.boot;

import org.jspecify.annotations.NullMarked;
