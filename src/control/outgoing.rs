//! [`Outgoing`] borrows those parts of control that are needed to start, move and end pushes and pulls.

use super::Outbound;
use super::context::Context;
use super::live::Registry;
use super::records::Records;
use super::{Control, Now};

/// Outgoing connections, borrowed together with the records and streams that change with them.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) cx: &'a mut Context,
    pub(super) records: &'a mut Records,
    pub(super) registry: &'a mut Registry,
    pub(super) outbound: &'a mut Outbound,
    pub(super) now: Now,
}

impl Control {
    /// Borrows the parts that an operation on outgoing connections may change.
    pub(super) const fn outgoing(&mut self, now: Now) -> Outgoing<'_> {
        Outgoing {
            cx: &mut self.cx,
            records: &mut self.records,
            registry: &mut self.registry,
            outbound: &mut self.outbound,
            now,
        }
    }
}
