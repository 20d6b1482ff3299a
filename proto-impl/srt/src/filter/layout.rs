//! Positions of packets in rows and columns.
//!
//! Packets are counted from the first packet of the connection, without wrapping. A row is `cols` successive packets; a
//! column consists of one packet from each of `rows` rows. Rows are numbered in order. Column groups are numbered
//! matrix by matrix, with `cols` numbers for each matrix.

use crate::filter::Fec;
use crate::filter::settings::Layout;
use crate::seq::Seq;

/// Maps packets of a filter configuration to row and column groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix {
    cols: u64,
    rows: u64,
    has_columns: bool,
    layout: Layout,
}

impl Matrix {
    pub(super) fn new(fec: &Fec) -> Self {
        Self {
            cols: u64::from(fec.cols),
            rows: u64::from(fec.rows),
            has_columns: fec.has_columns(),
            layout: fec.layout,
        }
    }

    /// Number of packets in a whole matrix.
    pub(super) const fn size(&self) -> u64 {
        self.cols.saturating_mul(self.rows)
    }

    pub(super) const fn cols(&self) -> u64 {
        self.cols
    }

    /// Returns the first packet of a column's first group.
    const fn base(&self, column: u64) -> u64 {
        match self.layout {
            Layout::Even => column,
            Layout::Staircase => column.saturating_add((column % self.rows).saturating_mul(self.cols)),
        }
    }

    /// Returns the row of a packet.
    pub(super) const fn row_of(&self, at: u64) -> u64 {
        at / self.cols
    }

    /// Returns the column group of a packet. `None` if the packet comes before the first group of its column, or if the
    /// filter has no columns.
    pub(super) const fn column_of(&self, at: u64) -> Option<u64> {
        if !self.has_columns {
            return None;
        }
        let column = at % self.cols;
        match at.checked_sub(self.base(column)) {
            Some(from_base) => {
                Some((from_base / self.size()).saturating_mul(self.cols).saturating_add(column))
            }
            None => None,
        }
    }

    /// Iterates over the packets of a row.
    pub(super) fn row(&self, number: u64) -> impl Iterator<Item = u64> + use<> {
        let (first, cols) = (number.saturating_mul(self.cols), self.cols);
        (0..cols).map(move |n| first.saturating_add(n))
    }

    /// Iterates over the packets of a column group.
    pub(super) fn column(&self, number: u64) -> impl Iterator<Item = u64> + use<> {
        let (turn, column) = (number / self.cols, number % self.cols);
        let first = turn.saturating_mul(self.size()).saturating_add(self.base(column));
        let (rows, cols) = (self.rows, self.cols);
        (0..rows).map(move |n| first.saturating_add(n.saturating_mul(cols)))
    }

    /// Returns the last packet of a column group.
    const fn column_end(&self, number: u64) -> u64 {
        let (turn, column) = (number / self.cols, number % self.cols);
        let first = turn.saturating_mul(self.size()).saturating_add(self.base(column));
        first.saturating_add(self.rows.saturating_sub(1).saturating_mul(self.cols))
    }

    /// True if a packet is the last of its row.
    pub(super) const fn ends_row(&self, at: u64) -> bool {
        at % self.cols == self.cols.saturating_sub(1)
    }

    /// Returns the column group whose last packet is this one; `None` if there is none.
    pub(super) fn ends_column(&self, at: u64) -> Option<u64> {
        self.column_of(at).filter(|number| self.column_end(*number) == at)
    }

    /// Of the groups that a packet belongs to, returns the last packet of the one that ends last: the column group, or
    /// the row if there are no columns.
    pub(super) fn last_end(&self, at: u64) -> u64 {
        match self.column_of(at) {
            Some(number) => self.column_end(number),
            None => self.row_of(at).saturating_add(1).saturating_mul(self.cols).saturating_sub(1),
        }
    }
}

/// Converts sequence numbers to positions that do not wrap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// Position after the newest packet.
    next: u64,
    /// Sequence number of the packet at position `next`.
    next_seq: Seq,
}

impl Places {
    pub(super) const fn new(first: Seq) -> Self {
        Self { next: 0, next_seq: first }
    }

    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Returns the position of a packet; `None` if the packet is before the first of the connection.
    pub(super) fn of(&self, seq: Seq) -> Option<u64> {
        match seq.ahead_of(self.next_seq) {
            Some(ahead) => Some(self.next.saturating_add(u64::from(ahead))),
            None => self.next.checked_sub(u64::from(self.next_seq.ahead_of(seq)?)),
        }
    }

    /// Returns the sequence number of the packet at a position. The position must be within half of the number
    /// space from the newest packet.
    pub(super) fn seq(&self, at: u64) -> Seq {
        let low = |places: u64| u32::try_from(places & 0x7fff_ffff).unwrap_or(0);
        match at.checked_sub(self.next) {
            Some(ahead) => self.next_seq.plus(low(ahead)),
            None => Seq::new(self.next_seq.value().wrapping_sub(low(self.next.saturating_sub(at)))),
        }
    }

    /// Makes the packet at this position the newest one.
    pub(super) fn advance(&mut self, newest: u64) {
        let next = newest.saturating_add(1);
        (self.next_seq, self.next) = (self.seq(next), next);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn matrix(text: &str) -> Matrix {
        Matrix::new(&text.parse::<crate::filter::FecSettings>().unwrap().complete().unwrap())
    }

    #[test]
    fn columns_are_where_libsrt_documents_them() {
        // 10 columns of 5 packets. With an even layout, the first column after packet 499 begins at 500; columns of
        // a staircase begin 11 packets apart.
        let even = matrix("fec,cols:10,rows:5,layout:even");
        assert_eq!(even.column(0).collect::<Vec<_>>(), [0, 10, 20, 30, 40]);
        assert_eq!(even.column(13).collect::<Vec<_>>(), [53, 63, 73, 83, 93]);
        let stairs = matrix("fec,cols:10,rows:5,layout:staircase");
        assert_eq!(stairs.column(0).collect::<Vec<_>>(), [0, 10, 20, 30, 40]);
        assert_eq!(stairs.column(1).collect::<Vec<_>>(), [11, 21, 31, 41, 51]);
        assert_eq!(stairs.column(4).collect::<Vec<_>>(), [44, 54, 64, 74, 84]);
        assert_eq!(stairs.column(5).collect::<Vec<_>>(), [5, 15, 25, 35, 45]);
        assert_eq!(stairs.column(11).collect::<Vec<_>>(), [61, 71, 81, 91, 101]);
        assert_eq!((stairs.column_of(1), stairs.column_of(11)), (None, Some(1)));
        assert_eq!(
            (stairs.ends_column(40), stairs.ends_column(41), stairs.ends_column(45)),
            (Some(0), None, Some(5))
        );
        assert_eq!(matrix("fec,cols:10").column_of(30), None);
    }

    proptest! {
        #[test]
        fn a_packet_is_in_one_row_and_at_most_one_column(cols in 2u16..20, rows in 2i16..20, is_even: bool) {
            let layout = if is_even { "even" } else { "staircase" };
            let matrix = matrix(&format!("fec,cols:{cols},rows:{rows},layout:{layout}"));
            let mut columns: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let places = 4 * matrix.size();
            for at in 0..places {
                prop_assert!(matrix.row(matrix.row_of(at)).any(|member| member == at));
                if let Some(number) = matrix.column_of(at) {
                    columns.entry(number).or_default().push(at);
                }
                prop_assert!(matrix.column_of(at).is_some() || at < matrix.size() && !is_even);
            }
            for (number, members) in columns {
                let whole: Vec<u64> = matrix.column(number).filter(|at| *at < places).collect();
                prop_assert_eq!(whole, members, "column {}", number);
            }
        }

        #[test]
        fn places_and_numbers_lead_to_each_other(first: u32, steps in prop::collection::vec(0u64..1_000_000_000, 1..20)) {
            let mut places = Places::new(Seq::new(first));
            let mut newest = 0;
            for step in steps {
                newest += step;
                places.advance(newest);
                for at in [newest, newest + 5, newest.saturating_sub(1000)] {
                    prop_assert_eq!(places.of(places.seq(at)), Some(at));
                }
            }
            prop_assert_eq!(Places::new(Seq::new(first)).of(Seq::new(first).previous()), None);
        }
    }
}
