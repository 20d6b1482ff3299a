//! Settings of an application: whether its streams are played as HLS, and how.

use crate::config::{AppSettings, Error, Extensions, Key, Section, Values, key};

const APP: &[Key] = &[
    key("hlsMuxingEnabled", "true", "HLS"),
    key("hlsTime", "2", "Segment duration in seconds"),
    key("hlsListSize", "15", "Segments in the playlist"),
    key("hlsSegmentFileSuffixFormat", "%09d", "Suffix of segment files"),
];

/// See [`crate::config::Section`].
pub(super) static SECTION: Section =
    Section { app: APP, read_app: |values| Ok(Extensions::of(HlsSettings::read(values)?)), ..Section::NONE };

/// The HLS settings of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HlsSettings {
    /// `hlsMuxingEnabled`.
    pub(super) enabled: bool,
    /// `hlsTime` in milliseconds: a segment ends at the first key frame after it.
    pub(super) segment_ms: i64,
    /// `hlsListSize`.
    pub(super) list_size: usize,
    /// `hlsSegmentFileSuffixFormat`.
    pub(super) suffix: Suffix,
}

static DEFAULTS: HlsSettings = HlsSettings {
    enabled: true,
    segment_ms: 2000,
    list_size: 15,
    suffix: Suffix { before: String::new(), digits: 9, after: String::new() },
};

impl HlsSettings {
    pub(super) fn of(app: &AppSettings) -> &Self {
        app.protocols.get().unwrap_or(&DEFAULTS)
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let suffix = "hlsSegmentFileSuffixFormat";
        Ok(Self {
            enabled: values.boolean("hlsMuxingEnabled")?,
            segment_ms: values.number("hlsTime", 1i64, 60)? * 1000,
            list_size: values.number("hlsListSize", 3usize, 500)?,
            suffix: Suffix::read(values.text(suffix)).ok_or_else(|| {
                values.bad(suffix, "must have one %d, perhaps with a width, and letters, digits, - and _")
            })?,
        })
    }
}

/// How the number of a segment is written: C's `%d` with a width of zeros, and what stands around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Suffix {
    before: String,
    digits: usize,
    after: String,
}

impl Suffix {
    fn read(text: &str) -> Option<Self> {
        let (before, rest) = text.split_once('%')?;
        let (digits, after) = rest.split_once('d')?;
        let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        let digits = if digits.is_empty() { 1 } else { digits.strip_prefix('0')?.parse().ok()? };
        (is_plain(before) && is_plain(after) && (1..=18).contains(&digits)).then(|| Self {
            before: before.to_owned(),
            digits,
            after: after.to_owned(),
        })
    }

    /// The suffix of a number.
    pub(super) fn of(&self, number: u64) -> String {
        format!("{}{number:0digits$}{}", self.before, self.after, digits = self.digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn what_nobody_has_set_is_what_the_keys_default_to() {
        let app = AppSettings::of(schema(), "a", &[]).unwrap();
        assert_eq!(app.protocols.get::<HlsSettings>(), Some(&DEFAULTS));
    }

    #[test]
    fn a_suffix_has_one_number() {
        let written = |text, number| Suffix::read(text).map(|suffix| suffix.of(number));
        assert_eq!(written("%09d", 7).as_deref(), Some("000000007"));
        assert_eq!(written("-%04d_x", 12345).as_deref(), Some("-12345_x"));
        assert_eq!(written("%d", 0).as_deref(), Some("0"));
        for bad in ["", "%", "%s", "%9d", "%099d", "%00d", "../%d", "%d/x", "%d%d", "%Y%d"] {
            assert_eq!(written(bad, 1), None, "{bad}");
        }
    }

    #[test]
    fn c_03_bad_values_name_the_key() {
        for (key, value) in
            [("hlsTime", "0"), ("hlsTime", "x"), ("hlsListSize", "2"), ("hlsSegmentFileSuffixFormat", "seg")]
        {
            let error = AppSettings::of(schema(), "a", &[(key, value)]).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }
}
