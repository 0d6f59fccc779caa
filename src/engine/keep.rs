//! What of the KV cache belongs to whom, so that a chat's part of it can outlive the chat.

use super::backend::Token;

/// Who a job is for, beyond that job; a number that no other owner has.
pub type Owner = u64;

/// The content of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its tokens.
    pub tokens: Vec<Token>,
    /// What the backend knows of them; a secret between it and itself.
    pub data: Vec<u8>,
}

/// The last owner of each sequence.
#[derive(Debug)]
pub(crate) struct Owners(Vec<Option<Owner>>);

impl Owners {
    pub(crate) fn new(n_sequences: usize) -> Self {
        Owners(vec![None; n_sequences])
    }

    /// A sequence is now this owner's, and the one it had before is nobody's.
    pub(crate) fn give(&mut self, sequence: usize, owner: Option<Owner>) {
        self.0.iter_mut().filter(|slot| slot.is_some() && **slot == owner).for_each(|slot| *slot = None);
        self.0[sequence] = owner;
    }

    /// The sequence an owner used last, if nobody else did since.
    pub(crate) fn sequence(&self, owner: Owner) -> Option<usize> {
        self.0.iter().position(|slot| *slot == Some(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_the_sequence_it_used_last() {
        let mut owners = Owners::new(2);
        owners.give(0, Some(7));
        owners.give(1, Some(7));
        assert_eq!(owners.sequence(7), Some(1));
        owners.give(1, Some(8));
        assert_eq!((owners.sequence(7), owners.sequence(8)), (None, Some(1)));
        owners.give(1, None);
        assert_eq!(owners.sequence(8), None);
    }
}
