//! Names of nodes.

use std::fmt;
use std::sync::Arc;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The name of a server in a shared directory, kept across restarts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// Makes a name of letters, digits, dots, hyphens and underscores; `None` for other text.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_part);
        is_name.then(|| Self(name.into()))
    }

    /// Makes the name of one of the processes of a server.
    #[must_use]
    pub fn of_process(id: u32) -> Self {
        Self(format!("process-{id}").into())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["a", "edge-1.example_x", &"x".repeat(64)] {
            assert_eq!(NodeId::new(name).unwrap().as_str(), name);
        }
        for name in ["", "a b", "a/b", "a:b", "ä", "a\n", &"x".repeat(65)] {
            assert_eq!(NodeId::new(name), None, "{name:?}");
        }
    }
}
