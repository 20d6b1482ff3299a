//! The publisher of a bare loop: it sends the same media as other publishers, already in the form that the loop's
//! viewers get. Also a viewer whose losses are not counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use flv::file::{TagHead, TagKind};
use millstream::bench::{
    Clip, Now, Peer, PeerDatagrams, PeerEvent, PeerMedia, PeerStream, Role, Score, Source, Tally,
};
use millstream::http::websocket::media_frame_head;
use millstream::protocol::load::{RtspMux, TsMux};
use rtmp::chunk::{MessageHead, write_message};
use rtmp::{CHUNK_SIZE_OUT, MediaKind};
use wire::SendQueue;

use super::floor;
use super::options::Class;

/// A publisher to a bare loop: sends a greeting, then records.
#[derive(Debug)]
pub struct Recorder {
    source: Source,
    class: Class,
    began: Option<Instant>,
    finishing: bool,
    ready: bool,
    out: Vec<u8>,
    scratch: BytesMut,
    parts: Vec<Bytes>,
    mux: TsMux,
    rtsp: RtspMux,
}

impl Recorder {
    /// Makes a publisher that has sent the number of its stream and the metadata and parameter sets.
    pub fn new(now: Now, clip: Arc<Clip>, class: Class, stream: usize, phase: Duration) -> Self {
        let mut recorder = Self {
            source: Source::new(Arc::clone(&clip)).carrying(true, class != Class::Whep),
            class,
            began: Some(now.mono + phase),
            finishing: false,
            ready: true,
            out: floor::hello(stream).to_vec(),
            scratch: BytesMut::new(),
            parts: Vec::new(),
            mux: TsMux::new(),
            rtsp: RtspMux::new(now.mono, clip.heads()),
        };
        if class == Class::Rtsp {
            let begin = recorder.out.len();
            recorder.out.extend_from_slice(&floor::record_head(floor::DESCRIPTION));
            recorder.out.extend_from_slice(recorder.rtsp.description().as_bytes());
            floor::seal_record(&mut recorder.out, begin);
        }
        for (kind, body) in clip.heads() {
            recorder.record(floor::AUDIO, *kind, 0, &flv::data::unwrap(body));
        }
        recorder
    }

    fn due(&self) -> Option<Instant> {
        Some(self.began? + Duration::from_millis(self.source.due_ms()))
    }

    fn record(&mut self, record: u8, kind: TagKind, dts_ms: u64, body: &Bytes) {
        let begin = self.out.len();
        self.out.extend_from_slice(&floor::record_head(record));
        let timestamp = u32::try_from(dts_ms).unwrap_or(0);
        match self.class {
            Class::Rtmp => self.message(kind, timestamp, body),
            Class::Flv | Class::Flvs | Class::Ws => self.tag(kind, timestamp, body),
            Class::Whep => {
                self.out.extend_from_slice(&timestamp.to_be_bytes());
                self.out.extend_from_slice(body);
            }
            Class::Rtsp => {
                let frames = self.rtsp.frames(Instant::now(), kind, timestamp, body);
                self.out.extend_from_slice(&frames.unwrap_or_default());
            }
            Class::Srt | Class::SrtAes => {
                let packets = self.mux.packets(Instant::now(), kind, timestamp, body);
                self.out.extend_from_slice(&packets.unwrap_or_default());
            }
        }
        floor::seal_record(&mut self.out, begin);
    }

    fn message(&mut self, kind: TagKind, timestamp: u32, body: &Bytes) {
        let kind = match kind {
            TagKind::Audio => MediaKind::Audio,
            TagKind::Video => MediaKind::Video,
            TagKind::Data | TagKind::Other(_) => MediaKind::Data,
        };
        let head = MessageHead {
            chunk_stream: kind.chunk_stream(),
            timestamp,
            kind: kind.message_type(),
            message_stream: 1,
        };
        write_message(&mut self.scratch, &head, &[], body, CHUNK_SIZE_OUT, &mut self.parts);
        self.parts.drain(..).for_each(|part| self.out.extend_from_slice(&part));
    }

    fn tag(&mut self, kind: TagKind, timestamp: u32, body: &[u8]) {
        let head = TagHead { kind, size: u32::try_from(body.len()).unwrap_or(0), timestamp };
        let (head, trailer) = (head.write(), head.trailer());
        if self.class == Class::Ws {
            self.out.extend_from_slice(&media_frame_head(head.len() + body.len() + trailer.len()));
        }
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(body);
        self.out.extend_from_slice(&trailer);
    }
}

impl Peer for Recorder {
    fn handle_timeout(&mut self, now: Now, tally: &mut Tally) {
        while let Some(due) = self.due().filter(|due| *due <= now.mono) {
            let late = now.mono.saturating_duration_since(due);
            tally.behind.record(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
            let Some(unit) = self.source.next_unit(now.unix_nanos) else { return };
            let record = match (unit.is_video(), unit.key_frame) {
                (false, _) => floor::AUDIO,
                (true, false) => floor::VIDEO,
                (true, true) => floor::KEY_FRAME,
            };
            // The publisher stops after a video unit, so that no audio is left waiting.
            if self.finishing && unit.is_video() {
                self.began = None;
            }
            self.record(record, unit.kind, unit.dts_ms, &unit.body);
        }
    }

    fn handle_hangup(&mut self, _now: Now, _why: Option<&str>) {
        self.began = None;
    }

    fn close(&mut self, _now: Now) {
        self.began = None;
    }

    fn poll_event(&mut self) -> Option<PeerEvent> {
        std::mem::replace(&mut self.ready, false).then_some(PeerEvent::Ready)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due()
    }

    fn role(&self) -> Role {
        Role::Publish
    }

    fn score(&self) -> Score {
        Score::Made(self.source.made())
    }

    fn byte_stream(&mut self) -> Option<&mut dyn PeerStream> {
        Some(self)
    }

    fn media(&mut self) -> Option<&mut dyn PeerMedia> {
        Some(self)
    }
}

impl PeerStream for Recorder {
    fn handle_bytes(&mut self, _now: Now, _bytes: &[u8], _tally: &mut Tally) {
        // A bare loop sends nothing to its publishers.
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        out.push(std::mem::take(&mut self.out).into());
    }
}

impl PeerMedia for Recorder {
    fn finish(&mut self) {
        self.finishing = true;
    }
}

/// A viewer that does not read, and whose losses are therefore not counted.
#[derive(Debug)]
pub struct Uncounted(pub Box<dyn Peer>);

impl Peer for Uncounted {
    fn handle_timeout(&mut self, now: Now, tally: &mut Tally) {
        self.0.handle_timeout(now, tally);
    }

    fn handle_hangup(&mut self, now: Now, why: Option<&str>) {
        self.0.handle_hangup(now, why);
    }

    fn close(&mut self, now: Now) {
        self.0.close(now);
    }

    fn poll_event(&mut self) -> Option<PeerEvent> {
        self.0.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn role(&self) -> Role {
        self.0.role()
    }

    fn score(&self) -> Score {
        Score::None
    }

    fn byte_stream(&mut self) -> Option<&mut dyn PeerStream> {
        self.0.byte_stream()
    }

    fn datagrams(&mut self) -> Option<&mut dyn PeerDatagrams> {
        self.0.datagrams()
    }
}
