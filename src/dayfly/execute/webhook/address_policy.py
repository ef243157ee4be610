"""The policy for addresses of webhooks: only addresses that are reachable on the public Internet. Pure.

An embedded IPv4 address in an IPv6 address is checked too, because a gateway may translate it.
"""

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Metadata services of clouds, which return credentials. Some of these addresses count as global.
_METADATA = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "169.254.169.254")))
_MAPPED = ipaddress.ip_network("::ffff:0:0/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_TRANSLATION_PREFIXES = (ipaddress.ip_network("::ffff:0:0:0/96"), ipaddress.ip_network("64:ff9b:1::/48"))
# In a network without IPv4, DNS64 returns such addresses for all names, so only the embedded address is checked.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SIX_TO_FOUR = ipaddress.ip_network("2002::/16")
_TEREDO = ipaddress.ip_network("2001::/32")
# Unroutable networks that some versions of `ipaddress` treat as global.
_UNROUTABLE = tuple(
    map(
        ipaddress.ip_network,
        ("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4"),
    )
) + tuple(map(ipaddress.ip_network, ("100::/64", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10")))


def why_refused(text: str) -> str:
    """Return why the address is refused; empty if it is allowed."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "is not an IP address"
    if address in _NAT64:
        address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    for each in (address, *_embedded(address)):
        if problem := _problem(each):
            return problem if each == address else f"contains {each}, which {problem}"
    return ""


def _problem(address: Address) -> str:
    if address in _METADATA:
        return "is a metadata service"
    for word in ("unspecified", "loopback", "link_local", "multicast", "private", "reserved"):
        if getattr(address, f"is_{word}"):
            return f"is {word.replace('_', '-')}"
    if not address.is_global or any(address in network for network in _UNROUTABLE):
        return "is not global"
    return ""


def _embedded(address: Address) -> list[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _MAPPED or any(address in network for network in _TRANSLATION_PREFIXES):
        return [low]
    if address in _COMPATIBLE and int(address) > 0xFFFF:
        return [low]
    if address in _SIX_TO_FOUR:
        return [ipaddress.IPv4Address(int(address) >> 80 & 0xFFFFFFFF)]
    if address in _TEREDO:
        return [
            ipaddress.IPv4Address(~int(address) & 0xFFFFFFFF),
            ipaddress.IPv4Address(int(address) >> 64 & 0xFFFFFFFF),
        ]
    return []
