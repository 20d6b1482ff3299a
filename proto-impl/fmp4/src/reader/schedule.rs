//! The order in which the samples of a file are read.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::EMPTY_SAMPLES_MAX;
use super::fragment::Run;
use super::tables::{Row, Walk};
use crate::Error;

/// Sample tables of a track, and the track's next sample.
#[derive(Debug)]
struct Ahead {
    track: usize,
    walk: Walk,
    row: Option<Row>,
}

/// Samples that have not been read yet: from the tables of a plain file, and from the current
/// fragment.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    walks: Vec<Ahead>,
    runs: VecDeque<Run>,
    /// Next sample of the first run.
    run_row: Option<Row>,
    /// Number of successive empty samples.
    empty: u32,
}

impl Schedule {
    /// Creates the schedule of sample tables, each with the index of its track.
    pub(super) fn of_tables(walks: Vec<(usize, Walk)>) -> Result<Self, Error> {
        let mut schedule = Self::default();
        for (track, walk) in walks {
            let mut ahead = Ahead { track, walk, row: None };
            ahead.row = advance(&mut schedule.empty, || ahead.walk.next())?;
            schedule.walks.push(ahead);
        }
        Ok(schedule)
    }

    /// Sets the runs of the next fragment. All runs of the previous one must have been used.
    pub(super) fn put_runs(&mut self, runs: VecDeque<Run>) -> Result<(), Error> {
        self.runs = runs;
        self.advance_runs()
    }

    /// True if the current fragment has samples that were not read yet.
    pub(super) fn has_runs(&self) -> bool {
        self.run_row.is_some()
    }

    /// Returns the next sample in file order, with the index of its track.
    pub(super) fn peek(&self) -> Option<(usize, Row)> {
        let of_walks = self.walks.iter().filter_map(|ahead| Some((ahead.track, ahead.row?)));
        let of_runs = self.runs.front().and_then(|run| Some((run.track, self.run_row?)));
        of_walks.chain(of_runs).min_by_key(|(_, row)| row.offset)
    }

    /// Removes the sample that [`Self::peek`] returns.
    pub(super) fn pop(&mut self) -> Result<(), Error> {
        let Some((track, row)) = self.peek() else { return Ok(()) };
        let same = |ahead: &&mut Ahead| ahead.track == track && ahead.row == Some(row);
        match self.walks.iter_mut().find(same) {
            Some(ahead) => {
                ahead.row = advance(&mut self.empty, || ahead.walk.next())?;
                Ok(())
            }
            None => self.advance_runs(),
        }
    }

    fn advance_runs(&mut self) -> Result<(), Error> {
        self.run_row = None;
        while let Some(run) = self.runs.front_mut() {
            self.run_row = advance(&mut self.empty, || run.next())?;
            if self.run_row.is_some() {
                return Ok(());
            }
            self.runs.pop_front();
        }
        Ok(())
    }
}

/// Returns the next sample that is not empty; empty ones have no meaning for audio and video.
fn advance(
    empty: &mut u32,
    mut next: impl FnMut() -> Result<Option<Row>, Error>,
) -> Result<Option<Row>, Error> {
    loop {
        match next()? {
            Some(row) if row.size == 0 => {
                *empty = empty.saturating_add(1);
                if *empty > EMPTY_SAMPLES_MAX {
                    return Err(Error::TooManyEmptySamples);
                }
            }
            other => {
                *empty = 0;
                return Ok(other);
            }
        }
    }
}
