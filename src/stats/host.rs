//! Figures of the machine and of this process, a second old at most.

/// See the module. Bytes, unless the name says otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostFigures {
    /// Share of the memory that is not available for new work.
    pub memory_percent: u8,
    /// CPU time of the process since its start, in microseconds.
    pub process_cpu_us: u64,
    /// Mean share of all cores over five seconds, by everybody.
    pub system_cpu_percent: u8,
    /// Mean share of all cores over five seconds, by this process.
    pub process_cpu_percent: u8,
    /// Load average of the last minute.
    pub load_1m: f64,
    /// Cores.
    pub processors: usize,
    /// Memory of the machine.
    pub memory_total: u64,
    /// Unused.
    pub memory_free: u64,
    /// Available for new work.
    pub memory_available: u64,
    /// Promised to all processes.
    pub memory_committed: u64,
    /// Swap of the machine.
    pub swap_total: u64,
    /// Unused.
    pub swap_free: u64,
    /// The file system of the home folder.
    pub disk: DiskFigures,
    /// The memory of this process, in bytes.
    pub process_memory: u64,
    /// The most it ever held.
    pub process_memory_peak: u64,
    /// The threads of this process.
    pub threads: u64,
    /// The machine's name.
    pub host_name: String,
    /// Its network interfaces.
    pub network: NetworkFigures,
}

/// A file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Its size.
    pub total: u64,
    /// Unused.
    pub free: u64,
    /// Unused, and not kept for the system.
    pub usable: u64,
}

/// The interfaces of the machine but for the loopback, together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkFigures {
    /// Bits sent per second, the mean of five seconds.
    pub sent_bps: u64,
    /// Bits received per second, the mean of five seconds.
    pub received_bps: u64,
    /// The speed of the fastest link in Mb/s; 0 where none says it.
    pub uplink_mbps: u64,
}
