#!/bin/sh
# Installs maru: install.sh ADDRESS [DIRECTORY]
# ADDRESS is where the release's files are (the tarballs and SHA256SUMS), DIRECTORY where
# the binary goes (default: ~/.local/bin). Needs curl or wget, tar and sha256sum or shasum.
set -eu
fail() { echo "maru: $*" >&2; exit 1; }
[ $# -ge 1 ] || fail "usage: install.sh ADDRESS [DIRECTORY]"
address=${1%/}
directory=${2:-$HOME/.local/bin}

case $(uname -s) in
Linux) system=unknown-linux-musl ;;
Darwin) system=apple-darwin ;;
*) fail "there is no binary for $(uname -s); build maru from source (cargo build --release)" ;;
esac
case $(uname -m) in
x86_64 | amd64) machine=x86_64 ;;
aarch64 | arm64) machine=aarch64 ;;
*) fail "there is no binary for $(uname -m); build maru from source (cargo build --release)" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
get() {
    case $1 in
    file://*) cp "${1#file://}" "$2" ;;
    *) if command -v curl >/dev/null; then curl -fsSL "$1" -o "$2"; else wget -q "$1" -O "$2"; fi ;;
    esac || fail "could not download $1"
}
get "$address/SHA256SUMS" "$work/SHA256SUMS"
file=$(awk '{print $2}' "$work/SHA256SUMS" | grep -E "^maru-[^/]*-$machine-$system\.tar\.gz$") ||
    fail "$address has no binary for $machine-$system"
get "$address/$file" "$work/$file"
(
    cd "$work"
    grep " $file\$" SHA256SUMS >sum
    if command -v sha256sum >/dev/null; then sha256sum -c sum; else shasum -a 256 -c sum; fi
) >/dev/null || fail "the checksum of $file is wrong; nothing was installed"
tar -xzf "$work/$file" -C "$work"
mkdir -p "$directory"
# Over a running binary only a rename works.
cp "$work"/maru-*/maru "$directory/maru.new"
chmod 755 "$directory/maru.new"
mv "$directory/maru.new" "$directory/maru"
echo "maru is installed: $directory/maru"
case ":$PATH:" in
*":$directory:"*) echo "Start it with: maru" ;;
*) echo "Start it with: $directory/maru (or add $directory to your PATH)" ;;
esac
