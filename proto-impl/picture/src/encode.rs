//! Encoders: a small picture as a file.

use jpeg_encoder::{ColorType, Encoder};

use crate::scale::Small;
use crate::{Error, Format, Shape};

/// Encodes a picture.
pub(crate) fn encode(small: &Small, shape: Shape) -> Result<Vec<u8>, Error> {
    match shape.format {
        Format::Jpeg => jpeg(small, shape.quality),
        Format::Png => png(small).map_err(|_| Error::Damaged),
    }
}

fn jpeg(small: &Small, quality: u8) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let encoder = Encoder::new(&mut out, quality.clamp(1, 100));
    let made = encoder.encode(&small.rgb, small.width, small.height, ColorType::Rgb);
    made.map(|()| out).map_err(|_| Error::Damaged)
}

fn png(small: &Small) -> Result<Vec<u8>, png::EncodingError> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, u32::from(small.width), u32::from(small.height));
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&small.rgb)?;
    writer.finish()?;
    Ok(out)
}
