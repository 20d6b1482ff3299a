//! A log line in the format that panels read: `2026-11-22 10:06:15,178 [worker-0] INFO  millstream::control - message`.
//! The time is UTC.

use std::fmt::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::types::Civil;

/// Formats events as lines in the format that the module describes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        write_head(&mut writer, metadata.level(), metadata.target())?;
        ctx.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Writes the part of a line before the message.
pub(super) fn write_head(out: &mut impl Write, level: &Level, target: &str) -> fmt::Result {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let thread = std::thread::current();
    write_time(out, since)?;
    write!(out, " [{}] {:<5} {target} - ", thread.name().unwrap_or("unnamed"), level.as_str())
}

/// True if a line, or an object of the JSON form, has the level ERROR.
pub(super) fn is_error(line: &[u8]) -> bool {
    const JSON_HEAD: usize = 100;
    if line.starts_with(b"{") {
        let head = line.get(..JSON_HEAD).unwrap_or(line);
        let wanted = br#""level":"ERROR""#;
        return head.windows(wanted.len()).any(|window| window == wanted);
    }
    let level =
        line.windows(2).position(|window| window == b"] ").and_then(|at| line.get(at.saturating_add(2)..));
    level.is_some_and(|level| level.starts_with(b"ERROR "))
}

/// Formats a time since 1970 as `yyyy-MM-dd HH:mm:ss,SSS`.
fn write_time(out: &mut impl Write, since: Duration) -> fmt::Result {
    let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let Civil { year, month, day, hour, minute, second, millis } = Civil::of_unix_ms(ms);
    write!(out, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02},{millis:03}")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn time(ms: u64) -> String {
        let mut out = String::new();
        write_time(&mut out, Duration::from_millis(ms)).unwrap();
        out
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00:00,000");
        assert_eq!(time(951_782_399_999), "2000-02-28 23:59:59,999");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00,000");
        assert_eq!(time(951_868_800_000), "2000-03-01 00:00:00,000");
        assert_eq!(time(1_795_341_975_178), "2026-11-22 10:06:15,178");
        assert_eq!(time(4_107_542_400_000), "2100-03-01 00:00:00,000", "no leap year");
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_have_the_form_by_which_panels_count_levels() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let subscriber = tracing_subscriber::registry().with(layer.event_format(Line));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(key = "live/a", "stream started");
            tracing::error!("no disk");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let thread = std::thread::current().name().unwrap().to_owned();
        let (first, second) = text.trim_end().split_once('\n').unwrap();
        let head = format!(" [{thread}] INFO  millstream::io::log_line::tests - stream started");
        assert!(first[23..].starts_with(&head) && first.contains("live/a"), "{first}");
        assert_eq!((&first[4..5], &first[10..11], &first[19..20]), ("-", " ", ","), "{first}");
        assert!(second.contains("] ERROR ") && is_error(second.as_bytes()) && !is_error(first.as_bytes()));
        assert!(is_error(br#"{"timestamp":"2026-11-22T10:06:15Z","level":"ERROR","message":"x"}"#));
        assert!(!is_error(br#"{"timestamp":"2026-11-22T10:06:15Z","level":"INFO","message":"] ERROR "}"#));
    }
}
