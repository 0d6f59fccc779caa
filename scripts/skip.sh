#!/bin/sh
# scripts/skip.sh WHAT WHY: report that WHAT is skipped. Fails if LLB_REQUIRE_ALL is set.
if [ -n "${LLB_REQUIRE_ALL:-}" ]; then
    echo "SKIPPED, and LLB_REQUIRE_ALL is set: $1: $2" >&2
    exit 1
fi
echo "SKIPPED: $1: $2"
