#!/bin/sh
# g++ for Inductor, which writes down what it compiles. $COMPILER_DOES: work, fail, or kill (half a library, and the job).
out=
previous=
for word in "$@"; do
    [ "$previous" != -o ] || out=$word
    previous=$word
done
case "$*" in
*.cpp*) echo "$*" >>"$COMPILER_CALLS" ;;
*) exec g++ "$@" ;;
esac
case $COMPILER_DOES in
work) exec g++ "$@" ;;
fail) exit 1 ;;
esac
# Killed as a whole, with the linker half-way. What asks for the instructions of the processor is small, and comes first.
g++ "$@" || exit 1
case $out in
*.main.so)
    head -c 5000 "$out" >"$out.half" && cat "$out.half" >"$out" && rm "$out.half"
    kill -KILL "$(cat "$JOB_PID")"
    ;;
esac
