//! Threads for what may block: names, and the memory of the machine. Each request for a name is answered, in any
//! order; memory is told every second.

use std::net::ToSocketAddrs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::office::{Desk, OfficeMail};
use crate::control::{ResolveRequest, Resolved};

/// Resolver threads: a silent name server holds one each until it times out.
const RESOLVERS: usize = 4;
/// How often the machine's memory is looked at.
const MEMORY_PERIOD: std::time::Duration = std::time::Duration::from_secs(1);
/// Answers that are taken of one name.
const ADDRESSES_MAX: usize = 8;

/// Starts the resolvers. Dropping the sender ends them.
pub(super) fn start_resolvers(desk: &Desk) -> std::io::Result<Sender<ResolveRequest>> {
    let (requests, queue) = channel::<ResolveRequest>();
    let queue = Arc::new(Mutex::new(queue));
    for index in 0..RESOLVERS {
        let (queue, desk) = (Arc::clone(&queue), desk.clone());
        thread::Builder::new().name(format!("resolver-{index}")).spawn(move || resolve_all(&queue, &desk))?;
    }
    Ok(requests)
}

fn resolve_all(queue: &Mutex<Receiver<ResolveRequest>>, desk: &Desk) {
    loop {
        let request = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(request) = request else { return };
        let result = (request.host.as_str(), request.port).to_socket_addrs();
        let result = result
            .map(|addresses| addresses.take(ADDRESSES_MAX).collect())
            .map_err(|error| error.to_string());
        desk.send(OfficeMail::Resolved(Resolved { id: request.id, result }));
    }
}

/// Starts the watch of the machine's memory. It ends with the process.
pub(super) fn start_memory_watch(desk: Desk) -> std::io::Result<()> {
    let watch = move || loop {
        if let Some(percent) =
            std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| used_percent(&text))
        {
            desk.send(OfficeMail::Memory(percent));
        }
        thread::sleep(MEMORY_PERIOD);
    };
    thread::Builder::new().name("memory".into()).spawn(watch).map(drop)
}

/// The share of memory that is not available for new work.
fn used_percent(meminfo: &str) -> Option<u8> {
    let field = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let (total, available) = (field("MemTotal:")?, field("MemAvailable:")?);
    let used = total.checked_sub(available)?.saturating_mul(100).checked_div(total)?;
    u8::try_from(used).ok()
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
}
