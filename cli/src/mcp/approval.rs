//! Which calls the user permits.

use std::collections::BTreeSet;

use crate::failure::Result;
use crate::terminal::printable;

pub(super) struct Approval {
    all: bool,
    /// Tools that the user has permitted for good.
    always: BTreeSet<String>,
}

impl Approval {
    /// `all` permits every call without a question.
    pub(super) fn new(all: bool) -> Approval {
        Approval { all, always: BTreeSet::new() }
    }

    pub(super) fn permits_all(&self) -> bool {
        self.all
    }

    /// Asks about every tool again.
    pub(super) fn forget(&mut self) {
        self.always.clear();
    }

    /// Whether a tool may run. `ask` shows a question and returns the answer; no answer is a no.
    pub(super) fn permits(
        &mut self,
        name: &str,
        mut ask: impl FnMut(&str) -> Result<String>,
    ) -> Result<bool> {
        if self.all || self.always.contains(name) {
            return Ok(true);
        }
        let shown = printable(name).replace('\n', " ");
        loop {
            match ask(&format!("run {shown}? y(es), n(o), a(lways): "))?.trim() {
                "y" | "yes" => return Ok(true),
                "a" | "always" => {
                    self.always.insert(name.to_owned());
                    return Ok(true);
                }
                "" | "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let mut approval = Approval::new(false);
        let mut lines = ["what?", "y", "n", "", "always"].into_iter();
        let mut asked = 0;
        let mut permits = |name: &str| {
            approval.permits(name, |question| {
                asked += 1;
                assert!(question.starts_with(&format!("run {name}?")), "{question}");
                Ok(lines.next().unwrap().to_owned())
            })
        };
        assert!(permits("a").unwrap());
        assert!(!permits("a").unwrap());
        assert!(!permits("a").unwrap());
        assert!(permits("a").unwrap());
        assert!(permits("a").unwrap());
        assert_eq!(asked, 5);
        assert!(Approval::new(true).permits("a", |_| panic!("asked")).unwrap());
    }
}
