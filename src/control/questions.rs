//! Questions of signalling sockets that wait for their turn, so that they delay neither publishers nor the API.
//!
//! 1. A question is answered immediately while no others wait and the current slice has rows left.
//! 2. Otherwise it waits in the queue of its network. Each slice answers one question of each queue in turn, up to a
//!    number of rows; other mail is handled between two slices.
//! 3. At most [`WAITING_MAX`] questions wait, and a network may have no more waiting questions than there are free
//!    places. Further questions are answered 503.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::mail::Question;
use crate::types::{SessionRef, StreamKey};

/// Maximum number of waiting questions.
const WAITING_MAX: usize = 4096;
/// Number of rows that one slice answers, which takes some hundred microseconds.
const SLICE_ROWS: usize = 128;
/// Pause between two slices, in which other inputs are handled.
const PAUSE: Duration = Duration::from_micros(50);

/// A question, and the session that waits for the answer.
#[derive(Debug)]
pub(super) struct SocketQuestion {
    pub(super) session: SessionRef,
    pub(super) key: StreamKey,
    /// Ids of the application's streams to which the session was admitted.
    pub(super) let_in: Vec<String>,
    pub(super) question: Question,
}

impl SocketQuestion {
    /// Returns the approximate number of records that the answer examines.
    fn rows(&self) -> usize {
        match &self.question {
            Question::Record | Question::SubscriberCount | Question::Media => 1,
            Question::Subtracks { size, .. } | Question::Subscribers { size, .. } => (*size).clamp(1, 50),
            Question::SubtrackCount(_) => 16,
            Question::Room => 64,
        }
    }
}

/// Questions of all sockets.
#[derive(Debug, Default)]
pub(super) struct Questions {
    lines: BTreeMap<IpAddr, VecDeque<SocketQuestion>>,
    /// Number of waiting questions.
    waiting: usize,
    /// Networks with waiting questions, in the order of their turns.
    turns: VecDeque<IpAddr>,
    /// Rows answered in the current slice, and the time of the next slice.
    spent: usize,
    next_slice: Option<Instant>,
}

impl Questions {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_slice.filter(|_| self.waiting > 0)
    }

    /// True if a question may be answered immediately.
    pub(super) fn may_answer(&mut self, now: Instant, question: &SocketQuestion) -> bool {
        if self.waiting > 0 {
            return false;
        }
        if self.next_slice.is_none_or(|at| at <= now) {
            self.spent = 0;
            self.next_slice = now.checked_add(PAUSE);
        }
        let may = self.spent < SLICE_ROWS;
        if may {
            self.spent = self.spent.saturating_add(question.rows());
        }
        may
    }

    /// Queues a question. Returns false if too many wait.
    pub(super) fn queue(&mut self, now: Instant, network: IpAddr, question: SocketQuestion) -> bool {
        let own = self.lines.get(&network).map_or(0, VecDeque::len);
        let free = WAITING_MAX.saturating_sub(self.waiting);
        if free == 0 || own > free {
            return false;
        }
        let line = self.lines.entry(network).or_default();
        if line.is_empty() {
            self.turns.push_back(network);
        }
        line.push_back(question);
        self.waiting = self.waiting.saturating_add(1);
        self.next_slice = self.next_slice.or_else(|| now.checked_add(PAUSE));
        true
    }

    /// Returns the questions of the next slice, if it is due.
    pub(super) fn slice(&mut self, now: Instant) -> Vec<SocketQuestion> {
        if self.deadline().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let mut slice = Vec::new();
        self.spent = 0;
        while self.spent < SLICE_ROWS
            && let Some(network) = self.turns.pop_front()
        {
            let Some(mut line) = self.lines.remove(&network) else { continue };
            if let Some(question) = line.pop_front() {
                self.waiting = self.waiting.saturating_sub(1);
                self.spent = self.spent.saturating_add(question.rows());
                slice.push(question);
            }
            if !line.is_empty() {
                self.lines.insert(network, line);
                self.turns.push_back(network);
            }
        }
        self.next_slice = now.checked_add(PAUSE);
        slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ConnId, WorkerId};

    fn question(slot: u32) -> SocketQuestion {
        let session = SessionRef::new(WorkerId(0), ConnId { slot, generation: 0 });
        SocketQuestion {
            session,
            key: StreamKey::new("live", "room"),
            let_in: Vec::new(),
            question: Question::Room,
        }
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn q_17_questions_of_one_network_leave_room_and_turns_for_those_of_others() {
        let (mut questions, start) = (Questions::default(), Instant::now());
        let at_once = (0..10).filter(|n| questions.may_answer(start, &question(*n))).count();
        assert_eq!(at_once, SLICE_ROWS / 64);
        let waiting = (0..8000).filter(|n| questions.queue(start, address(1), question(*n))).count();
        assert_eq!(waiting, WAITING_MAX / 2 + 1, "half of the places are left");
        assert!(!questions.may_answer(start + PAUSE, &question(0)), "others wait");
        assert!(questions.queue(start, address(2), question(9999)));
        assert!(questions.slice(start).is_empty(), "other mail first");
        let slice = questions.slice(questions.deadline().unwrap());
        let slots: Vec<u32> = slice.iter().map(|one| one.session.conn.slot).collect();
        assert_eq!(slots, [0, 9999], "a slice is bounded, and networks take turns");
        let mut rest = 0;
        while let Some(due) = questions.deadline() {
            let slice = questions.slice(due);
            assert!(slice.len() <= SLICE_ROWS / 64);
            rest += slice.len();
        }
        assert_eq!((rest, questions.lines.len(), questions.turns.len()), (waiting - 1, 0, 0));
    }
}
