//! SRT over a network that loses packets: this implementation and libsrt in all four pairs of sender and receiver,
//! with the same seeds.
//!
//! 1. Each run starts a receiver (listener), a relay before it that simulates the network from the run's seed, and
//!    a sender (caller).
//! 2. The sender is fed numbered packets at an even pace, and the receiver's output is compared with them.
//! 3. Several runs are in progress at the same time. A table follows; `docs/benchmarks.md` explains it.

#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "a program: figures for people, and nothing that others link"
)]

mod options;
mod packets;
#[path = "../../tests/suite/support/relay.rs"]
#[allow(
    dead_code,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    missing_debug_implementations,
    reason = "shared with the tests, which use all of it and stop at the unexpected"
)]
mod relay;
mod report;
mod run;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Mutex;

use options::{Command, Options};
use report::Measured;
use run::Run;

fn main() -> ExitCode {
    let outcome = match options::parse() {
        Ok(Command::Help) => {
            print!("{}", options::USAGE);
            Ok(())
        }
        // `cargo test` also runs benches, but without this argument.
        Ok(Command::Run(_)) if !std::env::args().any(|argument| argument == "--bench") => {
            println!("nothing measured: run it with `cargo bench --bench srt_loss`");
            Ok(())
        }
        Ok(Command::Run(options)) => measure(&options),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("srt_loss: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    // All pairs of one cell and seed run next to each other, so that the machine is in the same state for them.
    let mut runs = VecDeque::new();
    for cell in &options.cells {
        for seed in 1..=cell.seeds(options.seeds) {
            runs.extend(options.pairs.iter().map(|pair| Run { cell: *cell, pair: *pair, seed }));
        }
    }
    let total = runs.len();
    let (runs, done) = (Mutex::new(runs), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.parallel {
            scope.spawn(|| {
                while let Some(run) = runs.lock().ok().and_then(|mut runs| runs.pop_front()) {
                    let outcome = run.measure(options);
                    if let Ok(mut done) = done.lock() {
                        report::progress(done.len() + 1, total, run, &outcome);
                        done.push(Measured { run, outcome });
                    }
                }
            });
        }
    });
    let done = done.into_inner().map_err(|error| error.to_string())?;
    report::print(options, &done);
    match done.iter().filter(|measured| measured.outcome.is_err()).count() {
        0 => Ok(()),
        failed => Err(format!("{failed} of {total} runs failed")),
    }
}
