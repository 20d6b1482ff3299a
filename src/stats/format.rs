//! The two formats of `/metrics`: OpenMetrics 1.0, and Prometheus text (0.0.4). The latter is derived from the former,
//! line by line.

/// A format of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Prometheus text, which every scraper reads.
    #[default]
    Text,
    /// OpenMetrics 1.0, which ends in `# EOF`.
    OpenMetrics,
}

impl Format {
    /// Selects the format by the `Accept` field of a scraper (RFC 9110 §12.5.1). OpenMetrics is selected only if the
    /// field names it.
    pub fn of_accept<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut best = (0, Self::Text);
        for range in values.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1000, "");
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = thousandths(value.trim()),
                    "version" => version = value.trim().trim_matches('"'),
                    _ => {}
                }
            }
            let format = match (kind.as_str(), version) {
                ("application/openmetrics-text", "" | "1.0.0") => Self::OpenMetrics,
                ("text/plain", "" | "0.0.4") | ("text/*" | "*/*", _) => Self::Text,
                _ => continue,
            };
            if quality > best.0 || (quality == best.0 && quality > 0 && format == Self::OpenMetrics) {
                best = (quality, format);
            }
        }
        best.1
    }

    /// Returns the media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts a page of OpenMetrics to this format.
    #[must_use]
    pub fn of_open_metrics(self, page: String) -> String {
        match self {
            Self::Text => text(&page),
            Self::OpenMetrics => page,
        }
    }
}

/// Parses a quality value into thousandths; zero if it is invalid.
fn thousandths(text: &str) -> u32 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    match (whole, digits.parse()) {
        ("1", _) => 1000,
        ("0" | "", Ok(value)) => value,
        _ => 0,
    }
}

/// Converts a page to Prometheus text. In this format, a family has the name of its samples, and there is neither a
/// type for information nor an end mark.
fn text(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    // HELP precedes TYPE, but the family's name depends on the type. HELP is therefore held back.
    let mut help = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (ending, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                out.push_str(&format!("# HELP {name}{ending} {}\n", help.replace("\\\"", "\"")));
            }
            out.push_str(&format!("# TYPE {name}{ending} {kind}\n"));
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_the_scraper_prefers() {
        let of = |accept: &[&str]| Format::of_accept(accept.iter().copied());
        for accept in [
            &[][..],
            &["*/*"],
            &["text/plain"],
            &["text/html,*/*;q=0.1"],
            &["application/json"],
            &["application/openmetrics-text;version=0.0.1"],
            &["application/openmetrics-text;q=0"],
            &["application/openmetrics-text;q=0.2,text/plain;q=0.4"],
            &["application/openmetrics-text;q=nonsense"],
            // Prometheus 3, which lists formats first that this server does not offer.
            &["application/vnd.google.protobuf;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"],
        ] {
            assert_eq!(of(accept), Format::Text, "{accept:?}");
        }
        for accept in [
            &["application/openmetrics-text"][..],
            &["Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8"],
            &["text/plain", "application/openmetrics-text"],
            &[
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
               text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            ],
        ] {
            assert_eq!(of(accept), Format::OpenMetrics, "{accept:?}");
        }
    }

    #[test]
    fn the_text_has_families_by_the_names_of_their_samples() {
        let page = "# HELP a_b Of \\\"it\\\".\n# TYPE a_b counter\na_b_total{x=\"# TYPE\"} 1\n# HELP i I.\n# TYPE i info\n\
                    i_info{v=\"1\"} 1\n# HELP g G.\n# TYPE g gauge\n# UNIT g bytes\ng 2\n# EOF\n";
        let want = "# HELP a_b_total Of \"it\".\n# TYPE a_b_total counter\na_b_total{x=\"# TYPE\"} 1\n# HELP i_info I.\n\
                    # TYPE i_info gauge\ni_info{v=\"1\"} 1\n# HELP g G.\n# TYPE g gauge\ng 2\n";
        assert_eq!(Format::Text.of_open_metrics(page.to_owned()), want);
        assert_eq!(Format::OpenMetrics.of_open_metrics(page.to_owned()), page);
    }
}
