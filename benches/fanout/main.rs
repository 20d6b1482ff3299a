//! Fan-out to viewers: this server beside nginx-rtmp and a bare sending loop, interleaved in one run.
//!
//! 1. The process restarts itself through `taskset`, pinned to core 1, and raises its limit of open files.
//! 2. For each round and server: the server starts as a process on core 0, publishers connect and send, viewers
//!    connect, and two seconds later the measured window begins.
//! 3. CPU time, resident memory and writes are read from `/proc`, bytes, losses and latencies at the viewers.
//! 4. A table and the ratios of the rounds follow; `docs/benchmarks.md` explains how to read them.
//!
//! Latency counts from the moment before the publisher's write to the moment after the read that brought the last
//! byte of the unit to the viewer. Both are in one process, so there is one clock.

#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "a program: figures for people, and nothing that others link"
)]

mod floor;
mod floor_rtc;
mod floor_srt;
mod load;
mod options;
mod peers;
mod records;
mod report;
mod rest;
mod servers;

use std::os::unix::process::CommandExt;
use std::process::{Command as Process, ExitCode};
use std::time::{Duration, Instant};

use load::Load;
use millstream::io::load::process;
use options::{Class, Command, Kind, Options};
use report::{Measured, Resident, Rest};
use servers::Server;

/// Set in the process that is pinned to a processor.
const PINNED: &str = "MILLSTREAM_FANOUT_PINNED";
/// Time from the viewers' start to the measured window.
const WARM_UP: Duration = Duration::from_secs(2);
/// Interval between two samples of resident memory.
const SAMPLE: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let outcome = match options::parse() {
        Ok(Command::Help) => {
            print!("{}", options::USAGE);
            Ok(())
        }
        Ok(Command::BareLoop(_, Class::Srt | Class::SrtAes)) => {
            floor_srt::run().map_err(|error| error.to_string())
        }
        Ok(Command::BareLoop(kind, Class::Whep)) => {
            floor_rtc::run(kind == Kind::FloorMessage).map_err(|error| error.to_string())
        }
        Ok(Command::BareLoop(kind, class)) => {
            floor::run(kind == Kind::FloorMessage, class).map_err(|error| error.to_string())
        }
        // `cargo test` also runs benches, but without this argument.
        Ok(Command::Run(_)) if !std::env::args().any(|argument| argument == "--bench") => {
            println!("nothing measured: run it with `cargo bench --bench fanout`");
            Ok(())
        }
        Ok(Command::Run(options)) if std::env::var_os(PINNED).is_none() => Err(restart_pinned(&options)),
        Ok(Command::Run(options)) => run(&options),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fanout: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Replaces this process by the same program on core 1, with the limit of open files raised to its maximum.
/// Returns only if that fails.
fn restart_pinned(options: &Options) -> String {
    let Ok(program) = std::env::current_exe() else { return "where is this program?".to_owned() };
    let pin = if options.pinned() { "exec taskset -c 1 \"$0\" \"$@\"" } else { "exec \"$0\" \"$@\"" };
    let mut command = Process::new("sh");
    command.arg("-c").arg(format!("ulimit -Sn \"$(ulimit -Hn)\"; {pin}"));
    command.arg(program).args(std::env::args_os().skip(1)).env(PINNED, "1");
    format!("sh or taskset: {}", command.exec())
}

fn run(options: &Options) -> Result<(), String> {
    let mut all = Vec::new();
    for round in 0..options.rounds {
        // The order of the servers rotates from round to round, so that no server gains from the one that runs
        // before it.
        let (behind, ahead) = options.servers.split_at(round % options.servers.len().max(1));
        for &kind in ahead.iter().chain(behind) {
            let measured =
                measure(kind, round, options).map_err(|error| format!("{}: {error}", kind.name()))?;
            eprintln!(
                "round {round}, {}: {:.3} CPU-s/GB, {} lost, {} gone",
                kind.name(),
                measured.cost(),
                measured.lost,
                measured.gone
            );
            all.push(measured);
        }
    }
    let table = report::table(options, &all);
    if options.json {
        eprint!("\n{table}");
        println!("{:#}", report::json(options, &all));
    } else {
        print!("\n{table}");
    }
    Ok(())
}

fn measure(kind: Kind, round: usize, options: &Options) -> Result<Measured, String> {
    let server = Server::start(kind, options).map_err(|error| error.to_string())?;
    let pid = server.pid();
    let clip = load::clip(options.bits_per_second, options.slices)?;
    let gop = Duration::from_millis(clip.gop_ms());
    let mut load = Load::new(server.addresses, options.class, options.spins())?;
    load.publish(options.streams, &clip)?;
    // The server's cache grows during the first GOP, so memory is measured in the second one.
    load.run_for(gop)?;
    let before = run_and_watch(&mut load, pid, gop)?;
    load.play(options.players, options.streams, false)?;
    load.play(options.stalled, options.streams, true)?;
    load.run_for(WARM_UP)?;

    let playing = process::resident(pid);
    load.clear();
    let (start, own) = (process::usage(pid), process::cpu_of(pid, answers_api));
    let largest = run_and_watch(&mut load, pid, options.window)?.max(playing);
    let end = process::usage(pid);
    let streaming = process::cpu_of(pid, answers_api).saturating_sub(own);
    let (played, published) = (load.played(), load.published());
    let resident = Resident { before, playing, largest, end: process::resident(pid) };
    let rest = match kind {
        Kind::Millstream(_) | Kind::Other if options.rest_rate => {
            Some(ask(&mut load, pid, options.window, streaming)?)
        }
        Kind::Millstream(_) | Kind::Other | Kind::Peer(_) | Kind::Floor | Kind::FloorMessage => None,
    };
    load.stop()?;
    let (lost, gone) = load.lost();
    Ok(Measured {
        kind,
        round,
        played,
        behind: published.behind,
        rest,
        cpu: end.cpu.saturating_sub(start.cpu),
        writes: end.writes.saturating_sub(start.writes),
        resident,
        lost,
        gone,
    })
}

/// True for the threads whose CPU time the goal for the API limits.
fn answers_api(thread: &str) -> bool {
    thread.starts_with("worker-") || thread == "control"
}

/// Measures a window with API requests. `streaming` is the CPU time of workers and control in a window without
/// requests.
fn ask(load: &mut Load, pid: u32, window: Duration, streaming: Duration) -> Result<Rest, String> {
    let before = process::cpu_of(pid, answers_api);
    let answers = load.ask(window)?;
    let cpu = process::cpu_of(pid, answers_api).saturating_sub(before);
    Ok(Rest { answers, cpu, beyond: cpu.saturating_sub(streaming) })
}

/// Runs the load for this time. Returns the largest resident memory that was sampled.
fn run_and_watch(load: &mut Load, pid: u32, time: Duration) -> Result<u64, String> {
    let until = Instant::now() + time;
    let mut largest = 0;
    while let left = until.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        load.run_for(left.min(SAMPLE))?;
        largest = largest.max(process::resident(pid));
    }
    Ok(largest)
}
