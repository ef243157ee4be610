#!/bin/sh
# Installs what the tests drive for real and Debian has; quick where it is there already.
# Usage: test-deps.sh  (needs root and apt-get; elsewhere it says what is missing and goes on)
set -eu
missing=
want() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
want podman podman
want setpriv util-linux
want curl curl
want containerd containerd
want runc runc
[ -x /usr/lib/cni/bridge ] || missing="$missing containernetworking-plugins"
[ -x /bin/busybox ] || missing="$missing busybox-static"
want iptables iptables
want conntrack conntrack
want qemu-aarch64-static qemu-user-static
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "dayfly: installing for the tests:$missing" >&2
    apt-get update -qq >&2
    # Servers that a package would start are not ours to run: tests start their own.
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d 2>/dev/null && chmod +x /usr/sbin/policy-rc.d
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    rm -f /usr/sbin/policy-rc.d
else
    echo "dayfly: not installed, so their tests will say so:$missing" >&2
fi
