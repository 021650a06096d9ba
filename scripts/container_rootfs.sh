#!/usr/bin/env bash
# container_rootfs.sh INGOT FOLDER: the files of a small container image in FOLDER: the `ingot` executable and the
# libraries it is linked with, and nothing else. docs/container.md says how an image is made of it.
set -euo pipefail
program="$(realpath "$1")"
folder="$2"

rm -rf "$folder"
mkdir -p "$folder/usr/bin" "$folder/tmp" "$folder/lib64"
chmod 1777 "$folder/tmp"
cp "$program" "$folder/usr/bin/ingot"
# The third word of ldd's lines is a library's path; the loader's line has the path first.
ldd "$program" | awk '/=> \//{print $3} /^\t\//{print $1}' | while read -r library; do
  mkdir -p "$folder$(dirname "$library")"
  cp -L "$library" "$folder$library"
done
