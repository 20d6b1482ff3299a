//! Questions of signalling sockets that wait for their turn, so that they delay neither publishers nor the API.
//!
//! 1. A question is answered immediately while no others wait and the current slice has rows left.
//! 2. Otherwise it waits in the queue of its network. Each slice answers one question of each queue in turn, up to a
//!    number of rows; other mail is handled between two slices.
//! 3. At most [`WAITING_MAX`] questions wait, and a network may have no more waiting questions than there are free
//!    places. Further questions are answered 503, in their turn, because a socket matches answers to its questions by
//!    their order. A socket has at most 16 open questions.

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
    /// Number of live streams of the application, which some answers go through.
    pub(super) live: usize,
    /// True if too many questions waited when this one was asked; its answer is 503.
    pub(super) is_refused: bool,
}

impl SocketQuestion {
    /// Returns the approximate number of records that the answer examines.
    const fn rows(&self) -> usize {
        // Going past a stream costs less than showing its record.
        let walk = self.live / 8;
        match &self.question {
            _ if self.is_refused => 1,
            Question::Record | Question::SubscriberCount | Question::Media => 1,
            Question::Subscribers { size, .. } => page(*size),
            Question::Subtracks { size, .. } => page(*size).saturating_add(walk),
            Question::SubtrackCount(_) => walk.saturating_add(1),
            Question::Room => 64,
        }
    }
}

/// Number of records in an answer for which this many were requested.
const fn page(size: usize) -> usize {
    match size {
        0 => 1,
        1..=49 => size,
        _ => 50,
    }
}

/// Waiting questions of a network.
#[derive(Debug, Default)]
struct Line {
    queue: VecDeque<SocketQuestion>,
    /// Number of questions that were not refused.
    accepted: usize,
}

/// Questions of all sockets.
#[derive(Debug, Default)]
pub(super) struct Questions {
    lines: BTreeMap<IpAddr, Line>,
    /// Number of waiting questions, without refused ones.
    waiting: usize,
    /// Networks with waiting questions, in the order of their turns.
    turns: VecDeque<IpAddr>,
    /// Rows answered in the current slice, and the time of the next slice.
    spent: usize,
    next_slice: Option<Instant>,
}

impl Questions {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_slice.filter(|_| !self.lines.is_empty())
    }

    /// True if a question may be answered immediately.
    pub(super) fn may_answer(&mut self, now: Instant, question: &SocketQuestion) -> bool {
        if !self.lines.is_empty() {
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

    /// Queues a question. Returns false if too many wait, so that its answer will be 503.
    pub(super) fn queue(&mut self, now: Instant, network: IpAddr, mut question: SocketQuestion) -> bool {
        let line = self.lines.entry(network).or_default();
        let own = line.accepted;
        let free = WAITING_MAX.saturating_sub(self.waiting);
        question.is_refused = free == 0 || own > free;
        if question.is_refused {
            question.let_in = Vec::new();
        }
        let is_accepted = !question.is_refused;
        if line.queue.is_empty() {
            self.turns.push_back(network);
        }
        line.queue.push_back(question);
        line.accepted = line.accepted.saturating_add(usize::from(is_accepted));
        self.waiting = self.waiting.saturating_add(usize::from(is_accepted));
        self.next_slice = self.next_slice.or_else(|| now.checked_add(PAUSE));
        is_accepted
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
            if let Some(question) = line.queue.pop_front() {
                let was_accepted = usize::from(!question.is_refused);
                line.accepted = line.accepted.saturating_sub(was_accepted);
                self.waiting = self.waiting.saturating_sub(was_accepted);
                self.spent = self.spent.saturating_add(question.rows());
                slice.push(question);
            }
            if !line.queue.is_empty() {
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
            live: 0,
            is_refused: false,
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
        let (mut rest, mut refused) = (0, 0);
        let mut last = 0;
        while let Some(due) = questions.deadline() {
            let slice = questions.slice(due);
            assert!(slice.len() <= SLICE_ROWS);
            for one in slice {
                // A socket is answered in the order of its questions, also with refusals.
                assert!(one.session.conn.slot > last);
                last = one.session.conn.slot;
                *if one.is_refused { &mut refused } else { &mut rest } += 1;
            }
        }
        assert_eq!((rest, refused), (waiting - 1, 8000 - waiting));
        assert_eq!((questions.waiting, questions.lines.len(), questions.turns.len()), (0, 0, 0));
    }

    #[test]
    fn answers_that_go_through_all_live_streams_cost_rows() {
        let asked = |question, live| SocketQuestion { question, live, ..self::question(0) };
        let page = |size| Question::Subtracks { role: String::new(), offset: 100_000, size };
        assert_eq!(asked(page(1), 0).rows(), 1);
        assert!(asked(page(1), 1000).rows() >= SLICE_ROWS - 10);
        assert!(asked(Question::SubtrackCount(String::new()), 1000).rows() >= SLICE_ROWS - 10);
    }
}
