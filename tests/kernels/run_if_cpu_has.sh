#!/bin/sh
# run_if_cpu_has.sh "flag;flag" program argument...: runs the program, or says that the CPU lacks a flag (exit code 77).
needs="$1"
shift
for flag in $(echo "$needs" | tr ';' ' '); do
  grep -qw "$flag" /proc/cpuinfo || { echo "skipped: this CPU has no $flag"; exit 77; }
done
exec "$@"
