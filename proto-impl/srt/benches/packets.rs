//! Counts the instructions that one data packet takes, with callgrind: when it is sent, acknowledged and received; in
//! the clear, encrypted, and with a packet filter.
//!
//! Run it with `make instructions`. For each row the program runs itself under `valgrind --tool=callgrind`, which
//! counts only inside [`counted`]. So the work of the other end of the connection is not counted.

#![allow(
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "a program: figures for people"
)]

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use srt::{Config, Connection, Endpoint, Event, PAYLOAD_BYTES, PacketFilter, Passphrase, Route, SocketId};
use wire::Datagrams;

/// Number of packets per turn: a frame of 2 Mb/s at 40 frames per second.
const PACKETS: usize = 5;
/// Simulated duration of a turn.
const TURN: Duration = Duration::from_millis(25);
/// Number of turns that are not counted, in which buffers grow to their final size.
const WARM_UP: usize = 200;
/// Number of counted turns.
const TURNS: usize = 2000;

const STEPS: [&str; 3] = ["send", "acknowledge", "receive"];
const MANNERS: [&str; 3] = ["clear", "aes", "fec,cols:10,rows:5"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", step, manner] => {
            run(step, manner);
            ExitCode::SUCCESS
        }
        // `cargo test` runs benches too, without the argument `--bench`.
        arguments if arguments.contains(&"--bench") => table(),
        _ => {
            println!("nothing counted: run it with `make instructions`");
            ExitCode::SUCCESS
        }
    }
}

fn table() -> ExitCode {
    println!("| instructions a packet | {} |\n|---|---|---|---|", MANNERS.join(" | "));
    for step in STEPS {
        let counts = MANNERS.map(|manner| count(step, manner));
        if let Some(Err(error)) = counts.iter().find(|count| count.is_err()) {
            eprintln!("packets: {step}: {error}");
            return ExitCode::FAILURE;
        }
        let each = counts.map(|count| count.unwrap_or(0) as f64 / (TURNS * PACKETS) as f64);
        println!("| {step} | {:.0} | {:.0} | {:.0} |", each[0], each[1], each[2]);
    }
    ExitCode::SUCCESS
}

/// Returns the instructions executed inside [`counted`].
fn count(step: &str, manner: &str) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*counted*"])
        .arg(program)
        .args(["run", step, manner])
        .output()
        .map_err(|error| format!("valgrind: {error}; is it installed?"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let found = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    found.filter(|_| output.status.success()).ok_or_else(|| text.into_owned())
}

/// The code that callgrind counts.
#[inline(never)]
fn counted(step: &mut dyn FnMut()) {
    step();
    black_box(());
}

/// A sender, and a viewer that is connected to it.
struct Line {
    now: Instant,
    sender: Connection,
    viewer: Connection,
    there: Datagrams,
    back: Datagrams,
}

impl Line {
    fn new(manner: &str) -> Self {
        let now = Instant::now();
        let seed = Seed::from_number(7);
        let passphrase =
            (manner == "aes").then(|| Passphrase::new("correct horse battery").expect("long enough"));
        let packet_filter = manner.parse().unwrap_or(PacketFilter::Any);
        let config = Config { passphrase, packet_filter, adapts: true, ..Config::default() };
        let config = Arc::new(config);
        let mut port: Endpoint<()> = Endpoint::new(now, &seed);
        let mut viewer = Connection::caller(now, Arc::clone(&config), SocketId(1), "live/x", &seed);
        let (mut there, mut back) = (Datagrams::new(), Datagrams::new());
        loop {
            back.clear();
            viewer.poll_transmit(now, &mut back);
            let mut reply = Vec::new();
            match port.route(now, ([127, 0, 0, 1], 9).into(), back.get(0), &mut reply) {
                Route::New(incoming) => {
                    let mut sender = Connection::incoming(now, *incoming, SocketId(2), &seed);
                    sender.accept(now, Arc::new(Config { receives: false, ..Config::clone(&config) }));
                    sender.poll_transmit(now, &mut there);
                    viewer.handle_datagram(now, there.get(0));
                    assert!(viewer.is_connected(), "no connection");
                    there.clear();
                    return Self { now, sender, viewer, there, back };
                }
                Route::Session(()) | Route::Reply | Route::Drop(_) => viewer.handle_datagram(now, &reply),
            }
        }
    }

    fn send(&mut self, payload: &Bytes) {
        for _ in 0..PACKETS {
            self.sender.send(self.now, payload.clone()).expect("room");
        }
        while black_box(self.sender.poll_event()).is_some() {}
        self.there.clear();
        self.sender.poll_transmit(self.now, &mut self.there);
        black_box(self.sender.poll_timeout());
    }

    fn receive(&mut self) {
        for datagram in (0..self.there.len()).map(|n| self.there.get(n)) {
            self.viewer.handle_datagram(self.now, datagram);
        }
        while let Some(event) = self.viewer.poll_event() {
            assert!(!matches!(event, Event::Closed(_)), "it has ended");
            black_box(event);
        }
        black_box(self.viewer.poll_timeout());
    }

    /// Passes the sender the datagrams that the viewer has sent since the last turn.
    fn acknowledge(&mut self) {
        self.back.clear();
        while self.sender.has_transmit(self.now) && self.sender.poll_transmit(self.now, &mut self.there) {}
    }
}

fn run(step: &str, manner: &str) {
    let mut line = Line::new(manner);
    let payload = Bytes::from(vec![0x47; PAYLOAD_BYTES]);
    for turn in 0..WARM_UP + TURNS {
        let counts = |of: &str| turn >= WARM_UP && step == of;
        let measure = |is_counted: bool, line: &mut Line, work: &mut dyn FnMut(&mut Line)| {
            if is_counted { counted(&mut || work(line)) } else { work(line) }
        };
        measure(counts("send"), &mut line, &mut |line| line.send(&payload));
        measure(counts("receive"), &mut line, &mut Line::receive);
        for _ in 0..2 {
            line.now += TURN / 2;
            line.viewer.handle_timeout(line.now);
            while line.viewer.poll_event().is_some() {}
            line.back.clear();
            line.viewer.poll_transmit(line.now, &mut line.back);
            measure(counts("acknowledge"), &mut line, &mut |line| {
                for datagram in (0..line.back.len()).map(|n| line.back.get(n)) {
                    line.sender.handle_datagram(line.now, datagram);
                }
                while black_box(line.sender.poll_event()).is_some() {}
                black_box(line.sender.has_transmit(line.now));
                black_box(line.sender.poll_timeout());
            });
            line.there.clear();
            line.acknowledge();
            for datagram in (0..line.there.len()).map(|n| line.there.get(n)) {
                line.viewer.handle_datagram(line.now, datagram);
            }
            line.sender.handle_timeout(line.now);
        }
    }
    assert_eq!(line.sender.stats().pkt_snd_drop + line.sender.stats().pkt_retrans, 0, "something was lost");
}
