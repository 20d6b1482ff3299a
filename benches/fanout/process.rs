//! What the kernel says about a server's process.

use std::fs;
use std::time::Duration;

/// A reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// CPU time of all threads.
    pub cpu: Duration,
    /// System calls of the `write` family; `send` is not among them.
    pub writes: u64,
}

/// CPU time and writes since the start of the process.
pub fn usage(pid: u32) -> Usage {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    let cpu = Duration::from_nanos(nanos.sum());
    Usage { cpu, writes: field(&format!("/proc/{pid}/io"), "syscw:") }
}

/// Resident bytes.
pub fn resident(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "VmRSS:") * 1024
}

/// The model of the processor, for the report.
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // A kernel's local version may name a machine; the number is what matters.
    let release = release.split('-').next().unwrap_or_default().trim();
    format!("{cores} x {}, Linux {release}", model.map_or("unknown", |(_, model)| model))
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
