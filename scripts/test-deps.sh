#!/bin/sh
# Installs the Debian programs that the tests use; fast if they are installed.
# Usage: test-deps.sh  (needs root and apt-get; otherwise it lists the missing programs and continues)
set -eu
missing=
want() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
want mariadbd mariadb-server-core
want mariadb mariadb-client-core
want redis-server redis-server
want nats-server nats-server
want cc gcc
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
want ps procps
want ip iproute2
want openssl openssl
want podman podman
want newuidmap uidmap
want setpriv util-linux
want curl curl
want chromium chromium
want chromium-headless-shell chromium-headless-shell
want zsh zsh
want containerd containerd
want runc runc
[ -x /usr/lib/cni/bridge ] || missing="$missing containernetworking-plugins"
[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || missing="$missing busybox-static"
want iptables iptables
want conntrack conntrack
want qemu-aarch64-static qemu-user-static
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086
"$(dirname -- "$0")/debian.sh" $missing || echo "dayfly: tests that need these are skipped or fail:$missing" >&2
