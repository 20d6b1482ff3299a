//! The order in which a source that is one run of bytes is read: all of it as it stands; or, of an MP4 file with its
//! index behind its media, its beginning, then the index, and then the media.

use bytes::Bytes;

use super::Media;
use super::body::Body;
use super::layout::Behind;

/// The part that is read.
#[derive(Debug)]
enum Part {
    /// All of it.
    Whole,
    /// The index of a file, which is at this offset or behind; and what has come of that.
    Index { media_at: u64, index_at: u64, behind: Behind },
    /// The media, with the index before it.
    Media { media_at: u64, index: Bytes },
}

/// See the module.
#[derive(Debug)]
pub(in crate::protocol) struct Reading {
    part: Part,
    body: Body,
}

impl Reading {
    /// Nothing is read yet.
    pub(in crate::protocol) fn new() -> Self {
        Self { part: Part::Whole, body: Body::new() }
    }

    /// The offset from which what is read now begins; `None`: all is read.
    pub(in crate::protocol) const fn from(&self) -> Option<u64> {
        match &self.part {
            Part::Whole => None,
            Part::Index { index_at, .. } => Some(*index_at),
            Part::Media { media_at, .. } => Some(*media_at),
        }
    }

    /// The index, where the media follow it.
    pub(in crate::protocol) fn index(&self) -> Option<Media> {
        match &self.part {
            Part::Media { media_at, index } => {
                Some(Media::Mp4Index { index: index.clone(), media_at: *media_at })
            }
            Part::Whole | Part::Index { .. } => None,
        }
    }

    /// Takes the next bytes; what came before is polled by then. True: the rest of this part is of no use, another one is to be
    /// read.
    ///
    /// # Errors
    /// The reason nothing can come of it.
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

    /// The next piece of the stream.
    ///
    /// # Errors
    /// The reason why there is none and will be none; once.
    pub(in crate::protocol) fn poll(&mut self) -> Result<Option<Media>, String> {
        self.body.poll()
    }
}
