//! Failed requests to the hub: the error, and whether to try again.

use std::time::Duration;

use super::running::CancelToken;
use crate::error::{Code, Error, Result};

/// A fetch fails after this many failed attempts in a row that gained no byte.
pub(super) const MAX_TRIES: usize = 5;
/// The longest wait that a server may request.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// Why a request failed.
#[derive(Debug)]
pub(super) enum HubFault {
    /// Another attempt would not help.
    Stop(Error),
    /// Another attempt may help. `after` is the wait that the server requests.
    Again { error: Error, after: Option<Duration> },
}

impl HubFault {
    /// A fault after which another attempt may help at once.
    pub(super) fn again(error: Error) -> HubFault {
        HubFault::Again { error, after: None }
    }
}

impl From<Error> for HubFault {
    fn from(error: Error) -> Self {
        HubFault::Stop(error)
    }
}

/// The error `HUB_NETWORK` for a host.
pub(super) fn network(host: &str, problem: impl std::fmt::Display) -> Error {
    Error::new(Code::HubNetwork, format!("{host}: {problem}")).with("host", host)
}

/// The wait before the next attempt. Fails if the server requests a wait that is too long.
pub(super) fn retry_delay(
    tries: usize,
    error: &Error,
    after: Option<Duration>,
) -> Result<Duration> {
    match after {
        Some(after) if after > MAX_WAIT => {
            let message = format!("{}; try again in {} seconds", error.message(), after.as_secs());
            Err(Error::new(error.code(), message).with("retry_after", after.as_secs()))
        }
        Some(after) => Ok(after),
        None => Ok(Duration::from_millis(250) * 2_u32.pow(tries.min(6) as u32)),
    }
}

/// Makes up to `tries` attempts.
pub(super) fn retry<T>(
    cancel: &CancelToken,
    tries: usize,
    mut attempt: impl FnMut() -> Result<T, HubFault>,
) -> Result<T> {
    let mut failed = 0;
    loop {
        cancel.check()?;
        match attempt() {
            Ok(done) => return Ok(done),
            Err(HubFault::Stop(error)) => return Err(error),
            Err(HubFault::Again { error, after }) => {
                failed += 1;
                if failed >= tries {
                    return Err(error);
                }
                cancel.wait(retry_delay(failed - 1, &error, after)?)?;
            }
        }
    }
}
