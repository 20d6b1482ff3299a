//! AC-3 and E-AC-3 (ETSI TS 102 366). Neither has parameter sets: every syncframe is complete in itself, and what a
//! container wants to know of it (`dac3`, `dec3`) can be read there.

use wire::BitReader;

use super::Error;

/// syncword.
const SYNC: u32 = 0x0b77;
/// The largest bsid of AC-3; above is E-AC-3 (annex E.1.3.1.6).
const BSID_AC3_MAX: u32 = 10;
/// The largest bsid of E-AC-3.
const BSID_MAX: u32 = 16;
/// Hz by fscod (table 4.1).
const SAMPLE_RATES: [u32; 3] = [48_000, 44_100, 32_000];
/// kbit/s by half of frmsizecod (table 4.13).
const BITRATES: [u32; 19] =
    [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640];
/// Audio blocks by numblkscod (table E.1.4).
const BLOCKS: [u32; 4] = [1, 2, 3, 6];
/// Samples of an audio block.
const BLOCK_SAMPLES: u32 = 256;
/// strmtyp of a dependent substream (table E.1.2).
const DEPENDENT: u32 = 1;

/// An AC-3 or E-AC-3 track. It says no more than that it is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Config;

/// The head of a syncframe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syncframe {
    /// Bytes of the frame.
    pub bytes: usize,
    /// Hz.
    pub sample_rate: u32,
    /// Samples of each channel.
    pub samples: u32,
    /// Whether the frame is E-AC-3.
    pub enhanced: bool,
    /// Whether it is a dependent substream: it adds channels to the preceding frame, with the same time.
    pub dependent: bool,
}

impl Syncframe {
    /// Reads the head that `frame` begins with: 6 bytes of it.
    pub fn read(frame: &[u8]) -> Result<Self, Error> {
        let mut bits = BitReader::new(frame.get(..6).unwrap_or(frame));
        if bits.bits(16)? != SYNC {
            return Err(Error::Invalid("syncword"));
        }
        // bsid stands at the same place in both.
        let mut ahead = bits.clone();
        ahead.skip(24)?;
        match ahead.bits(5)? {
            bsid if bsid <= BSID_AC3_MAX => Self::read_ac3(bits, bsid),
            bsid if bsid <= BSID_MAX => Self::read_enhanced(bits),
            _ => Err(Error::Invalid("bsid")),
        }
    }

    /// §4.3.1: crc1, fscod, frmsizecod.
    fn read_ac3(mut bits: BitReader<'_>, bsid: u32) -> Result<Self, Error> {
        bits.skip(16)?;
        let rate = *at(&SAMPLE_RATES, bits.bits(2)?).ok_or(Error::Invalid("fscod"))?;
        let code = bits.bits(6)?;
        let bitrate = at(&BITRATES, code / 2).ok_or(Error::Invalid("frmsizecod"))?;
        // 1536 samples in words of 16 bits; at 44.1 kHz every other frame is a word longer.
        let odd = if rate == 44_100 { code & 1 } else { 0 };
        let words = bitrate * 96_000 / rate + odd;
        // bsid 9 and 10 are half and a quarter of the rate.
        let sample_rate = rate >> bsid.saturating_sub(8);
        let bytes = usize::try_from(words * 2).unwrap_or(0);
        Ok(Self { bytes, sample_rate, samples: 6 * BLOCK_SAMPLES, enhanced: false, dependent: false })
    }

    /// §E.1.2.2: strmtyp, substreamid, frmsiz, fscod, numblkscod.
    fn read_enhanced(mut bits: BitReader<'_>) -> Result<Self, Error> {
        let stream_type = bits.bits(2)?;
        if stream_type == 3 {
            return Err(Error::Invalid("strmtyp"));
        }
        let substream = bits.bits(3)?;
        let bytes = usize::try_from((bits.bits(11)? + 1) * 2).unwrap_or(0);
        if bytes < 6 {
            return Err(Error::Invalid("frmsiz"));
        }
        let code = bits.bits(2)?;
        let (sample_rate, blocks) = match at(&SAMPLE_RATES, code) {
            Some(rate) => (*rate, bits.bits(2)?),
            None => (at(&SAMPLE_RATES, bits.bits(2)?).ok_or(Error::Invalid("fscod2"))? / 2, 3),
        };
        let samples = at(&BLOCKS, blocks).map_or(0, |blocks| blocks * BLOCK_SAMPLES);
        // A further program of its own is carried beside the first, as what depends on it is.
        let dependent = stream_type == DEPENDENT || substream > 0;
        Ok(Self { bytes, sample_rate, samples, enhanced: true, dependent })
    }
}

/// Samples of each channel of the syncframes that `frames` holds, and their rate. `None` when the first is none.
pub(crate) fn samples(frames: &[u8]) -> Option<(u64, u32)> {
    let first = Syncframe::read(frames).ok()?;
    let (mut samples, mut rest) = (0, frames);
    while let Ok(frame) = Syncframe::read(rest) {
        samples += if frame.dependent { 0 } else { u64::from(frame.samples) };
        rest = rest.get(frame.bytes..).unwrap_or_default();
    }
    Some((samples, first.sample_rate))
}

fn at(table: &[u32], index: u32) -> Option<&u32> {
    table.get(usize::try_from(index).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_syncframes() {
        let of = |head: [u8; 6]| {
            Syncframe::read(&head)
                .map(|frame| (frame.bytes, frame.sample_rate, frame.samples, frame.enhanced))
        };
        // 192 kbit/s at 48 and 44.1 kHz; 640 kbit/s at 32 kHz.
        assert_eq!(of([0x0b, 0x77, 1, 2, 20, 0x40]), Ok((768, 48_000, 1536, false)));
        assert_eq!(of([0x0b, 0x77, 1, 2, 0x40 | 20, 0x40]), Ok((834, 44_100, 1536, false)));
        assert_eq!(of([0x0b, 0x77, 1, 2, 0x40 | 21, 0x40]), Ok((836, 44_100, 1536, false)));
        assert_eq!(of([0x0b, 0x77, 1, 2, 0x80 | 37, 0x40]), Ok((3840, 32_000, 1536, false)));
        // E-AC-3: 6 blocks at 48 kHz; 2 blocks; half of 44.1 kHz.
        assert_eq!(of([0x0b, 0x77, 0x01, 0x7f, 0x30, 0x80]), Ok((768, 48_000, 1536, true)));
        assert_eq!(of([0x0b, 0x77, 0x01, 0x7f, 0x10, 0x80]), Ok((768, 48_000, 512, true)));
        assert_eq!(of([0x0b, 0x77, 0x01, 0x7f, 0xd0, 0x80]), Ok((768, 22_050, 1536, true)));
        assert!(Syncframe::read(&[0x0b, 0x77, 0x41, 0x7f, 0x30, 0x80]).unwrap().dependent);
    }

    #[test]
    fn m_20_what_is_no_syncframe_is_refused() {
        let head = [0x0b, 0x77, 1, 2, 20, 0x40];
        for end in 0..6 {
            assert!(Syncframe::read(&head[..end]).is_err());
        }
        for (at, byte) in [(0, 0x0c), (4, 0xc0), (4, 38), (5, 0x88)] {
            let mut lies = head;
            lies[at] = byte;
            assert!(Syncframe::read(&lies).is_err(), "{at}");
        }
        assert!(Syncframe::read(&[0x0b, 0x77, 0, 0, 0x30, 0x80]).is_err());
    }
}
