//! The kernel's figures about a process.

use std::fs;
use std::time::Duration;

/// The figures of a process, as read at one time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// CPU time of all threads.
    pub cpu: Duration,
    /// Number of system calls of the `write` family, without `send`.
    pub writes: u64,
}

/// Returns the CPU time and the writes of a process since its start; zero if the process
/// has ended.
#[must_use]
pub fn usage(pid: u32) -> Usage {
    Usage { cpu: cpu_of(pid, |_| true), writes: field(&format!("/proc/{pid}/io"), "syscw:") }
}

/// Returns the CPU time of the calling thread since its start.
#[must_use]
pub fn own_thread_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// Returns the CPU time, since their start, of the threads whose names `wanted` accepts.
#[must_use]
pub fn cpu_of(pid: u32, wanted: impl Fn(&str) -> bool) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let nanos = text.split_whitespace().next()?.parse::<u64>().ok()?;
        wanted(name.trim()).then_some(nanos)
    });
    Duration::from_nanos(nanos.sum())
}

/// Returns the resident memory of a process in bytes.
#[must_use]
pub fn resident(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "VmRSS:").saturating_mul(1024)
}

/// Describes the machine for the report: processor, cores, kernel.
#[must_use]
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The local version of a kernel may contain the name of a machine, so only the number
    // is used.
    let release = release.split('-').next().unwrap_or_default().trim();
    format!("{cores} x {}, Linux {release}", model.map_or("unknown", |(_, model)| model))
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_figures_and_a_missing_one_has_none() {
        let own = std::process::id();
        assert!(resident(own) > 0 && !machine().is_empty());
        assert!(cpu_of(own, |_| true) >= cpu_of(own, |_| false));
        assert_eq!((usage(u32::MAX).cpu, resident(u32::MAX)), (Duration::ZERO, 0));
    }
}
