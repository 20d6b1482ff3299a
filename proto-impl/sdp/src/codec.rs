//! Compares formats: the same codec in the same configuration. RFC 3264 §6.1 leaves the comparison to the
//! payload formats.

use crate::fmtp::Parameters;
use crate::h264::ProfileLevelId;
use crate::media::Format;

impl Format {
    /// True if media in one format may be sent as the other.
    ///
    /// Compares, in addition to encoding, clock rate and channels: for H.264, the sub-profile and
    /// `packetization-mode` (RFC 6184 §8.2.2); for H.265, profile, tier and `tx-mode` (RFC 7798 §7.2.2); for
    /// VP9, `profile-id` (RFC 9628 §6); for AV1, `profile`. Levels are receiver capabilities, and are ignored.
    /// Always false for repair formats (`rtx`, `red`, `ulpfec`), which have no media of their own.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.parameters, &other.parameters);
        let is = |encoding| self.rtpmap.is(encoding);
        if !self.rtpmap.same_codec(&other.rtpmap) || self.is_repair() {
            return false;
        }
        if is("H264") {
            h264(ours) == h264(theirs)
        } else if is("H265") {
            h265(ours) == h265(theirs)
        } else if is("VP9") {
            number(ours, "profile-id") == number(theirs, "profile-id")
        } else if is("AV1") {
            number(ours, "profile") == number(theirs, "profile")
        } else {
            true
        }
    }

    /// True if the format repairs or wraps another format.
    #[must_use]
    pub fn is_repair(&self) -> bool {
        ["rtx", "red", "ulpfec", "flexfec", "flexfec-03"].iter().any(|encoding| self.rtpmap.is(encoding))
    }

    /// Returns the H.264 profile and level; `None` if the parameter is malformed.
    #[must_use]
    pub fn profile_level_id(&self) -> Option<ProfileLevelId> {
        profile_level_id(&self.parameters)
    }
}

fn profile_level_id(parameters: &Parameters) -> Option<ProfileLevelId> {
    parameters.get("profile-level-id").map_or(Some(ProfileLevelId::DEFAULT), ProfileLevelId::read)
}

/// Returns the parameters that must match. A malformed profile only matches a profile with the same text.
fn h264(parameters: &Parameters) -> impl PartialEq + use<> {
    let profile = profile_level_id(parameters).map(ProfileLevelId::profile);
    let text = profile.is_none().then(|| parameters.get("profile-level-id").map(str::to_ascii_lowercase));
    (profile, text, number(parameters, "packetization-mode"))
}

fn h265(parameters: &Parameters) -> impl PartialEq + use<> {
    let profile = parameters.number("profile-id").unwrap_or(1);
    let mode = parameters.get("tx-mode").unwrap_or("SRST").to_ascii_uppercase();
    (profile, number(parameters, "tier-flag"), mode)
}

/// Returns a numeric parameter; 0 if absent.
fn number(parameters: &Parameters, name: &str) -> u32 {
    parameters.number(name).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtp::Rtpmap;

    fn format(rtpmap: &str, parameters: &str) -> Format {
        Format {
            rtpmap: Rtpmap::read(rtpmap).unwrap(),
            parameters: Parameters::read(parameters).unwrap(),
            feedback: Vec::new(),
        }
    }

    fn check(codec: &str, ours: &str, theirs: &str, matches: bool) {
        let (ours, theirs) = (format(&format!("96 {codec}"), ours), format(&format!("100 {codec}"), theirs));
        assert_eq!((ours.matches(&theirs), theirs.matches(&ours)), (matches, matches), "{ours:?} {theirs:?}");
    }

    #[test]
    fn h264_matches_by_profile_and_mode() {
        let h264 = |ours, theirs, matches| check("H264/90000", ours, theirs, matches);
        let browser = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f";
        // The level may differ, and so may flags that do not change the profile. The first format is that of webrtcbin.
        h264(browser, "packetization-mode=1;profile-level-id=42c01f", true);
        h264(browser, "packetization-mode=1;profile-level-id=42E034", true);
        h264(browser, "packetization-mode=1", true);
        h264(browser, "profile-level-id=42e01f", false);
        h264(browser, "packetization-mode=1;profile-level-id=42001f", false);
        h264(browser, "packetization-mode=1;profile-level-id=nonsense", false);
        h264("", "packetization-mode=0", true);
    }

    #[test]
    fn other_codecs_match_by_their_profile() {
        check("H265/90000", "level-id=93", "profile-id=1;tier-flag=0;tx-mode=srst", true);
        check("H265/90000", "", "profile-id=2", false);
        check("VP9/90000", "", "profile-id=0", true);
        check("VP9/90000", "profile-id=2", "profile-id=0", false);
        check("AV1/90000", "level-idx=5;profile=0;tier=0", "", true);
        check("AV1/90000", "profile=1", "", false);
        check("VP8/90000", "max-fs=1", "", true);
        check("opus/48000/2", "useinbandfec=1", "stereo=1", true);
        check("rtx/90000", "apt=96", "apt=96", false);
    }

    #[test]
    fn names_and_clocks_must_be_the_same() {
        let opus = format("111 opus/48000/2", "");
        assert!(opus.matches(&format("96 OPUS/48000/2", "")));
        assert!(!opus.matches(&format("96 opus/48000", "")) && !opus.matches(&format("96 L16/48000/2", "")));
    }
}
