//! JSON pointers (RFC 6901).

use serde_json::Value;

/// The pointer of a member or item below `parent`.
pub(crate) fn child(parent: &str, key: &str) -> String {
    format!("{parent}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// A pointer that is extended level by level, without allocation.
#[derive(Clone, Copy)]
pub(crate) enum PointerPath<'a> {
    Root,
    Key(&'a PointerPath<'a>, &'a str),
    Index(&'a PointerPath<'a>, usize),
    /// A complete pointer, taken from a reference.
    Spelled(&'a str),
}

impl PointerPath<'_> {
    pub(crate) fn pointer(&self) -> String {
        match self {
            PointerPath::Root => String::new(),
            PointerPath::Key(parent, key) => child(&parent.pointer(), key),
            PointerPath::Index(parent, index) => format!("{}/{index}", parent.pointer()),
            PointerPath::Spelled(pointer) => (*pointer).to_owned(),
        }
    }
}

/// The pointer in a `$ref` to its own document, or the reason why the reference is not supported.
pub(crate) fn local_pointer(reference: &Value) -> Result<&str, &'static str> {
    let text = reference.as_str().ok_or("is not a string")?;
    match text.strip_prefix('#') {
        Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => Ok(pointer),
        Some(_) => Err("refers to an anchor; only `#/…` is followed"),
        None => Err("refers to another document"),
    }
}

/// The target of a `$ref`, with its pointer. `#/` means the whole document.
pub(crate) fn resolve<'d, 'r>(
    document: &'d Value,
    reference: &'r Value,
) -> Result<(&'r str, &'d Value), &'static str> {
    let pointer = Some(local_pointer(reference)?).filter(|pointer| *pointer != "/").unwrap_or("");
    document.pointer(pointer).map(|target| (pointer, target)).ok_or("refers to nothing")
}
