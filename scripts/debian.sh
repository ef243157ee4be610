#!/bin/sh
# Installs packages from Debian, without starting services.
# Usage: debian.sh PACKAGE...  (without root or apt-get: a message and exit code 1)
# Parallel calls wait for each other, and for another program that holds apt's locks.
set -eu
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "dayfly: installing needs root and apt-get; not installed: $*" >&2
    exit 1
fi
# One call at a time on this machine, for all checkouts; apt and dpkg have separate locks.
exec 9</var/lib/dpkg
flock 9

# Debian's method to keep services from starting. An existing policy (containers have one) is restored at the end, or by the
# next call if this one is killed.
policy=/usr/sbin/policy-rc.d
restore() {
    rm -f "$policy"
    if [ -e "$policy.aside" ]; then mv "$policy.aside" "$policy"; fi
}
trap restore EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if [ -e "$policy" ] && [ ! -e "$policy.aside" ]; then mv "$policy" "$policy.aside"; fi
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

echo "dayfly: installing from Debian: $*" >&2
log=$(mktemp)
if ! { apt-get update -qq -o DPkg::Lock::Timeout=600 &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600 "$@"; } \
    >"$log" 2>&1 9<&- </dev/null; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    echo "dayfly: apt-get could not install $*; see its output above" >&2
    exit 1
fi
rm -f "$log"
