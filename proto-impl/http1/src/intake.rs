//! The rules of an application for the bodies of its requests.

use std::fmt::Debug;

use super::Method;

/// Limits on request bodies by path.
pub trait BodyLimits: Debug + Sync {
    /// Returns the limit in bytes for a path, or `None` if the connection's own limit applies.
    fn body_bytes_max(&self, path: &str) -> Option<usize>;

    /// Tells how the application gets the body of a request.
    fn intake(&self, method: Method, path: &str, query: &[(String, String)]) -> Intake;
}

/// The ways in which an application can get the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intake {
    /// The whole body is passed together with the head.
    Whole,
    /// If the whole body has arrived by the time the head is passed to the application, head and body are passed
    /// together. Otherwise the application must first accept the body, which is then passed on as it arrives. The body
    /// limit applies.
    AfterHead,
    /// The application must first accept the body, which is then passed on as it arrives and may have any length.
    Streamed,
}
