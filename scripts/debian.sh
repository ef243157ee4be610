#!/bin/sh
# Installs packages from Debian, without starting the services that some of them bring.
# Usage: debian.sh PACKAGE...  (needs root and apt-get; a line that says so and code 1 where they are not)
# Several calls wait for each other, and for another program that holds apt's locks.
set -eu
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "dayfly: installing needs root and apt-get; not installed: $*" >&2
    exit 1
fi
# One at a time on this machine, whatever the checkout; apt and dpkg have locks of their own beside it.
exec 9</var/lib/dpkg
flock 9

# Debian's own way to keep services from starting. A machine's own answer (containers have one) comes back at the end,
# also after a call that was killed before it could put it back.
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
    echo "dayfly: apt-get could not install $*; its last words are above" >&2
    exit 1
fi
rm -f "$log"
