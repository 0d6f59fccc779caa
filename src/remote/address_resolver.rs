//! Lets a connection go to one address of a name.

use std::net::SocketAddr;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Connects to one address, whatever the name.
#[derive(Debug)]
pub(super) struct AddressResolver(pub(super) Option<SocketAddr>);

impl Resolver for AddressResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let Some(address) = self.0 else {
            return DefaultResolver::default().resolve(uri, config, timeout);
        };
        let mut only = self.empty();
        only.push(address);
        Ok(only)
    }
}
