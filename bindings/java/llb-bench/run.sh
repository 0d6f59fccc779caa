#!/bin/sh
# Measures what a call from Java costs over the C call, through JNI and through Panama (a minute
# each). Needs JAVA_HOME, LLB_LIBRARY and LLB_TEST_MODELS, as the tests do, and the built module:
# mvn -Pbench -DskipITs package.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=$here/target
model=$LLB_TEST_MODELS/text.gguf
requests=$target/requests
mkdir -p "$requests"

# Replies of about 1 KB.
words() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "word%d ", i }'; }
printf '{"chat_template":"{%% for m in messages %%}{{ m.content }}{%% endfor %%}","messages":[{"role":"user","content":"%s"}]}' \
    "$(words 120)" >"$requests/render.json"
printf '{"messages":[{"role":"user","content":"hi"}]}' >"$requests/explain.json"

ln -sf "$LLB_LIBRARY" "$target/libllb.so.1"
"${CC:-cc}" -O2 -I"$here/../../../include" "$here/src/main/c/call_bench.c" "$LLB_LIBRARY" \
    -Wl,-rpath,"$target" -o "$target/call_bench"
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg 2>/dev/null)"
"$target/call_bench" "$model" "$requests"
for access in jni panama; do
    "$JAVA_HOME/bin/java" --enable-native-access=ALL-UNNAMED -Dmodel="$model" \
        -Drequests="$requests" -Ddev.llb.access=$access -cp "$target/classes:$target/lib/*" \
        org.openjdk.jmh.Main CallBench 2>/dev/null |
        awk -v access=$access '
            /^# Benchmark: / { name = $3; sub(/.*\./, "", name); least = 1e18; most = 0; sum = n = 0 }
            /^Iteration / { sum += $3; n++; if ($3 < least) least = $3; if ($3 > most) most = $3 }
            /^Result / {
                printf "%-8s %-7s %10.0f ns/op  (%.0f to %.0f)\n", name, access, sum / n, least, most
            }'
done
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg 2>/dev/null)"
