//! Exact decimal numbers: 0.1 is a tenth, and 1.0 equals 1.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_traits::{Signed, Zero};
use serde_json::Number;

/// The maximum number of digits, and the largest exponent of ten.
const MAX: usize = 400;

#[derive(Debug, Clone)]
pub(super) struct Decimal {
    digits: BigInt,
    exponent: i64,
}

impl Decimal {
    /// `None` if the number has too many digits, or an exponent that is too large or too small.
    pub(super) fn of(number: &Number) -> Option<Decimal> {
        let text = number.as_str();
        let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.len() + fraction.len() > MAX {
            return None;
        }
        let digits: BigInt = format!("{whole}{fraction}").parse().ok()?;
        if digits.is_zero() {
            return Some(Decimal { digits, exponent: 0 });
        }
        let exponent = power.parse::<i64>().ok()?.checked_sub(fraction.len() as i64)?;
        (exponent.unsigned_abs() <= MAX as u64).then_some(Decimal { digits, exponent })
    }

    /// The digits of both numbers, scaled to one power of ten.
    fn aligned(&self, other: &Decimal) -> (BigInt, BigInt) {
        let exponent = self.exponent.min(other.exponent);
        // The difference is at most twice MAX, as ensured by `of`.
        let scaled =
            |of: &Decimal| &of.digits * BigInt::from(10).pow((of.exponent - exponent) as u32);
        (scaled(self), scaled(other))
    }

    pub(super) fn compare(&self, other: &Decimal) -> Ordering {
        let (a, b) = self.aligned(other);
        a.cmp(&b)
    }

    /// `None` if the divisor is not positive.
    pub(super) fn is_multiple_of(&self, divisor: &Decimal) -> Option<bool> {
        let (a, b) = self.aligned(divisor);
        b.is_positive().then(|| (a % b).is_zero())
    }

    pub(super) fn is_integer(&self) -> bool {
        self.exponent >= 0
            || self.is_multiple_of(&Decimal { digits: BigInt::from(1), exponent: 0 }) == Some(true)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let decimal = |text: &str| Decimal::of(&serde_json::from_str(text).unwrap());
        let (a, b) = (decimal("19.99").unwrap(), decimal("0.01").unwrap());
        assert_eq!(a.is_multiple_of(&b), Some(true));
        assert_eq!(b.is_multiple_of(&a), Some(false));
        assert_eq!(a.compare(&decimal("1999e-2").unwrap()), Ordering::Equal);
        assert_eq!(decimal("-1e3").unwrap().compare(&decimal("-999.5").unwrap()), Ordering::Less);
        assert!(decimal("1.0").unwrap().is_integer() && decimal("1e400").unwrap().is_integer());
        assert!(!decimal("1.5").unwrap().is_integer());
        assert!(decimal("0e99999999999999999999").unwrap().is_integer());
        assert!(decimal("1e99999999999999999999").is_none() && decimal("1e-401").is_none());
        assert_eq!(a.is_multiple_of(&decimal("0").unwrap()), None);
    }
}
