//! Messages between sessions, on one worker or across workers.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A message between two sessions, opaque to everything in between.
#[derive(Clone)]
pub struct Message(Arc<dyn Any + Send + Sync>);

impl Message {
    /// Wraps `content` as a message.
    #[must_use]
    pub fn new<T: Any + Send + Sync>(content: T) -> Self {
        Self(Arc::new(content))
    }

    /// Returns the content if it is of type `T`.
    #[must_use]
    pub fn content<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Message(..)")
    }
}
