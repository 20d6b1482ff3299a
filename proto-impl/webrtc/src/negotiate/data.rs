//! Sections of data channels (RFC 8841).

use sdp::{Attribute, Description, Formats, Media, MediaKind};

use super::PORT_DISCARD;

/// SCTP port if the description does not specify one.
const PORT: u16 = 5000;
/// Maximum message size in bytes if the description does not specify one (RFC 8841 §6.1).
const MESSAGE_BYTES_MAX: u64 = 65_536;

/// True if the section describes data channels.
pub(super) fn is_data(media: &Media) -> bool {
    let protocol = media.protocol.to_ascii_uppercase();
    media.kind == MediaKind::Application && matches!(protocol.as_str(), "UDP/DTLS/SCTP" | "TCP/DTLS/SCTP")
}

/// True if the section can be accepted: it is in the bundle (RFC 8841 §4), or the only section.
pub(super) fn is_usable(description: &Description, media: &Media) -> bool {
    let mids = description.bundle().map(|group| group.mids.as_slice()).unwrap_or_default();
    let is_bundled = media.attributes.mid().is_some_and(|mid| mids.iter().any(|known| known == mid));
    is_data(media) && !media.is_rejected() && (is_bundled || description.media.len() == 1)
}

/// Reads the peer's SCTP port and message size from its section.
pub(super) fn remote(media: &Media) -> sctp::Remote {
    let message_bytes_max = media.attributes.max_message_size().copied().unwrap_or(MESSAGE_BYTES_MAX);
    sctp::Remote { port: media.attributes.sctp_port().copied().unwrap_or(PORT), message_bytes_max }
}

/// Returns the answer to a section.
pub(super) fn accept(media: &Media, config: &sctp::Config) -> Media {
    media.accept_data(config.port, length(config))
}

/// Returns an offered section, without its transport attributes.
pub(super) fn offer(mid: String, config: &sctp::Config) -> Media {
    let formats = Formats::Other(vec!["webrtc-datachannel".to_owned()]);
    let mut media = Media::new(MediaKind::Application, PORT_DISCARD, "UDP/DTLS/SCTP", formats);
    media.connection = Some(sdp::Connection::new(sdp::Host::UNSPECIFIED));
    media.attributes.push(Attribute::Mid(mid));
    media.attributes.push(Attribute::SctpPort(config.port));
    media.attributes.push(Attribute::MaxMessageSize(length(config)));
    media
}

fn length(config: &sctp::Config) -> u64 {
    u64::try_from(config.message_bytes_max).unwrap_or(u64::MAX)
}
