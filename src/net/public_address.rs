//! Addresses of the public internet, and a resolver that finds no others.
//!
//! The addresses are checked when a name is resolved for a connection, so a name that has another
//! address the next time is no way around.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// IPv4 addresses that are not public (IANA's registry of special-purpose addresses, and multicast).
const PRIVATE_V4: [([u8; 4], u32); 15] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];
/// The IPv6 addresses that are assigned for the public internet.
const PUBLIC_V6: ([u16; 2], u32) = ([0x2000, 0], 3);
/// The exceptions: special purposes, documentation, and addresses that contain one of IPv4.
const PRIVATE_V6: [([u16; 2], u32); 4] =
    [([0x2001, 0], 23), ([0x2001, 0x0db8], 32), ([0x2002, 0], 16), ([0x3fff, 0], 20)];
/// Addresses that a gateway of the network translates to those of IPv4 (RFC 6052).
const TRANSLATED: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// Whether an address belongs to the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_in = |(network, length): &([u8; 4], u32)| {
        (address.to_bits() ^ u32::from_be_bytes(*network)) >> (32 - length) == 0
    };
    !PRIVATE_V4.iter().any(is_in)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let is_translated = segments.starts_with(&TRANSLATED);
    if let Some(inner) = address.to_ipv4_mapped() {
        return is_public_v4(inner);
    }
    if is_translated {
        return is_public_v4(Ipv4Addr::from_bits(address.to_bits() as u32));
    }
    let start = u32::from(segments[0]) << 16 | u32::from(segments[1]);
    let is_in = |(network, length): &([u16; 2], u32)| {
        let network = u32::from(network[0]) << 16 | u32::from(network[1]);
        (start ^ network) >> (32 - length) == 0
    };
    is_in(&PUBLIC_V6) && !PRIVATE_V6.iter().any(is_in)
}

/// Resolves names to addresses of the public internet, or to all.
#[derive(Debug)]
pub(crate) struct PublicResolver {
    inner: DefaultResolver,
    allows_private: bool,
}

impl PublicResolver {
    pub(crate) fn new(allows_private: bool) -> PublicResolver {
        PublicResolver { inner: DefaultResolver::default(), allows_private }
    }
}

impl Resolver for PublicResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        if self.allows_private {
            return Ok(found);
        }
        let mut public = self.empty();
        found.iter().filter(|it| is_public(it.ip())).for_each(|address| public.push(*address));
        if public.is_empty() {
            return Err(ureq::Error::Other("its address is not one of the public internet".into()));
        }
        Ok(public)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn public_addresses() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.19.255.255",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::192.168.0.1",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "4000::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
