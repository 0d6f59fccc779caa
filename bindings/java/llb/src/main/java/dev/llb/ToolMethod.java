package dev.llb;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** A method that the model may call; see {@link ToolSet#of}. */
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface ToolMethod {

    /** What the tool does and when to call it. */
    String value();

    /** The name of the tool. Default: that of the method. */
    String name() default "";
}
