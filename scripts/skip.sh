#!/bin/sh
# scripts/skip.sh WHAT WHY: say that a part is skipped; a failure where LLB_REQUIRE_ALL says that all must run.
if [ -n "${LLB_REQUIRE_ALL:-}" ]; then
    echo "SKIPPED, and LLB_REQUIRE_ALL is set: $1: $2" >&2
    exit 1
fi
echo "SKIPPED: $1: $2"
