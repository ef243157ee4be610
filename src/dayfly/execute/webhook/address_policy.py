"""Which addresses a webhook may be sent to: those that everybody on the Internet can reach, and no others. Pure.

An IPv6 address that carries an IPv4 one leads there (or may, behind a translator), so the one inside counts as well.
"""

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Global by their numbers, and yet a cloud's own: they tell a machine its secrets.
_METADATA = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "169.254.169.254")))
_MAPPED = ipaddress.ip_network("::ffff:0:0/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_TRANSLATED = (ipaddress.ip_network("::ffff:0:0:0/96"), ipaddress.ip_network("64:ff9b:1::/48"))
# Of a network without IPv4 every name leads there: what is inside decides.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SIX_TO_FOUR = ipaddress.ip_network("2002::/16")
_TEREDO = ipaddress.ip_network("2001::/32")
# Not all versions of `ipaddress` know of each of these that nobody routes them.
_NOWHERE = tuple(
    map(
        ipaddress.ip_network,
        ("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4"),
    )
) + tuple(map(ipaddress.ip_network, ("100::/64", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10")))


def refusal(text: str) -> str:
    """Why nothing may be sent to that address; empty if it may."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "is no address"
    if address in _NAT64:
        address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    for each in (address, *_inside(address)):
        if problem := _problem(each):
            return problem if each == address else f"carries {each}, which {problem}"
    return ""


def _problem(address: Address) -> str:
    if address in _METADATA:
        return "tells a machine what it is (metadata)"
    for word in ("unspecified", "loopback", "link_local", "multicast", "private", "reserved"):
        if getattr(address, f"is_{word}"):
            return f"is {word.replace('_', '-')}"
    if not address.is_global or any(address in network for network in _NOWHERE):
        return "is not global"
    return ""


def _inside(address: Address) -> list[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _MAPPED or any(address in network for network in _TRANSLATED):
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
