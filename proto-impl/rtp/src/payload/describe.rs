//! Payload formats from the `rtpmap` and `fmtp` lines of a session description.

use media::codec::{Codec, aac, g711};
use sdp::{BadParameter, Format as Described};

use super::aac::frame_ticks;
use super::{Error, Format, Mpeg4Generic};

/// Maximum size of an RFC 3640 header field, in bits.
const FIELD_BITS_MAX: u32 = 32;
/// Samples of an AAC frame.
const AAC_FRAME_SAMPLES: u32 = 1024;

impl Format {
    /// Reads a format from a description. `None` for encodings without supported media: `rtx`, `red`,
    /// `telephone-event`, ...
    pub fn of_description(described: &Described) -> Result<Option<Self>, Error> {
        let Some(codec) = codec_of_description(described) else { return Ok(None) };
        Ok(Some(match codec {
            Codec::H264 => Self::H264,
            Codec::H265 if described.parameters.number("sprop-max-don-diff").unwrap_or(0) > 0 => {
                return Err(Error::Unsupported("sprop-max-don-diff"));
            }
            Codec::H265 => Self::H265,
            Codec::Vp8 => Self::Vp8,
            Codec::Vp9 => Self::Vp9,
            Codec::Av1 => Self::Av1,
            Codec::Opus => Self::Opus,
            Codec::G711(_) => Self::G711,
            Codec::Mp3 => Self::Mp3,
            Codec::Aac if described.rtpmap.is("MP4A-LATM") => {
                Self::Mp4aLatm { config: latm_config(described)?, clock_rate: described.rtpmap.clock_rate }
            }
            Codec::Aac => Self::Mpeg4Generic(mpeg4_generic(described)?),
            Codec::Ac3 | Codec::Eac3 | Codec::Flac => return Ok(None),
        }))
    }
}

/// Returns the codec named by an `rtpmap`, ignoring case; `None` if unsupported.
#[must_use]
pub fn codec_of_description(described: &Described) -> Option<Codec> {
    let names = [
        ("H264", Codec::H264),
        ("H265", Codec::H265),
        ("VP8", Codec::Vp8),
        ("VP9", Codec::Vp9),
        ("AV1", Codec::Av1),
        ("opus", Codec::Opus),
        ("multiopus", Codec::Opus),
        ("PCMA", Codec::G711(g711::Law::A)),
        ("PCMU", Codec::G711(g711::Law::Mu)),
        ("MPA", Codec::Mp3),
        ("mpeg4-generic", Codec::Aac),
        ("MP4A-LATM", Codec::Aac),
    ];
    names.into_iter().find(|(name, _)| described.rtpmap.is(name)).map(|(_, codec)| codec)
}

/// Reads the parameters of `mpeg4-generic` (RFC 3640 §4.1). Missing lengths are 0.
fn mpeg4_generic(described: &Described) -> Result<Mpeg4Generic, Error> {
    let parameters = &described.parameters;
    let bits = |name: &str| {
        let value = parameters.number(name).unwrap_or(0);
        u8::try_from(value)
            .ok()
            .filter(|_| value <= FIELD_BITS_MAX)
            .ok_or(Error::Malformed("length of AU header fields"))
    };
    // Fields after size and index would have to be skipped; no known sender uses them with AAC.
    for field in [
        "CTSDeltaLength",
        "DTSDeltaLength",
        "randomAccessIndication",
        "streamStateIndication",
        "auxiliaryDataSizeLength",
    ] {
        if parameters.number(field).unwrap_or(0) > 0 {
            return Err(Error::Unsupported("further fields of AU headers"));
        }
    }
    Ok(Mpeg4Generic {
        size_length: bits("sizeLength")?,
        index_length: bits("indexLength")?,
        index_delta_length: bits("indexDeltaLength")?,
        unit_ticks: unit_ticks(described),
    })
}

/// Returns the duration of a unit in ticks of the described clock: `constantDuration`, or otherwise computed from the
/// configuration. The clock is that of the decoded audio, or that of the core codec before SBR.
fn unit_ticks(described: &Described) -> u32 {
    let constant = described.parameters.number("constantDuration").filter(|&ticks| ticks > 0);
    let by_config = || {
        let record = described.parameters.mpeg4_config().ok()??;
        frame_ticks(&aac::Config::read(record).ok()?, described.rtpmap.clock_rate)
    };
    constant.or_else(by_config).unwrap_or(AAC_FRAME_SAMPLES)
}

/// Returns the StreamMuxConfig in the `config` parameter; `None` if it is sent in band (`cpresent`, RFC 6416
/// §7.1).
fn latm_config(described: &Described) -> Result<Option<bytes::Bytes>, Error> {
    let config = described.parameters.mpeg4_config().map_err(|BadParameter(_)| Error::Malformed("config"))?;
    if described.parameters.number("cpresent") == Some(0) && config.is_none() {
        return Err(Error::Malformed("config"));
    }
    // If the configuration is sent in band, an additional config parameter only repeats it.
    Ok(config.filter(|_| described.parameters.number("cpresent") == Some(0)))
}

#[cfg(test)]
mod tests {
    use sdp::{Parameters, Rtpmap};

    use super::*;

    fn format(rtpmap: &str, fmtp: &str) -> Result<Option<Format>, Error> {
        let rtpmap = Rtpmap::read(rtpmap).unwrap();
        let parameters = Parameters::read(fmtp).unwrap();
        Format::of_description(&Described { rtpmap, parameters, feedback: Vec::new() })
    }

    #[test]
    fn descriptions_of_publishers() {
        assert_eq!(format("96 H264/90000", "packetization-mode=1"), Ok(Some(Format::H264)));
        assert_eq!(format("111 OPUS/48000/2", ""), Ok(Some(Format::Opus)));
        assert_eq!(format("97 rtx/90000", "apt=96"), Ok(None));
        assert_eq!(
            format(
                "97 MPEG4-GENERIC/48000/2",
                "mode=AAC-hbr;sizelength=13;indexlength=3;indexdeltalength=3;config=1190"
            ),
            Ok(Some(Format::Mpeg4Generic(Mpeg4Generic::AAC_HBR)))
        );
        let config = bytes::Bytes::from_static(&[0x40, 0, 0x23, 0x20, 0x3f, 0xc0]);
        assert_eq!(
            format("97 MP4A-LATM/48000/2", "cpresent=0;config=400023203fc0"),
            Ok(Some(Format::Mp4aLatm { config: Some(config), clock_rate: 48_000 }))
        );
        let in_band = Format::Mp4aLatm { config: None, clock_rate: 48_000 };
        assert_eq!(format("97 MP4A-LATM/48000/2", ""), Ok(Some(in_band)));
    }

    #[test]
    fn units_are_as_far_from_each_other_as_the_configuration_says() {
        for (clock_rate, fmtp, ticks) in [
            (48_000, "config=1190", 1024),
            (44_100, "config=1210", 1024),
            // HE-AAC, 24 kHz before SBR: with the clock of the output, and with that of the core.
            (48_000, "config=2B118800", 2048),
            (24_000, "config=2B118800", 1024),
            // The same with SBR signalled after the core, and not signalled.
            (48_000, "config=131056E598", 2048),
            (48_000, "config=1310", 2048),
            // HE-AAC v2.
            (48_000, "config=EB098800", 2048),
            // 960 samples, and with SBR.
            (48_000, "config=1194", 960),
            (48_000, "config=2B118A00", 1920),
            // AAC LD and ELD.
            (48_000, "config=B990", 512),
            (48_000, "config=F8E65000", 480),
            // An explicit rate.
            (48_000, "config=17805DC010", 1024),
            (90_000, "config=1190", 1920),
            (48_000, "config=1190;constantDuration=960", 960),
            (48_000, "config=1190;constantDuration=0", 1024),
            (48_000, "config=zz", 1024),
            (48_000, "", 1024),
        ] {
            let fmtp = format!("sizelength=13;indexlength=3;indexdeltalength=3;{fmtp}");
            let read = format(&format!("97 mpeg4-generic/{clock_rate}/2"), &fmtp);
            let wanted = Mpeg4Generic { unit_ticks: ticks, ..Mpeg4Generic::AAC_HBR };
            assert_eq!(read, Ok(Some(Format::Mpeg4Generic(wanted))), "{clock_rate} {fmtp}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (rtpmap, fmtp) in [
            ("97 MP4A-LATM/48000", "cpresent=0"),
            ("97 MP4A-LATM/48000", "cpresent=0;config=4x"),
            ("97 mpeg4-generic/48000", "sizelength=33"),
            ("97 mpeg4-generic/48000", "sizelength=13;ctsdeltalength=5"),
            ("98 H265/90000", "sprop-max-don-diff=1"),
        ] {
            assert!(format(rtpmap, fmtp).is_err(), "{rtpmap} {fmtp}");
        }
    }
}
