//! `profile-level-id` of H.264 (RFC 6184 §8.1, §8.2.2).

use alloc::fmt;

/// A profile, determined by `profile_idc` and the constraint flags (RFC 6184 §8.1, table 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum H264Profile {
    /// Constrained Baseline, which every decoder supports: `42e01f`, `42c01f`.
    ConstrainedBaseline,
    /// Baseline: `42001f`.
    Baseline,
    /// Main: `4d001f`.
    Main,
    /// Extended.
    Extended,
    /// Constrained High, without interlacing and B pictures: `640c1f`.
    ConstrainedHigh,
    /// High: `64001f`.
    High,
    /// High 10.
    High10,
    /// High 4:2:2.
    High422,
    /// High 4:4:4 Predictive: `f4001f`.
    High444,
    /// An intra-only or newer profile, by `profile_idc` and constraint flags.
    Other(u8, u8),
}

impl H264Profile {
    /// Returns the profile for `profile_idc` and the constraint flags.
    #[must_use]
    pub const fn of(idc: u8, flags: u8) -> Self {
        match (idc, flags) {
            // Masks the flags that do not affect the profile. One of these flags, constraint_set3_flag, means
            // level 1b in older profiles.
            (0x42, _) if flags & 0x4f == 0x40 => Self::ConstrainedBaseline,
            (0x4d, _) if flags & 0x8f == 0x80 => Self::ConstrainedBaseline,
            (0x58, _) if flags & 0xcf == 0xc0 => Self::ConstrainedBaseline,
            (0x42, _) if flags & 0x4f == 0 => Self::Baseline,
            (0x58, _) if flags & 0xcf == 0x80 => Self::Baseline,
            (0x4d, _) if flags & 0xaf == 0 => Self::Main,
            (0x58, _) if flags & 0xcf == 0 => Self::Extended,
            (0x64, 0x0c) => Self::ConstrainedHigh,
            (0x64, 0) => Self::High,
            (0x6e, 0) => Self::High10,
            (0x7a, 0) => Self::High422,
            (0xf4, 0) => Self::High444,
            _ => Self::Other(idc, flags),
        }
    }

    /// True if a decoder for this profile can also decode streams of the profile `stream`.
    #[must_use]
    pub fn decodes(self, stream: Self) -> bool {
        self == stream || self.includes().contains(&stream)
    }

    /// Returns the other profiles whose streams also conform to this one (H.264 Annex A.2).
    const fn includes(self) -> &'static [Self] {
        match self {
            Self::ConstrainedBaseline | Self::Other(..) => &[],
            Self::Baseline | Self::Main => &[Self::ConstrainedBaseline],
            Self::Extended => &[Self::ConstrainedBaseline, Self::Baseline],
            Self::ConstrainedHigh => &[Self::ConstrainedBaseline],
            Self::High => &[Self::ConstrainedBaseline, Self::Main, Self::ConstrainedHigh],
            Self::High10 => &[Self::ConstrainedBaseline, Self::Main, Self::ConstrainedHigh, Self::High],
            Self::High422 | Self::High444 => {
                &[Self::ConstrainedBaseline, Self::Main, Self::ConstrainedHigh, Self::High, Self::High10]
            }
        }
    }
}

/// Profile, constraint flags and level: the three bytes after the header of an SPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProfileLevelId {
    /// Value of `profile_idc`.
    pub idc: u8,
    /// Constraint flags; `constraint_set0_flag` is the highest bit.
    pub flags: u8,
    /// Value of `level_idc`: ten times the level.
    pub level: u8,
}

/// constraint_set3_flag. In some profiles, it means level 1b together with level 11 (H.264 §7.4.2.1.1).
const LEVEL_1B_FLAG: u8 = 0x10;

impl ProfileLevelId {
    /// Constrained Baseline, level 3.1: the default without a `profile-level-id`. RFC 6184 §8.1 specifies
    /// Baseline, level 1, but no current encoder is that limited, and browsers assume these values.
    pub const DEFAULT: Self = Self { idc: 0x42, flags: 0xe0, level: 31 };

    /// Reads six hexadecimal digits.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let six = text.len() == 6 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let [_, idc, flags, level] = u32::from_str_radix(text, 16).ok().filter(|_| six)?.to_be_bytes();
        Some(Self { idc, flags, level })
    }

    /// The profile.
    #[must_use]
    pub const fn profile(self) -> H264Profile {
        H264Profile::of(self.idc, self.flags)
    }

    /// Returns a rank with which levels can be compared: 1b is between 1 and 1.1.
    #[must_use]
    pub const fn level_rank(self) -> u16 {
        // Twice the level: level 1b, which lies between 1 and 1.1, thus becomes 21.
        if self.is_1b_by_flag() || self.level == 9 { 21 } else { (self.level as u16).saturating_mul(2) }
    }

    const fn is_1b_by_flag(self) -> bool {
        matches!(self.idc, 0x42 | 0x4d | 0x58) && self.level == 11 && self.flags & LEVEL_1B_FLAG != 0
    }

    /// Returns the profile and level with which to answer this offer, if our own limit is `ours`: our own level
    /// if levels are `asymmetric`, otherwise the lower of both. The profile bytes are those offered (RFC 6184
    /// §8.2.2), because a profile can be written in several ways, and pion treats them as different profiles.
    /// `None` if the profiles differ.
    #[must_use]
    pub fn answer(self, ours: Self, asymmetric: bool) -> Option<Self> {
        if self.profile() != ours.profile() {
            return None;
        }
        if !asymmetric && ours.level_rank() > self.level_rank() {
            return Some(self);
        }
        // In some profiles, level 1b is a flag, which is part of the level.
        let own = if self.is_1b_by_flag() || ours.is_1b_by_flag() { LEVEL_1B_FLAG } else { 0 };
        Some(Self { level: ours.level, flags: self.flags & !own | ours.flags & own, ..self })
    }
}

impl fmt::Display for ProfileLevelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}{:02x}", self.idc, self.flags, self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ProfileLevelId {
        ProfileLevelId::read(text).unwrap()
    }

    #[test]
    fn profiles_are_those_of_table_5() {
        use H264Profile as P;
        for (text, profile) in [
            ("42e01f", P::ConstrainedBaseline),
            ("42c01f", P::ConstrainedBaseline),
            ("42401f", P::ConstrainedBaseline),
            ("4d801f", P::ConstrainedBaseline),
            ("58c01f", P::ConstrainedBaseline),
            ("42001f", P::Baseline),
            ("42801f", P::Baseline),
            ("58801f", P::Baseline),
            ("4d001f", P::Main),
            ("4d401f", P::Main),
            ("58001f", P::Extended),
            ("640c1f", P::ConstrainedHigh),
            ("64001f", P::High),
            ("6e0028", P::High10),
            ("7a0028", P::High422),
            ("F4001F", P::High444),
            ("6e1028", P::Other(0x6e, 0x10)),
        ] {
            assert_eq!(id(text).profile(), profile, "{text}");
            assert_eq!(id(text).to_string(), text.to_ascii_lowercase());
        }
        for bad in ["", "42e0", "42e01", "42e01g", "+2e01f", "42e01f0"] {
            assert_eq!(ProfileLevelId::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn level_1b_is_between_1_and_1_1() {
        let ranks = ["42e00a", "42f00b", "42e00b", "42e00d"].map(|text| id(text).level_rank());
        assert!(ranks.is_sorted() && ranks[1] > ranks[0] && ranks[1] < ranks[2]);
        assert_eq!(id("42f00b").profile(), H264Profile::ConstrainedBaseline);
        assert_eq!(id("640009").level_rank(), ranks[1]);
    }

    #[test]
    fn decoders_decode_less_than_they_can() {
        use H264Profile as P;
        assert!(
            P::High.decodes(P::ConstrainedBaseline) && P::High.decodes(P::Main) && P::High.decodes(P::High)
        );
        assert!(P::Baseline.decodes(P::ConstrainedBaseline));
        // Baseline allows slices in any order, which the other profiles do not support.
        assert!(!P::Main.decodes(P::Baseline) && !P::High.decodes(P::Baseline));
        assert!(!P::ConstrainedBaseline.decodes(P::Main) && !P::Other(1, 2).decodes(P::Main));
    }

    #[test]
    fn answers_have_the_lower_level_unless_levels_are_free() {
        let (low, high) = (id("42c01e"), id("42e028"));
        assert_eq!((low.answer(high, false), low.answer(high, true)), (Some(low), Some(id("42c028"))));
        assert_eq!(
            (high.answer(low, false), high.answer(low, true)),
            (Some(id("42e01e")), Some(id("42e01e")))
        );
        // Level 1b is level 11 with a flag.
        assert_eq!(id("42e01f").answer(id("42d00b"), true), Some(id("42f00b")));
        assert_eq!(id("42f00b").answer(id("42c01f"), true), Some(id("42e01f")));
        assert_eq!(low.answer(id("64001f"), true), None);
    }
}
