//! The `RTP-Info` header field (RFC 2326 §12.33).

use crate::RtpInfo;
use crate::message::number;
use crate::presentation::Presentation;
use crate::transport::split_unquoted;

/// Reads the entries whose URL names a track of the presentation. Malformed entries are skipped, since the field is
/// optional.
pub(crate) fn read(value: &str, presentation: &Presentation) -> Vec<RtpInfo> {
    let entry = |text: &str| {
        let mut info = RtpInfo { track: usize::MAX, sequence: None, rtp_time: None };
        for part in text.split(';') {
            let (name, value) = part.split_once('=')?;
            match name.trim_ascii().to_ascii_lowercase().as_str() {
                "url" => info.track = presentation.track_of(value.trim_ascii())?,
                "seq" => info.sequence = number(value),
                "rtptime" => info.rtp_time = number(value),
                _ => {}
            }
        }
        (info.track != usize::MAX).then_some(info)
    };
    split_unquoted(value, ',').take(crate::limits::TRACKS_MAX).filter_map(entry).collect()
}

/// Returns the value of the field; empty if no track has a URL.
pub(crate) fn write(infos: &[RtpInfo], presentation: &Presentation) -> String {
    let entry = |info: &RtpInfo| {
        let mut text = format!("url={}", presentation.url_of(info.track)?);
        if let Some(sequence) = info.sequence {
            text.push_str(&format!(";seq={sequence}"));
        }
        if let Some(rtp_time) = info.rtp_time {
            text.push_str(&format!(";rtptime={rtp_time}"));
        }
        Some(text)
    };
    infos.iter().filter_map(entry).collect::<Vec<_>>().join(",")
}
