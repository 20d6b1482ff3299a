//! A publisher for the load generator: sends units of a clip, cut as for viewers of the server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use media::{TrackId, TrackKind};
use rtp::extension::AudioLevel;
use sdp::MediaKind;
use wire::Datagrams;

use super::client::{ClientEvent, RtcClient};
use super::signal::Signal;
use crate::hub::PacketLogs;
use crate::protocol::publisher::{FlvMux, LoadPublisher, PublisherEvent, Voice};
use crate::protocol::pull::{ClientDatagrams, ClientStream};
use crate::protocol::webrtc::codecs::Codecs;
use crate::protocol::webrtc::negotiation::{self, Shown};
use crate::protocol::webrtc::package::RtcPackage;
use crate::protocol::{PathId, To};

/// Name of the stream in the offer, where it has no effect; the endpoint's URL names the stream.
const STREAM: &str = "bench";
/// Levels of a participant that speaks, and of one that does not (RFC 6464 §3).
const SPEAKS: AudioLevel = AudioLevel { voice: true, level: 20 };
const SILENT: AudioLevel = AudioLevel { voice: false, level: 127 };

/// The publisher.
#[derive(Debug)]
pub(super) struct RtcPublisher {
    client: RtcClient,
    mux: FlvMux<RtcPackage>,
    /// A time of the clip in milliseconds, and the instant at which it counts as sampled.
    clock: Option<(i64, Instant)>,
    /// The audio level that packets carry; `None` unless the publisher is in a room.
    level: Option<AudioLevel>,
    /// True if the publisher makes a key frame when the server requests one.
    makes_keys: bool,
}

impl RtcPublisher {
    /// Creates a publisher. `heads` are the parameter sets of the clip. All tracks of the clip that WebRTC can carry
    /// are offered.
    pub(super) fn new(now: Instant, signal: Signal, seed: Seed, heads: &[(TagKind, Bytes)]) -> Option<Self> {
        let mut mux = FlvMux::new(RtcPackage::default());
        for (kind, body) in heads {
            mux.unit(now, *kind, 0, body);
        }
        let mut sections = negotiation::offered(Shown {
            tracks: mux.tracks(),
            codecs: Codecs::ALL,
            to_come: &[],
            id: STREAM,
        });
        let in_room = matches!(signal, Signal::Messages(_));
        if in_room {
            // A retransmission has a header of the same size as the original packet, without room for an audio
            // level (`Config::audio_levels`). Audio is therefore not retransmitted, as in browsers.
            let audio = sections.iter_mut().filter(|(kind, _)| *kind == MediaKind::Audio);
            for format in audio.flat_map(|(_, preference)| &mut preference.formats) {
                format.feedback.retain(|feedback| *feedback != sdp::Feedback::Nack);
            }
        }
        let client = RtcClient::new(now, signal, seed, sections)?;
        // A participant of a room reports its audio level, and makes key frames as encoders do.
        Some(Self { client, mux, clock: None, level: in_room.then_some(SILENT), makes_keys: in_room })
    }

    /// Returns the track that the section of a kind carries.
    fn track_of(&self, kind: &MediaKind) -> Option<TrackId> {
        let kind = if *kind == MediaKind::Video { TrackKind::Video } else { TrackKind::Audio };
        self.mux.tracks().default_of(kind).map(|track| track.id)
    }
}

impl ClientDatagrams for RtcPublisher {
    fn handle_local(&mut self, now: Instant, _path: PathId, local: Option<SocketAddr>) {
        if let Some(local) = local {
            self.client.handle_local(now, local);
        }
    }

    fn handle_datagram(&mut self, now: Instant, _path: PathId, from: SocketAddr, datagram: &mut [u8]) {
        self.client.handle_datagram(now, from, datagram);
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        let tracks = [MediaKind::Audio, MediaKind::Video]
            .map(|kind| self.client.section_of(&kind).zip(self.track_of(&kind)));
        let package = &self.mux.package;
        let log = |section| {
            let (_, track) = tracks.iter().flatten().find(|(of, _)| *of == section)?;
            package.log(*track)
        };
        To::of_socket(self.client.poll_datagrams(now, log, out))
    }
}

impl Voice for RtcPublisher {
    fn speak(&mut self, speaks: bool) {
        self.level = Some(if speaks { SPEAKS } else { SILENT });
    }
}

impl LoadPublisher for RtcPublisher {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(&mut self.client)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn carries(&self, kind: TagKind) -> bool {
        match kind {
            TagKind::Video => self.client.offers(&MediaKind::Video),
            TagKind::Audio => self.client.offers(&MediaKind::Audio),
            TagKind::Data | TagKind::Other(_) => false,
        }
    }

    fn handle_end(&mut self, now: Instant) {
        self.client.handle_end(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.client.handle_timeout(now);
    }

    fn send(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: Bytes) {
        let section = match kind {
            TagKind::Video => self.client.section_of(&MediaKind::Video),
            TagKind::Audio => self.client.section_of(&MediaKind::Audio),
            TagKind::Data | TagKind::Other(_) => None,
        };
        let Some(section) = section else { return };
        let Some((entry, item)) = self.mux.unit(now, kind, timestamp, &body) else { return };
        let Some(packets) = item.packets() else { return };
        let track = entry.tracks.get(entry.unit.track);
        let ms = track.map_or(entry.dts_ms, |track| track.timescale.to_ms(entry.unit.pts));
        let (base, began) = *self.clock.get_or_insert((ms, now));
        let since = Duration::from_millis(u64::try_from(ms.saturating_sub(base)).unwrap_or(0));
        if let Some(level) = self.level.filter(|_| kind == TagKind::Audio) {
            self.client.peer().set_audio_level(section, level);
        }
        self.client.peer().send(section, &packets.unit, began + since);
    }

    fn voice(&mut self) -> Option<&mut dyn Voice> {
        self.level?;
        Some(self)
    }

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        loop {
            return Some(match self.client.poll_event()? {
                ClientEvent::Ready => PublisherEvent::Ready,
                ClientEvent::Reconnect => PublisherEvent::Reconnect,
                // A server that sends media to its publisher is odd, and not our concern.
                ClientEvent::Frame { .. } => continue,
                ClientEvent::KeyFrameWanted if self.makes_keys => PublisherEvent::KeyFrameWanted,
                // A clip has key frames at fixed places, so the server must wait for the next one.
                ClientEvent::KeyFrameWanted => continue,
                ClientEvent::Closed(reason) => PublisherEvent::Closed(reason),
            });
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.client.close(now);
    }
}
