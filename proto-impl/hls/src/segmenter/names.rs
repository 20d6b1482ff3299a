//! Names of segments, parts and initialization sections.

/// Format of the number in a segment's name: a `%d` as in C, with an optional width padded by zeros, and the
/// text around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suffix {
    before: String,
    digits: usize,
    after: String,
}

/// Number of digits that segment numbers have until 2033. They count quarters of a second since 2026
/// ([`super::Start`]).
const FILE_DIGITS: usize = 9;

impl Suffix {
    /// The format `%09d`.
    pub const NINE_DIGITS: Self = Self { before: String::new(), digits: 9, after: String::new() };

    /// Reads a format such as `-%05d_x`: one `%d`, optionally with a width, and letters, digits, `-` and `_`.
    /// `None` if the text is anything else.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
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

    /// Writes the suffix of a number.
    #[must_use]
    pub fn of(&self, number: u64) -> String {
        format!("{}{number:0digits$}{}", self.before, self.after, digits = self.digits)
    }

    /// The part of a segment's name before the suffix. `None` if the name has no suffix, or if numbers can have more
    /// digits than the format's width: an id may end with digits, so it is then unknown where the number begins.
    #[must_use]
    pub fn strip<'n>(&self, stem: &'n str) -> Option<&'n str> {
        let numbered = stem.strip_suffix(self.after.as_str()).filter(|_| self.digits >= FILE_DIGITS)?;
        let digits = numbered.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (before, _) = numbered.split_at_checked(numbered.len().checked_sub(self.digits)?)?;
        (digits >= self.digits).then(|| before.strip_suffix(self.before.as_str()))?
    }

    /// Splits a name into the part before the suffix, and the number in the suffix. `None` if the name has no suffix.
    #[must_use]
    pub fn split<'n>(&self, stem: &'n str) -> Option<(&'n str, u64)> {
        let digits_at_end = |text: &str| text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let numbered = stem.strip_suffix(self.after.as_str())?;
        // The text before the number may end with digits, too.
        let digits = digits_at_end(numbered).checked_sub(digits_at_end(&self.before))?;
        let (rest, number) = numbered.split_at_checked(numbered.len().checked_sub(digits)?)?;
        let rest = rest.strip_suffix(self.before.as_str())?;
        (digits >= self.digits).then_some((rest, number.parse().ok()?))
    }

    /// Template of a segment's name in DASH, for any number (ISO/IEC 23009-1 §5.3.9.4.4).
    #[must_use]
    pub fn template(&self, base: &str, ending: &str) -> String {
        format!("{base}{}$Number%0{}d${}.{ending}", self.before, self.digits, self.after)
    }
}

/// Rules for the names of segments, parts and init segments.
#[derive(Debug, Clone)]
pub struct Names {
    /// Prefix of all names.
    pub base: String,
    /// File extension of segments, without its dot.
    pub ending: &'static str,
    /// If set, the numbers in names start at 1 with this segment. Numbers in DASH manifests have to be small,
    /// because ffmpeg uses the first one as an index into the timeline.
    pub run: Option<u64>,
}

impl Names {
    /// The common prefix of the names of segments.
    #[must_use]
    pub fn stem(&self) -> String {
        self.run.map_or_else(|| self.base.clone(), |run| format!("{}_{run}_", self.base))
    }

    /// Converts a segment's number to the number in its name.
    #[must_use]
    pub fn number(&self, number: u64) -> u64 {
        self.run.map_or(number, |run| number.saturating_sub(run).saturating_add(1))
    }

    pub(super) fn segment(&self, suffix: &Suffix, number: u64) -> String {
        format!("{}{}.{}", self.stem(), suffix.of(self.number(number)), self.ending)
    }

    pub(super) fn part(&self, suffix: &Suffix, number: u64, part: usize) -> String {
        format!("{}{}.{part}.{}", self.stem(), suffix.of(self.number(number)), self.ending)
    }

    pub(super) fn init(&self, date_ms: u64, epoch: u32) -> String {
        if epoch <= 1 {
            format!("{}_{date_ms}_init.mp4", self.base)
        } else {
            format!("{}_{date_ms}_{epoch}_init.mp4", self.base)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_has_one_number() {
        let written = |text, number| Suffix::read(text).map(|suffix| suffix.of(number));
        assert_eq!(written("%09d", 7).as_deref(), Some("000000007"));
        assert_eq!(written("-%04d_x", 12345).as_deref(), Some("-12345_x"));
        assert_eq!(written("%d", 0).as_deref(), Some("0"));
        let stripped = |text, stem: &'static str| Suffix::read(text).and_then(|suffix| suffix.strip(stem));
        assert_eq!(stripped("%09d", "cam000000007"), Some("cam"));
        assert_eq!(stripped("%09d", "cam1000000007"), Some("cam1"));
        assert_eq!(stripped("-%09d_x", "cam-000000012_x"), Some("cam"));
        assert_eq!(stripped("%09d", "cam00000007"), None);
        assert_eq!(stripped("-%09d_x", "cam000000012_x"), None);
        assert_eq!(stripped("%05d", "cam113900001"), None, "numbers are longer");
        assert_eq!(stripped("%d", "cam12"), None, "the 12th of cam, or the second of cam1");
        for bad in ["", "%", "%s", "%9d", "%099d", "%00d", "../%d", "%d/x", "%d%d", "%Y%d"] {
            assert_eq!(written(bad, 1), None, "{bad}");
        }
    }
}
