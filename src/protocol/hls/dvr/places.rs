//! The places of segments in a DASH manifest that reaches back: their times, and the period of each.
//!
//! Periods are those of the live manifest. A further one begins behind each gap, because the names of a period's
//! segments are numbered without gaps (ISO/IEC 23009-1 §5.3.9.6).

use std::collections::BTreeMap;

use hls::segmenter::{Anchor, Outline, Piece};

use super::reach::Listed;

/// Beginning of the lines of a list on the disk that have the places of its segments.
const LINE: &str = "#MILLSTREAM-DVR-DASH:";

/// The places of segments that no playlist has listed yet, by name.
#[derive(Debug, Default)]
pub(in crate::protocol::hls) struct Coming {
    pieces: BTreeMap<String, Piece>,
    /// The newest one, whose description others may share.
    newest: Option<Piece>,
}

impl Coming {
    /// Adds the newest segments of a rendition, which have these names.
    pub(in crate::protocol::hls) fn add(&mut self, names: &[String], outline: &Outline) {
        let pieces = Piece::newest(outline, names.len(), self.newest.as_ref());
        self.newest = pieces.last().cloned().or_else(|| self.newest.take());
        self.pieces.extend(names.iter().rev().cloned().zip(pieces.into_iter().rev()));
    }

    pub(in crate::protocol::hls) fn take(&mut self, name: &str) -> Option<Piece> {
        self.pieces.remove(name)
    }
}

/// The state between two segments.
#[derive(Debug, Clone, Default)]
pub(in crate::protocol::hls) struct Places {
    /// Periods of this run of the stream.
    anchors: Vec<Anchor>,
    /// The piece before the next segment.
    former: Option<Piece>,
}

impl Places {
    /// Sets the periods of this run of the stream.
    pub(in crate::protocol::hls) fn set_anchors(&mut self, anchors: &[Anchor]) {
        self.anchors = anchors.to_vec();
    }

    /// Returns the pieces of segments that follow one another, and the state after them.
    pub(super) fn of<'l>(&self, segments: impl IntoIterator<Item = &'l Listed>) -> (Vec<Piece>, Self) {
        let mut after = self.clone();
        let mut pieces: Vec<Piece> = Vec::new();
        let there = segments.into_iter().filter(|listed| !listed.segment.gap);
        for piece in there.filter_map(|listed| listed.piece.clone()) {
            after.add(piece, &mut pieces);
        }
        (pieces, after)
    }

    /// Adds a piece to those before it. Pieces before the first period are left out.
    pub(in crate::protocol::hls) fn add(&mut self, piece: Piece, pieces: &mut Vec<Piece>) {
        let Some(anchor) = self.anchor_of(&piece) else { return };
        let piece = piece.anchored(anchor);
        self.former = Some(piece.clone());
        let rest = match pieces.last_mut() {
            Some(last) => last.join(piece),
            None => Some(piece),
        };
        pieces.extend(rest);
    }

    /// True if a period has begun.
    pub(in crate::protocol::hls) const fn has_anchors(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// Returns the beginning of a segment's period.
    fn anchor_of(&self, piece: &Piece) -> Option<Anchor> {
        let (begin_ms, middle_ms) = piece.begin_ms();
        let begun = self.anchors.iter().rfind(|anchor| anchor.begin_ms <= middle_ms);
        let anchor = begun.or_else(|| self.anchors.first()).copied()?;
        let former = self.former.as_ref().filter(|former| former.anchor().run_ms == anchor.run_ms);
        Some(match former {
            Some(former) if anchor.start_ms > former.anchor().start_ms => anchor,
            Some(former) if piece.goes_on(former) => former.anchor(),
            Some(_) => anchor.moved_to(begin_ms),
            None => anchor,
        })
    }
}

/// Splits a list that was read from the disk into its lines for playlists and the pieces of its segments.
pub(in crate::protocol::hls) fn split(list: &str) -> (&str, Vec<Piece>) {
    let at = list.find(&format!("\n{LINE}")).map_or(list.len(), |at| at.saturating_add(1));
    let (text, rest) = list.split_at_checked(at).unwrap_or((list, ""));
    let pieces: Vec<Piece> = rest.lines().filter_map(|line| Piece::read(line.strip_prefix(LINE)?)).collect();
    let count = pieces.iter().map(Piece::count).fold(0, u64::saturating_add);
    let segments = text.lines().filter(|line| !line.starts_with('#')).count();
    let is_sane = u64::try_from(segments).is_ok_and(|segments| count <= segments);
    (text, if is_sane { pieces } else { Vec::new() })
}

/// Returns the lines of pieces in a list on the disk.
pub(in crate::protocol::hls) fn lines(pieces: &[Piece]) -> String {
    pieces.iter().map(|piece| format!("{LINE}{}\n", piece.line())).collect()
}

/// Keeps the pieces of the first `count` segments.
pub(in crate::protocol::hls) fn truncate(pieces: &mut Vec<Piece>, count: u64) {
    let mut left = count;
    for piece in &mut *pieces {
        piece.truncate(left);
        left = left.saturating_sub(piece.count());
    }
    pieces.retain(|piece| piece.count() > 0);
}
