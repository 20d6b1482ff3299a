//! Decoder of G.711 (ITU-T G.711 tables 1 and 2) with one byte per sample.

use media::codec::g711::{Config, Law};

use super::Pcm;
use crate::{UNIT_SECONDS_MAX, fold};

/// Decodes a unit; samples after the first second are dropped.
pub(crate) fn decode(config: Config, payload: &[u8], pcm: &mut Pcm) {
    let channels = usize::from(config.channels.clamp(1, 2));
    let most = usize::try_from(Config::SAMPLE_RATE).unwrap_or(0) * UNIT_SECONDS_MAX * channels;
    let payload = payload.get(..most).unwrap_or(payload);
    let sample = |byte: &u8| match config.law {
        Law::A => a_law(*byte),
        Law::Mu => mu_law(*byte),
    };
    let samples: Vec<f32> = payload.iter().map(|byte| f32::from(sample(byte)) / 32_768.0).collect();
    pcm.rate = Config::SAMPLE_RATE;
    fold::vorbis(&samples, channels, &mut pcm.samples);
}

/// Decodes A-law to 16 bits. A byte consists of the sign, three bits for the segment, and four bits for the step
/// within the segment. Even bits are inverted.
fn a_law(byte: u8) -> i16 {
    let byte = byte ^ 0x55;
    let (segment, step) = ((byte >> 4) & 7, i16::from(byte & 0x0f));
    let magnitude = match segment {
        0 => (step << 4) + 8,
        _ => ((step << 4) + 0x108) << (segment - 1),
    };
    if byte & 0x80 != 0 { magnitude } else { -magnitude }
}

/// Decodes mu-law to 16 bits. All bits are inverted, and the magnitude is biased by 132.
fn mu_law(byte: u8) -> i16 {
    let byte = !byte;
    let (segment, step) = ((byte >> 4) & 7, i16::from(byte & 0x0f));
    let magnitude = (((step << 3) + 0x84) << segment) - 0x84;
    if byte & 0x80 != 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_those_of_the_tables() {
        // The smallest and the largest values of either sign in ITU-T G.711, tables 1a, 1b, 2a and 2b.
        assert_eq!([0xd5, 0x55, 0xaa, 0x2a].map(a_law), [8, -8, 32_256, -32_256]);
        assert_eq!([0xff, 0x7f, 0x80, 0x00].map(mu_law), [0, 0, 32_124, -32_124]);
    }

    #[test]
    fn a_unit_is_decoded_to_a_second_at_most() {
        for channels in [0, 1, 2, 9] {
            let mut pcm = Pcm::default();
            decode(Config { law: Law::A, channels }, &[0xd5; 100_000], &mut pcm);
            assert_eq!((pcm.rate, pcm.samples.len()), (8000, 16_000));
        }
    }
}
