//! The tags that may follow the arguments of a call.

/// The tags that may follow the arguments of a call, without whitespace around them. None is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Followers {
    /// The tags that close a call or a section.
    pub(crate) closing: Vec<String>,
    /// The tags that open a call or a section.
    pub(crate) opening: Vec<String>,
}

impl Followers {
    /// All tags, those that close first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.closing.iter().chain(&self.opening).map(String::as_str)
    }
}
