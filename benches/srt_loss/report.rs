//! Prints the results.

use std::time::Duration;

use crate::options::{Cell, Options, Pair};
use crate::run::{Outcome, Run};

/// A run and its outcome.
#[derive(Debug)]
pub struct Measured {
    pub run: Run,
    pub outcome: Result<Outcome, String>,
}

/// Undelivered packets of one cell and pair.
#[derive(Debug, Clone, Copy)]
struct Losses {
    runs: f64,
    mean: f64,
    variance: f64,
}

impl Losses {
    fn of(undelivered: &[f64]) -> Self {
        let runs = undelivered.len() as f64;
        let mean = undelivered.iter().sum::<f64>() / runs.max(1.0);
        let squares: f64 = undelivered.iter().map(|lost| (lost - mean).powi(2)).sum();
        // A few runs may agree by chance, so the variance is at least the mean, as for rare events (Poisson).
        Self { runs, mean, variance: (squares / (runs - 1.0).max(1.0)).max(mean) }
    }

    /// Returns true if the mean exceeds that of `reference` by at most two standard deviations of their
    /// difference; and the bound that follows.
    fn within_two_sigma(self, reference: Self) -> (bool, f64) {
        let sigma =
            (self.variance / self.runs.max(1.0) + reference.variance / reference.runs.max(1.0)).sqrt();
        let bound = reference.mean + 2.0 * sigma;
        (self.mean <= bound, bound)
    }
}

/// Prints a run's progress as a line on standard error.
pub fn progress(done: usize, total: usize, run: Run, outcome: &Result<Outcome, String>) {
    let name = format!("{} {} seed {}", run.cell.name(), run.pair.name(), run.seed);
    match outcome {
        Ok(outcome) => eprintln!(
            "{done}/{total} {name}: {} of {} undelivered{}",
            outcome.undelivered,
            outcome.fed,
            if outcome.broken { ", broken" } else { "" }
        ),
        Err(error) => eprintln!("{done}/{total} {name}: {error}"),
    }
}

/// Prints the table of all runs.
pub fn print(options: &Options, all: &[Measured]) {
    println!(
        "| network | latency | sender-receiver | undelivered, by seed | mean | share | at most (libsrt + 2 sigma) | \
         duplicates / out of order / damaged | sent again | session |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for cell in &options.cells {
        let reference = losses(&outcomes(all, *cell, Pair::REFERENCE));
        for pair in &options.pairs {
            row(*cell, *pair, &outcomes(all, *cell, *pair), reference);
        }
    }
    let outcomes = || all.iter().filter_map(|measured| measured.outcome.as_ref().ok());
    let worst = |of: fn(&Outcome) -> Duration| outcomes().map(of).max().unwrap_or_default();
    println!(
        "\nThe relay sent 99.9 % of its datagrams at most {:?} late, packets came at most {:?} late to a sender (worst runs).",
        worst(|outcome| outcome.relay_late),
        worst(|outcome| outcome.feed_late)
    );
}

fn outcomes(all: &[Measured], cell: Cell, pair: Pair) -> Vec<Outcome> {
    let mut of_pair: Vec<_> = all.iter().filter(|m| m.run.cell == cell && m.run.pair == pair).collect();
    of_pair.sort_by_key(|measured| measured.run.seed);
    of_pair.into_iter().filter_map(|measured| measured.outcome.as_ref().ok().copied()).collect()
}

fn losses(outcomes: &[Outcome]) -> Option<Losses> {
    let undelivered: Vec<f64> = outcomes.iter().map(|outcome| outcome.undelivered as f64).collect();
    (!undelivered.is_empty()).then(|| Losses::of(&undelivered))
}

fn row(cell: Cell, pair: Pair, outcomes: &[Outcome], reference: Option<Losses>) {
    let latency = format!("{} ms ({}x RTT)", cell.latency().as_millis(), cell.latency_rtts);
    let Some(own) = losses(outcomes) else {
        println!("| {} | {latency} | {} | no run | | | | | | |", cell.name(), pair.name());
        return;
    };
    let list: Vec<String> = outcomes.iter().map(|outcome| outcome.undelivered.to_string()).collect();
    let bound = match reference {
        Some(reference) if pair != Pair::REFERENCE && cell.blackout.is_zero() => {
            let (within, bound) = own.within_two_sigma(reference);
            format!("{bound:.1}: {}", if within { "yes" } else { "**no**" })
        }
        _ => String::new(),
    };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let fed = sum(|outcome| outcome.fed).max(1) as f64;
    let share = sum(|outcome| outcome.undelivered) as f64 / fed * 100.0;
    let overhead = outcomes.iter().map(|outcome| outcome.overhead).sum::<f64>() / own.runs * 100.0;
    println!(
        "| {} | {latency} | {} | {} | {:.1} | {share:.3} % | {bound} | {} / {} / {} | {overhead:.1} % | {} |",
        cell.name(),
        pair.name(),
        list.join(", "),
        own.mean,
        sum(|outcome| outcome.duplicates),
        sum(|outcome| outcome.out_of_order),
        sum(|outcome| outcome.damaged),
        if outcomes.iter().any(|outcome| outcome.broken) { "broken" } else { "kept" }
    );
}
