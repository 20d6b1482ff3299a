//! Codec records, AMF values and FLV tags: they are read, and written again if there is a writer.

use bytes::Bytes;
use flv::amf0;
use flv::data::Data;
use flv::file::Reader as FileReader;
use flv::tag::{AudioBody, AudioPacket, AudioTag, TrackPacket, VideoBody, VideoPacket, VideoTag};
use media::codec::{aac, av1, flac, h264, h265, mp3, opus, vp8, vp9};
use media::nal::{Nals, to_four_byte_lengths};
use media::{Codec, CodecConfig, TrackKind};
use wire::{Reader, Writer};

use crate::splits::{head, pieces};

/// Reads the input as an `AVCDecoderConfigurationRecord`, as a sequence parameter set and as an access unit.
pub fn avc_config(data: &[u8]) {
    let record = Bytes::copy_from_slice(data);
    if let Ok(config) = h264::Config::read(record.clone()) {
        assert!(matches!(config.length_size, 1 | 2 | 4));
        assert!(config.width <= 16_384 && config.height <= 16_384, "{config:?}");
        assert_eq!(config.record, record);
    }
    if let Ok((width, height)) = h264::picture_size(data) {
        assert!(width <= 16_384 && height <= 16_384);
    }
    for length_size in [1, 2, 4] {
        let Ok(wide) = to_four_byte_lengths(record.clone(), length_size) else { continue };
        let nals = |payload: &Bytes, size| {
            Nals::new(payload, size).map(|n| n.map(<[u8]>::to_vec)).collect::<Result<Vec<_>, _>>()
        };
        assert_eq!(nals(&record, length_size), nals(&wide, 4));
    }
}

/// Reads the input as an `HEVCDecoderConfigurationRecord` and as a sequence parameter set.
pub fn hevc_config(data: &[u8]) {
    let record = Bytes::copy_from_slice(data);
    if let Ok(config) = h265::Config::read(record.clone()) {
        assert!(matches!(config.length_size, 1 | 2 | 4));
        assert!(config.size.is_none_or(is_real), "{config:?}");
        assert_eq!(config.record, record);
    }
    if let Ok(size) = h265::picture_size(data) {
        assert!(is_real(size));
    }
}

/// Reads the input as an `AV1CodecConfigurationRecord` and as a sequence header.
pub fn av1_config(data: &[u8]) {
    let record = Bytes::copy_from_slice(data);
    if let Ok(config) = av1::Config::read(record.clone()) {
        assert!(config.profile < 8 && config.level < 32 && config.size.is_none_or(is_real), "{config:?}");
        assert_eq!(config.record, record);
    }
    if let Ok(size) = av1::picture_size(data) {
        assert!(is_real(size));
    }
}

/// Reads the input as a `VPCodecConfigurationRecord` and as the small audio records.
pub fn vp9_config(data: &[u8]) {
    let record = Bytes::copy_from_slice(data);
    if let Ok(config) = vp9::Config::read(record.clone()) {
        assert!(config.profile < 4 && matches!(config.bit_depth, 8 | 10 | 12), "{config:?}");
        assert!(vp8::Config::read(record.clone()).is_ok());
    }
    if let Ok(config) = opus::Config::read(record.clone()) {
        assert!(config.channels > 0);
    }
    if let Ok(config) = flac::Config::read(record.clone()) {
        assert!(config.sample_rate > 0 && (1..=8).contains(&config.channels));
    }
    if let Ok(config) = mp3::Config::of_frame(data) {
        assert!((8_000..=48_000).contains(&config.sample_rate) && matches!(config.channels, 1 | 2));
    }
    for codec in Codec::ALL {
        let Ok(Some(config)) = CodecConfig::read(codec, record.clone()) else { continue };
        assert_eq!(config.codec(), codec);
        assert!(config.record().is_empty() || *config.record() == record);
        assert!(config.picture_size().is_none_or(is_real));
    }
}

const fn is_real((width, height): (u32, u32)) -> bool {
    width > 0 && width <= 16_384 && height > 0 && height <= 16_384
}

/// Reads enhanced RTMP bodies; the first byte chooses between video and audio. Each body that can be read is
/// written in the enhanced form, and must then read the same. Each packet of a multitrack body is also written as
/// a body of its own.
pub fn enhanced_tags(data: &[u8]) {
    let Some((choice, rest)) = head(data) else { return };
    let body = Bytes::copy_from_slice(rest);
    let legacy = body.first().is_none_or(|first| first & 0x80 == 0);
    if choice % 2 == 0 {
        match VideoBody::read(&body) {
            Ok(VideoBody::Tag(tag)) => video_tag(tag, legacy),
            Ok(VideoBody::Multitrack(packets)) => {
                for (id, tag) in packets.into_iter().filter_map(|packet| Some((packet.id, packet.tag.ok()?)))
                {
                    video_track(id, &tag);
                    video_tag(tag, legacy);
                }
            }
            Ok(VideoBody::Command(_)) | Err(_) => {}
        }
    } else {
        match AudioBody::read(&body) {
            Ok(AudioBody::Tag(tag)) => audio_tag(tag),
            Ok(AudioBody::Multitrack(packets)) => {
                packets.into_iter().filter_map(|packet| packet.tag.ok()).for_each(audio_tag);
            }
            Err(_) => {}
        }
    }
}

fn video_tag(tag: VideoTag, legacy: bool) {
    assert!(tag.codec.kind() == TrackKind::Video && tag.offset_nanos < 1_000_000);
    let four_cc = tag.codec.four_cc().unwrap_or_default();
    if legacy && tag.packet != VideoPacket::Frame {
        return;
    }
    let head = VideoTag::write_enhanced(tag.frame_type, tag.packet, four_cc, tag.composition_time_ms);
    let again = [&head[..], &tag.payload].concat();
    assert_eq!(VideoTag::read(&again.into()), Ok(VideoTag { offset_nanos: 0, ..tag }));
}

fn video_track(id: u8, tag: &VideoTag) {
    let four_cc = tag.codec.four_cc().unwrap_or_default();
    let head = VideoTag::write_multitrack(id, tag.frame_type, tag.packet, four_cc, tag.composition_time_ms);
    let again = [&head[..], &tag.payload].concat();
    let Ok(VideoBody::Multitrack(packets)) = VideoBody::read(&again.into()) else {
        panic!("own bytes do not read as multitrack");
    };
    let [TrackPacket { id: read_id, tag: Ok(read), .. }] = packets.as_slice() else {
        panic!("one packet was written: {packets:?}");
    };
    assert_eq!((*read_id, &read.payload, read.packet), (id, &tag.payload, tag.packet));
}

fn audio_tag(tag: AudioTag) {
    assert!(tag.codec.kind() == TrackKind::Audio && tag.offset_nanos < 1_000_000);
    let Some(four_cc) = tag.codec.four_cc().filter(|_| tag.packet != AudioPacket::Silence) else {
        return;
    };
    let again = [&AudioTag::write_enhanced(tag.packet, four_cc)[..], &tag.payload].concat();
    assert_eq!(AudioTag::read(&again.into()), Ok(AudioTag { offset_nanos: 0, stereo: false, ..tag }));
}

/// Reads an `AudioSpecificConfig`.
pub fn aac_config(data: &[u8]) {
    if let Ok(config) = aac::Config::read(Bytes::copy_from_slice(data)) {
        assert!(config.sample_rate > 0 && config.object_type > 0 && config.channel_configuration < 16);
    }
}

/// Reads AMF0 values. After they are written, they must read the same.
pub fn amf0(data: &[u8]) {
    let Ok(values) = amf0::read_all(&mut Reader::new(data)) else { return };
    let once = written(&values);
    let again = match amf0::read_all(&mut Reader::new(&once)) {
        Ok(values) => values,
        Err(error) => panic!("own bytes do not read: {error}"),
    };
    // Bytes are compared, because NaN does not equal itself.
    assert_eq!(written(&again), once);
}

fn written(values: &[amf0::Value]) -> Bytes {
    let mut writer = Writer::new();
    amf0::write_all(values, &mut writer);
    writer.take()
}

/// Reads FLV. The first byte chooses between the body of a video, audio or data tag, and a file in pieces.
pub fn flv_tag(data: &[u8]) {
    let Some((choice, rest)) = head(data) else { return };
    let body = Bytes::copy_from_slice(rest);
    match choice % 4 {
        0 => video(&body),
        1 => audio(&body),
        2 => data_tag(&body),
        _ => assert_eq!(file(&[rest]), file(&pieces(choice, rest)), "the cuts changed the meaning"),
    }
}

fn video(body: &Bytes) {
    let Ok(tag) = VideoTag::read(body) else { return };
    if tag.codec != Codec::H264 || body.first().is_none_or(|first| first & 0x80 != 0) {
        return;
    }
    let mut again = VideoTag::write_header(tag.frame_type, tag.packet, tag.composition_time_ms).to_vec();
    again.extend_from_slice(&tag.payload);
    assert_eq!(VideoTag::read(&again.into()), Ok(tag));
}

fn audio(body: &Bytes) {
    let Ok(tag) = AudioTag::read(body) else { return };
    if tag.codec != Codec::Aac || body.first().is_none_or(|first| first >> 4 == 9) {
        return;
    }
    let mut again = AudioTag::write_header(tag.packet).to_vec();
    again.extend_from_slice(&tag.payload);
    // The writer always sets the flags that the standard requires for AAC.
    assert_eq!(AudioTag::read(&again.into()), Ok(AudioTag { stereo: true, ..tag }));
}

fn data_tag(body: &Bytes) {
    let Ok(data) = Data::read(body) else { return };
    // The data was wrapped twice: only one wrapper is removed, so the name is still that of a wrapper.
    if data.name == "@setDataFrame" {
        return;
    }
    let bytes = data.write();
    match Data::read(&bytes) {
        Ok(again) => assert_eq!(again.write(), bytes),
        Err(error) => panic!("own bytes do not read: {error}"),
    }
    assert_eq!(flv::data::unwrap(&flv::data::wrap(&bytes)), bytes);
}

type Tags = Vec<(u32, Bytes)>;

fn file(pieces: &[&[u8]]) -> (Tags, Option<flv::Error>) {
    let mut reader = FileReader::new(4096);
    let mut tags = Vec::new();
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.poll_tag() {
                Ok(Some(tag)) => tags.push((tag.timestamp, tag.body)),
                Ok(None) => break,
                Err(error) => return (tags, Some(error)),
            }
        }
    }
    (tags, None)
}
