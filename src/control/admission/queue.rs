//! Admissions whose receivers are asked, or will be when a thread is free.

use std::collections::{BTreeMap, VecDeque};

use super::claims::Ticket;
use crate::auth::HookUrl;
use crate::jobs::Class;

/// Receivers that are asked at the same time.
const THREADS: usize = Class::Admission.limits().threads;
/// Threads that one receiver may occupy: one that hangs does not keep the others from answering.
const PER_RECEIVER: usize = THREADS / 2;

/// Questions on their way to receivers.
#[derive(Debug, Default)]
pub(super) struct HookQueue {
    /// Not handed to a thread yet, oldest first.
    pub(super) waiting: VecDeque<Ticket>,
    /// The receivers of requests on a thread. An entry stays until the thread is back, whether somebody waits or
    /// not.
    pub(super) running: BTreeMap<Ticket, (String, u16)>,
}

impl HookQueue {
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.waiting.retain(|other| *other != ticket);
    }

    pub(super) fn has_room(&self, url: &HookUrl) -> bool {
        let same = |of: &&(String, u16)| of.0 == url.host && of.1 == url.port;
        self.running.len() < THREADS && self.running.values().filter(same).count() < PER_RECEIVER
    }
}
