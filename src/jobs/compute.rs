//! Computations outside the worker's thread.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A computation that has not started. It owns all its inputs, including state, and returns them in its result.
pub struct Compute(Box<dyn FnOnce() -> Computed + Send>);

impl Compute {
    /// Makes a job that runs this function; [`Computed::take`] returns the result.
    #[must_use]
    pub fn new<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Box::new(|| Computed(Arc::new(Mutex::new(Some(Box::new(work())))))))
    }

    /// Runs the computation on the calling thread.
    #[must_use]
    pub fn run(self) -> Computed {
        (self.0)()
    }
}

impl fmt::Debug for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compute(..)")
    }
}

/// The result of a [`Compute`]. It is sent in messages, which must be cloneable, so clones share the result. The
/// result can be taken once, from any clone.
#[derive(Clone)]
pub struct Computed(Arc<Mutex<Option<Box<dyn Any + Send>>>>);

impl Computed {
    /// Takes the result; `None` if already taken, or of another type.
    #[must_use]
    pub fn take<T: Send + 'static>(&self) -> Option<T> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.take()?.downcast::<T>() {
            Ok(result) => Some(*result),
            Err(other) => {
                *slot = Some(other);
                None
            }
        }
    }
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Computed(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_taken_once_and_by_its_type() {
        let done = Compute::new(|| vec![1_u8, 2]).run();
        let copy = done.clone();
        assert_eq!(copy.take::<String>(), None);
        assert_eq!(copy.take::<Vec<u8>>(), Some(vec![1, 2]));
        assert_eq!(done.take::<Vec<u8>>(), None);
    }
}
