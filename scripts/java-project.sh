#!/bin/sh
# scripts/java-project.sh MODEL [REPOSITORY]: makes the three Maven projects that bindings/java/README.md
# describes: for the first program, for LangChain4j and for Spring, each with only its two
# dependencies, and runs the programs of the page on each Java from 17 on that is found. The first
# is a Java module, too. Only llb's artifacts are taken from this machine. Everything else is
# downloaded into an empty local repository, target/java-project/m2. Needs JAVA_HOME and
# LLB_LIBRARY, as the build of bindings/java does.
#
# With REPOSITORY, a folder to which `make jars` has deployed the artifacts, nothing is built, and
# only the first program is made and run.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
readme=$root/bindings/java/README.md
work=$root/target/java-project
model=$1
rm -rf "$work"
mkdir -p "$work"

if [ -n "${2:-}" ]; then
    ln -s "$2" "$work/repository"
else
    mvn -q -B -f "$root/bindings/java/pom.xml" deploy -DskipITs -Dmaven.javadoc.skip \
        -DaltDeploymentRepository="llb::file://$work/repository"
fi

# after HEADING LANGUAGE: print the first block of code in that language after a heading.
after() {
    awk -v heading="## $1" -v fence="\`\`\`$2" '
        $0 == heading { there = 1 }
        inside && /^```/ { exit }
        inside { print }
        there && $0 == fence { inside = 1 }' "$readme"
}

# project NAME HEADING MAIN_FILE XML [LINE]: make a project and build it. XML is added to the POM,
# LINE to the beginning of the program.
project() {
    folder=$work/$1
    mkdir -p "$(dirname "$folder/src/main/java/$3")"
    { echo "${5:-}" && after "$2" java; } >"$folder/src/main/java/$3"
    cat >"$folder/pom.xml" <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  $4
  <groupId>org.example</groupId>
  <artifactId>$1</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <java.version>17</java.version>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <repositories>
    <repository><id>llb</id><url>file://$work/repository</url></repository>
  </repositories>
  <dependencies>
$(after "$2" xml)
  </dependencies>
</project>
END
    mvn -q -B -f "$folder/pom.xml" -Dmaven.repo.local="$work/m2" package \
        dependency:copy-dependencies -DoutputDirectory="$folder/lib"
}

# run_on_each NAME MAIN [ARGUMENT]: run the program on each Java.
run_on_each() {
    for versions in "17 20" "21 21" "22 999"; do
        # shellcheck disable=SC2086 # two words
        home=$("$root/bindings/java/find-jdk.sh" --runtime $versions) ||
            { [ "$versions" = "21 21" ] && home=$("$root/scripts/java-21.sh"); } || {
            "$root/scripts/skip.sh" "$1 on Java $versions" "none was found"
            continue
        }
        echo "$1 on $("$home/bin/java" -version 2>&1 | head -n 1):"
        env -u LLB_LIBRARY XDG_CACHE_HOME="$work/cache" "$home/bin/java" \
            -cp "$work/$1/target/classes:$work/$1/lib/*" "$2" ${3:+"$3"} >"$work/output" 2>&1 ||
            { cat "$work/output" >&2 && exit 1; }
        tail -n 2 "$work/output"
    done
}

mkdir -p "$work/module/src/main/java"
echo 'module org.example.sky { requires dev.llb; }' >"$work/module/src/main/java/module-info.java"
ln -s "$model" "$work/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
cd "$work"
# Maven's default compiler plugin is too old for modules.
compiler=$(grep -A 1 maven-compiler-plugin "$root/bindings/java/pom.xml" | grep version)
project module "The first program" sky/Sky.java "<build><plugins><plugin>
    <artifactId>maven-compiler-plugin</artifactId>
    $compiler
  </plugin></plugins></build>" "package sky;"
run_on_each module sky.Sky
[ -z "${2:-}" ] || exit 0

project langchain4j LangChain4j Weather.java ""
run_on_each langchain4j Weather "$model"

boot=$(sed -n 's|.*<spring-boot.version>\(.*\)</.*|\1|p' "$root/bindings/java/pom.xml")
project spring "Spring AI" weather/Weather.java "<parent>
    <groupId>org.springframework.boot</groupId>
    <artifactId>spring-boot-starter-parent</artifactId>
    <version>$boot</version>
    <relativePath/>
  </parent>"
run_on_each spring weather.Weather "--spring.ai.llb.model=$model"
