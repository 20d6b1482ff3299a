//! Figures of this machine and of this process, at most a second old.

/// Figures of this machine and of this process. Sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostFigures {
    /// Share of memory that is not available for new work.
    pub memory_percent: u8,
    /// CPU time of the process since its start, in microseconds.
    pub process_cpu_us: u64,
    /// Mean use of all cores over five seconds, by all processes.
    pub system_cpu_percent: u8,
    /// Mean use of all cores over five seconds, by this process.
    pub process_cpu_percent: u8,
    /// Load average of the last minute.
    pub load_1m: f64,
    /// Number of cores.
    pub processors: usize,
    /// Total memory.
    pub memory_total: u64,
    /// Unused memory.
    pub memory_free: u64,
    /// Memory available for new work.
    pub memory_available: u64,
    /// Memory committed to all processes.
    pub memory_committed: u64,
    /// Total swap.
    pub swap_total: u64,
    /// Unused swap.
    pub swap_free: u64,
    /// File system of the home folder.
    pub disk: DiskFigures,
    /// Memory of this process.
    pub process_memory: u64,
    /// Peak memory of this process.
    pub process_memory_peak: u64,
    /// Threads of this process.
    pub threads: u64,
    /// Host name.
    pub host_name: String,
    /// Network interfaces.
    pub network: NetworkFigures,
    /// Time at which the certificate in use expires, in Unix milliseconds; `None` if unknown.
    pub certificate_expires_ms: Option<u64>,
}

/// The space of a file system, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Total space.
    pub total: u64,
    /// Unused space.
    pub free: u64,
    /// Unused space that is not reserved for the system.
    pub usable: u64,
}

/// Totals of this machine's network interfaces, without loopback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkFigures {
    /// Bits sent per second, averaged over five seconds.
    pub sent_bps: u64,
    /// Bits received per second, averaged over five seconds.
    pub received_bps: u64,
    /// Speed of the fastest link in Mb/s; 0 if unknown.
    pub uplink_mbps: u64,
}
