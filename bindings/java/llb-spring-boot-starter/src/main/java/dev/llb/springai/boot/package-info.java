/** Auto-configuration of llb for Spring Boot, by the properties {@code spring.ai.llb.*}. */
@NullMarked
package dev.llb.springai.boot;

import org.jspecify.annotations.NullMarked;
