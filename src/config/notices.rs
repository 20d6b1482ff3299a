//! Warnings about settings that have no effect or another one here, although an operator may rely on them.

use super::{AppSettings, Values};

/// Flags of ffmpeg that have no effect because the server always behaves as if they were set: segments outside the
/// window are removed, and files appear whole.
const FLAGS_MET: [&str; 3] = [DELETES, "independent_segments", "temp_file"];
/// A flag whose absence causes a warning: without it, ffmpeg would keep old segments, whereas this server removes
/// them in any case. The other flags in [`FLAGS_MET`] may be absent without a warning.
const DELETES: &str = "delete_segments";
/// Flags that the server honours.
const FLAGS_FOLLOWED: [&str; 2] = ["program_date_time", "omit_endlist"];

impl AppSettings {
    /// Returns the warnings, one line each.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let values = &self.values;
        [database(values), ladder(values), flags(values), parts(values)].into_iter().flatten().collect()
    }
}

fn database(values: &Values) -> Option<String> {
    let kind = values.text("db.type").trim();
    let is_ours = kind.is_empty() || kind.eq_ignore_ascii_case("mapdb");
    (!is_ours).then(|| {
        format!("db.type={}: no such database is used; records are in the store below data", printed(kind))
    })
}

fn ladder(values: &Values) -> Option<String> {
    let is_set = |key: &&str| !matches!(values.text(key).trim(), "" | "[]" | "null");
    let key = ["encoderSettingsString", "encoderSettings"].into_iter().find(is_set)?;
    Some(format!("{key}: no renditions are made; viewers get the video as it comes"))
}

fn flags(values: &Values) -> Option<String> {
    let set: Vec<&str> =
        values.text("hlsflags").split('+').map(str::trim).filter(|flag| !flag.is_empty()).collect();
    let is_known = |flag: &&&str| FLAGS_MET.contains(*flag) || FLAGS_FOLLOWED.contains(*flag);
    let unmet = set.iter().filter(|flag| !is_known(flag)).map(|flag| format!("+{}", printed(flag)));
    let missing = (!set.contains(&DELETES)).then(|| format!("-{DELETES}"));
    let differing: Vec<String> = unmet.chain(missing).collect();
    (!differing.is_empty()).then(|| format!("hlsflags: {} without effect here", differing.join(" ")))
}

/// Warns of parts that are so short that a segment would have more of them than a playlist lists.
fn parts(values: &Values) -> Option<String> {
    let [part_ms, time] = ["hls.part_ms", "hlsTime"].map(|key| values.text(key).trim().parse::<u64>());
    let (part_ms, time) = (part_ms.ok()?, time.ok()?);
    // A segment may be a little longer than `hlsTime`.
    let least_ms = time.saturating_mul(1000).saturating_add(1200) / 240;
    (part_ms < least_ms).then(|| {
        format!("hls.part_ms={part_ms}: parts have at least {least_ms} ms, because of hlsTime={time}")
    })
}

/// Escapes a value for a one-line message.
fn printed(text: &str) -> String {
    super::properties::printable(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_is_told_when_it_is_set() {
        let told = |key, value| AppSettings::with("a", &[(key, value)]).unwrap().notices();
        assert_eq!(AppSettings::defaults("a").unwrap().notices(), [""; 0]);
        for (key, value, word) in [
            ("db.type", "mongodb", "db.type=mongodb"),
            ("encoderSettingsString", "[{\"height\":240}]", "no renditions"),
            ("encoderSettings", "[{\"height\":240}]", "no renditions"),
            (
                "hlsflags",
                "delete_segments+program_date_time+split_by_time",
                "hlsflags: +split_by_time without",
            ),
            (
                "hlsflags",
                "round_durations+single_file",
                "hlsflags: +round_durations +single_file -delete_segments without",
            ),
        ] {
            let lines = told(key, value);
            assert!(matches!(&lines[..], [line] if line.contains(word)), "{key}={value}: {lines:?}");
        }
        for (key, value) in [
            ("db.type", "MapDB"),
            ("encoderSettingsString", "[]"),
            ("hlsflags", "delete_segments"),
            ("hlsflags", "temp_file+omit_endlist+independent_segments+delete_segments"),
        ] {
            assert_eq!(told(key, value), [""; 0], "{key}={value}");
        }
    }
}
