//! The configuration of the packet filter: its text form, and its negotiation.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// Maximum number of columns; the group index 255 denotes a row.
const COLS_MAX: u16 = 255;
/// Maximum number of rows.
const ROWS_MAX: i16 = 255;
/// Maximum number of packets in a matrix, because the receiver keeps one parity for each open group.
pub(crate) const PACKETS_MAX: u32 = 2048;
/// Longest text of a configuration, in bytes (libsrt `MAX_PFILTER_LENGTH`).
pub(crate) const TEXT_BYTES_MAX: usize = 64;

/// Use of a packet filter on one side (SRTO_PACKETFILTER).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PacketFilter {
    /// Callers that request a filter are refused. Our own calls request no filter.
    Off,
    /// Any configuration that a caller requests is accepted. Our own calls request no filter.
    #[default]
    Any,
    /// Our own calls request this configuration. A caller's configuration must not contradict it; a caller without a
    /// filter is accepted, as in libsrt.
    Fec(FecSettings),
}

impl FromStr for PacketFilter {
    type Err = FilterSyntax;

    fn from_str(text: &str) -> Result<Self, FilterSyntax> {
        match text {
            "off" => Ok(Self::Off),
            "any" => Ok(Self::Any),
            text => text.parse().map(Self::Fec),
        }
    }
}

/// Error: the text is not a filter configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not `fec` with cols, rows, layout and arq within their limits")]
pub struct FilterSyntax;

/// The arrangement of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All columns begin in the first row of a matrix.
    Even,
    /// Each column begins one row below the previous one, so that their parity packets are spread out.
    Staircase,
}

/// Use of retransmission (ARQ) in addition to the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArqLevel {
    /// Losses are reported at once, as without a filter.
    Always,
    /// Losses are reported once the filter can no longer rebuild them.
    OnRequest,
    /// Losses are not reported.
    Never,
}

/// A configuration as requested by one side. The other side chooses the parameters that are absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FecSettings {
    cols: Option<u16>,
    /// Number of rows. A negative number means parity for columns only, not for rows.
    rows: Option<i16>,
    layout: Option<Layout>,
    arq: Option<ArqLevel>,
}

impl FromStr for FecSettings {
    type Err = FilterSyntax;

    /// Parses `fec,cols:10,rows:5,layout:even,arq:onreq`; every part but `fec` may be missing.
    fn from_str(text: &str) -> Result<Self, FilterSyntax> {
        let mut parts = text.split(',');
        if text.len() > TEXT_BYTES_MAX || parts.next() != Some("fec") {
            return Err(FilterSyntax);
        }
        let mut settings = Self::default();
        for part in parts {
            let (key, value) = part.split_once(':').ok_or(FilterSyntax)?;
            match (key, value) {
                ("cols" | "rows" | "layout" | "arq", "") => {}
                ("cols", number) => settings.cols = Some(number.parse().map_err(|_| FilterSyntax)?),
                ("rows", number) => settings.rows = Some(number.parse().map_err(|_| FilterSyntax)?),
                ("layout", "even") => settings.layout = Some(Layout::Even),
                ("layout", "staircase") => settings.layout = Some(Layout::Staircase),
                ("arq", "always") => settings.arq = Some(ArqLevel::Always),
                ("arq", "onreq") => settings.arq = Some(ArqLevel::OnRequest),
                ("arq", "never") => settings.arq = Some(ArqLevel::Never),
                _ => return Err(FilterSyntax),
            }
        }
        let cols_fit = settings.cols.is_none_or(|cols| (2..=COLS_MAX).contains(&cols));
        let rows_fit = settings
            .rows
            .is_none_or(|rows| (1..=ROWS_MAX).contains(&rows) || (-ROWS_MAX..=-2).contains(&rows));
        (cols_fit && rows_fit && settings.fits()).then_some(settings).ok_or(FilterSyntax)
    }
}

impl FecSettings {
    /// True if the matrix is not too large, as far as its size is known. An unknown dimension counts as 1.
    fn fits(&self) -> bool {
        let (cols, rows) = (self.cols.unwrap_or(1), self.rows.unwrap_or(1).unsigned_abs());
        u32::from(cols) * u32::from(rows) <= PACKETS_MAX
    }

    /// Returns the configuration on which a listener with these settings and a caller agree; `None` if they contradict
    /// each other.
    pub(crate) fn agreed(&self, caller: &Self) -> Option<Self> {
        fn same<T: Copy + PartialEq>(ours: Option<T>, theirs: Option<T>) -> Option<Option<T>> {
            match (ours, theirs) {
                (Some(ours), Some(theirs)) => (ours == theirs).then_some(Some(ours)),
                (one, other) => Some(one.or(other)),
            }
        }
        Some(Self {
            cols: same(self.cols, caller.cols)?,
            rows: same(self.rows, caller.rows)?,
            layout: same(self.layout, caller.layout)?,
            arq: same(self.arq, caller.arq)?,
        })
    }

    /// Returns the configuration of a caller with these settings after the listener's answer. The answer takes
    /// precedence.
    pub(crate) fn answered(&self, listener: &Self) -> Self {
        Self {
            cols: listener.cols.or(self.cols),
            rows: listener.rows.or(self.rows),
            layout: listener.layout.or(self.layout),
            arq: listener.arq.or(self.arq),
        }
    }

    /// Returns the filter for both sides from this agreed configuration. `None` if neither side stated the number of
    /// columns, or if the matrix is too large.
    pub(crate) fn complete(&self) -> Option<Fec> {
        let rows = self.rows.unwrap_or(1);
        let fec = Fec {
            cols: u32::from(self.cols?),
            rows: u32::from(rows.unsigned_abs()),
            has_row_parity: rows > 0,
            layout: self.layout.unwrap_or(Layout::Staircase),
            arq: self.arq.unwrap_or(ArqLevel::OnRequest),
        };
        self.fits().then_some(fec)
    }
}

impl Display for FecSettings {
    /// Writes the text for the wire. The keys are in libsrt's order.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("fec")?;
        match self.arq {
            Some(ArqLevel::Always) => f.write_str(",arq:always")?,
            Some(ArqLevel::OnRequest) => f.write_str(",arq:onreq")?,
            Some(ArqLevel::Never) => f.write_str(",arq:never")?,
            None => {}
        }
        if let Some(cols) = self.cols {
            write!(f, ",cols:{cols}")?;
        }
        match self.layout {
            Some(Layout::Even) => f.write_str(",layout:even")?,
            Some(Layout::Staircase) => f.write_str(",layout:staircase")?,
            None => {}
        }
        if let Some(rows) = self.rows {
            write!(f, ",rows:{rows}")?;
        }
        Ok(())
    }
}

/// A complete configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fec {
    /// Number of packets in a row.
    pub(crate) cols: u32,
    /// Number of packets in a column; 1 means that there are no columns.
    pub(crate) rows: u32,
    pub(crate) has_row_parity: bool,
    pub(crate) layout: Layout,
    pub(crate) arq: ArqLevel,
}

impl Fec {
    pub(crate) const fn has_columns(&self) -> bool {
        self.rows > 1
    }

    /// Returns the number of bytes sent, including parity, for this many bytes of data packets.
    pub(crate) fn with_parity(&self, bytes: u64) -> u64 {
        let of_rows = if self.has_row_parity { bytes / u64::from(self.cols) } else { 0 };
        let of_columns = if self.has_columns() { bytes / u64::from(self.rows) } else { 0 };
        bytes.saturating_add(of_rows).saturating_add(of_columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> FecSettings {
        text.parse().unwrap()
    }

    #[test]
    fn a_configuration_is_written_as_it_is_read() {
        for (text, written) in [
            ("fec", "fec"),
            ("fec,cols:10", "fec,cols:10"),
            ("fec,cols:10,rows:5,layout:even,arq:always", "fec,arq:always,cols:10,layout:even,rows:5"),
            ("fec,arq:never,rows:-8", "fec,arq:never,rows:-8"),
            ("fec,cols:,arq:onreq,layout:staircase", "fec,arq:onreq,layout:staircase"),
            ("fec,cols:255,rows:8", "fec,cols:255,rows:8"),
        ] {
            assert_eq!(settings(text).to_string(), written);
            assert_eq!(settings(written), settings(text));
        }
        assert_eq!("off".parse(), Ok(PacketFilter::Off));
        assert_eq!("any".parse(), Ok(PacketFilter::Any));
        assert_eq!("fec,cols:2".parse(), Ok(PacketFilter::Fec(settings("fec,cols:2"))));
    }

    #[test]
    fn s_30_configurations_out_of_bounds_are_none() {
        for text in [
            "",
            "fe",
            "fec,",
            "fec,cols",
            "fec,cols:1",
            "fec,cols:256",
            "fec,cols:x",
            "fec,cols:99999999999999999999",
            "fec,rows:0",
            "fec,rows:-1",
            "fec,rows:256",
            "fec,rows:-256",
            "fec,layout:odd",
            "fec,arq:maybe",
            "fec,weight:3",
            "fec,cols:64,rows:33",
            "adaptive",
            "fec,cols:10,rows:5,layout:staircase,arq:onreq,rows:5,rows:5,rows:5",
        ] {
            assert_eq!(text.parse::<FecSettings>(), Err(FilterSyntax), "{text}");
        }
    }

    #[test]
    fn a_listener_takes_what_does_not_contradict_it() {
        for (ours, theirs, agreed) in [
            ("fec", "fec,cols:10", Some("fec,cols:10")),
            ("fec,cols:10,arq:never", "fec,rows:5", Some("fec,arq:never,cols:10,rows:5")),
            ("fec,cols:10", "fec,cols:10,layout:even", Some("fec,cols:10,layout:even")),
            ("fec,cols:10", "fec,cols:11", None),
            ("fec,layout:even", "fec,cols:5,layout:staircase", None),
            ("fec,arq:always", "fec,cols:5,arq:onreq", None),
            ("fec,rows:5", "fec,cols:5,rows:-5", None),
        ] {
            let found = settings(ours).agreed(&settings(theirs)).map(|agreed| agreed.to_string());
            assert_eq!(found.as_deref(), agreed, "{ours} {theirs}");
        }
    }

    #[test]
    fn a_caller_takes_the_answer_and_defaults_fill_the_rest() {
        let answered = settings("fec,cols:10,arq:always").answered(&settings("fec,cols:12,rows:-3"));
        assert_eq!(answered.to_string(), "fec,arq:always,cols:12,rows:-3");
        let fec = answered.complete().unwrap();
        assert_eq!((fec.cols, fec.rows, fec.has_row_parity, fec.has_columns()), (12, 3, false, true));
        assert_eq!((fec.layout, fec.arq), (Layout::Staircase, ArqLevel::Always));
        let fec = settings("fec,cols:4").complete().unwrap();
        assert_eq!(
            (fec.rows, fec.has_row_parity, fec.has_columns(), fec.arq),
            (1, true, false, ArqLevel::OnRequest)
        );
        assert_eq!(fec.with_parity(1000), 1250);
        assert_eq!(settings("fec,rows:5").complete(), None, "nobody has named the columns");
        assert_eq!(
            settings("fec,cols:100").answered(&settings("fec,rows:100")).complete(),
            None,
            "too large together"
        );
    }
}
