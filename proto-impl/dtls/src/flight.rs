//! Flights: the messages that one side sends before it waits for the other (RFC 6347 §4.2.4). They are divided
//! into datagrams, and retransmitted until they are answered.

use std::time::{Duration, Instant};

use crate::handshake::{self, FragmentHead, MessageType};
use crate::record::{ContentType, Exhausted, HEAD_BYTES, PROTECTION_BYTES, RecordLayer};

/// A message of a flight.
#[derive(Debug)]
enum Item {
    Message { kind: MessageType, sequence: u16, body: Vec<u8>, protected: bool },
    ChangeCipherSpec,
}

/// The flight that awaits an answer.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    items: Vec<Item>,
    /// Version in the record headers; a first hello uses an older version.
    version: u16,
    /// Next item to send, and the offset of its next byte.
    at: (usize, usize),
}

impl Flight {
    pub(crate) const fn new(version: u16) -> Self {
        Self { items: Vec::new(), version, at: (0, 0) }
    }

    pub(crate) fn push(&mut self, kind: MessageType, sequence: u16, body: Vec<u8>, protected: bool) {
        self.items.push(Item::Message { kind, sequence, body, protected });
    }

    pub(crate) fn push_change_cipher_spec(&mut self) {
        self.items.push(Item::ChangeCipherSpec);
    }

    /// Restarts sending from the beginning of the flight.
    pub(crate) fn rewind(&mut self) {
        self.at = (0, 0);
    }

    /// Marks the whole flight as sent.
    pub(crate) const fn skip(&mut self) {
        self.at = (self.items.len(), 0);
    }

    /// True if part of the flight is still to be sent.
    pub(crate) fn is_pending(&self) -> bool {
        self.at.0 < self.items.len()
    }

    /// True if the flight ends with a message protected with the new keys.
    pub(crate) fn is_protected(&self) -> bool {
        matches!(self.items.last(), Some(Item::Message { protected: true, .. }))
    }

    /// Fills a datagram of at most `mtu` bytes with the next part of the flight.
    pub(crate) fn write(
        &mut self,
        records: &mut RecordLayer,
        mtu: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Exhausted> {
        while let Some(item) = self.items.get(self.at.0) {
            let room = mtu.saturating_sub(out.len());
            match item {
                Item::ChangeCipherSpec => {
                    if room < HEAD_BYTES.saturating_add(1) && !out.is_empty() {
                        break;
                    }
                    records.write(false, ContentType::CHANGE_CIPHER_SPEC, self.version, &[1], out)?;
                    self.at = (self.at.0.saturating_add(1), 0);
                }
                Item::Message { kind, sequence, body, protected } => {
                    let over = if *protected { PROTECTION_BYTES } else { 0 };
                    let heads = HEAD_BYTES.saturating_add(handshake::HEAD_BYTES).saturating_add(over);
                    let left = body.get(self.at.1..).unwrap_or_default();
                    // At least one byte is put into an empty datagram, however small the datagram is.
                    let space = room.saturating_sub(heads).max(usize::from(out.is_empty()));
                    if (space == 0 && !left.is_empty()) || (room < heads && !out.is_empty()) {
                        break;
                    }
                    let fragment = left.get(..space).unwrap_or(left);
                    let head = FragmentHead {
                        kind: *kind,
                        length: body.len(),
                        sequence: *sequence,
                        offset: self.at.1,
                        fragment: fragment.len(),
                    };
                    let mut clear = Vec::with_capacity(handshake::HEAD_BYTES.saturating_add(fragment.len()));
                    head.write(&mut clear);
                    clear.extend_from_slice(fragment);
                    records.write(*protected, ContentType::HANDSHAKE, self.version, &clear, out)?;
                    self.at.1 = self.at.1.saturating_add(fragment.len());
                    if self.at.1 >= body.len() {
                        self.at = (self.at.0.saturating_add(1), 0);
                    }
                }
            }
        }
        Ok(())
    }

    /// Replaces the last message, to simulate a misbehaving peer.
    #[cfg(test)]
    pub(crate) fn change_last(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(Item::Message { body, .. }) = self.items.last_mut() {
            change(body);
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let bytes = |item: &Item| match item {
            Item::Message { body, .. } => body.len(),
            Item::ChangeCipherSpec => 0,
        };
        self.items.iter().map(bytes).sum()
    }
}

/// Retransmission timer of a flight; its timeout doubles up to a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    first: Duration,
    longest: Duration,
    pause: Duration,
    sent: Instant,
    armed: bool,
}

impl Timer {
    pub(crate) const fn new(now: Instant, first: Duration, longest: Duration) -> Self {
        Self { first, longest, pause: first, sent: now, armed: false }
    }

    /// Starts the timer for a new flight.
    pub(crate) const fn start(&mut self, now: Instant) {
        self.pause = self.first;
        self.sent = now;
        self.armed = true;
    }

    /// Stops the timer, because everything has been answered.
    pub(crate) const fn stop(&mut self) {
        self.armed = false;
        self.pause = self.first;
    }

    /// Returns a quarter of the timeout, the delay of acknowledgements (RFC 9147 §7.1).
    pub(crate) fn quarter(&self) -> Duration {
        self.pause / 4
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }

    /// Reschedules the timer after a timeout; the flight is then retransmitted.
    pub(crate) fn back_off(&mut self, now: Instant) {
        self.pause = self.pause.saturating_mul(2).min(self.longest);
        self.sent = now;
    }

    /// True if a retransmission by the peer should be answered with a retransmission; false if our flight was
    /// sent recently.
    pub(crate) fn takes_hint(&self, now: Instant) -> bool {
        self.armed && now.saturating_duration_since(self.sent) >= self.pause / 2
    }

    /// Reschedules the timer after a retransmission by the peer was answered.
    pub(crate) const fn repeat(&mut self, now: Instant) {
        self.sent = now;
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.sent.checked_add(self.pause).filter(|_| self.armed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordHead, VERSION_1_2};
    use wire::Reader;

    fn fragments(datagram: &[u8]) -> Vec<FragmentHead> {
        let mut r = Reader::new(datagram);
        let mut heads = Vec::new();
        while !r.is_empty() {
            let head = RecordHead::read(&mut r).unwrap();
            let mut body = r.sub(head.length).unwrap();
            heads.push(FragmentHead::read(&mut body).unwrap());
        }
        heads
    }

    #[test]
    fn datagrams_are_full_and_never_longer_than_the_mtu() {
        for mtu in 100..1300 {
            let mut flight = Flight::new(VERSION_1_2);
            for (sequence, length) in [0usize, 90, 900, 0, 33].into_iter().enumerate() {
                let body = vec![0; length];
                flight.push(MessageType(1), u16::try_from(sequence).unwrap(), body, false);
            }
            for _ in 0..2 {
                let mut records = RecordLayer::default();
                let (mut covered, mut datagrams) = ([0; 5], 0);
                while flight.is_pending() {
                    let mut out = Vec::new();
                    flight.write(&mut records, mtu, &mut out).unwrap();
                    assert!(!out.is_empty() && out.len() <= mtu, "{mtu}");
                    for head in fragments(&out) {
                        assert_eq!(head.offset, covered[usize::from(head.sequence)]);
                        covered[usize::from(head.sequence)] += head.fragment;
                    }
                    datagrams += 1;
                }
                assert_eq!(covered, [0, 90, 900, 0, 33]);
                assert!(datagrams <= 1 + 1200 / (mtu - 25) * 2, "{mtu}: {datagrams}");
                flight.rewind();
            }
        }
    }

    /// Retransmissions by the peer are answered once per half of the timeout.
    #[test]
    fn d_11_hints_are_taken_once_in_half_a_pause() {
        let start = netsim::Clock::new().now();
        let ms = Duration::from_millis;
        let mut timer = Timer::new(start, ms(100), ms(5000));
        assert!(!timer.takes_hint(start + ms(1000)), "nothing was sent");
        timer.start(start);
        let mut taken = Vec::new();
        for at in 0..=200 {
            let now = start + ms(at);
            if timer.takes_hint(now) {
                timer.repeat(now);
                taken.push(at);
            }
        }
        assert_eq!(taken, [50, 100, 150, 200]);
        // When the timeout has doubled, answers become rarer.
        timer.back_off(start + ms(200));
        assert!(!timer.takes_hint(start + ms(299)) && timer.takes_hint(start + ms(300)));
    }

    #[test]
    fn d_11_pauses_double_to_the_longest() {
        let start = netsim::Clock::new().now();
        let ms = Duration::from_millis;
        let mut timer = Timer::new(start, ms(50), ms(5000));
        assert_eq!(timer.deadline(), None);
        timer.start(start);
        let mut pauses = Vec::new();
        let mut now = start;
        for _ in 0..9 {
            let at = timer.deadline().unwrap();
            pauses.push((at - now).as_millis());
            assert!(timer.is_due(at) && !timer.is_due(at - ms(1)));
            now = at;
            timer.back_off(now);
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
