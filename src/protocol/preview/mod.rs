//! Previews: small pictures of live streams, as blobs at `previews/{id}.png` and `previews/{id}.jpg` below the
//! application.
//!
//! ```text
//! request ──> sink ── newest key frame ──> job: a process of its own decodes ──> blob, fresh for a period ──> answer
//! ```
//!
//! A request for a picture that is not fresh starts the sink ([`sink`]), which takes one key frame, publishes one
//! blob and ends. With `generatePreview` the sink starts with the stream, and makes one picture per period. The
//! decoders and encoders are in the crate `picture`; no worker runs them.

mod settings;
mod sink;
#[cfg(test)]
mod tests;

use picture::Format;

use super::row::Protocol;
use super::sinks::BlobRoot;

/// The hidden command of this program that makes pictures, in a process of its own.
pub const PREVIEW_WORKER: &str = "preview-worker";
/// Name of the sinks, and protocol of requests for their pictures, which do not count as viewers.
const NAME: &str = "preview";
/// The folder of the pictures, beside the application's `streams`.
static ROOT: BlobRoot = BlobRoot { name: "previews", picture: Some("jpg") };

/// The entry of previews in the table of protocols ([`super::registry`]).
pub(super) static PROTOCOL: Protocol =
    Protocol { section: &settings::SECTION, sinks: &[&sink::PNG, &sink::JPEG], ..Protocol::NONE };

/// Returns the stream of a picture of this format.
fn stream_of(name: &str, format: Format) -> Option<&str> {
    let id = ROOT.file(name)?.strip_suffix(format.ending())?.strip_suffix('.')?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}
