//! Which client a request comes from: its address. The key does not tell clients apart, because all
//! of them send the same one.

use std::net::{IpAddr, Ipv6Addr};

/// A client. Of an IPv6 address only the network counts, because one machine has many addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    pub(super) fn new(address: IpAddr) -> Client {
        const NETWORK: u128 = !0 << 64;
        Client(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                Ipv6Addr::from_bits(address.to_bits() & NETWORK).into()
            }
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn client(address: &str) -> Client {
        Client::new(address.parse().expect("an address"))
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:10.0.0.1"), client("10.0.0.1"));
        assert_ne!(client("10.0.0.1"), client("10.0.0.2"));
        assert_ne!(client("::1"), client("::2"));
    }
}
