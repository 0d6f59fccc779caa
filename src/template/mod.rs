//! messages -> prompt.
