//! The order in which a source that is a single run of bytes is read: from start to end; or, for an MP4 file with its
//! index after its media, the beginning, then the index, then the media.

use bytes::Bytes;

use super::Media;
use super::body::Body;
use super::layout::Behind;

/// The part being read.
#[derive(Debug)]
enum Part {
    /// The whole source, from start to end.
    Whole,
    /// The index of a file, at this offset or later, with the bytes that have arrived of it.
    Index { media_at: u64, index_at: u64, behind: Behind },
    /// The media, after the index was read.
    Media { media_at: u64, index: Bytes },
}

/// The reading of one source.
#[derive(Debug)]
pub(in crate::protocol) struct Reading {
    part: Part,
    body: Body,
}

impl Reading {
    /// Begins to read a source.
    pub(in crate::protocol) fn new() -> Self {
        Self { part: Part::Whole, body: Body::new() }
    }

    /// Returns the offset of the part to read now; `None` for the whole.
    pub(in crate::protocol) const fn from(&self) -> Option<u64> {
        match &self.part {
            Part::Whole => None,
            Part::Index { index_at, .. } => Some(*index_at),
            Part::Media { media_at, .. } => Some(*media_at),
        }
    }

    /// Returns the index, if its media is being read.
    pub(in crate::protocol) fn index(&self) -> Option<Media> {
        match &self.part {
            Part::Media { media_at, index } => {
                Some(Media::Mp4Index { index: index.clone(), media_at: *media_at })
            }
            Part::Whole | Part::Index { .. } => None,
        }
    }

    /// Takes the next bytes; earlier ones must have been polled. Returns true if the rest of this part is useless and
    /// another part must be read.
    ///
    /// # Errors
    /// The reason why the source cannot be used.
    pub(in crate::protocol) fn push(&mut self, bytes: Bytes) -> Result<bool, &'static str> {
        let Part::Index { media_at, behind, .. } = &mut self.part else {
            self.body.push(bytes);
            let Body::MediaFirst(media_at, index_at) = self.body else { return Ok(false) };
            self.part = Part::Index { media_at, index_at, behind: Behind::default() };
            return Ok(true);
        };
        let Some(index) = behind.push(&bytes)? else { return Ok(false) };
        self.part = Part::Media { media_at: *media_at, index };
        self.body = Body::Mp4(None);
        Ok(true)
    }

    /// Returns the next piece of the stream.
    ///
    /// # Errors
    /// The reason why there are no more pieces; returned once.
    pub(in crate::protocol) fn poll(&mut self) -> Result<Option<Media>, String> {
        self.body.poll()
    }
}
