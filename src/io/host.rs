//! Measures this machine every second: from `/proc`, the speed of its links from `/sys`, and the file system of the
//! home folder.

use std::collections::VecDeque;
use std::fs::read_to_string;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::control_thread::{ControlMail, ControlSender};
use super::sys;
use super::tls::Expiry;
use crate::stats::{HostFigures, NetworkFigures};

/// The interval of measurements.
const PERIOD: Duration = Duration::from_secs(1);
/// Number of samples in a mean.
const SAMPLES: usize = 5;
/// Microseconds of a clock tick in `/proc` (USER_HZ is 100 on every Linux).
const TICK_US: u64 = 10_000;

/// Starts the thread that measures. It ends with the process.
pub(super) fn start_watch(
    home: PathBuf,
    certificate: Expiry,
    control_sender: ControlSender,
) -> std::io::Result<()> {
    let watch = move || {
        let mut watch = Watch::new(home);
        loop {
            let figures = HostFigures { certificate_expires_ms: certificate.get(), ..watch.look() };
            control_sender.send(ControlMail::Host(Box::new(figures)));
            sys::return_memory();
            thread::sleep(PERIOD);
        }
    };
    thread::Builder::new().name("host".into()).spawn(watch).map(drop)
}

/// Counters of processor time. Only their differences are used.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    at: Instant,
    busy: u64,
    all: u64,
    process_us: u64,
}

struct Watch {
    home: PathBuf,
    /// Figures that do not change while the server runs.
    fixed: HostFigures,
    /// CPU load of this machine and of this process, in percent.
    loads: VecDeque<(u64, u64)>,
    last: Option<Ticks>,
    /// Bytes that the network interfaces have sent and received, at the end of each of the last seconds.
    traffic: VecDeque<(Instant, Traffic)>,
}

/// Bytes sent and received over the network interfaces since the machine started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Traffic {
    sent: u64,
    received: u64,
}

fn read(path: &str) -> String {
    read_to_string(path).unwrap_or_default()
}

impl Watch {
    fn new(home: PathBuf) -> Self {
        let fixed = HostFigures {
            processors: thread::available_parallelism().map_or(1, usize::from),
            host_name: read("/proc/sys/kernel/hostname").trim().to_owned(),
            ..HostFigures::default()
        };
        Self { home, fixed, loads: VecDeque::new(), last: None, traffic: VecDeque::new() }
    }

    fn look(&mut self) -> HostFigures {
        let mut figures = HostFigures {
            load_1m: read("/proc/loadavg").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0),
            ..self.fixed.clone()
        };
        take_memory(&mut figures, &read("/proc/meminfo"));
        take_process(&mut figures, &read("/proc/self/status"), &read("/proc/self/stat"));
        self.take_loads(&mut figures, &read("/proc/stat"));
        figures.network = self.network(Instant::now(), &read("/proc/net/dev"));
        if let Ok(space) = sys::disk_space(&self.home) {
            (figures.disk.total, figures.disk.free, figures.disk.usable) = space;
        }
        figures
    }

    fn network(&mut self, now: Instant, devices: &str) -> NetworkFigures {
        let interfaces: Vec<(&str, Traffic)> = interfaces(devices).collect();
        let add = |sum: Traffic, (_, one): &(&str, Traffic)| Traffic {
            sent: sum.sent.saturating_add(one.sent),
            received: sum.received.saturating_add(one.received),
        };
        let total = interfaces.iter().fold(Traffic::default(), add);
        self.traffic.push_back((now, total));
        if self.traffic.len() > SAMPLES.saturating_add(1) {
            self.traffic.pop_front();
        }
        let (since, before) = self.traffic.front().copied().unwrap_or((now, total));
        let passed = u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX);
        let bps = |bytes: u64| bytes.saturating_mul(8000).checked_div(passed).unwrap_or(0);
        let speed =
            |(name, _): &(&str, Traffic)| read(&format!("/sys/class/net/{name}/speed")).trim().parse().ok();
        NetworkFigures {
            sent_bps: bps(total.sent.saturating_sub(before.sent)),
            received_bps: bps(total.received.saturating_sub(before.received)),
            // For a link that is down, the file contains -1.
            uplink_mbps: interfaces.iter().filter_map(speed).max().unwrap_or(0),
        }
    }

    fn take_loads(&mut self, figures: &mut HostFigures, stat: &str) {
        let Some((busy, all)) = cpu_ticks(stat) else { return };
        let now = Ticks { at: Instant::now(), busy, all, process_us: figures.process_cpu_us };
        if let Some(last) = self.last.replace(now) {
            let share = |part: u64, whole: u64| part.saturating_mul(100).checked_div(whole).unwrap_or(0);
            let system = share(now.busy.saturating_sub(last.busy), now.all.saturating_sub(last.all));
            let passed = u64::try_from(now.at.saturating_duration_since(last.at).as_micros()).unwrap_or(0);
            let cores = u64::try_from(figures.processors).unwrap_or(1);
            let process = share(now.process_us.saturating_sub(last.process_us), passed.saturating_mul(cores));
            self.loads.push_back((system, process));
            if self.loads.len() > SAMPLES {
                self.loads.pop_front();
            }
        }
        let count = u64::try_from(self.loads.len()).unwrap_or(1).max(1);
        let mean = |sum: u64| u8::try_from((sum / count).min(100)).unwrap_or(100);
        figures.system_cpu_percent = mean(self.loads.iter().map(|(system, _)| system).sum());
        figures.process_cpu_percent = mean(self.loads.iter().map(|(_, process)| process).sum());
    }
}

/// Returns the number of bytes of memory that this process may use: the memory of the machine, or the limit of its
/// control group if that is lower.
pub(super) fn memory() -> Option<usize> {
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    memory_of(&read("/proc/meminfo"), &groups.map(read))
}

fn memory_of(meminfo: &str, groups: &[String]) -> Option<usize> {
    // A group without a limit contains `max`.
    let of_groups = groups.iter().filter_map(|text| text.trim().parse::<u64>().ok());
    let least = of_groups.chain(kilobytes(meminfo, "MemTotal")).min()?;
    usize::try_from(least).ok()
}

/// Parses a line `Name:  12 kB` and returns bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

fn take_memory(figures: &mut HostFigures, meminfo: &str) {
    let field = |name| kilobytes(meminfo, name).unwrap_or(0);
    figures.memory_total = field("MemTotal:");
    figures.memory_free = field("MemFree:");
    figures.memory_available = field("MemAvailable:");
    figures.memory_committed = field("Committed_AS:");
    figures.swap_total = field("SwapTotal:");
    figures.swap_free = field("SwapFree:");
    figures.memory_percent = used_percent(meminfo).unwrap_or(0);
}

/// Returns the percentage of memory that is not available for new work.
fn used_percent(meminfo: &str) -> Option<u8> {
    let (total, available) = (kilobytes(meminfo, "MemTotal:")?, kilobytes(meminfo, "MemAvailable:")?);
    let used = total.checked_sub(available)?.saturating_mul(100).checked_div(total)?;
    u8::try_from(used).ok()
}

fn take_process(figures: &mut HostFigures, status: &str, stat: &str) {
    figures.process_memory = kilobytes(status, "VmRSS:").unwrap_or(0);
    figures.process_memory_peak = kilobytes(status, "VmHWM:").unwrap_or(0);
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    figures.threads = threads.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    // The name in parentheses may contain blanks; utime and stime are the 12th and 13th fields after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok());
    figures.process_cpu_us = ticks.sum::<u64>().saturating_mul(TICK_US);
}

/// Returns the interfaces in `/proc/net/dev` except loopback. The first column has the received bytes, the ninth the
/// sent bytes.
fn interfaces(devices: &str) -> impl Iterator<Item = (&str, Traffic)> {
    devices.lines().filter_map(|line| {
        let (name, columns) = line.split_once(':')?;
        let mut columns = columns.split_whitespace();
        let received = columns.next()?.parse().ok()?;
        let sent = columns.nth(7)?.parse().ok()?;
        Some((name.trim(), Traffic { sent, received })).filter(|(name, _)| *name != "lo")
    })
}

/// Returns the busy ticks and all ticks, each summed over all cores.
fn cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Some((all.saturating_sub(idle), all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_what_is_not_available() {
        assert_eq!(used_percent("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\n"), Some(75));
        assert_eq!(used_percent("MemTotal:  1000 kB\n"), None);
        assert_eq!(used_percent("MemTotal: 0 kB\nMemAvailable: 0 kB\n"), None);
    }

    #[test]
    fn counters_are_read_where_they_stand() {
        assert_eq!(cpu_ticks("cpu  1 2 3 40 5 6 7 8 9 9\ncpu0 1\n"), Some((27, 72)));
        let mut figures = HostFigures::default();
        let stat = "1 (a) b) R 1 1 1 1 1 1 1 1 1 1 30 12 0 0";
        take_process(&mut figures, "VmRSS:\t 4 kB\nThreads:\t7\n", stat);
        assert_eq!((figures.process_cpu_us, figures.process_memory, figures.threads), (420_000, 4096, 7));
    }

    #[test]
    fn traffic_is_that_of_all_interfaces_but_the_loopback() {
        let devices = |received: u64, sent: u64| {
            format!(
                "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n\
                 x0: {received} 2 0 0 0 0 0 0 {sent} 2 0 0 0 0 0 0\n  x1:100 2 0 0 0 0 0 0 50 2 0 0 0 0 0 0\n  odd: 1 2\n"
            )
        };
        let seen: Vec<_> = interfaces(&devices(7, 8)).map(|(name, of)| format!("{name} {of:?}")).collect();
        assert_eq!(seen, ["x0 Traffic { sent: 8, received: 7 }", "x1 Traffic { sent: 50, received: 100 }"]);
        let (mut watch, start) = (Watch::new("/".into()), Instant::now());
        let first = watch.network(start, &devices(0, 0));
        assert_eq!((first.sent_bps, first.received_bps), (0, 0));
        for second in 1..20 {
            let now = start + Duration::from_secs(second);
            let network = watch.network(now, &devices(second * 1000, second * 3000));
            assert_eq!((network.sent_bps, network.received_bps), (24_000, 8000), "{second}");
        }
        assert_eq!(watch.traffic.len(), SAMPLES + 1);
    }

    #[test]
    fn this_machine_has_memory_and_a_disk() {
        let figures = Watch::new("/".into()).look();
        assert!(figures.memory_total > 0 && figures.disk.total > 0 && figures.threads > 0);
        assert!(figures.memory_free <= figures.memory_total && figures.disk.usable <= figures.disk.total);
    }
}
