//! Classes of IP addresses that decide whether maru may connect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether `address` is never allowed: unspecified, multicast, link-local, reserved, a cloud
/// metadata service, or IPv4 in disguise.
pub(super) fn is_forbidden_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            let is_metadata =
                it == Ipv4Addr::new(100, 100, 100, 200) || it == Ipv4Addr::new(192, 0, 0, 192);
            it.octets()[0] == 0
                || it.is_link_local()
                || it.is_multicast()
                || it.octets()[0] >= 240
                || is_metadata
        }
        IpAddr::V6(it) => {
            let first = it.segments()[0];
            let is_link_local = first & 0xffc0 == 0xfe80;
            let is_metadata = it == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
            it.is_unspecified()
                || it.is_multicast()
                || is_link_local
                || is_metadata
                || embeds_ipv4(it)
        }
    }
}

/// Whether `address` is mapped, compatible, translated (NAT64) or tunnelled (6to4, Teredo)
/// IPv4.
fn embeds_ipv4(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let is_mapped_or_compatible =
        parts[..5].iter().all(|it| *it == 0) && !address.is_loopback() && !address.is_unspecified();
    is_mapped_or_compatible
        || parts[..2] == [0x64, 0xff9b]
        || parts[0] == 0x2002
        || parts[..2] == [0x2001, 0]
}

/// Whether `address` belongs to a private, shared or benchmarking network.
pub(super) fn is_private_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            let [a, b, c, _] = it.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            let is_benchmark = a == 198 && (18..20).contains(&b);
            it.is_private() || is_shared || is_benchmark || (a, b, c) == (192, 0, 0)
        }
        IpAddr::V6(it) => {
            it.segments()[0] & 0xfe00 == 0xfc00 || it.segments()[0] & 0xffc0 == 0xfec0
        }
    }
}
