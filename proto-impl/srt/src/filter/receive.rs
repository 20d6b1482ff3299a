//! The receiving half of the packet filter: rebuilds the missing packet of a group, and reports packets that
//! no group can rebuild.
//!
//! The state covers a window that ends with the newest packet: two matrices, or four rows if there are no columns.
//! Groups are kept in rings of that size, indexed by their numbers. A newer group replaces the old one at its index,
//! whether or not the old group is complete.

use bytes::Bytes;

use crate::filter::layout::{Matrix, Places};
use crate::filter::recovery::{Content, Recovery};
use crate::filter::{ArqLevel, Fec, ROW_INDEX};
use crate::packet::KeyFlag;
use crate::seq::Seq;

/// Size of the window in matrices, if the filter has columns.
const MATRICES: u64 = 2;
/// Size of the window in rows, if the filter has no columns.
const ROWS: u64 = 4;
/// Number of packets that may arrive before a group's parity although they were sent after it. Only after that many
/// packets are the group's missing packets reported.
const OVERTAKING: u64 = 3;
/// Minimum number of packets by which parity may be ahead of the newest data packet. Parity further ahead
/// is refused, unless the window is larger than this number: then the window is the limit. The minimum is
/// needed because the window of a small matrix is shorter than an ordinary burst of losses.
const LEAD_MIN: u64 = 96;
/// Number of cleared XOR buffers kept for later groups.
const SPARE_MAX: usize = 8;

/// A packet rebuilt from parity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rebuilt {
    pub(crate) seq: Seq,
    pub(crate) key: KeyFlag,
    pub(crate) timestamp: u32,
    /// Payload as sent on the wire, possibly encrypted.
    pub(crate) payload: Bytes,
}

/// A group that is being received.
#[derive(Debug)]
struct Group {
    number: u64,
    packets: u64,
    has_parity: bool,
    /// True if nothing is left to rebuild: the group is complete, or its parity is invalid.
    is_done: bool,
    recovery: Recovery,
}

/// Groups of one kind, in a ring indexed by the group number.
#[derive(Debug)]
struct Ring {
    groups: Vec<Option<Group>>,
    places: usize,
    /// Number of packets in a group.
    size: u64,
}

impl Ring {
    const fn new(places: u64, size: u64) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "a few thousand at most")]
        let places = places as usize;
        Self { groups: Vec::new(), places, size }
    }

    /// Returns the group with this number, newly created if there is none. `None` if a later group has taken its place
    /// in the ring.
    fn group(&mut self, number: u64, spare: &mut Vec<Recovery>) -> Option<&mut Group> {
        if self.groups.is_empty() {
            self.groups.resize_with(self.places, || None);
        }
        let place = usize::try_from(number.checked_rem(u64::try_from(self.places).ok()?)?).ok()?;
        let slot = self.groups.get_mut(place)?;
        match slot {
            Some(group) if group.number > number => return None,
            Some(group) if group.number == number => {}
            Some(group) => {
                group.recovery.clear();
                (group.number, group.packets, group.has_parity, group.is_done) = (number, 0, false, false);
            }
            None => {
                let recovery = spare.pop().unwrap_or_default();
                *slot = Some(Group { number, packets: 0, has_parity: false, is_done: false, recovery });
            }
        }
        slot.as_mut()
    }

    /// Adds a packet or a parity to a group. Returns true if now exactly one packet of the group is missing, so that it
    /// can be rebuilt.
    fn add(&mut self, number: u64, content: Content<'_>, is_parity: bool, spare: &mut Vec<Recovery>) -> bool {
        let size = self.size;
        let Some(group) = self.group(number, spare).filter(|group| !group.is_done) else { return false };
        if is_parity && std::mem::replace(&mut group.has_parity, true) {
            return false;
        }
        if !is_parity {
            group.packets = group.packets.saturating_add(1);
        }
        if group.packets >= size {
            group.finish(spare);
            return false;
        }
        group.recovery.add(content);
        group.has_parity && group.packets.saturating_add(1) == size
    }
}

impl Group {
    /// Marks the group as done and returns its XOR buffer to `spare`.
    fn finish(&mut self, spare: &mut Vec<Recovery>) {
        self.is_done = true;
        let mut recovery = std::mem::take(&mut self.recovery);
        if spare.len() < SPARE_MAX {
            recovery.clear();
            spare.push(recovery);
        }
    }
}

/// A row or a column; contains its number.
#[derive(Debug, Clone, Copy)]
enum Line {
    Row(u64),
    Column(u64),
}

/// Receiver state of the packet filter, described in the module.
#[derive(Debug)]
pub(crate) struct FilterReceiver {
    fec: Fec,
    matrix: Matrix,
    places: Places,
    window: u64,
    /// For each position in the window: true if its packet has arrived or was rebuilt.
    known: Vec<bool>,
    rows: Ring,
    columns: Ring,
    spare: Vec<Recovery>,
    rebuilt: Vec<Rebuilt>,
    /// Position before which all packets have been judged: each of them is known, or is lost beyond repair.
    judged: u64,
    /// First and last position of ranges that were judged to be lost beyond repair.
    beyond_repair: Vec<(u64, u64)>,
    /// Position after the newest data packet.
    data_end: u64,
}

impl FilterReceiver {
    pub(crate) fn new(fec: Fec, first: Seq) -> Self {
        let matrix = Matrix::new(&fec);
        let window = if fec.has_columns() {
            MATRICES.saturating_mul(matrix.size())
        } else {
            ROWS.saturating_mul(matrix.cols())
        };
        let row_places = (window / matrix.cols()).saturating_add(2);
        let column_places = (window / matrix.size()).saturating_add(2).saturating_mul(matrix.cols());
        Self {
            fec,
            matrix,
            places: Places::new(first),
            window,
            known: Vec::new(),
            rows: Ring::new(row_places, u64::from(fec.cols)),
            columns: Ring::new(column_places, u64::from(fec.rows)),
            spare: Vec::new(),
            rebuilt: Vec::new(),
            judged: 0,
            beyond_repair: Vec::new(),
            data_end: 0,
        }
    }

    pub(crate) const fn arq(&self) -> ArqLevel {
        self.fec.arq
    }

    /// Handles a received data packet; `payload` is as on the wire.
    pub(crate) fn handle_data(&mut self, seq: Seq, key: KeyFlag, timestamp: u32, payload: &[u8]) {
        let Some(at) = self.places.of(seq) else { return };
        self.data_end = self.data_end.max(at.saturating_add(1));
        self.advance(at);
        if self.is_old(at) || self.is_known(at) {
            return;
        }
        let mut lines = Vec::new();
        self.add(at, Content::new(key.wire(), timestamp, payload), &mut lines);
        self.rebuild(lines);
        self.judge();
    }

    /// Handles a parity packet. Returns false if the packet does not belong to any group.
    pub(crate) fn handle_parity(&mut self, seq: Seq, timestamp: u32, body: &[u8]) -> bool {
        let Some((index, content)) = Content::of_parity(timestamp, body) else { return false };
        let Some(at) = self.places.of(seq) else { return false };
        let line = match index {
            ROW_INDEX if self.fec.has_row_parity && self.matrix.ends_row(at) => {
                Line::Row(self.matrix.row_of(at))
            }
            ROW_INDEX => return false,
            _ => match self.matrix.ends_column(at) {
                Some(number) => Line::Column(number),
                None => return false,
            },
        };
        // Parity can be ahead of the newest data packet by a burst of lost packets. Parity that is further ahead is
        // refused.
        if at >= self.data_end.saturating_add(self.lead()) {
            return false;
        }
        self.advance(at);
        if self.is_old(at) {
            return true;
        }
        let is_ready = match line {
            Line::Row(number) => self.rows.add(number, content, true, &mut self.spare),
            Line::Column(number) => self.columns.add(number, content, true, &mut self.spare),
        };
        if is_ready {
            self.rebuild(vec![line]);
        }
        self.judge();
        true
    }

    /// Returns the number of packets by which parity may be ahead of the newest data packet.
    fn lead(&self) -> u64 {
        self.window.max(LEAD_MIN)
    }

    /// Takes the packets rebuilt since the last call, in the order of their sequence numbers.
    pub(crate) fn take_rebuilt(&mut self) -> Vec<Rebuilt> {
        std::mem::take(&mut self.rebuilt)
    }

    /// Takes the ranges of lost packets that the filter cannot rebuild: first and last packet of each, in order. There
    /// are only any with [`ArqLevel::OnRequest`].
    pub(crate) fn take_beyond_repair(&mut self) -> Vec<(Seq, Seq)> {
        let mut places = std::mem::take(&mut self.beyond_repair);
        places.sort_unstable();
        let mut ranges = Vec::<(u64, u64)>::new();
        for (first, last) in places {
            match ranges.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                Some(_) | None => ranges.push((first, last)),
            }
        }
        ranges.into_iter().map(|(first, last)| (self.places.seq(first), self.places.seq(last))).collect()
    }

    fn is_old(&self, at: u64) -> bool {
        at.saturating_add(self.window) < self.places.next()
    }

    fn index(&self, at: u64) -> usize {
        at.checked_rem(self.window).and_then(|index| usize::try_from(index).ok()).unwrap_or(0)
    }

    fn is_known(&self, at: u64) -> bool {
        self.known.get(self.index(at)).copied().unwrap_or(false)
    }

    /// If this packet is the newest, moves the window so that it ends with this packet. Moves one position at a time,
    /// so that each group is judged while all its packets are in the window. After a gap wider than the window this is
    /// not needed, because no earlier group has a packet in the window.
    fn advance(&mut self, at: u64) {
        if self.known.is_empty() {
            self.known.resize(usize::try_from(self.window).unwrap_or(0), false);
        }
        let next = self.places.next();
        if at < next {
            return;
        }
        let near = at.min(next.saturating_add(self.window));
        for fresh in next..=near {
            self.judge();
            let index = self.index(fresh);
            if let Some(known) = self.known.get_mut(index) {
                *known = false;
            }
            self.places.advance(fresh);
        }
        if at > near {
            self.judge();
            self.give_up_open_groups();
            self.known.fill(false);
            self.places.advance(at);
        }
    }

    /// Adds a packet to its row and its column. Appends the groups that can now rebuild a packet to `lines`.
    fn add(&mut self, at: u64, content: Content<'_>, lines: &mut Vec<Line>) {
        let index = self.index(at);
        if let Some(known) = self.known.get_mut(index) {
            *known = true;
        }
        let row = self.matrix.row_of(at);
        if self.fec.has_row_parity && self.rows.add(row, content, false, &mut self.spare) {
            lines.push(Line::Row(row));
        }
        if let Some(column) = self.matrix.column_of(at)
            && self.columns.add(column, content, false, &mut self.spare)
        {
            lines.push(Line::Column(column));
        }
    }

    /// Rebuilds the missing packets of these groups. If a rebuilt packet leaves another group with only one
    /// missing packet, rebuilds that packet, too. Terminates because each round makes one more packet of
    /// the window known.
    fn rebuild(&mut self, mut lines: Vec<Line>) {
        while let Some(line) = lines.pop() {
            let missing = match line {
                Line::Row(number) => self.missing(self.matrix.row(number)),
                Line::Column(number) => self.missing(self.matrix.column(number)),
            };
            let spare = &mut self.spare;
            let group = match line {
                Line::Row(number) => self.rows.group(number, spare),
                Line::Column(number) => self.columns.group(number, spare),
            };
            let Some(group) = group.filter(|group| !group.is_done) else { continue };
            let recovery = std::mem::take(&mut group.recovery);
            group.is_done = true;
            if let (Some(at), Some(content)) = (missing, recovery.content()) {
                let Content { key, timestamp, payload, .. } = content;
                let (seq, key) = (self.places.seq(at), KeyFlag::from_wire(key));
                self.rebuilt.push(Rebuilt { seq, key, timestamp, payload: Bytes::copy_from_slice(payload) });
                self.add(at, content, &mut lines);
            }
            if self.spare.len() < SPARE_MAX {
                let mut recovery = recovery;
                recovery.clear();
                self.spare.push(recovery);
            }
        }
        let places = self.places;
        self.rebuilt.sort_by_key(|packet| places.of(packet.seq));
    }

    /// Returns the only unknown packet of a group. `None` if several are unknown, or if the packet is outside the
    /// window.
    fn missing(&self, members: impl Iterator<Item = u64>) -> Option<u64> {
        let mut missing = members.filter(|at| !self.is_known(*at) || self.is_old(*at));
        missing.next().filter(|at| missing.next().is_none() && !self.is_old(*at) && *at < self.places.next())
    }

    /// Judges each packet once the last of its groups has ended: if it is still missing, it is lost beyond repair.
    /// Waits for a few more packets first, because parity may arrive after packets that were sent later.
    fn judge(&mut self) {
        let end = self.places.next().saturating_sub(OVERTAKING);
        if self.fec.arq != ArqLevel::OnRequest || self.judged >= end {
            return;
        }
        let floor = self.places.next().saturating_sub(self.window);
        if self.judged < floor {
            // The gap is wider than the window, and these packets are before the window. No packet of the gap can be
            // rebuilt.
            self.report(self.judged, floor.saturating_sub(1));
            self.judged = floor;
        }
        for at in self.judged..end {
            if let Some(number) = self.matrix.ends_column(at) {
                self.report_unknown(self.matrix.column(number));
            }
            if self.matrix.ends_row(at) {
                let row = self.matrix.row(self.matrix.row_of(at));
                let matrix = self.matrix;
                self.report_unknown(row.filter(move |at| matrix.column_of(*at).is_none()));
            }
        }
        self.judged = end;
    }

    /// Reports packets missing from groups that have not ended. No later packet of these groups has arrived, so nothing
    /// else would report them.
    fn give_up_open_groups(&mut self) {
        if self.fec.arq == ArqLevel::OnRequest {
            let (judged, matrix) = (self.judged, self.matrix);
            let reach = judged.saturating_sub(self.window)..judged;
            self.report_unknown(reach.filter(move |at| matrix.last_end(*at) >= judged));
        }
    }

    fn report_unknown(&mut self, members: impl Iterator<Item = u64>) {
        for at in members {
            if !self.is_known(at) && !self.is_old(at) {
                self.report(at, at);
            }
        }
    }

    fn report(&mut self, first: u64, last: u64) {
        self.beyond_repair.push((first, last));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filter::{FecSettings, FilterSender};

    const FIRST: Seq = Seq::new(0x7fff_fff0);

    fn fec(text: &str) -> Fec {
        text.parse::<FecSettings>().unwrap().complete().unwrap()
    }

    fn payload(n: u32) -> Vec<u8> {
        (0..=(n * 7 % 40)).map(|byte| u8::try_from((byte + n) % 251).unwrap()).collect()
    }

    /// A sender of numbered packets, and the receiver on the other side.
    struct Line {
        sender: FilterSender,
        receiver: FilterReceiver,
        rebuilt: Vec<u32>,
        reported: Vec<u32>,
        sent: u32,
        parities: u32,
    }

    impl Line {
        fn new(text: &str) -> Self {
            let fec = fec(text);
            let (sender, receiver) = (FilterSender::new(fec, FIRST), FilterReceiver::new(fec, FIRST));
            Self { sender, receiver, rebuilt: Vec::new(), reported: Vec::new(), sent: 0, parities: 0 }
        }

        /// Sends the next packet. `is_lost` decides separately whether the packet and each parity after it are lost.
        fn send(&mut self, is_lost: &mut dyn FnMut(u32, bool) -> bool) {
            let n = self.sent;
            self.sent += 1;
            let key = if n.is_multiple_of(3) { KeyFlag::Odd } else { KeyFlag::Even };
            self.sender.sent(FIRST.plus(n), key, n * 1000, &payload(n));
            if !is_lost(n, false) {
                self.receiver.handle_data(FIRST.plus(n), key, n * 1000, &payload(n));
            }
            while let Some(parity) = self.sender.take() {
                self.parities += 1;
                let mut body = Vec::new();
                parity.recovery.write(parity.index, &mut body);
                if !is_lost(n, true) {
                    assert!(self.receiver.handle_parity(parity.seq, parity.recovery.timestamp(), &body));
                }
                self.sender.done(parity);
            }
            self.look();
        }

        fn look(&mut self) {
            for packet in self.receiver.take_rebuilt() {
                let n = packet.seq.ahead_of(FIRST).unwrap();
                let key = if n.is_multiple_of(3) { KeyFlag::Odd } else { KeyFlag::Even };
                assert_eq!(
                    (packet.key, packet.timestamp, &packet.payload[..]),
                    (key, n * 1000, &payload(n)[..]),
                    "packet {n}"
                );
                self.rebuilt.push(n);
            }
            for (first, last) in self.receiver.take_beyond_repair() {
                let count = last.ahead_of(first).unwrap();
                self.reported.extend((0..=count).map(|n| first.plus(n).ahead_of(FIRST).unwrap()));
            }
        }

        fn run(&mut self, packets: u32, lost: &[u32]) {
            (0..packets).for_each(|_| self.send(&mut |n, is_parity| !is_parity && lost.contains(&n)));
        }
    }

    #[test]
    fn a_row_rebuilds_one_packet_and_reports_two() {
        let mut line = Line::new("fec,cols:5");
        line.run(20, &[2, 4, 6, 13]);
        assert_eq!((line.rebuilt, line.reported), (vec![6, 13], vec![2, 4]));
        let mut line = Line::new("fec,cols:5");
        line.run(25, &[0, 9, 14, 20]);
        assert_eq!((line.rebuilt, line.reported), (vec![0, 9, 14, 20], vec![]));
    }

    #[test]
    fn columns_rebuild_bursts_as_long_as_a_row() {
        for layout in ["even", "staircase"] {
            for rows in ["5", "-5"] {
                let mut line = Line::new(&format!("fec,cols:6,rows:{rows},layout:{layout}"));
                // A staircase does not cover all columns of the first matrix, so the losses are in a later one.
                let lost: Vec<u32> = (60..66).collect();
                line.run(120, &lost);
                line.rebuilt.sort_unstable();
                assert_eq!((line.rebuilt, line.reported), (lost, vec![]), "{layout} {rows}");
            }
        }
    }

    #[test]
    fn rows_and_columns_rebuild_for_each_other() {
        // Rows and columns rebuild packets in turn, as far as they can.
        let mut line = Line::new("fec,cols:4,rows:4,layout:even");
        line.run(32, &[0, 1, 4, 5, 6, 11]);
        // 0, 1, 4 and 5 form a square that cannot be rebuilt; 6 and 11 can.
        line.rebuilt.sort_unstable();
        assert_eq!((&line.rebuilt[..], &line.reported[..]), (&[6, 11][..], &[0, 4, 1, 5][..]));
        let mut line = Line::new("fec,cols:4,rows:4,layout:even");
        line.run(32, &[0, 1, 5, 6, 10, 11]);
        line.rebuilt.sort_unstable();
        assert_eq!((line.rebuilt, line.reported), (vec![0, 1, 5, 6, 10, 11], vec![]));
    }

    #[test]
    fn a_gap_wider_than_the_window_is_reported_and_the_stream_goes_on() {
        let mut line = Line::new("fec,cols:4,rows:3,layout:staircase");
        line.run(20, &[]);
        (0..100).for_each(|_| line.send(&mut |_, _| true));
        line.run(50, &[130]);
        // Packet 118 is rebuilt, because a column begins with it: the other packets of this column arrive.
        line.reported.sort_unstable();
        assert_eq!(line.reported, (20..120).filter(|n| *n != 118).collect::<Vec<_>>());
        assert_eq!(line.rebuilt, [118, 130]);
    }

    #[test]
    fn s_30_parity_alone_moves_the_window_once() {
        let mut line = Line::new("fec,cols:4,rows:3,layout:even");
        let mut newest = 0;
        for n in 0..400 {
            line.sender.sent(FIRST.plus(n), KeyFlag::Even, n, &payload(n));
            while let Some(parity) = line.sender.take() {
                let mut body = Vec::new();
                parity.recovery.write(parity.index, &mut body);
                if line.receiver.handle_parity(parity.seq, parity.recovery.timestamp(), &body) {
                    newest = parity.seq.ahead_of(FIRST).unwrap();
                }
                line.sender.done(parity);
            }
        }
        assert_eq!(u64::from(newest), line.receiver.lead() - 1, "no data has come");
    }

    #[test]
    fn parity_behind_a_burst_longer_than_a_small_window_is_taken() {
        let mut line = Line::new("fec,cols:2,rows:1,layout:staircase");
        line.run(20, &[]);
        (0..40).for_each(|_| line.send(&mut |_, is_parity| !is_parity));
        line.run(20, &[65]);
        assert_eq!(line.rebuilt.last(), Some(&65), "{:?}", line.rebuilt);
    }

    #[test]
    fn losses_side_by_side_are_one_range() {
        let mut line = Line::new("fec,cols:4,rows:3,layout:even");
        line.run(12, &[]);
        (12..60).for_each(|n| line.sender.sent(FIRST.plus(n), KeyFlag::Even, n, &payload(n)));
        line.receiver.handle_data(FIRST.plus(60), KeyFlag::Even, 60, &payload(60));
        let ranges = line.receiver.take_beyond_repair();
        // Only two columns of the last matrix have ended; its other groups are still open.
        assert_eq!((ranges[0], ranges.len()), ((FIRST.plus(12), FIRST.plus(49)), 3), "{ranges:?}");
        assert!(ranges.windows(2).all(|two| two[0].1.next() != two[1].0), "{ranges:?}");
    }

    #[test]
    fn s_30_parity_of_wrong_groups_is_none_and_nothing_grows() {
        let mut line = Line::new("fec,cols:4,rows:3,layout:even");
        line.run(13, &[]);
        let body = [&[0, 0, 0, 3][..], b"abc"].concat();
        let row = [&[255, 0, 0, 3][..], b"abc"].concat();
        let at = |n: u32| FIRST.plus(n);
        for (seq, body) in [
            (at(14), &row),
            (at(17), &body),
            (at(FIRST.value()), &row),
            (FIRST.previous(), &row),
            (at(0x3fff_ffff), &row),
            (at(0x3fff_fff3), &row),
            (at(20 + 96), &body),
            (at(15 + 96), &row),
        ] {
            assert!(!line.receiver.handle_parity(seq, 0, body), "{seq:?}");
        }
        for length in 0..4 {
            assert!(!line.receiver.handle_parity(at(15), 0, &row[..length]));
        }
        let mut rows_only = Line::new("fec,cols:4");
        rows_only.run(5, &[]);
        assert!(!rows_only.receiver.handle_parity(at(7), 0, &body), "a column where there are none");
        let mut columns_only = Line::new("fec,cols:4,rows:-3");
        columns_only.run(5, &[]);
        assert!(!columns_only.receiver.handle_parity(at(7), 0, &row), "a row where there are none");
        // Forged parity rebuilds nothing, or a single packet of its own group; other groups do not change.
        assert!(line.receiver.handle_parity(at(15), 0, &row) && line.receiver.handle_parity(at(15), 0, &row));
        line.run(40, &[30]);
        assert!(line.rebuilt.contains(&30));
        let receiver = &line.receiver;
        assert!(receiver.spare.len() <= SPARE_MAX && receiver.known.len() == 24);
        assert_eq!((receiver.rows.groups.len(), receiver.columns.groups.len()), (8, 16));
    }

    #[test]
    fn never_and_always_leave_reports_to_others() {
        for arq in ["never", "always"] {
            let mut line = Line::new(&format!("fec,cols:3,arq:{arq}"));
            line.run(30, &[3, 4, 10]);
            assert_eq!((line.rebuilt, line.reported), (vec![10], vec![]));
        }
    }

    proptest! {
        #[test]
        fn what_is_lost_is_rebuilt_truly_or_reported_once(
            cols in 2u32..8, rows in 1i32..6, columns_only: bool, is_even: bool, seed: u64, percent in 0u64..40,
        ) {
            let rows = if columns_only && rows > 1 { -rows } else { rows };
            let layout = if is_even { "even" } else { "staircase" };
            let mut line = Line::new(&format!("fec,cols:{cols},rows:{rows},layout:{layout}"));
            let mut random = crypto::Seed::from_number(seed).random();
            let mut lost = Vec::new();
            for _ in 0..300 {
                line.send(&mut |n, is_parity| {
                    let is_lost = random.below(100) < percent;
                    if is_lost && !is_parity {
                        lost.push(n);
                    }
                    is_lost
                });
            }
            // The stream ends with packets that are not lost, so that all earlier packets are judged.
            (0..200).for_each(|_| line.send(&mut |_, _| false));
            let mut ends: Vec<u32> = line.reported.clone();
            ends.sort_unstable();
            let mut once = ends.clone();
            once.dedup();
            prop_assert_eq!(&ends, &once, "reported twice");
            let mut rebuilt = line.rebuilt.clone();
            rebuilt.sort_unstable();
            prop_assert!(rebuilt.windows(2).all(|two| two[0] < two[1]), "rebuilt twice");
            ends.retain(|n| !rebuilt.contains(n));
            ends.extend(&rebuilt);
            ends.sort_unstable();
            prop_assert_eq!(ends, lost);
        }
    }
}
