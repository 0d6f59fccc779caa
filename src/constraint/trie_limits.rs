//! Keeps a vocabulary within the limits of llguidance's token trie, which panics if they are
//! exceeded.
//!
//! In: the bytes of each token. Out: the same, but the tokens that do not fit have no bytes. A
//! grammar never allows a token without bytes, and the other tokens can write the same text.

use llguidance::toktrie::TokTrie;

/// The maximum number of bytes of a token. A node of the trie stores its distance to the next
/// branch in 10 bits.
const MAX_TOKEN_BYTES: usize = 1024;
/// The maximum number of nodes below a node, which stores their number in 22 bits.
const MAX_NODES: usize = (1 << 22) - 2;

/// Removes the bytes of tokens that do not fit, beginning with the longest. A token that prints
/// nothing keeps a short name, because a grammar may end with it or refer to it by its id.
pub(super) fn fit_trie(token_bytes: &mut [Vec<u8>]) {
    shorten(token_bytes, MAX_TOKEN_BYTES);
    let mut longest = MAX_TOKEN_BYTES;
    while longest > 1 && count_nodes(token_bytes) > MAX_NODES {
        longest /= 2;
        shorten(token_bytes, longest);
    }
}

fn shorten(token_bytes: &mut [Vec<u8>], longest: usize) {
    let long = token_bytes.iter_mut().enumerate().filter(|(_, bytes)| bytes.len() > longest);
    for (token, bytes) in long {
        let special = bytes[0] == TokTrie::SPECIAL_TOKEN_MARKER;
        bytes.clear();
        if special {
            bytes.push(TokTrie::SPECIAL_TOKEN_MARKER);
            bytes.extend_from_slice(format!("[{token}]").as_bytes());
        }
    }
}

/// The nodes of the trie: one for each different prefix, and one for each further token with the
/// same bytes.
fn count_nodes(token_bytes: &[Vec<u8>]) -> usize {
    let most: usize = token_bytes.iter().map(Vec::len).sum();
    if most <= MAX_NODES {
        return most;
    }
    let mut sorted: Vec<&[u8]> = token_bytes.iter().map(Vec::as_slice).collect();
    sorted.sort_unstable();
    let mut nodes = 0;
    let mut last: &[u8] = &[];
    for bytes in sorted {
        let shared = last.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        nodes += (bytes.len() - shared).max(1);
        last = bytes;
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::toktrie::TokRxInfo;

    /// Checks which tokens keep their bytes, and that the trie can then be built.
    #[track_caller]
    fn check(tokens: &[Vec<u8>], fits: impl Fn(usize) -> bool) {
        let mut fitted = tokens.to_vec();
        fit_trie(&mut fitted);
        for (token, (before, after)) in tokens.iter().zip(&fitted).enumerate() {
            if fits(token) {
                assert!(before == after, "token {token}");
            } else if before[0] == 0xFF {
                assert_eq!(after, &[&[0xFF], format!("[{token}]").as_bytes()].concat());
            } else {
                assert!(after.is_empty(), "token {token}");
            }
        }
        TokTrie::from(&TokRxInfo::new(fitted.len() as u32, 0), &fitted);
    }

    #[test]
    fn tokens_longer_than_the_trie_allows_lose_their_bytes() {
        let plain = |length| vec![b'a'; length];
        let special = |length| [vec![0xFF], vec![b's'; length]].concat();
        let lengths = [1, 1023, 1024, 1025, 20_000, 1_000_000];
        let tokens: Vec<_> = lengths.into_iter().flat_map(|n| [plain(n), special(n)]).collect();
        check(&tokens, |token| tokens[token].len() <= 1024);
        // Tests duplicates and tokens without bytes.
        check(&[plain(3), plain(3), Vec::new(), plain(3), plain(1024), plain(1024)], |_| true);
    }

    #[test]
    fn more_nodes_than_the_trie_allows_leave_out_the_longest_tokens() {
        let token = |number: usize, length: usize| -> Vec<u8> {
            let start = format!("{number:06}");
            start.bytes().chain(std::iter::repeat_n(b'x', length - 6)).collect()
        };
        let tokens: Vec<_> =
            (0..10_000).map(|n| token(n, if n % 2 == 0 { 1000 } else { 40 })).collect();
        check(&tokens, |token| token % 2 == 1);
        // Many short tokens with common prefixes all fit.
        check(&(0..600_000).map(|n| token(n, 10)).collect::<Vec<_>>(), |_| true);
    }
}
