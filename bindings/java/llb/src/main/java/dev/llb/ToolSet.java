package dev.llb;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Parameter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiConsumer;
import java.util.function.Function;

/**
 * Tools that run in Java: annotated methods, and functions with a record as parameter. {@link
 * LlbChat#run} calls them. A set is immutable, so it is thread-safe if its tools are.
 *
 * <p>Parameters have the types of {@link LlbChat#infer(ChatRequest, Class)}. A string result is
 * passed to the model unchanged, any other result as JSON: records, maps, collections, arrays, and
 * the values of {@code java.time} as text. {@code void} is {@code "done"}.
 */
public final class ToolSet {

    private record Entry(Tool tool, Function<Map<String, Object>, Object> run) {}

    /** Causes can form a circle. */
    private static final int MAX_LOGGED_CAUSES = 8;

    private final Map<String, Entry> entries;
    private final BiConsumer<ToolCall, Exception> onFailure;

    private ToolSet(Map<String, Entry> entries, BiConsumer<ToolCall, Exception> onFailure) {
        this.entries = entries;
        this.onFailure = onFailure;
    }

    /**
     * Returns the methods of these objects, and of their superclasses, that have {@link
     * ToolMethod}, in the order of their names. Their parameters need names: compile with
     * {@code -parameters}, or give the method one record.
     *
     * @throws IllegalArgumentException if there is no such method, a name occurs twice, or a
     *     parameter has no name or schema
     */
    public static ToolSet of(Object... objects) {
        ToolSet tools = empty();
        for (Object object : objects) {
            List<Method> methods = toolMethods(object.getClass());
            if (methods.isEmpty()) {
                throw new IllegalArgumentException(
                        object.getClass().getName() + " has no method with @ToolMethod");
            }
            for (Method method : methods) {
                tools = tools.with(entry(object, method, method.getAnnotation(ToolMethod.class)));
            }
        }
        return tools;
    }

    /**
     * The methods of a class with the annotation. The JVM lists methods in any order, but the
     * prompt must be the same in every run. A proxy overrides methods without their annotations,
     * so superclasses count. An overridden method that has the annotation itself replaces that of
     * the superclass.
     */
    private static List<Method> toolMethods(Class<?> type) {
        Map<String, Method> found = new LinkedHashMap<>();
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            Arrays.stream(at.getDeclaredMethods())
                    .filter(method -> method.isAnnotationPresent(ToolMethod.class))
                    // Bridge methods have the annotations of the methods that they call.
                    .filter(method -> !method.isBridge())
                    .sorted(Comparator.comparing(Method::getName))
                    .forEach(method -> found.putIfAbsent(signature(method), method));
        }
        return List.copyOf(found.values());
    }

    private static String signature(Method method) {
        return method.getName() + Arrays.toString(method.getParameterTypes());
    }

    /** Returns these tools and one more: a function whose arguments are those of a record. */
    public <A extends Record> ToolSet with(
            String name, String description, Class<A> arguments, Function<A, ?> run) {
        Tool tool = new Tool(name, description, TypeSchema.of(arguments));
        return with(new Entry(
                tool,
                values -> run.apply(arguments.cast(TypeSchema.read(values, arguments, name)))));
    }

    /** Returns an empty set, to add functions to. */
    public static ToolSet empty() {
        return new ToolSet(Map.of(), ToolSet::log);
    }

    /**
     * Returns these tools with a listener of failures: each failed call and its exception, before
     * the model gets the message. If the listener throws, the run ends with its exception. Without
     * a listener, a failure is logged as a warning, without the message of the exception, which may
     * quote the conversation.
     */
    public ToolSet onFailure(BiConsumer<ToolCall, Exception> listener) {
        return new ToolSet(entries, Objects.requireNonNull(listener, "listener"));
    }

    /** The tools, for a request. */
    public List<Tool> tools() {
        return entries.values().stream().map(Entry::tool).toList();
    }

    /**
     * Runs a call and returns the message with its result. A failure is a result too, so that the
     * model can correct itself: {@code error: } and the message of the exception. An interrupt
     * stays pending and cancels the next request.
     */
    public Message call(ToolCall call) {
        try {
            Entry entry = entries.get(call.name());
            if (entry == null) {
                throw new IllegalArgumentException("no tool is named " + call.name());
            }
            Object result = entry.run().apply(call.argumentsAsMap());
            return Message.tool(call, result instanceof String text ? text : Json.write(result));
        } catch (Exception e) {
            if (e instanceof InterruptedException) {
                Thread.currentThread().interrupt();
            }
            onFailure.accept(call, e);
            String message = e.getMessage() != null ? e.getMessage() : e.getClass().getSimpleName();
            return Message.tool(call, "error: " + message);
        }
    }

    private static void log(ToolCall call, Exception failure) {
        System.getLogger("dev.llb").log(
                System.Logger.Level.WARNING,
                "a call of the tool " + call.name() + " failed; ToolSet.onFailure receives the"
                        + " exception",
                withoutMessage(failure, MAX_LOGGED_CAUSES));
    }

    /** The types and places of an exception and its causes. */
    private static Throwable withoutMessage(Throwable failure, int causes) {
        Throwable cause = causes == 0 ? null : failure.getCause();
        Throwable shown = new Throwable(
                failure.getClass().getName(),
                cause == null ? null : withoutMessage(cause, causes - 1));
        shown.setStackTrace(failure.getStackTrace());
        return shown;
    }

    private ToolSet with(Entry entry) {
        Map<String, Entry> all = new LinkedHashMap<>(entries);
        if (all.put(entry.tool().name(), entry) != null) {
            throw new IllegalArgumentException("two tools are named " + entry.tool().name());
        }
        return new ToolSet(all, onFailure);
    }

    private static Entry entry(Object object, Method method, ToolMethod annotation) {
        String name = annotation.name().isEmpty() ? method.getName() : annotation.name();
        if (!method.trySetAccessible()) {
            throw new IllegalArgumentException(
                    method + " is not accessible: make it public, or open its package to dev.llb");
        }
        Object target = Modifier.isStatic(method.getModifiers()) ? null : object;
        Parameter[] parameters = method.getParameters();
        if (parameters.length == 1 && parameters[0].getType().isRecord()) {
            Class<? extends Record> type = parameters[0].getType().asSubclass(Record.class);
            Tool tool = new Tool(name, annotation.value(), TypeSchema.of(type));
            return new Entry(
                    tool, values -> invoke(method, target, TypeSchema.read(values, type, name)));
        }
        Map<String, TypeSchema.Member> members = new LinkedHashMap<>();
        for (Parameter parameter : parameters) {
            if (!parameter.isNamePresent()) {
                throw new IllegalArgumentException(
                        method + ": its parameters have no names; compile with -parameters, or use"
                                + " one record");
            }
            Description description = parameter.getAnnotation(Description.class);
            members.put(
                    parameter.getName(),
                    new TypeSchema.Member(parameter.getParameterizedType(), description));
        }
        Tool tool = new Tool(name, annotation.value(), TypeSchema.ofMembers(members, name));
        return new Entry(tool, values -> {
            List<Object> arguments = new ArrayList<>();
            members.forEach((member, of) -> arguments.add(
                    TypeSchema.read(values.get(member), of.type(), name + "." + member)));
            return invoke(method, target, arguments.toArray());
        });
    }

    private static Object invoke(Method method, Object target, Object... arguments) {
        try {
            Object result = method.invoke(target, arguments);
            return method.getReturnType() == void.class ? "done" : result;
        } catch (InvocationTargetException e) {
            throw Callback.<RuntimeException>unchecked(Objects.requireNonNull(e.getCause()));
        } catch (IllegalAccessException e) {
            throw new AssertionError("the method was made accessible", e);
        }
    }
}
