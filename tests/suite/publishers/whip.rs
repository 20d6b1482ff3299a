//! A publisher over WHIP: the client of the load generator, which sends the units of a row at their times. Its audio is
//! Opus.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::AudioTag;
use flv::file::TagKind;
use flv::tag::AudioPacket;
use millstream::protocol::load::{
    ClientDatagrams, ClientStream, LoadPublisher, LoadTarget, PublisherEvent, patience,
};
use netsim::{MediaSource, ms, secs};

use super::rtmp::{body, video_header};
use super::units::Unit;

/// First byte of an Opus packet of 20 ms stereo in one frame (RFC 6716 §3.1).
pub const TOC: u8 = 0xfc;
/// The identification header of Opus (RFC 7845 §5.1).
const OPUS_HEAD: &[u8] = b"OpusHead\x01\x02\x38\x01\x80\xbb\x00\x00\x00\x00\x00";

/// Returns the sequence header of an Opus track, as RTMP carries it.
pub fn opus_header() -> Bytes {
    [&AudioTag::write_enhanced(AudioPacket::SequenceHeader, *b"Opus")[..], OPUS_HEAD].concat().into()
}

/// Returns an audio unit as an Opus packet, as RTMP carries it.
pub fn opus_frame(unit: &Unit) -> Bytes {
    let head = AudioTag::write_enhanced(AudioPacket::Frame, *b"Opus");
    [&head[..], &[TOC], &unit.payload[1..]].concat().into()
}

/// A WHIP publisher of a row's units; see the module.
#[derive(Debug)]
pub struct WhipSender {
    client: Box<dyn LoadPublisher>,
    units: VecDeque<(i64, TagKind, u32, Bytes)>,
    made: Instant,
    /// True once the server has consented.
    is_ready: bool,
    began: Option<Instant>,
}

impl WhipSender {
    pub fn new(now: Instant, url: &str, seed: Seed, units: &[Unit]) -> Self {
        let heads = [
            (TagKind::Video, Bytes::from(video_header(&MediaSource::video_config()))),
            (TagKind::Audio, opus_header()),
        ];
        let target = LoadTarget::read(url).unwrap();
        let client = target.publish(now, patience(secs(10), secs(30)), seed, &heads).unwrap();
        let units = units.iter().map(|unit| {
            let timestamp = u32::try_from(unit.raw).unwrap();
            if unit.is_video {
                return (unit.at, TagKind::Video, timestamp, body(unit).into());
            }
            (unit.at, TagKind::Audio, timestamp, opus_frame(unit))
        });
        Self { client, units: units.collect(), made: now, is_ready: false, began: None }
    }

    fn due(&self) -> Option<Instant> {
        match self.began {
            Some(began) => {
                let (at, ..) = self.units.front()?;
                Some(began + ms(at.unsigned_abs()))
            }
            // The sender is due as soon as the server has consented.
            None => self.is_ready.then_some(self.made),
        }
    }
}

impl LoadPublisher for WhipSender {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        self.client.byte_stream()
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        self.client.datagrams()
    }

    fn handle_end(&mut self, now: Instant) {
        self.client.handle_end(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.client.handle_timeout(now);
        if self.is_ready {
            self.began.get_or_insert(now);
        }
        while self.began.is_some() && self.due().is_some_and(|due| due <= now) {
            let Some((_, kind, timestamp, body)) = self.units.pop_front() else { break };
            self.client.send(now, kind, timestamp, body);
        }
    }

    fn send(&mut self, _now: Instant, _kind: TagKind, _timestamp: u32, _body: Bytes) {}

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        let event = self.client.poll_event()?;
        self.is_ready |= matches!(event, PublisherEvent::Ready);
        Some(event)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.client.poll_timeout(), self.due()].into_iter().flatten().min()
    }

    fn close(&mut self, now: Instant) {
        self.units.clear();
        self.client.close(now);
    }
}
