//! The minimum cost of sending on this machine: one thread writes frames to many local connections, and another thread
//! reads them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::process;
use crate::bench::{Floor, FloorOptions, FloorReport, Histogram, Reader};

/// Time before the measurement, in which TCP windows open and caches fill.
const WARM_UP: Duration = Duration::from_secs(1);
/// Number of bytes of one read.
const READ_BYTES: usize = 256 * 1024;
/// Maximum time for which a reader sleeps, so that it notices the end of the measurement.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Measures with a reader that never sleeps, if there is a core for it, and with a reader that sleeps. Ends early if
/// `stop` is set.
///
/// # Errors
/// Sockets cannot be opened.
pub fn measure_floor(options: FloorOptions, stop: &AtomicBool) -> Result<FloorReport, String> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let readers: &[Reader] = if cores > 1 { &[Reader::Spins, Reader::Sleeps] } else { &[Reader::Sleeps] };
    let mut floors = Vec::new();
    for reader in readers {
        floors.push(measure(&options, *reader, stop).map_err(|error| error.to_string())?);
    }
    Ok(FloorReport { options, machine: process::machine(), floors })
}

fn measure(options: &FloorOptions, reader: Reader, stop: &AtomicBool) -> io::Result<Floor> {
    let (sending, receiving) = connect(options.count)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reads = scope.spawn(|| match reader {
            Reader::Spins => spin(receiving, &over),
            Reader::Sleeps => sleep(receiving, &over),
        });
        let floor = send(sending, options, reader, stop);
        over.store(true, Ordering::Relaxed);
        match reads.join() {
            Ok(read) => read.and(floor),
            Err(_) => Err(io::Error::other("the reader died")),
        }
    })
}

/// Opens local connections and returns both ends of each.
fn connect(count: usize) -> io::Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr()?;
    let (mut sending, mut receiving) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let socket = TcpStream::connect(address)?;
        socket.set_nonblocking(true)?;
        receiving.push(socket);
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        sending.push(socket);
    }
    Ok((sending, receiving))
}

/// Writes to each socket when its frame is due. Writes block, so the loop waits for slow readers.
fn send(
    mut sockets: Vec<TcpStream>,
    options: &FloorOptions,
    reader: Reader,
    stop: &AtomicBool,
) -> io::Result<Floor> {
    let frame = vec![0x5a; options.frame_bytes()];
    let mut floor = Floor { reader, cpu: Duration::ZERO, bytes: 0, behind: Histogram::new() };
    let (began, mut measured_since) = (Instant::now(), None);
    for number in 0_u32.. {
        let due = began + Duration::from_secs(number.into()) / crate::bench::FRAMES;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        if measured_since.is_none() && now >= began + WARM_UP {
            measured_since = Some(process::own_thread_cpu());
        }
        if now >= began + WARM_UP + options.duration || stop.load(Ordering::Relaxed) {
            break;
        }
        for socket in &mut sockets {
            socket.write_all(&frame)?;
        }
        if measured_since.is_some() {
            let late = now.saturating_duration_since(due);
            floor.behind.record(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
            floor.bytes = floor.bytes.saturating_add((frame.len() * sockets.len()) as u64);
        }
    }
    let since = measured_since.unwrap_or_else(process::own_thread_cpu);
    floor.cpu = process::own_thread_cpu().saturating_sub(since);
    Ok(floor)
}

fn spin(mut sockets: Vec<TcpStream>, over: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    while !over.load(Ordering::Relaxed) {
        for socket in &mut sockets {
            read_dry(socket, &mut buffer)?;
        }
    }
    Ok(())
}

fn sleep(sockets: Vec<TcpStream>, over: &AtomicBool) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut sockets: Vec<_> = sockets.into_iter().map(mio::net::TcpStream::from_std).collect();
    for (index, socket) in sockets.iter_mut().enumerate() {
        poll.registry().register(socket, Token(index), Interest::READABLE)?;
    }
    let (mut events, mut buffer) = (Events::with_capacity(1024), vec![0; READ_BYTES]);
    while !over.load(Ordering::Relaxed) {
        match poll.poll(&mut events, Some(SLEEP_MAX)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            Ok(()) | Err(_) => {}
        }
        for event in &events {
            if let Some(socket) = sockets.get_mut(event.token().0) {
                read_dry(socket, &mut buffer)?;
            }
        }
    }
    Ok(())
}

/// Reads all available bytes. If the connection has ended, the measurement has ended.
fn read_dry(socket: &mut impl Read, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        match socket.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> FloorOptions {
        FloorOptions { count: 3, duration: Duration::from_millis(200), bits_per_second: 240_000, json: false }
    }

    #[test]
    fn every_kind_of_reader_gets_whole_frames() {
        let report = measure_floor(options(), &AtomicBool::new(false)).unwrap();
        assert!(matches!(report.floors.last(), Some(Floor { reader: Reader::Sleeps, .. })));
        for floor in &report.floors {
            let rounds = floor.behind.total();
            assert!(rounds > 0 && floor.bytes == rounds * 3 * 1000 && floor.cpu > Duration::ZERO);
        }
    }

    #[test]
    fn it_ends_when_it_is_to() {
        let report = measure_floor(options(), &AtomicBool::new(true)).unwrap();
        assert!(report.floors.iter().all(|floor| floor.bytes == 0));
    }
}
