//! A player for the load generator, which reports complete frames.

use std::net::SocketAddr;
use std::time::Instant;

use ::webrtc::{MediaPreference, offered_formats};
use crypto::Seed;
use media::codec::{Codec, g711};
use sdp::{Direction, Feedback, MediaKind};
use wire::Datagrams;

use super::client::{ClientEvent, RtcClient};
use super::signal::Signal;
use crate::protocol::player::{LoadEvent, LoadPlayer};
use crate::protocol::pull::{ClientDatagrams, ClientStream};
use crate::protocol::{PathId, To};

/// The offered video codecs, with the first payload type of each.
const VIDEO: [(Codec, u8); 5] =
    [(Codec::H264, 96), (Codec::H265, 100), (Codec::Av1, 101), (Codec::Vp9, 102), (Codec::Vp8, 104)];
const AUDIO: [(Codec, u8); 3] =
    [(Codec::Opus, 111), (Codec::G711(g711::Law::Mu), 0), (Codec::G711(g711::Law::A), 8)];

/// The player.
#[derive(Debug)]
pub(super) struct RtcPlayer(RtcClient);

impl RtcPlayer {
    /// Makes a player that offers to take one track of each kind.
    pub(super) fn of_endpoint(now: Instant, signal: Signal, seed: Seed) -> Option<Self> {
        let takes = |codecs: &[(Codec, u8)]| MediaPreference {
            direction: Direction::RecvOnly,
            formats: codecs.iter().flat_map(|(codec, first)| offered_formats(*codec, *first)).collect(),
            msid: None,
        };
        let mut audio = takes(&AUDIO);
        // Like browsers, the player does not request lost audio packets.
        audio.formats.iter_mut().for_each(|format| format.feedback.retain(|of| *of != Feedback::Nack));
        let sections = vec![(MediaKind::Audio, audio), (MediaKind::Video, takes(&VIDEO))];
        RtcClient::new(now, signal, seed, sections).map(Self)
    }

    /// Makes a player that takes all tracks that the server offers.
    pub(super) fn of_socket(now: Instant, signal: Signal, seed: Seed) -> Option<Self> {
        RtcClient::new(now, signal, seed, Vec::new()).map(Self)
    }
}

impl ClientDatagrams for RtcPlayer {
    fn handle_local(&mut self, now: Instant, _path: PathId, local: Option<SocketAddr>) {
        if let Some(local) = local {
            self.0.handle_local(now, local);
        }
    }

    fn handle_datagram(&mut self, now: Instant, _path: PathId, from: SocketAddr, datagram: &mut [u8]) {
        self.0.handle_datagram(now, from, datagram);
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        To::of_socket(self.0.poll_datagrams(now, |_| None, out))
    }
}

impl LoadPlayer for RtcPlayer {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(&mut self.0)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn handle_end(&mut self, now: Instant) {
        self.0.handle_end(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.0.handle_timeout(now);
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        loop {
            return Some(match self.0.poll_event()? {
                ClientEvent::Ready => LoadEvent::Ready,
                ClientEvent::Reconnect => LoadEvent::Reconnect,
                ClientEvent::Frame { section, payload } => {
                    let is_video = self.0.kind_of(section) == Some(&MediaKind::Video);
                    LoadEvent::Unit { is_video, place: section.0, payload }
                }
                // A player sends no media, so it has no key frame to make.
                ClientEvent::KeyFrameWanted => continue,
                ClientEvent::Closed(reason) => LoadEvent::Closed(reason),
            });
        }
    }

    fn packets(&self) -> u64 {
        self.0.packets()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.0.close(now);
    }
}
