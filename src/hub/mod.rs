//! The hub: live streams as rings of access units, and the cursors of their subscribers.
//!
//! Each worker has one ring per stream. The publisher appends to the ring. Each subscriber has a cursor instead of
//! a queue, so a thousand viewers cost a thousand numbers. Bytes that all subscribers of a format need are
//! packaged once, in addition to the ring ([`Packager`]). A write to a subscriber only refers to slices of these
//! bytes.
//!
//! The hub names no protocol: a format is a [`Package`] that the protocol supplies.

mod blobs;
mod cursor;
mod flush;
mod item;
mod mirror;
mod own_text;
mod packager;
mod pauses;
mod ring;
mod ring_memory;
mod selection;
mod standby;
mod stream;

pub use blobs::{
    BLOB_BYTES_MIN, BlobMemory, Blobs, Missed, Published, STREAM_BLOB_BYTES_MAX, STREAM_BLOBS_MAX,
};
pub use cursor::{Cursor, Delivery, Forwarded, Jump};
pub use flush::{Flush, FlushState};
pub use item::{Item, PacketLogs, Packets};
pub use mirror::{Credit, Mirror, MirroredUnit};
pub use own_text::{OWN_TEXT_MAX, OwnText};
pub use packager::{AsPublished, FormatKey, Package, Packager, Parts, Sharing, Stamp};
pub use pauses::Pauses;
pub use ring::{Entry, Ring, RingLimits};
pub use ring_memory::RingMemory;
pub use selection::{Chosen, Fit, Pick, Selection};
pub use standby::{Held, Splice, Standby};
pub use stream::{FormatIndex, FormatLimit, Pushed, Stream, Subscriber};
