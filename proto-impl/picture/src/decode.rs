//! Decoders: turn a key frame into the planes of its picture. The planes are scaled without being
//! copied.

use bytes::BytesMut;
use image_webp::vp8::Vp8Decoder;
use media::CodecConfig;
use media::codec::{h264, vp8};
use media::nal::{Nals, START_CODE};
use openh264::decoder::{DecodeOptions, Decoder, Flush};
use openh264::formats::YUVSource;

use crate::scale::{Planes, Small, fit, small};
use crate::{Error, Request, Shape};

/// Maximum width and height of the video.
pub const SIDE_MAX: u32 = 4096;
/// Video without a colour description is assumed to be ITU-R BT.709 if it has at least this height.
const HD_HEIGHT: usize = 720;

/// The codecs that can be decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decodable<'a> {
    H264(&'a h264::Config),
    Vp8(&'a vp8::Config),
}

impl<'a> Decodable<'a> {
    /// Returns the configuration of a supported codec.
    pub(crate) const fn of(config: &'a CodecConfig) -> Result<Self, Error> {
        match config {
            CodecConfig::H264(config) => Ok(Self::H264(config)),
            CodecConfig::Vp8(config) => Ok(Self::Vp8(config)),
            CodecConfig::H265(_)
            | CodecConfig::Av1(_)
            | CodecConfig::Vp9(_)
            | CodecConfig::Aac(_)
            | CodecConfig::Opus(_)
            | CodecConfig::Mp3(_)
            | CodecConfig::Ac3(_)
            | CodecConfig::Eac3(_)
            | CodecConfig::Flac(_)
            | CodecConfig::G711(_) => Err(Error::Codec),
        }
    }
}

/// True if the codec can be decoded at all.
#[must_use]
pub const fn can_decode(config: &CodecConfig) -> bool {
    Decodable::of(config).is_ok()
}

/// Checks, without decoding, whether the headers of a key frame describe a supported picture.
///
/// # Errors
/// The reason why no picture can be made.
pub fn look(config: &CodecConfig, payload: &[u8]) -> Result<(), Error> {
    let (width, height) = match Decodable::of(config)? {
        Decodable::H264(config) => size_of_h264(config)?,
        Decodable::Vp8(_) => vp8::picture_size(payload).ok_or(Error::Damaged)?,
    };
    if width > SIDE_MAX || height > SIDE_MAX { Err(Error::Size) } else { Ok(()) }
}

fn size_of_h264(config: &h264::Config) -> Result<(u32, u32), Error> {
    let mut size = Err(Error::Damaged);
    for set in config.parameter_sets().filter(|set| h264::nal_type(set) == h264::NAL_SPS) {
        let sps = h264::Sps::read(set).map_err(|_| Error::Damaged)?;
        let is_of_8_bits = sps.luma_bits_above_8 == 0 && sps.chroma_bits_above_8 == 0;
        if sps.chroma_format != 1 || !is_of_8_bits || !sps.frames_only {
            return Err(Error::Profile);
        }
        size = Ok((sps.width, sps.height));
    }
    size
}

/// Decodes a key frame and scales it down.
pub(crate) fn decode(request: &Request) -> Result<Small, Error> {
    match Decodable::of(&request.config)? {
        Decodable::H264(config) => of_h264(config, request),
        Decodable::Vp8(_) => of_vp8(request),
    }
}

fn of_h264(config: &h264::Config, request: &Request) -> Result<Small, Error> {
    let mut annex_b = BytesMut::with_capacity(request.payload.len().saturating_add(256));
    let mut put = |nal: &[u8]| {
        annex_b.extend_from_slice(&START_CODE);
        annex_b.extend_from_slice(nal);
    };
    config.parameter_sets().for_each(&mut put);
    for nal in Nals::new(&request.payload, 4) {
        put(nal.map_err(|_| Error::Damaged)?);
    }
    // Each picture gets a new decoder, so that no state of one stream leaks into another.
    let mut decoder = Decoder::new().map_err(|_| Error::Damaged)?;
    let options = DecodeOptions::new().flush_after_decode(Flush::Flush);
    let decoded = decoder.decode_with_options(&annex_b, options);
    let decoded = decoded.map_err(|_| Error::Damaged)?.ok_or(Error::Damaged)?;
    let (width, height) = decoded.dimensions();
    let planes = Planes {
        size: (width, height),
        luma: decoded.y(),
        chroma: (decoded.u(), decoded.v()),
        strides: decoded.strides(),
        is_hd: height >= HD_HEIGHT,
    };
    shrink(&planes, request.shape)
}

fn of_vp8(request: &Request) -> Result<Small, Error> {
    let frame = Vp8Decoder::decode_frame(&*request.payload).map_err(|_| Error::Damaged)?;
    let (width, height) = (usize::from(frame.width), usize::from(frame.height));
    // The decoder pads each row to whole macroblocks (RFC 6386 §2).
    let stride = width.next_multiple_of(16);
    let planes = Planes {
        size: (width, height),
        luma: &frame.ybuf,
        chroma: (&frame.ubuf, &frame.vbuf),
        strides: (stride, stride / 2, stride / 2),
        // RFC 6386 §9.2: VP8 has one colour space, that of BT.601.
        is_hd: false,
    };
    shrink(&planes, request.shape)
}

fn shrink(planes: &Planes<'_>, shape: Shape) -> Result<Small, Error> {
    let to = fit(planes.size, (usize::from(shape.width), usize::from(shape.height)));
    small(planes, to).ok_or(Error::Damaged)
}
