//! Live streams as FLV tags: the body of HTTP-FLV, and one binary message per tag for WS-FLV (FLV 10.1 §E).
//!
//! ```text
//! one unit:  [frame head (WS)] [tag head, body head] [payload] [previous tag size]
//! ```
//!
//! All viewers of a stream and format share these bytes, except for the four bytes of a tag's timestamp: they count
//! from the first unit sent to the viewer.

mod pull;
mod url;
mod viewer;
mod web_socket;

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use crypto::Seed;
use flv::file::{Header, TagHead, TagKind};
use media::{Track, TrackKind};
use smallvec::SmallVec;

use crate::auth::url::{Url, UrlError};
use crate::http::websocket::media_frame_head;
use crate::http::{BodyKind, Cors, Method, Methods, Mount};
use crate::hub::{Chosen, Entry, Fit, Item, Package, Parts, Selection, Stamp};
use crate::mail::Transport;
use crate::protocol::FormatKind;
use crate::protocol::flv_mapping::{self, Body};
use crate::protocol::pull::{Client, Patience};
use crate::protocol::row::{Addresses, LoadUse, Outbound, Protocol, Request, Scheme};
use crate::types::StreamKey;
use pull::HttpPull;
use url::LiveUrl;
use web_socket::WsFlvClient;

/// The entry of HTTP-FLV and WS-FLV in the table of protocols ([`super::registry`]). Viewers connect to the listeners
/// of HTTP.
pub(super) static PROTOCOL: Protocol = Protocol {
    schemes: &[
        Scheme {
            name: "http",
            default_port: 80,
            pushes: false,
            pulls: true,
            copies: None,
            takes_credentials: false,
            load: LoadUse::plays("flv"),
            read: |url, scheme| outbound(url, scheme, Transport::Tcp),
        },
        Scheme {
            name: "https",
            default_port: 443,
            pushes: false,
            pulls: true,
            copies: None,
            takes_credentials: false,
            load: LoadUse::plays("flv"),
            read: |url, scheme| outbound(url, scheme, Transport::Tls),
        },
        Scheme {
            name: "ws",
            default_port: 80,
            pushes: false,
            pulls: false,
            copies: None,
            takes_credentials: false,
            load: LoadUse::plays("ws-flv"),
            read: |url, scheme| outbound_messages(url, scheme, Transport::Tcp),
        },
        Scheme {
            name: "wss",
            default_port: 443,
            pushes: false,
            pulls: false,
            copies: None,
            takes_credentials: false,
            load: LoadUse::plays("ws-flv"),
            read: |url, scheme| outbound_messages(url, scheme, Transport::Tls),
        },
    ],
    formats: &[&FLV, &WS_FLV],
    // HTTP-FLV, or, if the request is an upgrade, WS-FLV.
    mounts: &[Mount {
        path: "/{app}/{id}.flv",
        methods: Methods::These(&[Method::Get, Method::Head]),
        body: BodyKind::Any,
        cors: Cors::MEDIA,
        handler: viewer::play,
    }],
    ..Protocol::NONE
};

fn outbound(url: &Url<'_>, scheme: &Scheme, transport: Transport) -> Result<Outbound, UrlError> {
    let url = LiveUrl::read(url, scheme.default_port)?;
    Ok(Outbound { host: url.host.clone(), port: url.port, transport, request: Box::new(url) })
}

fn outbound_messages(url: &Url<'_>, scheme: &Scheme, transport: Transport) -> Result<Outbound, UrlError> {
    let url = LiveUrl::read(url, scheme.default_port)?;
    Ok(Outbound { host: url.host.clone(), port: url.port, transport, request: Box::new(InMessages(url)) })
}

impl Request for LiveUrl {
    /// Returns false: an HTTP target never means a stream of this server itself, because the outbound policy forbids
    /// connections to the server's own HTTP ports.
    fn means(&self, _port: u16, _addresses: &Addresses, _key: &StreamKey) -> bool {
        false
    }

    fn pull(&self, patience: Patience, _seed: Seed) -> Option<Box<dyn Client>> {
        Some(Box::new(HttpPull::new(self, patience)))
    }
}

/// The URL of a stream over WS-FLV, i.e. of FLV tags in WebSocket messages.
#[derive(Debug)]
struct InMessages(LiveUrl);

impl Request for InMessages {
    fn means(&self, _port: u16, _addresses: &Addresses, _key: &StreamKey) -> bool {
        false
    }

    fn pull(&self, _patience: Patience, seed: Seed) -> Option<Box<dyn Client>> {
        Some(Box::new(WsFlvClient::new(&self.0, seed)))
    }
}

/// Size of the memory blocks from which the heads of tags are taken. One block lasts for some hundred tags.
const SCRATCH_BYTES: usize = 4096;
/// Maximum size of the head of a tag: frame head, tag head, body head, trailer.
const HEAD_BYTES: usize = 64;
/// Maximum length of a slice that contains a timestamp. Such a slice is copied for each viewer.
const STAMPED_BYTES_MAX: usize = 32;
/// Offset of the timestamp in a tag's head.
const TIMESTAMP_AT: usize = 4;
/// Maximum size of a tag's body.
const TAG_BYTES_MAX: usize = 0xff_ffff;
/// Maximum length of onMetaData that is searched for announced tracks.
const METADATA_BYTES_MAX: usize = 64 * 1024;

/// Format of HTTP-FLV.
pub(super) static FLV: FormatKind = FormatKind {
    name: "flv",
    counted_as: None,
    is_enabled: |app| app.http_flv_enabled,
    selection: Selection::DEFAULT,
    package: |_| Some(Box::new(FlvPackage::new(false))),
    is_given_up_by_close: false,
    is_for_nodes: false,
};

/// Format of WS-FLV.
pub(super) static WS_FLV: FormatKind = FormatKind {
    name: "ws-flv",
    counted_as: None,
    is_enabled: |app| app.http_flv_enabled,
    selection: Selection::DEFAULT,
    package: |_| Some(Box::new(FlvPackage::new(true))),
    is_given_up_by_close: false,
    is_for_nodes: false,
};

/// The FLV tags of one stream.
#[derive(Debug)]
pub(crate) struct FlvPackage {
    /// True if each tag is a binary message of a WebSocket.
    framed: bool,
    scratch: BytesMut,
}

impl FlvPackage {
    pub(crate) fn new(framed: bool) -> Self {
        Self { framed, scratch: BytesMut::new() }
    }

    /// Appends a tag. `stamped_ms` is the time of the tag; `None` if the timestamp is always zero.
    fn tag(&mut self, tag: &mut Tag, body: &Body<'_>, stamped_ms: Option<i64>) {
        let body_bytes = body.head.len().saturating_add(body.payload.len());
        let Some(size) = u32::try_from(body_bytes).ok().filter(|_| body_bytes <= TAG_BYTES_MAX) else {
            return;
        };
        if self.scratch.capacity() < HEAD_BYTES {
            self.scratch = BytesMut::with_capacity(SCRATCH_BYTES);
        }
        let head = TagHead { kind: body.kind, size, timestamp: 0 };
        let (head, trailer) = (head.write(), head.trailer());
        let mut at = TIMESTAMP_AT;
        if self.framed {
            let frame = media_frame_head(body_bytes.saturating_add(head.len()).saturating_add(trailer.len()));
            self.scratch.put_slice(&frame);
            at = at.saturating_add(frame.len());
        }
        self.scratch.put_slice(&head);
        if let Some(ms) = stamped_ms {
            tag.stamps.push(Stamp { slice: tag.slices.len(), at, ms, write: tag_time });
        }
        if self.scratch.len().saturating_add(body.head.len()) > STAMPED_BYTES_MAX {
            tag.slices.push(self.scratch.split().freeze());
        }
        self.scratch.put_slice(&body.head);
        if !self.scratch.is_empty() {
            tag.slices.push(self.scratch.split().freeze());
        }
        tag.slices.push(body.payload.clone().into_owned());
        self.scratch.put_slice(&trailer);
        tag.slices.push(self.scratch.split().freeze());
    }
}

/// A tag being built.
#[derive(Debug, Default)]
struct Tag {
    slices: SmallVec<[Bytes; 9]>,
    stamps: SmallVec<[Stamp; 2]>,
}

impl Tag {
    fn parts(self) -> Parts {
        Parts::stamped(self.slices, self.stamps)
    }
}

impl Package for FlvPackage {
    /// Prefers audio codecs that every player supports, because an FLV player cannot announce which ones it supports.
    fn fit(&self, track: &Track) -> Fit {
        let is_new = flv_mapping::needed_four_cc(track).is_some();
        if is_new && track.kind() == TrackKind::Audio { Fit::Rarely } else { Fit::Well }
    }

    fn prelude(&mut self, chosen: &Chosen, dts_ms: i64) -> Parts {
        let mut tag = Tag::default();
        if let Some(payload) = flv_mapping::metadata(chosen) {
            // The timestamp is always zero: ffmpeg takes onMetaData with another timestamp for a subtitle track.
            let body = Body { kind: TagKind::Data, head: SmallVec::new(), payload: Cow::Borrowed(&payload) };
            self.tag(&mut tag, &body, None);
        }
        for track in chosen.iter() {
            // Colour and channel order (`flv_mapping::extra`) are not sent: an FLV player cannot announce that it
            // supports them, and mpegts.js stops at an unknown packet type.
            if let Some(body) = flv_mapping::config(track, chosen) {
                self.tag(&mut tag, &body, Some(dts_ms));
            }
        }
        tag.parts()
    }

    fn unit(&mut self, entry: &Entry, chosen: &Chosen) -> Item {
        let mut tag = Tag::default();
        if let Some(body) = flv_mapping::unit(entry, chosen) {
            self.tag(&mut tag, &body, Some(entry.dts_ms));
        }
        tag.parts().into()
    }
}

/// Encodes a tag's timestamp: first the low 24 bits, then the high 8 bits. It wraps after 32 bits (§E.4.1).
fn tag_time(ms: i64) -> [u8; 4] {
    let [high, a, b, c] = u32::try_from(ms & 0xffff_ffff).unwrap_or(0).to_be_bytes();
    [a, b, c, high]
}

/// Returns the file header for the tracks that are known or announced by onMetaData; `None` while nothing is known.
pub(crate) fn header(chosen: &Chosen) -> Option<Header> {
    let announced = |name: &str| chosen.all().metadata.as_ref().is_some_and(|body| announces(body, name));
    let has = |kind, name| {
        chosen.of_kind(kind).next().is_some() || (chosen.all().default_of(kind).is_none() && announced(name))
    };
    let (video, audio) = (has(TrackKind::Video, "videocodecid"), has(TrackKind::Audio, "audiocodecid"));
    (video || audio).then_some(Header { audio, video })
}

/// True if the metadata has a member of this name.
fn announces(metadata: &[u8], name: &str) -> bool {
    let metadata = metadata.get(..METADATA_BYTES_MAX).unwrap_or(metadata);
    metadata.windows(name.len()).any(|window| window == name.as_bytes())
}

/// Returns the bytes before the first tag.
pub(crate) fn file_header(header: Header) -> Bytes {
    Bytes::copy_from_slice(&header.write())
}

/// The header to send if nothing is known of the tracks.
pub(crate) const BOTH: Header = Header { audio: true, video: true };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::websocket::{FrameHead, Opcode};
    use media::codec::h264;
    use media::{AccessUnit, CodecConfig, Timescale, TrackId, Tracks};
    use std::sync::Arc;
    use std::time::Instant;

    fn tracks() -> Arc<Tracks> {
        let record = Bytes::from_static(b"\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68");
        let config = CodecConfig::H264(h264::Config::read(record).unwrap());
        let mut tracks = Tracks::new(1, [Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS)]);
        tracks.metadata =
            Some(Bytes::from_static(b"\x02\0\x0aonMetaData\x03\0\x0caudiocodecid\0\0\0\0\0\0\0\0\0\0\0\x09"));
        Arc::new(tracks)
    }

    fn chosen(tracks: &Arc<Tracks>) -> Chosen {
        Chosen::all_of(tracks)
    }

    fn entry(dts: i64, payload: usize) -> Entry {
        let payload = Bytes::from(vec![7; payload]);
        let unit = AccessUnit {
            track: TrackId::VIDEO,
            dts,
            pts: dts + 40,
            key_frame: true,
            config_epoch: 0,
            payload,
        };
        Entry::new(Instant::now(), 0, unit, tracks())
    }

    fn read(bytes: &[u8]) -> Vec<flv::file::Tag> {
        let mut reader = flv::file::Reader::new(1 << 24);
        reader.push(&file_header(BOTH));
        reader.push(bytes);
        std::iter::from_fn(|| reader.poll_tag().unwrap()).collect()
    }

    #[test]
    fn a_unit_is_a_tag_of_three_slices_and_the_payload_is_not_copied() {
        let mut package = FlvPackage::new(false);
        let entry = entry(5000, 1000);
        let item = package.unit(&entry, &chosen(&tracks()));
        let parts = item.bytes().unwrap();
        assert_eq!((parts.slices().len(), parts.len()), (3, 11 + 5 + 1000 + 4));
        assert_eq!(parts.slices()[1].as_ptr(), entry.unit.payload.as_ptr());
        let tags = read(&parts.slices().concat());
        assert_eq!((tags.len(), tags[0].kind, tags[0].body.len()), (1, TagKind::Video, 1005));
    }

    #[test]
    fn a_message_of_a_websocket_holds_one_tag() {
        let mut package = FlvPackage::new(true);
        for payload in [1, 100, 200, 70_000] {
            let item = package.unit(&entry(5000, payload), &chosen(&tracks()));
            let parts = item.bytes().unwrap();
            let bytes = parts.slices().concat();
            let (head, head_bytes) = FrameHead::read(&bytes).unwrap().unwrap();
            assert_eq!((head.opcode, head.is_final, head.mask), (Opcode::Binary, true, None));
            assert_eq!(usize::try_from(head.length).unwrap(), bytes.len() - head_bytes);
            assert_eq!(read(&bytes[head_bytes..])[0].body.len(), payload + 5);
            assert!(parts.slices()[0].len() <= STAMPED_BYTES_MAX);
        }
    }

    #[test]
    fn the_prelude_has_metadata_and_parameter_sets() {
        let mut package = FlvPackage::new(false);
        let tags = read(&package.prelude(&chosen(&tracks()), 9000).slices().concat());
        assert_eq!(tags.iter().map(|tag| tag.kind).collect::<Vec<_>>(), [TagKind::Data, TagKind::Video]);
        assert_eq!(tag_time(0x0102_0304), [2, 3, 4, 1]);
    }

    #[test]
    fn colour_information_goes_to_players_that_announced_the_codec_only() {
        let record = Bytes::from_static(b"\x81\x08\x0c\0");
        let config = CodecConfig::Av1(media::codec::av1::Config::read(record).unwrap());
        let extra = Some(Bytes::from_static(b"\x02\0\x09colorInfo\x05"));
        let video = Track { extra, ..Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS) };
        let tracks = chosen(&Arc::new(Tracks::new(1, [video])));
        let tags = read(&FlvPackage::new(false).prelude(&tracks, 0).slices().concat());
        assert_eq!(tags.iter().map(|tag| &tag.body[..]).collect::<Vec<_>>(), [b"\x90av01\x81\x08\x0c\0"]);
    }

    #[test]
    fn the_header_tells_of_tracks_that_are_there_or_announced() {
        assert_eq!(header(&Chosen::default()), None);
        assert_eq!(header(&chosen(&tracks())), Some(BOTH));
        let mut alone = Tracks::clone(&tracks());
        alone.metadata = None;
        let alone = Arc::new(alone);
        assert_eq!(header(&chosen(&alone)), Some(Header { audio: false, video: true }));
    }
}
