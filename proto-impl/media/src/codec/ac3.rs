//! AC-3 and E-AC-3 (ETSI TS 102 366). Neither has parameter sets: every syncframe is self-contained. The boxes that
//! containers need (`dac3`, `dec3`) can be made from a syncframe.

use alloc::vec::Vec;

use wire::BitReader;

use super::Error;

/// The syncword.
const SYNC: u32 = 0x0b77;
/// Largest bsid of AC-3; larger values are E-AC-3 (annex E.1.3.1.6).
const BSID_AC3_MAX: u32 = 10;
/// Largest bsid of E-AC-3.
const BSID_MAX: u32 = 16;
/// Sample rates in Hz by fscod (table 4.1).
const SAMPLE_RATES: [u32; 3] = [48_000, 44_100, 32_000];
/// Bit rates in kbit/s, indexed by frmsizecod / 2 (table 4.13).
const BITRATES: [u32; 19] =
    [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640];
/// Numbers of audio blocks by numblkscod (table E.1.4).
const BLOCKS: [u32; 4] = [1, 2, 3, 6];
/// Samples per audio block.
const BLOCK_SAMPLES: u32 = 256;
/// strmtyp of a dependent substream (table E.1.2).
const DEPENDENT: u32 = 1;

/// Configuration of an AC-3 or E-AC-3 track. It has no parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Config;

/// Header of a syncframe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syncframe {
    /// Length of the frame, in bytes.
    pub bytes: usize,
    /// Sample rate in Hz.
    pub sample_rate: u32,
    /// Samples per channel.
    pub samples: u32,
    /// True if the frame is E-AC-3.
    pub enhanced: bool,
    /// True if the frame is a dependent substream, which adds channels to the frame before it at the same time.
    pub dependent: bool,
}

impl Syncframe {
    /// Parses the header at the start of `frame`. 6 bytes are needed.
    pub fn read(frame: &[u8]) -> Result<Self, Error> {
        let mut bits = BitReader::new(frame.get(..6).unwrap_or(frame));
        if bits.bits(16)? != SYNC {
            return Err(Error::Invalid("syncword"));
        }
        // bsid is at the same position in AC-3 and E-AC-3.
        let mut ahead = bits.clone();
        ahead.skip(24)?;
        match ahead.bits(5)? {
            bsid if bsid <= BSID_AC3_MAX => Self::read_ac3(bits, bsid),
            bsid if bsid <= BSID_MAX => Self::read_enhanced(bits),
            _ => Err(Error::Invalid("bsid")),
        }
    }

    /// Parses crc1, fscod and frmsizecod (§4.3.1).
    fn read_ac3(mut bits: BitReader<'_>, bsid: u32) -> Result<Self, Error> {
        bits.skip(16)?;
        let rate = *at(&SAMPLE_RATES, bits.bits(2)?).ok_or(Error::Invalid("fscod"))?;
        let code = bits.bits(6)?;
        let bitrate = at(&BITRATES, code / 2).ok_or(Error::Invalid("frmsizecod"))?;
        // A frame has 1536 samples; its length is in words of 16 bits. At 44.1 kHz, frames with an odd frmsizecod are
        // a word longer.
        let odd = if rate == 44_100 { code & 1 } else { 0 };
        let words = bitrate * 96_000 / rate + odd;
        // With bsid 9 the sample rate is halved, with 10 quartered.
        let sample_rate = rate >> bsid.saturating_sub(8);
        let bytes = usize::try_from(words * 2).unwrap_or(0);
        Ok(Self { bytes, sample_rate, samples: 6 * BLOCK_SAMPLES, enhanced: false, dependent: false })
    }

    /// Parses strmtyp, substreamid, frmsiz, fscod and numblkscod (§E.1.2.2).
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
        // A second independent program in the stream is treated like a dependent substream of the first program.
        let dependent = stream_type == DEPENDENT || substream > 0;
        Ok(Self { bytes, sample_rate, samples, enhanced: true, dependent })
    }
}

/// Numbers of channels by acmod, without the low-frequency channel (table 4.3).
const CHANNELS: [u8; 8] = [2, 1, 2, 3, 3, 4, 4, 5];
/// Maximum number of dependent substreams counted, because num_dep_sub has four bits.
const DEPENDENTS_MAX: u8 = 15;

/// Description of a track in an MP4 file, from its first unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Sample rate in Hz.
    pub sample_rate: u32,
    /// Number of channels including the low-frequency channel, but without those of dependent substreams.
    pub channels: u8,
    /// Payload of the AC3SpecificBox (`dac3`, §F.4) or of the EC3SpecificBox (`dec3`, §F.6).
    pub record: Vec<u8>,
}

impl Description {
    /// Parses the syncframes of an access unit.
    pub fn of_unit(unit: &[u8]) -> Result<Self, Error> {
        let first = Syncframe::read(unit)?;
        if first.enhanced { Self::of_enhanced(unit, &first) } else { Self::of_ac3(unit, &first) }
    }

    /// Describes the track of an AC-3 frame. Fields of the record:
    ///
    /// ```text
    /// fscod(2) | bsid(5) | bsmod(3) | acmod(3) | lfeon(1) | bit_rate_code(5) | 0(5)
    /// ```
    fn of_ac3(unit: &[u8], frame: &Syncframe) -> Result<Self, Error> {
        let mut bits = BitReader::new(unit);
        bits.skip(32)?;
        let (fscod, frmsizecod) = (bits.bits(2)?, bits.bits(6)?);
        let (bsid, bsmod, acmod) = (bits.bits(5)?, bits.bits(3)?, bits.bits(3)?);
        // Skip those of cmixlev, surmixlev and dsurmod that are present (§4.3.2).
        let mixes = [acmod & 1 != 0 && acmod != 1, acmod & 4 != 0, acmod == 2];
        bits.skip(mixes.into_iter().filter(|is| *is).count() * 2)?;
        let lfe = bits.bits(1)?;
        let fields =
            fscod << 22 | bsid << 17 | bsmod << 14 | acmod << 11 | lfe << 10 | (frmsizecod >> 1) << 5;
        let record = fields.to_be_bytes().into_iter().skip(1).collect();
        Ok(Self { sample_rate: frame.sample_rate, channels: channels(acmod, lfe), record })
    }

    /// Parses an independent substream and its dependent ones.
    ///
    /// ```text
    /// data_rate(13) | num_ind_sub(3) | fscod(2) | bsid(5) | 0 | asvc(1) | bsmod(3) | acmod(3) | lfeon(1) | 0(3)
    /// | num_dep_sub(4) | chan_loc(9), or 0
    /// ```
    fn of_enhanced(unit: &[u8], first: &Syncframe) -> Result<Self, Error> {
        let head = EnhancedHead::read(unit)?;
        let (mut dependents, mut locations, mut bytes) = (0, 0, first.bytes);
        let mut rest = unit.get(first.bytes..).unwrap_or_default();
        while let Ok(frame) = Syncframe::read(rest)
            && frame.dependent
            && dependents < DEPENDENTS_MAX
        {
            dependents += 1;
            bytes = bytes.saturating_add(frame.bytes);
            locations |= EnhancedHead::read(rest)?.locations;
            rest = rest.get(frame.bytes..).unwrap_or_default();
        }
        let bits_each_second =
            bytes as u64 * 8 * u64::from(first.sample_rate) / u64::from(first.samples.max(1));
        let rate = u64::min(bits_each_second / 1000, (1 << 13) - 1);
        let substream = u64::from(head.fscod << 14 | head.bsid << 9 | head.acmod << 1 | head.lfe);
        let (fields, field_bytes) = if dependents == 0 {
            (rate << 27 | substream << 8, 5)
        } else {
            (rate << 35 | substream << 16 | u64::from(dependents) << 9 | u64::from(locations), 6)
        };
        let record = fields.to_be_bytes().into_iter().skip(8 - field_bytes).collect();
        Ok(Self { sample_rate: first.sample_rate, channels: channels(head.acmod, head.lfe), record })
    }
}

fn channels(acmod: u32, lfe: u32) -> u8 {
    let full = usize::try_from(acmod).ok().and_then(|acmod| CHANNELS.get(acmod)).copied();
    full.unwrap_or(2) + u8::from(lfe != 0)
}

/// The fields of a substream's header that `dec3` contains as well (§E.1.2.2).
#[derive(Debug)]
struct EnhancedHead {
    fscod: u32,
    bsid: u32,
    acmod: u32,
    lfe: u32,
    /// chan_loc of a dependent substream (table F.6.1), from its chanmap (table E.1.7); 0 for others.
    locations: u16,
}

impl EnhancedHead {
    fn read(frame: &[u8]) -> Result<Self, Error> {
        let mut bits = BitReader::new(frame);
        bits.skip(16)?;
        let stream_type = bits.bits(2)?;
        bits.skip(14)?;
        let fscod = bits.bits(2)?;
        // Skip fscod2 or numblkscod.
        bits.skip(2)?;
        let (acmod, lfe, bsid) = (bits.bits(3)?, bits.bits(1)?, bits.bits(5)?);
        let mut locations = 0;
        if stream_type == DEPENDENT {
            // Skip dialnorm and compr, which occur twice for 1+1 channels.
            for _ in 0..if acmod == 0 { 2 } else { 1 } {
                bits.skip(5)?;
                if bits.bit()? {
                    bits.skip(8)?;
                }
            }
            if bits.bit()? {
                // chanmap counts bits from the most significant one. Its bits 5 (Lc/Rc) to 12 are bits 0 to 7
                // of chan_loc, and its bit 14 (the second LFE) is bit 8.
                let map = bits.bits(16)?.reverse_bits() >> 16;
                let low = (map >> 5) & 0xff;
                locations = u16::try_from(low | (map >> 14 & 1) << 8).unwrap_or(0);
            }
        }
        Ok(Self { fscod, bsid, acmod, lfe, locations })
    }
}

/// Returns the number of samples per channel in the syncframes of `frames`, and their sample rate. `None` if the first
/// is invalid.
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

    #[test]
    fn what_mp4_says_of_a_track() {
        // Beginnings of frames that ffmpeg has encoded in AC-3 and E-AC-3: mono, 48 kHz, 96 kbit/s.
        let ac3 = [0x0b, 0x77, 0x48, 0x0d, 0x0c, 0x40, 0x2f, 0x84];
        let of =
            |unit: &[u8]| Description::of_unit(unit).map(|one| (one.sample_rate, one.channels, one.record));
        assert_eq!(of(&ac3), Ok((48_000, 1, vec![0x10, 0x08, 0xc0])));
        let eac3 = [0x0b, 0x77, 0x00, 0xbf, 0x32, 0x87, 0xc0, 0x00];
        assert_eq!(of(&eac3), Ok((48_000, 1, vec![3, 0, 0x20, 2, 0])));
        // 5.1, followed by a dependent substream with the 2 channels Lrs/Rrs.
        let frame = |head: [u8; 4], tail: [u8; 6]| {
            let mut frame = vec![0; 8];
            frame.splice(..2, [0x0b, 0x77]);
            frame.splice(2..6, head);
            frame.splice(6..8, tail);
            frame
        };
        let main = frame([0x00, 0x05, 0x3f, 0x80], [0; 6]);
        let more = frame([0x40, 0x05, 0x34, 0x82], [0x10, 0x20, 0, 0, 0, 0]);
        let (rate, channels, record) = of(&[main, more].concat()).unwrap();
        assert_eq!((rate, channels, record.len()), (48_000, 6, 6));
        assert_eq!(record[2..], [0x20, 0x0f, 0x02, 0x02]);
        (0..7).for_each(|end| assert!(of(&ac3[..end]).is_err(), "cut at {end}"));
    }
}
