//! The sending half of the packet filter: completes the parity of rows and columns.

use std::collections::VecDeque;

use crate::filter::layout::{Matrix, Places};
use crate::filter::recovery::{Content, Recovery};
use crate::filter::{ArqLevel, Fec, ROW_INDEX};
use crate::packet::KeyFlag;
use crate::seq::Seq;

/// A parity packet to be sent.
#[derive(Debug)]
pub(crate) struct Parity {
    /// Sequence number of the group's last packet.
    pub(crate) seq: Seq,
    pub(crate) index: u8,
    pub(crate) recovery: Recovery,
}

/// A group that is being filled.
#[derive(Debug, Default)]
struct Open {
    number: u64,
    packets: u64,
    recovery: Recovery,
}

impl Open {
    /// Adds a packet of group `number`. If the packet before it belonged to another group, begins a new
    /// group, even if the old one is incomplete. Returns true if the group now has all of its `size`
    /// packets.
    fn add(&mut self, number: u64, size: u64, content: Content<'_>) -> bool {
        if self.number != number {
            self.recovery.clear();
            (self.number, self.packets) = (number, 0);
        }
        self.recovery.add(content);
        self.packets = self.packets.saturating_add(1);
        self.packets == size
    }
}

/// Parity of the packets sent: one open row, and one open group for each column.
#[derive(Debug)]
pub(crate) struct FilterSender {
    fec: Fec,
    matrix: Matrix,
    places: Places,
    row: Open,
    columns: Vec<Open>,
    /// Parity packets that must be sent before the next data packet: at most one for a row and one for a column.
    due: VecDeque<Parity>,
    /// Cleared XOR buffers of parity packets that were sent.
    spare: Vec<Recovery>,
}

impl FilterSender {
    pub(crate) fn new(fec: Fec, first: Seq) -> Self {
        Self {
            fec,
            matrix: Matrix::new(&fec),
            places: Places::new(first),
            row: Open::default(),
            columns: Vec::new(),
            due: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Adds a packet sent for the first time; `payload` is as on the wire. Packets must be passed in order, but
    /// some may be missing.
    pub(crate) fn sent(&mut self, seq: Seq, key: KeyFlag, timestamp: u32, payload: &[u8]) {
        let Some(at) = self.places.of(seq) else { return };
        self.places.advance(at);
        let content = Content::new(key.wire(), timestamp, payload);
        // Like libsrt, handles the column before the row.
        if let Some(number) = self.matrix.column_of(at) {
            let column = usize::try_from(number % self.matrix.cols()).unwrap_or(0);
            if self.columns.len() <= column {
                self.columns.resize_with(column.saturating_add(1), Open::default);
            }
            let group = self.columns.get_mut(column);
            if let Some(group) = group
                && group.add(number, u64::from(self.fec.rows), content)
            {
                let recovery = std::mem::replace(&mut group.recovery, self.spare.pop().unwrap_or_default());
                let index = u8::try_from(column).unwrap_or(0);
                self.due.push_back(Parity { seq, index, recovery });
            }
        }
        let row = self.matrix.row_of(at);
        if self.fec.has_row_parity && self.row.add(row, self.matrix.cols(), content) {
            let recovery = std::mem::replace(&mut self.row.recovery, self.spare.pop().unwrap_or_default());
            self.due.push_back(Parity { seq, index: ROW_INDEX, recovery });
        }
    }

    /// True if a parity packet must leave before the next new packet.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes the next parity packet to send.
    pub(crate) fn take(&mut self) -> Option<Parity> {
        self.due.pop_front()
    }

    /// Returns the buffer of a parity packet that was written, for reuse.
    pub(crate) fn done(&mut self, parity: Parity) {
        let mut recovery = parity.recovery;
        recovery.clear();
        self.spare.push(recovery);
    }

    pub(crate) const fn arq(&self) -> ArqLevel {
        self.fec.arq
    }

    /// Returns the number of bytes sent, including parity, for this many bytes of data packets.
    pub(crate) fn with_parity(&self, bytes: u64) -> u64 {
        self.fec.with_parity(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::FecSettings;

    const FIRST: Seq = Seq::new(0x7fff_fffe);

    fn sender(text: &str) -> FilterSender {
        FilterSender::new(text.parse::<FecSettings>().unwrap().complete().unwrap(), FIRST)
    }

    /// Sends `packets`. Returns each parity packet as a pair of its sequence position and its group index.
    fn run(sender: &mut FilterSender, packets: impl Iterator<Item = u32>) -> Vec<(u32, u8)> {
        let mut out = Vec::new();
        for n in packets {
            sender.sent(FIRST.plus(n), KeyFlag::Clear, n, &n.to_be_bytes());
            while let Some(parity) = sender.take() {
                assert_eq!(parity.seq, FIRST.plus(n), "behind the last packet of its group");
                out.push((n, parity.index));
                sender.done(parity);
            }
        }
        out
    }

    #[test]
    fn parity_follows_the_last_packet_of_its_group_columns_first() {
        let rows = run(&mut sender("fec,cols:4"), 0..12);
        assert_eq!(rows, [(3, 255), (7, 255), (11, 255)]);
        let both = run(&mut sender("fec,cols:3,rows:2,layout:even"), 0..6);
        assert_eq!(both, [(2, 255), (3, 0), (4, 1), (5, 2), (5, 255)]);
        let stairs = run(&mut sender("fec,cols:3,rows:-2,layout:staircase"), 0..12);
        assert_eq!(stairs, [(3, 0), (5, 2), (7, 1), (9, 0), (11, 2)]);
    }

    #[test]
    fn a_group_with_a_packet_that_never_left_has_no_parity() {
        let mut sender = sender("fec,cols:3,rows:2,layout:even");
        assert_eq!(run(&mut sender, [0, 2, 3, 4, 5].into_iter()), [(3, 0), (5, 2), (5, 255)]);
        assert_eq!(run(&mut sender, 6..12), [(8, 255), (9, 0), (10, 1), (11, 2), (11, 255)]);
        assert!(sender.spare.len() <= 2 && sender.columns.len() == 3, "nothing grows");
    }
}
