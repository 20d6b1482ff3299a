//! Access units as RTMP messages, in chunks shared by all viewers of a message stream.

use bytes::{Bytes, BytesMut};
use flv::file::TagKind;
use media::{Track, TrackKind};
use rtmp::chunk::{MessageHead, write_message};
use rtmp::{CHUNK_SIZE_OUT, FourCcs, MediaKind};

use crate::hub::{Chosen, Entry, Fit, Item, Package, Parts, Selection};
use crate::protocol::flv_mapping::{self, Body};
use crate::protocol::{Format, FormatKind};

/// Size of the memory blocks from which heads are taken. One block lasts for some hundred messages.
const SCRATCH_BYTES: usize = 4096;
/// Maximum size of a head: chunk header with extended timestamp, and the FLV head.
const HEAD_BYTES: usize = 32;

/// The bit of a format variant that marks the codecs as guessed.
const GUESSED: u64 = 1 << 48;

/// True if a player that announced `four_ccs` is sent the track.
pub(super) fn is_sent(track: &Track, four_ccs: FourCcs) -> bool {
    flv_mapping::needed_four_cc(track).is_none_or(|four_cc| four_ccs.contains(four_cc))
}

/// Format of RTMP messages.
pub(super) static FORMAT: FormatKind = FormatKind {
    name: "rtmp",
    counted_as: None,
    is_enabled: super::is_playback_enabled,
    selection: Selection::DEFAULT,
    package: |variant| Some(Box::new(RtmpPackage::of_variant(variant))),
    is_given_up_by_close: true,
    is_for_nodes: false,
};

/// Returns the format for players of a message stream that announced these codecs.
pub(super) fn format(message_stream: u32, four_ccs: FourCcs) -> Format {
    Format::new(&FORMAT, u64::from(message_stream) | u64::from(four_ccs.bits()) << 32)
}

/// Returns the format for a target that did not announce its codecs: all video is sent, and of audio preferably a codec
/// that every server supports.
pub(super) fn guessed_format(message_stream: u32) -> Format {
    let variant = u64::from(message_stream) | u64::from(super::forwarded().bits()) << 32 | GUESSED;
    Format::new(&FORMAT, variant)
}

/// RTMP messages of one message stream, for players that can decode the same codecs.
#[derive(Debug)]
pub(crate) struct RtmpPackage {
    message_stream: u32,
    /// FourCCs that the players can decode. A track of another codec is left out, unless it has a legacy form.
    four_ccs: FourCcs,
    /// True if the codecs were guessed because no player announced them.
    is_guess: bool,
    scratch: BytesMut,
    /// Slices of the message being built.
    out: Vec<Bytes>,
}

impl RtmpPackage {
    fn of_variant(variant: u64) -> Self {
        let low = |number: u64| u32::try_from(number & 0xffff_ffff).unwrap_or_default();
        let four_ccs = u16::try_from((variant & !GUESSED) >> 32).map_or(FourCcs::NONE, FourCcs::from_bits);
        Self { is_guess: variant & GUESSED != 0, ..Self::new(low(variant), four_ccs) }
    }

    fn new(message_stream: u32, four_ccs: FourCcs) -> Self {
        Self { message_stream, four_ccs, is_guess: false, scratch: BytesMut::new(), out: Vec::new() }
    }

    fn body(&mut self, dts_ms: i64, body: &Body<'_>) {
        let kind = match body.kind {
            TagKind::Video => MediaKind::Video,
            TagKind::Audio => MediaKind::Audio,
            TagKind::Data | TagKind::Other(_) => MediaKind::Data,
        };
        self.message(kind, dts_ms, &body.head, &body.payload);
    }

    fn message(&mut self, kind: MediaKind, dts_ms: i64, prefix: &[u8], payload: &Bytes) {
        if self.scratch.capacity() < HEAD_BYTES {
            self.scratch = BytesMut::with_capacity(SCRATCH_BYTES);
        }
        let head = MessageHead {
            chunk_stream: kind.chunk_stream(),
            // The protocol's clock has 32 bits and wraps (RTMP 1.0 §5.3.1.3).
            timestamp: u32::try_from(dts_ms & 0xffff_ffff).unwrap_or(0),
            kind: kind.message_type(),
            message_stream: self.message_stream,
        };
        write_message(&mut self.scratch, &head, prefix, payload, CHUNK_SIZE_OUT, &mut self.out);
    }
}

impl Package for RtmpPackage {
    fn fit(&self, track: &Track) -> Fit {
        match flv_mapping::needed_four_cc(track) {
            Some(_) if !is_sent(track, self.four_ccs) => Fit::No,
            Some(_) if self.is_guess && track.kind() == TrackKind::Audio => Fit::Rarely,
            Some(_) | None => Fit::Well,
        }
    }

    fn prelude(&mut self, chosen: &Chosen, dts_ms: i64) -> Parts {
        if let Some(metadata) = flv_mapping::metadata(chosen) {
            // Always at time zero: ffmpeg takes onMetaData with another timestamp for a subtitle track.
            self.message(MediaKind::Data, 0, &[], &metadata);
        }
        for track in chosen.iter() {
            let knows = track.config.codec().four_cc().is_some_and(|four_cc| self.four_ccs.contains(four_cc));
            let extra = flv_mapping::extra(track, chosen).filter(|_| knows);
            for body in flv_mapping::config(track, chosen).into_iter().chain(extra) {
                self.body(dts_ms, &body);
            }
        }
        Parts::new(self.out.drain(..))
    }

    fn unit(&mut self, entry: &Entry, chosen: &Chosen) -> Item {
        match flv_mapping::unit(entry, chosen) {
            Some(body) if body.kind == TagKind::Data => {
                let told = flv_mapping::without_left_out(chosen, &body.payload);
                let payload = told.as_ref().unwrap_or(&body.payload);
                self.message(MediaKind::Data, entry.dts_ms, &[], payload);
            }
            Some(body) => self.body(entry.dts_ms, &body),
            None => {}
        }
        Parts::new(self.out.drain(..)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Packager;
    use flv::data::Data;
    use media::codec::{opus, vp8};
    use media::{AccessUnit, CodecConfig, Timescale, TrackId, Tracks};
    use std::sync::Arc;

    fn track(id: TrackId, config: CodecConfig) -> Track {
        let extra = Some(Bytes::from_static(b"extra"));
        Track { extra, ..Track::new(id, config, Timescale::MILLISECONDS) }
    }

    /// Returns VP8 and an audio track, each with extra metadata beside its parameter sets.
    fn tracks(audio: CodecConfig) -> Tracks {
        let video = track(TrackId::VIDEO, CodecConfig::Vp8(vp8::Config::default()));
        Tracks::new(1, [video, track(TrackId::AUDIO, audio)])
    }

    fn chosen(tracks: &Tracks, four_ccs: FourCcs) -> Chosen {
        format(1, four_ccs).choose(tracks)
    }

    /// Returns the bodies sent to a player that announced these FourCCs: the prelude, a video frame, an audio
    /// frame.
    fn sent(tracks: &Tracks, four_ccs: FourCcs) -> [Vec<u8>; 3] {
        let chosen = chosen(tracks, four_ccs);
        let package = format(1, four_ccs).package();
        let mut packager = Packager::new(format(1, four_ccs).key(), package, &Arc::new(tracks.clone()), 0);
        let mut unit = |track| {
            let unit = AccessUnit {
                track,
                dts: 0,
                pts: 0,
                key_frame: false,
                config_epoch: 1,
                payload: Bytes::from_static(b"unit"),
            };
            let entry = Entry::new(std::time::Instant::now(), 0, unit, Arc::new(tracks.clone()));
            packager.push(&entry);
            packager.newest().slices().concat()
        };
        let [video, audio] = [unit(TrackId::VIDEO), unit(TrackId::AUDIO)];
        let prelude = RtmpPackage::new(1, four_ccs).prelude(&chosen, 0).slices().concat();
        [prelude, video, audio]
    }

    fn has(bytes: &[u8], body: &[u8]) -> bool {
        bytes.windows(body.len()).any(|window| window == body)
    }

    #[test]
    fn a_track_that_was_not_announced_is_left_out() {
        let opus = tracks(CodecConfig::Opus(opus::Config::read(Bytes::new()).unwrap()));
        let [prelude, video, audio] = sent(&opus, FourCcs::NONE);
        assert!(prelude.is_empty() && video.is_empty() && audio.is_empty());
        let [prelude, video, audio] = sent(&opus, FourCcs::NONE.with(*b"Opus"));
        assert!(has(&prelude, b"\x90Opus") && has(&prelude, b"\x94Opusextra") && !has(&prelude, b"vp08"));
        assert!(video.is_empty() && has(&audio, b"\x91Opusunit"));
        let [prelude, video, audio] = sent(&opus, FourCcs::ALL);
        assert!(
            has(&prelude, b"\x90vp08") && has(&prelude, b"\xd4vp08extra") && has(&prelude, b"\x94Opusextra")
        );
        assert!(has(&video, b"\xa1vp08unit") && has(&audio, b"\x91Opusunit"));
    }

    #[test]
    fn metadata_says_nothing_of_what_is_left_out() {
        let config = media::codec::aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
        let mut tracks = tracks(CodecConfig::Aac(config));
        let members = ["width", "videocodecid", "audiocodecid", "encoder"];
        let members = members.map(|name| (name.to_owned(), flv::amf0::Value::Number(7.0)));
        tracks.metadata = Some(Data::metadata(members.to_vec()).write());
        let [prelude, ..] = sent(&tracks, FourCcs::NONE);
        assert!(has(&prelude, b"audiocodecid") && has(&prelude, b"encoder"));
        assert!(!has(&prelude, b"width") && !has(&prelude, b"videocodecid"));
        // A player that can decode everything gets the publisher's metadata unchanged.
        let [prelude, ..] = sent(&tracks, FourCcs::ALL);
        assert!(has(&prelude, tracks.metadata.as_ref().unwrap()));
        // Other script data is not changed.
        let text = Data { name: "onFI".to_owned(), values: Vec::new() }.write();
        assert_eq!(flv_mapping::without_left_out(&chosen(&tracks, FourCcs::NONE), &text), None);
    }

    #[test]
    fn a_legacy_track_is_always_sent_and_what_is_new_of_it_only_to_who_knows() {
        let config = media::codec::aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
        let aac = tracks(CodecConfig::Aac(config));
        let [prelude, _, audio] = sent(&aac, FourCcs::NONE);
        assert!(has(&prelude, b"\xaf\0\x11\x90") && !has(&prelude, b"extra") && has(&audio, b"\xaf\x01unit"));
        let [prelude, _, audio] = sent(&aac, FourCcs::NONE.with(*b"mp4a"));
        assert!(has(&prelude, b"\xaf\0\x11\x90") && has(&prelude, b"\x94mp4aextra"));
        assert!(has(&audio, b"\xaf\x01unit"));
    }
}
